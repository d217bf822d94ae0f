//! An object that is being sent.

use bytes::Bytes;
use umbel_fec::{FecError, Partition};
use umbel_wire::rlm::ObjectHead;
use umbel_wire::stream::LayerFec;
use umbel_wire::{Digest, Toi};

use super::layer::{Symbol, repair_count};
use crate::rlm::receiver::oti;
use crate::rlm::symbols::repairs;

/// Symbols of a block of an object without forward error correction.
const BLOCK_SYMBOLS: u8 = 200;

/// An object, and how far it has been sent. Its head is block 0, whose copies are spread over the
/// object: the first packet, the last, and evenly between them.
#[derive(Debug)]
pub(super) struct Sending {
    toi: Toi,
    head: Bytes,
    copies: u8,
    body: Bytes,
    partition: Partition,
    symbol_len: usize,
    /// Copies of the head sent.
    heads: u8,
    /// Block, from 0, and symbol that are sent next.
    at: (u32, u32),
    /// Source symbols sent.
    sent: u64,
    repairs: Vec<Bytes>,
}

impl Sending {
    /// Prepares an object. Its name must not be too long.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be split into symbols of this length.
    pub(super) fn new(
        toi: Toi,
        name: String,
        body: Bytes,
        (symbol_len, copies): (u16, u8),
        fec: Option<LayerFec>,
    ) -> Result<Sending, FecError> {
        let head = ObjectHead {
            name,
            len: body.len() as u64,
            digest: Digest(*blake3::hash(&body).as_bytes()),
            symbol_len,
            block_symbols: fec.map_or(BLOCK_SYMBOLS, |fec| fec.source_symbols),
        };
        let partition = Partition::new(&oti(&head))?;
        let mut bytes = Vec::new();
        head.emit(&mut bytes);
        Ok(Sending {
            toi,
            head: bytes.into(),
            copies: copies.max(1),
            body,
            partition,
            symbol_len: symbol_len.into(),
            heads: 0,
            at: (0, 0),
            sent: 0,
            repairs: Vec::new(),
        })
    }

    /// Returns the length of its content in bytes.
    pub(super) fn len(&self) -> usize {
        self.body.len()
    }

    /// Returns the number of source symbols and heads that wait.
    pub(super) fn waiting(&self) -> usize {
        (self.partition.total_source_symbols() - self.sent) as usize
            + usize::from(self.copies - self.heads)
    }

    /// Returns the next symbol, or `None` at the end.
    pub(super) fn next(&mut self, fec: Option<LayerFec>) -> Option<Symbol> {
        let (sbn, esi) = self.at;
        let over = sbn >= self.partition.blocks();
        let total = self.partition.total_source_symbols();
        let spread = u64::from(self.copies - 1).max(1);
        if self.heads < self.copies && (over || u64::from(self.heads) * total <= self.sent * spread)
        {
            let esi = self.heads;
            self.heads += 1;
            return Some(self.symbol(0, 1, esi, self.head.clone()));
        }
        if over {
            return None;
        }
        let symbols = self.partition.block_symbols(sbn);
        let body = if esi < symbols {
            let range = self.partition.symbol_range(sbn, esi);
            self.sent += 1;
            self.body.slice(range.start as usize..range.end as usize)
        } else {
            self.repairs[(esi - symbols) as usize].clone()
        };
        if esi + 1 == symbols {
            self.repairs = fec.map_or_else(Vec::new, |fec| self.repairs_of(sbn, fec));
        }
        self.at = if esi + 1 >= symbols + self.repairs.len() as u32 {
            self.repairs = Vec::new();
            (sbn + 1, 0)
        } else {
            (sbn, esi + 1)
        };
        Some(self.symbol(sbn + 1, symbols as u8, esi as u8, body))
    }

    fn repairs_of(&self, sbn: u32, fec: LayerFec) -> Vec<Bytes> {
        let symbols = self.partition.block_symbols(sbn);
        let range = self.partition.block_range(sbn);
        let mut block = self.body[range.start as usize..range.end as usize].to_vec();
        // Only the last symbol of an object is short; where it is alone, so are its repairs.
        let len = if symbols == 1 { block.len() } else { self.symbol_len };
        block.resize(symbols as usize * len, 0);
        repairs(&block, len, symbols as usize, repair_count(fec, symbols as u8))
    }

    fn symbol(&self, sbn: u32, block_symbols: u8, esi: u8, body: Bytes) -> Symbol {
        let repair = esi >= block_symbols;
        Symbol { toi: self.toi, sbn, block_symbols, esi, body, repair }
    }
}
