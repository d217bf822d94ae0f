//! FEC Object Transmission Information: the parameters that a receiver needs to restore an object.

/// A forward error correction scheme, identified by its FEC Encoding ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Compact No-Code, FEC Encoding ID 0 [RFC 5445 §3].
    NoCode,
    /// Reed–Solomon over GF(2^8), FEC Encoding ID 5 [RFC 5510 §5].
    ReedSolomon,
    /// RaptorQ, FEC Encoding ID 6 [RFC 6330 §3].
    RaptorQ,
}

impl Scheme {
    /// Returns the FEC Encoding ID, which is also the LCT codepoint of packets in this scheme.
    pub const fn encoding_id(self) -> u8 {
        match self {
            Scheme::NoCode => 0,
            Scheme::ReedSolomon => 5,
            Scheme::RaptorQ => 6,
        }
    }

    /// Returns the scheme with this FEC Encoding ID, if Umbel supports it.
    pub const fn from_encoding_id(id: u8) -> Option<Scheme> {
        match id {
            0 => Some(Scheme::NoCode),
            5 => Some(Scheme::ReedSolomon),
            6 => Some(Scheme::RaptorQ),
            _ => None,
        }
    }

    /// Returns the greatest source block number that a packet can carry: the FEC Payload ID has 16,
    /// 24 or 8 bits for it.
    pub const fn max_sbn(self) -> u32 {
        match self {
            Scheme::NoCode => 0xFFFF,
            Scheme::ReedSolomon => 0xFF_FFFF,
            Scheme::RaptorQ => 0xFF,
        }
    }

    /// Returns the greatest encoding symbol ID that a packet can carry. That is the field's range,
    /// but 254 for Reed–Solomon, which has at most 255 encoding symbols a block [RFC 5510 §5.2].
    pub const fn max_esi(self) -> u32 {
        match self {
            Scheme::NoCode => 0xFFFF,
            Scheme::ReedSolomon => 254,
            Scheme::RaptorQ => 0xFF_FFFF,
        }
    }

    /// Returns the greatest legal [`Oti::max_block_symbols`].
    pub const fn max_block_symbols(self) -> u16 {
        match self {
            Scheme::NoCode => u16::MAX,
            Scheme::ReedSolomon => 255,
            Scheme::RaptorQ => 56_403,
        }
    }

    /// Returns the maximum number of source blocks of an object. RaptorQ's is 255, since the OTI
    /// has 8 bits for this number [RFC 6330 §3.3.3].
    pub const fn max_blocks(self) -> u32 {
        match self {
            Scheme::NoCode => 1 << 16,
            Scheme::ReedSolomon => 1 << 24,
            Scheme::RaptorQ => 255,
        }
    }

    /// Returns the size in bytes of the greatest object that the OTI can describe. The field has 48
    /// bits; RaptorQ has 255 blocks of the most and longest symbols
    /// [RFC 6330 §4.4.1.2, erratum 5548].
    pub const fn max_object_len(self) -> u64 {
        match self {
            Scheme::NoCode | Scheme::ReedSolomon => (1 << 48) - 1,
            Scheme::RaptorQ => 942_574_504_275,
        }
    }
}

/// Error for an [`Oti`] that describes no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtiError {
    /// Symbols of no bytes.
    #[error("symbols of 0 bytes")]
    EmptySymbol,
    /// Source blocks of no symbols, or of more than the scheme can have.
    #[error("source blocks of up to {blocks} symbols; {scheme:?} has 1 to {limit}")]
    BlockSymbols {
        /// The scheme.
        scheme: Scheme,
        /// Symbols of a block according to the OTI.
        blocks: u32,
        /// The scheme's maximum.
        limit: u16,
    },
    /// Reed–Solomon with fewer encoding symbols than source symbols, or more than 255.
    #[error(
        "up to {encoding} encoding symbols for {source_symbols} source symbols; 255 is the most"
    )]
    EncodingSymbols {
        /// Maximum number of encoding symbols of a block.
        encoding: u16,
        /// Maximum number of source symbols of a block.
        source_symbols: u16,
    },
    /// An object larger than the scheme's OTI can express.
    #[error("an object of {len} bytes; {scheme:?} carries at most {limit}")]
    ObjectLen {
        /// The scheme.
        scheme: Scheme,
        /// Size of the object according to the OTI.
        len: u64,
        /// The scheme's maximum.
        limit: u64,
    },
    /// More source blocks than the scheme can number.
    #[error("{blocks} source blocks; {scheme:?} numbers at most {limit}")]
    Blocks {
        /// The scheme.
        scheme: Scheme,
        /// Source blocks that the object would have.
        blocks: u64,
        /// Maximum number of blocks that the scheme can number.
        limit: u32,
    },
}

