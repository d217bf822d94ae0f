//! Reed–Solomon over GF(2^8), FEC Encoding ID 5 [RFC 5510].
//!
//! The code is polynomial interpolation. Each encoding symbol ID j has a point x_j of the field.
//! Byte for byte, the k source symbols are the values of a polynomial of degree below k at x_0 …
//! x_{k−1}. Every other symbol is the polynomial's value at another point. The generator matrix
//! (V_{k,k})^−1 · V_{k,n} of [RFC 5510 §8.2.1] computes the same, where V_{k,n} has the powers of
//! the points. Any k symbols therefore determine any other one, by Lagrange's formula:
//!
//! ```text
//!              N(x_t)                               1
//! s_t = Σ   ───────────  w_p  s_p ,   w_p = ────────────────── ,   N(x) = Π (x − x_q)
//!       p    x_t − x_p                       Π   (x_p − x_q)              q
//!                                            q≠p
//! ```
//!
//! with sums and products over the symbols held. For encoding these are the source symbols, and the
//! coefficients are cached for each k. For decoding they are the source symbols received and one
//! repair symbol for each lost symbol. Decoding computes only the lost symbols. Its coefficients
//! come from the cached w_p, multiplied by the factors that differ, so no matrix is inverted. A
//! block that lost e of its symbols costs e·k coefficients and e·k multiplications of a symbol.
//!
//! [`Points`] chooses the points.

use std::ops::Range;
use std::sync::OnceLock;

use umbel_wire::Scheme;

use crate::checks::{check_esis, check_restore, copy_source};
use crate::gf256::{EXP, LOG, alpha_power};
use crate::partition::REED_SOLOMON_MAX_SYMBOLS;
use crate::symbol_set::SymbolSet;
use crate::{FecError, Kernel};

/// The field's points of the encoding symbols of a block. Sender and receiver must use the same
/// points.
///
/// [RFC 5510] contradicts itself here. Its §8.2.1 defines v_{i,j} = α^(i·j), so that symbol j has
/// the point α^j. Its abstract says that the code is that of Luigi Rizzo's implementation, where
/// symbol 0 has the point 0 and symbol j the point α^(j−1). For k > 1 the repair symbols differ.
/// `docs/concepts/codes.md` lists the choice of each implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Points {
    /// 1, α, α², …: the formula of [RFC 5510 §8.2.1].
    Formula,
    /// 0, 1, α, α², …: Rizzo's `fec.c` and every receiver that was found. The default, for
    /// interoperability with those receivers.
    #[default]
    Rizzo,
}

impl Points {
    /// Returns the point of an encoding symbol.
    const fn of(self, esi: u32) -> u8 {
        match (self, esi) {
            (Points::Formula, _) => alpha_power(esi),
            (Points::Rizzo, 0) => 0,
            (Points::Rizzo, _) => alpha_power(esi - 1),
        }
    }
}

/// The Reed–Solomon code, for blocks of 1 to 255 source symbols.
///
/// Encoding symbols have IDs below 255: the source symbols first, then repair symbols. Any k
/// different ones restore a block of k.
#[derive(Clone, Copy, Debug)]
pub struct ReedSolomon {
    kernel: Kernel,
    points: Points,
}

impl Default for ReedSolomon {
    fn default() -> ReedSolomon {
        ReedSolomon::new(Points::default())
    }
}

impl ReedSolomon {
    /// Creates the code with these points and the fastest kernel.
    pub fn new(points: Points) -> ReedSolomon {
        ReedSolomon::with_kernel(points, Kernel::best())
    }

    /// Creates the code with the given kernel, for tests and measurements.
    pub fn with_kernel(points: Points, kernel: Kernel) -> ReedSolomon {
        ReedSolomon { kernel, points }
    }

