//! FEC Object Transmission Information: what a receiver must know to put an object together.

/// A forward error correction scheme, by its FEC Encoding ID.
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
    /// The FEC Encoding ID; also the LCT codepoint of packets in this scheme.
    pub const fn encoding_id(self) -> u8 {
        match self {
            Scheme::NoCode => 0,
            Scheme::ReedSolomon => 5,
            Scheme::RaptorQ => 6,
        }
    }

    /// The scheme with this FEC Encoding ID, if Umbel speaks it.
    pub const fn from_encoding_id(id: u8) -> Option<Scheme> {
        match id {
            0 => Some(Scheme::NoCode),
            5 => Some(Scheme::ReedSolomon),
            6 => Some(Scheme::RaptorQ),
            _ => None,
        }
    }
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
    /// Most source symbols in a source block (B of [RFC 5052 §9.1]); at least 1, at most 255 for
    /// Reed–Solomon, 65,535 for no code, 56,403 for RaptorQ.
    pub max_block_symbols: u16,
    /// Most encoding symbols (source and repair) made of one block; for Reed–Solomon at most 255.
    /// Ignored by the other schemes.
    pub max_encoding_symbols: u16,
}