/// FEC Object Transmission Information [RFC 5052 §6.2].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Oti {
    /// The code.
    pub scheme: Scheme,
    /// Size of the object in bytes.
    pub object_len: u64,
    /// Size of an encoding symbol in bytes; at least 1.
    pub symbol_len: u16,
    /// Maximum number of source symbols in a source block (B of [RFC 5052 §9.1]). It is at least 1,
    /// and at most 255 for Reed–Solomon, 65,535 for no code, 56,403 for RaptorQ.
    pub max_block_symbols: u16,
    /// Maximum number of encoding symbols (source and repair) made of one block; for Reed–Solomon
    /// at most 255. Ignored by the other schemes.
    pub max_encoding_symbols: u16,
}

impl Oti {
    /// Checks each field against the limits of the scheme, and that the source blocks can be
    /// numbered. Every OTI that the parsers return has passed this check.
    ///
    /// # Errors
    ///
    /// Returns an error for the first field that is out of range.
    pub fn check(&self) -> Result<(), OtiError> {
        let scheme = self.scheme;
        if self.symbol_len == 0 {
            return Err(OtiError::EmptySymbol);
        }
        let limit = scheme.max_block_symbols();
        if self.max_block_symbols == 0 || self.max_block_symbols > limit {
            let blocks = u32::from(self.max_block_symbols);
            return Err(OtiError::BlockSymbols { scheme, blocks, limit });
        }
        if scheme == Scheme::ReedSolomon
            && !(self.max_block_symbols..=255).contains(&self.max_encoding_symbols)
        {
            return Err(OtiError::EncodingSymbols {
                encoding: self.max_encoding_symbols,
                source_symbols: self.max_block_symbols,
            });
        }
        let limit = scheme.max_object_len();
        if self.object_len > limit {
            return Err(OtiError::ObjectLen { scheme, len: self.object_len, limit });
        }
        let limit = scheme.max_blocks();
        let blocks = self.blocks();
        if blocks > u64::from(limit) {
            return Err(OtiError::Blocks { scheme, blocks, limit });
        }
        Ok(())
    }

    /// Returns the number of source symbols of the object, the last of which may be shorter; 0 for
    /// an empty object.
    fn source_symbols(&self) -> u64 {
        self.object_len.div_ceil(u64::from(self.symbol_len.max(1)))
    }

    /// Returns the number of source blocks of the object [RFC 5052 §9.1]; 0 for an empty one.
    fn blocks(&self) -> u64 {
        self.source_symbols().div_ceil(u64::from(self.max_block_symbols.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RS: Oti = Oti {
        scheme: Scheme::ReedSolomon,
        object_len: 1_000_000,
        symbol_len: 1376,
        max_block_symbols: 128,
        max_encoding_symbols: 255,
    };

    #[test]
    fn an_oti_within_the_limits_passes() {
        RS.check().unwrap();
        Oti { object_len: 0, ..RS }.check().unwrap();
        Oti { max_block_symbols: 255, ..RS }.check().unwrap();
    }

    #[test]
    fn each_limit_is_checked() {
        let raptorq = Oti { scheme: Scheme::RaptorQ, max_block_symbols: 56_403, ..RS };
        raptorq.check().unwrap();
        for oti in [
            Oti { symbol_len: 0, ..RS },
            Oti { max_block_symbols: 0, ..RS },
            Oti { max_block_symbols: 256, max_encoding_symbols: 256, ..RS },
            Oti { max_encoding_symbols: 127, ..RS },
            Oti { max_encoding_symbols: 256, ..RS },
            Oti { object_len: 1 << 48, ..RS },
            Oti { object_len: u64::MAX, ..RS },
            Oti { object_len: (1 << 24) * 128 * 1376 + 1, ..RS },
            Oti { max_block_symbols: 56_404, ..raptorq },
            Oti { object_len: 942_574_504_276, ..raptorq },
            Oti { symbol_len: 1, max_block_symbols: 1, object_len: 256, ..raptorq },
        ] {
            assert!(oti.check().is_err(), "{oti:?}");
        }
    }
}
