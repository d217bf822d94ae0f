//! Arithmetic of single elements, and the tables that the kernels use.

/// The field's polynomial, x^8 + x^4 + x^3 + x^2 + 1 [RFC 5510 §8.1].
const POLYNOMIAL: u16 = 0x11d;

/// α^i for i in 0..510, so that the sum of two logarithms needs no reduction.
pub(crate) static EXP: [u8; 510] = exp_table();
/// The i with α^i = x; unused for x = 0.
pub(crate) static LOG: [u8; 256] = log_table();
/// For each factor c: c·x for x in 0..16, then c·16x for x in 0..16.
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibble_tables();

const fn exp_table() -> [u8; 510] {
    let mut table = [0; 510];
    let mut x: u16 = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = x as u8;
        x <<= 1;
        if x >= 256 {
            x ^= POLYNOMIAL;
        }
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[exp[i] as usize] = i as u8;
        i += 1;
    }
    table
}

const fn nibble_tables() -> [[u8; 32]; 256] {
    let (exp, log) = (exp_table(), log_table());
    let mut tables = [[0; 32]; 256];
    let mut c = 1;
    while c < 256 {
        let mut x = 1;
        while x < 16 {
            tables[c][x] = exp[log[c] as usize + log[x] as usize];
            tables[c][16 + x] = exp[log[c] as usize + log[x << 4] as usize];
            x += 1;
        }
        c += 1;
    }
    tables
}

/// For each factor c the 8×8 bit matrix that maps x to c·x, in the layout of `gf2p8affineqb`. The
/// row of result bit b is in byte 7 − b.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = {
    let nibbles = nibble_tables();
    let mut matrices = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut input = 0;
        while input < 8 {
            let x = 1 << input;
            let product = if x < 16 { nibbles[c][x] } else { nibbles[c][16 + (x >> 4)] };
            let mut bit = 0;
            while bit < 8 {
                if product >> bit & 1 == 1 {
                    matrices[c] |= 1 << (8 * (7 - bit) + input);
                }
                bit += 1;
            }
            input += 1;
        }
        c += 1;
    }
    matrices
};

/// Returns the product of two elements.
pub fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// Returns α^`exponent`, where α = 2 is the field's generator. Any exponent is valid.
pub const fn alpha_power(exponent: u32) -> u8 {
    EXP[(exponent % 255) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the product by polynomial multiplication and reduction, bit by bit.
    fn by_hand(a: u8, b: u8) -> u8 {
        let product = (0..8).filter(|i| b >> i & 1 == 1).fold(0u16, |p, i| p ^ u16::from(a) << i);
        (8..16)
            .rev()
            .fold(product, |p, i| if p >> i & 1 == 1 { p ^ POLYNOMIAL << (i - 8) } else { p })
            as u8
    }

    #[test]
    fn every_product_is_that_of_polynomials() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), by_hand(a, b), "{a} · {b}");
            }
        }
    }

    #[test]
    fn two_generates_the_field() {
        let mut powers: Vec<u8> = (0..255).map(alpha_power).collect();
        assert_eq!(powers[..9], [1, 2, 4, 8, 16, 32, 64, 128, 0x1d]);
        powers.sort_unstable();
        assert!(powers.into_iter().eq(1..=255));
    }

    #[test]
    fn nibbles_add_up_to_the_product() {
        for c in 0..=255u8 {
            for x in 0..=255u8 {
                let table = &NIBBLES[c as usize];
                let sum = table[(x & 15) as usize] ^ table[16 + (x >> 4) as usize];
                assert_eq!(sum, by_hand(c, x));
            }
        }
    }
}
