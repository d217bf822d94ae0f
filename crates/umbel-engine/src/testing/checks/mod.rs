//! Engines behind whatever a network says. The fuzz targets run these, and `corpora.rs` runs them on
//! the corpora of the fuzz targets.
//!
//! An input is a list of steps. A step is a byte that selects the sender and how much time passes,
//! the length of a datagram in two bytes, and the datagram. An engine must never panic, never ask
//! for a time again and again that has passed, and never answer without end.

#![allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "shared by test binaries"
)]

mod lms;
mod network;
mod repository;
mod rlm;
mod smo;
mod tmtp;

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use umbel_engine::Address;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::units::Rate;
use umbel_wire::Channel;

pub use self::lms::lms_router;
use self::network::MOST;
pub use self::repository::{
    repository_client, repository_sealed, repository_server, symbols_of_sealed_repository,
};
pub use self::rlm::{rlm_receiver, rlm_source};
pub use self::smo::{smo_delivery, smo_source};
pub use self::tmtp::{symbols_of_closed_feed, symbols_of_keyed_feed};
pub use self::tmtp::{tmtp_closed, tmtp_keyed, tmtp_receiver, tmtp_source};

/// Bytes of a symbol.
const SYMBOL: u16 = 8;

fn rate() -> Rate {
    Rate::from_bits_per_s(1_000_000).unwrap()
}

fn data_channel() -> Channel {
    Channel { source: Some([192, 0, 2, 1].into()), group: [232, 1, 2, 3].into(), port: 7702 }
}

/// Returns the group in which [`strangers`] talk.
fn group() -> Channel {
    Channel { source: None, group: [239, 1, 2, 3].into(), port: 7703 }
}

/// Returns the data channel, the source's address, the domain's group and another node.
fn strangers() -> [Address; 4] {
    let domain = |last| Channel {
        source: Some([192, 0, 2, last].into()),
        group: [239, 1, 2, 3].into(),
        port: 7703,
    };
    [
        Address::Channel(data_channel()),
        Address::Host(([192, 0, 2, 1], 7703).into()),
        Address::Channel(domain(3)),
        Address::Host(([192, 0, 2, 3], 7703).into()),
    ]
}

/// Symbols of zeros.
struct Zeros;

impl SymbolSource for Zeros {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, _block: BlockId, _esi: u32) -> Load {
        Load::Ready(Bytes::from_static(&[0; SYMBOL as usize]))
    }

    fn release(&mut self, _block: BlockId) {}
}

/// Remembers which symbols it took, as far as it has room.
#[derive(Default)]
struct Nowhere(BTreeSet<(BlockId, u32)>);

impl SymbolSink for Nowhere {
    fn store(&mut self, block: BlockId, esi: u32, _symbol: &[u8]) -> bool {
        self.0.len() < MOST && self.0.insert((block, esi))
    }

    fn restore(&mut self, _block: BlockId) {}

    fn rest(&mut self, _block: BlockId) {}
}
