//! How engines get at the bytes of objects without knowing where they are kept.

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

/// An encoding symbol as a [`SymbolSource`] gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Here it is. The last source symbol of an object may be shorter than the others.
    Ready(Bytes),
    /// It is being made; the host polls again when it is ready.
    Pending,
    /// The object cannot be read any more: it vanished, or changed under its old name.
    Gone(String),
}

/// Gives encoding symbols to a source.
pub trait SymbolSource {
    /// Says that these encoding symbols of the block will be asked for soon, in the order of the
    /// calls: a good time to read and to encode, on other threads.
    fn prefetch(&mut self, block: BlockId, esis: Range<u32>);

    /// An encoding symbol. A source may ask for a symbol that it never prefetched.
    fn symbol(&mut self, block: BlockId, esi: u32) -> Load;

    /// Says that no symbol of the block will be asked for until it is prefetched again.
    fn release(&mut self, block: BlockId);
}

/// Takes the encoding symbols that a receiver got.
pub trait SymbolSink {
    /// Keeps a symbol that was not held before. Gives `false` if there is no room for it now:
    /// the receiver then counts it as lost.
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool;

    /// Says that enough symbols of the block are held to restore it.
    fn restore(&mut self, block: BlockId);

    /// Says that the block may have to wait: a good time to write what is held of it to the disk
    /// and free its memory.
    fn rest(&mut self, block: BlockId);

    /// Returns how many source symbols a block has, if the sink knows.
    fn source_symbols(&self, _block: BlockId) -> Option<u8> {
        None
    }

    /// Returns whether a symbol of a block of `k` source symbols can be its source's, as far as the
    /// sink can tell without the others.
    fn is_genuine(&self, _block: BlockId, _k: u8, _esi: u32, _symbol: &[u8]) -> bool {
        true
    }

    /// Drops what is held of a block that was not restored: the block has another length. Nobody
    /// asks that of a sink that knows all lengths.
    fn forget(&mut self, _block: BlockId) {}
}
