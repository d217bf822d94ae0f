//! The checks of the fuzz targets, on random bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::checks;

proptest! {
    #[test]
    fn any_parameters_split_an_object_or_are_refused(bytes in vec(any::<u8>(), 15..20)) {
        checks::partition(&bytes);
    }

    #[test]
    fn small_parameters_split_an_object(
        which: u8,
        object_len in 0u32..1_000_000,
        symbol_len in 1u16..1_500,
        block in 1u16..256,
        any: u32,
    ) {
        let mut bytes = vec![which, 0, 0, 0, 0];
        bytes.extend(object_len.to_be_bytes());
        bytes.extend([symbol_len, block, 255].into_iter().flat_map(u16::to_be_bytes));
        bytes.extend(any.to_be_bytes());
        checks::partition(&bytes);
    }

    #[test]
    fn any_symbols_restore_a_block_or_leave_it(
        head: [u8; 4],
        choices in vec(any::<u8>(), 0..400),
    ) {
        checks::restore(&[&head[..], &choices].concat());
    }
}