    /// Writes the encoding symbols `esis` to `out`, one after the other. `source` is the block: k
    /// symbols of `symbol_len` bytes, the last one padded with zeros.
    ///
    /// Any range of IDs below 255 may be requested at any time, including source symbols, which are
    /// copied. Symbols made in one call cost about half as much as symbols made one at a time.
    ///
    /// # Errors
    ///
    /// Returns an error if k, an ID or a length is out of the range given above.
    pub fn encode(
        &self,
        k: u32,
        symbol_len: usize,
        source: &[u8],
        esis: Range<u32>,
        out: &mut [u8],
    ) -> Result<(), FecError> {
        check_k(k)?;
        check_esis(&esis, REED_SOLOMON_MAX_SYMBOLS)?;
        let repair = copy_source(k, symbol_len, source, &esis, out)?;
        let rows = (esis.start.max(k) - k) as usize..;
        let (Some(coefficients), false) =
            (Block::of(self.points, k).rows.get(rows.start * k as usize..), repair.is_empty())
        else {
            return Ok(());
        };
        let sources: Vec<&[u8]> = source.chunks_exact(symbol_len).collect();
        let mut outputs: Vec<&mut [u8]> = repair.chunks_exact_mut(symbol_len).collect();
        let count = outputs.len() * k as usize;
        self.kernel.combine(&coefficients[..count], &sources, &mut outputs);
        Ok(())
    }

    /// Computes the source symbols that are not `present`, in their places in `block`, from the
    /// present ones and from repair symbols. Returns the number of symbols computed.
    ///
    /// Of repair symbols beyond those needed, only ID and length are checked. A duplicate counts
    /// once.
    ///
    /// # Errors
    ///
    /// Returns an error if fewer than k different symbols are held in all, or if k, an ID or a
    /// length is out of range. `block` is then unchanged.
    pub fn restore(
        &self,
        k: u32,
        symbol_len: usize,
        block: &mut [u8],
        present: &SymbolSet,
        repairs: &[(u32, &[u8])],
    ) -> Result<u32, FecError> {
        check_k(k)?;
        check_restore(k, symbol_len, block, present, repairs, REED_SOLOMON_MAX_SYMBOLS)?;
        if present.is_full() {
            return Ok(0);
        }
        let lost: Vec<u32> = present.missing().collect();
        let repairs = different(repairs, lost.len());
        if repairs.len() < lost.len() {
            let held = k - lost.len() as u32 + repairs.len() as u32;
            return Err(FecError::NotEnough { held, wanted: k });
        }
        let esis: Vec<u32> = repairs.iter().map(|&(esi, _)| esi).collect();
        let coefficients = self.decoding_rows(k, &lost, &esis);

        let mut sources = Vec::with_capacity(k as usize);
        let mut outputs = Vec::with_capacity(lost.len());
        for (esi, symbol) in (0..k).zip(block.chunks_exact_mut(symbol_len)) {
            if present.contains(esi) {
                sources.push(&*symbol);
            } else {
                outputs.push(symbol);
            }
        }
        sources.extend(repairs.iter().map(|&(_, symbol)| symbol));
        self.kernel.combine(&coefficients, &sources, &mut outputs);
        Ok(lost.len() as u32)
    }

    /// Returns the coefficients of each lost symbol. A row has those of the source symbols present,
    /// ascending, then those of the repair symbols. There is one repair symbol for each lost
    /// symbol.
    fn decoding_rows(self, k: u32, lost: &[u32], repairs: &[u32]) -> Vec<u8> {
        let block = Block::of(self.points, k);
        let points: Vec<u8> = (0..REED_SOLOMON_MAX_SYMBOLS).map(|j| self.points.of(j)).collect();
        let point = |esi: u32| points[esi as usize];
        let lost_points: Vec<u8> = lost.iter().map(|&esi| point(esi)).collect();
        let repair_points: Vec<u8> = repairs.iter().map(|&esi| point(esi)).collect();

        // The w_p of the symbols held. They derive from the cached products over all source
        // symbols, with the lost symbols divided out and the repair symbols multiplied in.
        let mut held = Vec::with_capacity(k as usize);
        let mut next_lost = lost.iter().copied().peekable();
        for esi in 0..k {
            if next_lost.next_if_eq(&esi).is_none() {
                let x = point(esi);
                let weight = block.weights[esi as usize] as u32
                    + log_of_product(x, &lost_points)
                    + inverse(log_of_product(x, &repair_points));
                held.push((x, weight % 255));
            }
        }
        for &esi in repairs {
            let x = point(esi);
            let weight = log_of_product(x, &lost_points)
                + inverse(block.products[esi as usize] as u32)
                + inverse(log_of_product(x, &repair_points));
            held.push((x, weight % 255));
        }

        let mut coefficients = Vec::with_capacity(lost.len() * k as usize);
        for &esi in lost {
            let x = point(esi);
            // N(x) over the symbols held.
            let product = inverse(block.weights[esi as usize] as u32)
                + inverse(log_of_product(x, &lost_points))
                + log_of_product(x, &repair_points);
            coefficients.extend(held.iter().map(|&(p, weight)| {
                EXP[((product + weight + 255 - log_of_difference(x, p)) % 255) as usize]
            }));
        }
        coefficients
    }
}

