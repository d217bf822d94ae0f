//! Unpredictable numbers.

use std::fs::File;
use std::io::Read;

use anyhow::Context;
use umbel_engine::chance::{self, Generator};

/// Returns unpredictable bytes.
///
/// # Errors
///
/// If the system provides none.
pub(crate) fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("no randomness from /dev/urandom")?;
    Ok(bytes)
}

/// Creates an engine's generator, with a seed that no other has.
///
/// # Errors
///
/// As [`random`].
pub(crate) fn generator() -> anyhow::Result<Generator> {
    Ok(chance::generator(u64::from_be_bytes(random()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_draws_are_alike() {
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
