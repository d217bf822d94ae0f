//! The engines' access to the bytes of objects, wherever they are kept.

use std::ops::Range;

use bytes::Bytes;
use umbel_wire::Toi;

/// A source block of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    /// The object.
    pub toi: Toi,
    /// Source block number.
    pub sbn: u32,
}

/// The answer of a [`SymbolSource`] to a request for an encoding symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// The symbol. The last source symbol of an object may be shorter than the others.
    Ready(Bytes),
    /// The symbol is being made. The host polls again when it is ready.
    Pending,
    /// The object can no longer be read. It vanished, or changed under its old name.
    Gone(String),
}

/// Supplies a source with encoding symbols.
pub trait SymbolSource {
    /// Announces that these encoding symbols of the block will be requested soon, in the order of
    /// the calls. The implementation may read and encode them now, on other threads.
    fn prefetch(&mut self, block: BlockId, esis: Range<u32>);

    /// Returns an encoding symbol. A source may request a symbol that it never prefetched.
    fn symbol(&mut self, block: BlockId, esi: u32) -> Load;

    /// Announces that no symbol of the block will be requested until it is prefetched again.
    fn release(&mut self, block: BlockId);
}

/// Stores the encoding symbols that a receiver got.
pub trait SymbolSink {
    /// Stores a symbol that was not held before. Returns `false` if there is no room for it now.
    /// The receiver then counts it as lost.
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool;

    /// Announces that enough symbols of the block are held to restore it.
    fn restore(&mut self, block: BlockId);

    /// Announces that the block may have to wait. The implementation may write its symbols to the
    /// disk now and free its memory.
    fn rest(&mut self, block: BlockId);

    /// Returns the number of source symbols of a block, if the sink knows it.
    fn source_symbols(&self, _block: BlockId) -> Option<u8> {
        None
    }

    /// Returns whether a symbol of a block of `k` source symbols can be its source's. A sink
    /// answers as far as it can tell without the others.
    fn is_genuine(&self, _block: BlockId, _k: u8, _esi: u32, _symbol: &[u8]) -> bool {
        true
    }

    /// Drops the symbols of a block that was not restored: the block has another length, or some of
    /// them are wrong.
    fn forget(&mut self, _block: BlockId) {}

    /// Returns whether another symbol is held under this number, as far as the sink can tell at
    /// once.
    fn differs(&self, _block: BlockId, _esi: u32, _symbol: &[u8]) -> bool {
        false
    }

    /// Drops those symbols of a block that was not restored which are not right, and returns their
    /// numbers. Returns `None`, and drops all of them, if it cannot tell at once.
    fn retain(
        &mut self,
        block: BlockId,
        _is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        self.forget(block);
        None
    }
}