/// Cached coefficients of the code with k source symbols.
struct Block {
    /// Logarithm of w_i over the source symbols, for each source symbol i.
    weights: Box<[u8]>,
    /// Logarithm of N(x_j) over the source symbols, for each encoding symbol j; 0 where j < k.
    products: Box<[u8]>,
    /// The k coefficients of each repair symbol k..255, one row after the other.
    rows: Box<[u8]>,
}

impl Block {
    /// Returns the cache for k symbols, computed on first use. At most 17 KB each.
    fn of(points: Points, k: u32) -> &'static Block {
        static FORMULA: [OnceLock<Block>; 256] = [const { OnceLock::new() }; 256];
        static RIZZO: [OnceLock<Block>; 256] = [const { OnceLock::new() }; 256];
        let cache = match points {
            Points::Formula => &FORMULA,
            Points::Rizzo => &RIZZO,
        };
        cache[k as usize].get_or_init(|| Block::new(points, k))
    }

    fn new(points: Points, k: u32) -> Block {
        let points: Vec<u8> = (0..REED_SOLOMON_MAX_SYMBOLS).map(|j| points.of(j)).collect();
        let (source, repair) = points.split_at(k as usize);
        let weights: Box<[u8]> =
            source.iter().map(|&x| (inverse(log_of_product(x, source)) % 255) as u8).collect();
        let products: Box<[u8]> = (0..source.len())
            .map(|_| 0)
            .chain(repair.iter().map(|&x| (log_of_product(x, source) % 255) as u8))
            .collect();
        let rows = repair
            .iter()
            .zip(&products[source.len()..])
            .flat_map(|(&x, &product)| {
                source.iter().zip(&weights).map(move |(&p, &weight)| {
                    let log = product as u32 + weight as u32 + 255 - log_of_difference(x, p);
                    EXP[(log % 255) as usize]
                })
            })
            .collect();
        Block { weights, products, rows }
    }
}

/// Returns the logarithm of `a − b`, where `a` and `b` differ.
fn log_of_difference(a: u8, b: u8) -> u32 {
    LOG[(a ^ b) as usize] as u32
}

/// Returns the logarithm of the product of `x − p` over all `points` except x itself, not reduced:
/// below 255².
fn log_of_product(x: u8, points: &[u8]) -> u32 {
    // `LOG[0]` is 0, so that x adds nothing.
    points.iter().map(|&p| log_of_difference(x, p)).sum()
}

/// Returns the logarithm of the inverse, in 1..=255.
fn inverse(log: u32) -> u32 {
    255 - log % 255
}

/// Returns the first `most` repair symbols with different IDs.
fn different<'a>(repairs: &[(u32, &'a [u8])], most: usize) -> Vec<(u32, &'a [u8])> {
    let mut seen = SymbolSet::new(REED_SOLOMON_MAX_SYMBOLS);
    repairs.iter().copied().filter(|&(esi, _)| seen.insert(esi)).take(most).collect()
}

fn check_k(k: u32) -> Result<(), FecError> {
    if (1..=REED_SOLOMON_MAX_SYMBOLS).contains(&k) {
        return Ok(());
    }
    let max = REED_SOLOMON_MAX_SYMBOLS;
    Err(FecError::BlockSymbols { scheme: Scheme::ReedSolomon, symbols: k, max })
}
