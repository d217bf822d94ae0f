//! The common interface of the codes.

use std::ops::Range;

use umbel_wire::Scheme;

use crate::{FecError, Points, ReedSolomon, SymbolSet, no_code, raptorq};

/// An erasure code that makes repair symbols of source blocks and restores blocks.
///
/// A block of k source symbols is one buffer of `k * symbol_len` bytes, where the last symbol of an
/// object is padded with zeros. Its encoding symbols have the IDs 0..k (the source symbols
/// themselves) and from k on (repair symbols). The value is small and `Copy`, and many threads can
/// use it at once.
///
/// ```
/// use umbel_fec::{Code, SymbolSet};
/// use umbel_wire::Scheme;
///
/// let code = Code::new(Scheme::ReedSolomon);
/// let source = *b"four symbols of four bytes each!";
/// let mut repair = [0; 16];
/// code.encode(4, 8, &source, 4..6, &mut repair)?;
///
/// // Symbols 1 and 2 are lost.
/// let mut block = source;
/// block[8..24].fill(0);
/// let mut present = SymbolSet::full(4);
/// present.remove(1);
/// present.remove(2);
/// let repairs = [(4, &repair[..8]), (5, &repair[8..])];
/// let restored = code.restore(4, 8, &mut block, &present, &repairs)?;
/// assert_eq!(restored.symbols, 2);
/// assert_eq!(block, source);
/// # Ok::<(), umbel_fec::FecError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Code(Inner);

#[derive(Clone, Copy, Debug)]
enum Inner {
    NoCode,
    ReedSolomon(ReedSolomon),
    RaptorQ,
}

/// Result of a successful restoration. The block is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Number of source symbols that were computed; 0 if none was missing.
    pub symbols: u32,
}

impl Code {
    /// Creates the code of the scheme. Reed–Solomon uses the points of [`Points::default`].
    pub fn new(scheme: Scheme) -> Code {
        Code::with_points(scheme, Points::default())
    }

    /// Creates the code of the scheme. Reed–Solomon uses these points.
    pub fn with_points(scheme: Scheme, points: Points) -> Code {
        Code(match scheme {
            Scheme::NoCode => Inner::NoCode,
            Scheme::ReedSolomon => Inner::ReedSolomon(ReedSolomon::new(points)),
            Scheme::RaptorQ => Inner::RaptorQ,
        })
    }

    /// Returns the scheme of the code.
    pub fn scheme(&self) -> Scheme {
        match self.0 {
            Inner::NoCode => Scheme::NoCode,
            Inner::ReedSolomon(_) => Scheme::ReedSolomon,
            Inner::RaptorQ => Scheme::RaptorQ,
        }
    }

    /// Writes the encoding symbols `esis` of a block to `out`, one after the other. `out` must have
    /// exactly the right length. Source symbols may be among them; they are copied.
    ///
    /// Any range may be requested at any time; the result does not depend on earlier calls. A few
    /// long ranges cost less than many short ones. Reed–Solomon takes `esis.len() * k` symbol
    /// multiplications. RaptorQ prepares the whole block in each call, then takes about the same
    /// time for each symbol, independent of k.
    ///
    /// # Errors
    ///
    /// Returns an error if k is not in the scheme's range, or if a buffer has the wrong length.
    /// Returns an error if the scheme has no encoding symbol with one of the IDs. IDs end at k
    /// without a code, at 255 in Reed–Solomon, at 2^24 in RaptorQ.
    pub fn encode(
        &self,
        k: u32,
        symbol_len: usize,
        source: &[u8],
        esis: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), FecError> {
        match &self.0 {
            Inner::NoCode => no_code::encode(k, symbol_len, source, &esis, out),
            Inner::ReedSolomon(code) => code.encode(k, symbol_len, source, esis, out),
            Inner::RaptorQ => raptorq::encode(k, symbol_len, source, &esis, out),
        }
    }

    /// Computes the source symbols that are not `present`, each in its place in `block`.
    ///
    /// The previous bytes in the places of the missing symbols do not matter. If no symbol is
    /// missing, the arguments are only checked. Repair symbols (ID, bytes) may come in any order; a
    /// duplicate counts once.
    ///
    /// # Errors
    ///
    /// Returns [`FecError::NotEnough`] if the block cannot be restored from these symbols. This
    /// happens with fewer than k different symbols and, in RaptorQ, in about one of 200 cases with
    /// exactly k. Returns other errors if k, an ID or a length is not in its range; all repair
    /// symbols are checked. `block` is unchanged after any error.
    pub fn restore(
        &self,
        k: u32,
        symbol_len: usize,
        block: &mut [u8],
        present: &SymbolSet,
        repairs: &[(u32, &[u8])],
    ) -> Result<Restored, FecError> {
        let symbols = match &self.0 {
            Inner::NoCode => no_code::restore(k, symbol_len, block, present, repairs),
            Inner::ReedSolomon(code) => code.restore(k, symbol_len, block, present, repairs),
            Inner::RaptorQ => raptorq::restore(k, symbol_len, block, present, repairs),
        }?;
        Ok(Restored { symbols })
    }
}
