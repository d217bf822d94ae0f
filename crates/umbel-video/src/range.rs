//! A binary range coder with adaptive probabilities.
//!
//! It is of the kind that LZMA made common. A range has 32 bits, carries wait in a byte with a
//! count, and bytes leave at the top. The probability of a decision is the mean of two estimates,
//! one that follows fast and one that follows slowly. Contexts start afresh in each segment of a
//! packet, and soon know enough.
//!
//! [`Coder`] has both directions: what codes a block is written once, takes the values when it
//! encodes, and returns them when it decodes.

/// Bits of a probability, when the two estimates are joined.
const PROBABILITY_BITS: u32 = 15;

/// Shifts of the two estimates: they move by 1/16 and 1/128 of the way.
const FAST: u32 = 4;
const SLOW: u32 = 7;

/// The adaptive probability of a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bit {
    fast: u16,
    slow: u16,
}

impl Bit {
    /// Returns a decision whose odds of `false` are this number of 256, to begin with.
    pub(crate) const fn of(odds: u8) -> Self {
        let odds = (odds as u16) << 8;
        Self { fast: odds, slow: odds }
    }

    /// Returns the share of `range` that belongs to `false`. Never all nor nothing of it: the
    /// estimates stop at 15 and 127 parts of 65,536 from either end.
    #[inline]
    fn bound(self, range: u32) -> u32 {
        let probability = (u32::from(self.fast) + u32::from(self.slow)) >> (17 - PROBABILITY_BITS);
        (range >> PROBABILITY_BITS) * probability
    }

    #[inline]
    fn update(&mut self, value: bool) {
        if value {
            self.fast -= self.fast >> FAST;
            self.slow -= self.slow >> SLOW;
        } else {
            self.fast += (65_535 - self.fast) >> FAST;
            self.slow += (65_535 - self.slow) >> SLOW;
        }
    }
}

/// A direction of coding.
pub(crate) trait Coder {
    /// Codes a decision: returns `value` when encoding, the one that was encoded when decoding.
    fn bit(&mut self, model: &mut Bit, value: bool) -> bool;

    /// Codes the low `count` bits of `value`, up to 16, each as likely 0 as 1.
    fn raw(&mut self, count: u32, value: u32) -> u32;

    /// Codes a number ≥ 1 below 2^`prefix.len()`: its length in unary, then the bits below its
    /// highest.
    fn gamma(&mut self, prefix: &mut [Bit], value: u32) -> u32 {
        let longest = prefix.len() as u32 - 1;
        let wanted = value.max(1).ilog2().min(longest);
        let mut length = 0;
        while length < longest && self.bit(&mut prefix[length as usize], length < wanted) {
            length += 1;
        }
        let mut coded = 1;
        let mut left = length;
        while left > 0 {
            let count = left.min(16);
            left -= count;
            coded = coded << count | self.raw(count, value >> left & ((1 << count) - 1));
        }
        coded
    }
}

/// Encodes into bytes that it appends.
#[derive(Debug)]
pub(crate) struct Encoder {
    state: EncoderState,
    out: Vec<u8>,
}

/// State of an encoder, to which [`Encoder::back_to`] returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncoderState {
    low: u64,
    range: u32,
    cache: u8,
    /// Bytes that wait for a carry: the cache and the 0xFF behind it.
    waiting: usize,
    len: usize,
}

const START: EncoderState = EncoderState { low: 0, range: u32::MAX, cache: 0, waiting: 1, len: 0 };

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { state: START, out: Vec::new() }
    }

    /// Starts afresh.
    pub(crate) fn reset(&mut self) {
        self.state = START;
        self.out.clear();
    }

    /// Returns where it stands.
    pub(crate) fn mark(&self) -> EncoderState {
        EncoderState { len: self.out.len(), ..self.state }
    }

    /// Takes back all that was coded since the mark.
    pub(crate) fn back_to(&mut self, mark: EncoderState) {
        self.state = mark;
        self.out.truncate(mark.len);
    }

    /// Returns how many bytes [`finish`](Self::finish) gives at most.
    pub(crate) fn len(&self) -> usize {
        self.out.len() + self.state.waiting + 4
    }

    /// Ends, and returns the bytes. Those that are 0 at the end are left out, and the last value is
    /// chosen so that there are some. The decoder reads 0 behind the end.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let (low, top) = (self.state.low, self.state.low + u64::from(self.state.range) - 1);
        for zeros in [31, 30, 29, 28, 27, 26, 25, 24, 16, 8, 0] {
            let mask = (1_u64 << zeros) - 1;
            let value = (low + mask) & !mask;
            if value <= top {
                self.state.low = value;
                break;
            }
        }
        let least = self.out.len().max(1);
        for _ in 0..5 {
            self.shift();
        }
        while self.out.len() > least && self.out.last() == Some(&0) {
            self.out.pop();
        }
        // The first byte is the cache before anything was in it: always 0.
        &self.out[1..]
    }

    /// Moves the top byte of `low` out.
    #[inline]
    fn shift(&mut self) {
        let state = &mut self.state;
        if state.low < 0xFF00_0000 || state.low > 0xFFFF_FFFF {
            let carry = (state.low >> 32) as u8;
            self.out.push(state.cache.wrapping_add(carry));
            for _ in 1..state.waiting {
                self.out.push(0xFF_u8.wrapping_add(carry));
            }
            state.waiting = 0;
            state.cache = (state.low >> 24) as u8;
        }
        state.waiting += 1;
        state.low = (state.low & 0x00FF_FFFF) << 8;
    }
}

impl Coder for Encoder {
    #[inline]
    fn bit(&mut self, model: &mut Bit, value: bool) -> bool {
        let bound = model.bound(self.state.range);
        if value {
            self.state.low += u64::from(bound);
            self.state.range -= bound;
        } else {
            self.state.range = bound;
        }
        model.update(value);
        while self.state.range < 1 << 24 {
            self.state.range <<= 8;
            self.shift();
        }
        value
    }

    #[inline]
    fn raw(&mut self, count: u32, value: u32) -> u32 {
        self.state.range >>= count;
        self.state.low += u64::from(self.state.range) * u64::from(value);
        while self.state.range < 1 << 24 {
            self.state.range <<= 8;
            self.shift();
        }
        value
    }
}

/// Bytes that a decoder reads behind the end of what an encoder made, at most.
const READ_AHEAD: u32 = 8;

/// Decodes bytes. Behind their end it reads 0, so that any bytes decode to something.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    code: u32,
    range: u32,
    /// Bytes that were read behind the end.
    beyond: u32,
    bytes: std::slice::Iter<'a, u8>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { code: 0, range: u32::MAX, beyond: 0, bytes: bytes.iter() };
        for _ in 0..4 {
            decoder.code = decoder.code << 8 | decoder.next();
        }
        decoder
    }

    #[inline]
    fn next(&mut self) -> u32 {
        if let Some(&byte) = self.bytes.next() {
            byte.into()
        } else {
            self.beyond += 1;
            0
        }
    }

    /// Returns whether more was read than any encoder makes.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.beyond > READ_AHEAD
    }

    #[inline]
    fn normalise(&mut self) {
        while self.range < 1 << 24 {
            self.range <<= 8;
            self.code = self.code << 8 | self.next();
        }
    }
}

impl Coder for Decoder<'_> {
    #[inline]
    fn bit(&mut self, model: &mut Bit, _: bool) -> bool {
        let bound = model.bound(self.range);
        let value = self.code >= bound;
        if value {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.update(value);
        self.normalise();
        value
    }

    #[inline]
    fn raw(&mut self, count: u32, _: u32) -> u32 {
        self.range >>= count;
        // Bytes that no encoder made may lie above the range.
        let value = (self.code / self.range).min((1 << count) - 1);
        self.code = self.code.wrapping_sub(value * self.range);
        self.normalise();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Codes the script: adaptive decisions, raw bits and numbers in turn.
    fn run(coder: &mut impl Coder, script: &[(u8, u32)]) -> Vec<u32> {
        let mut models = [Bit::of(128); 4];
        let mut prefix = [Bit::of(128); 24];
        script
            .iter()
            .map(|&(kind, value)| match kind % 6 {
                4 => coder.raw(1 + u32::from(kind) % 16, value & ((2 << (kind % 16)) - 1)),
                5 => coder.gamma(&mut prefix, (value & 0xFF_FFFF).max(1)),
                model => {
                    coder.bit(&mut models[usize::from(model)], value.is_multiple_of(17)).into()
                }
            })
            .collect()
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            script in prop::collection::vec((any::<u8>(), any::<u32>()), 0..2000)
        ) {
            let mut encoder = Encoder::new();
            let expected = run(&mut encoder, &script);
            let bound = encoder.len();
            let bytes = encoder.finish().to_vec();
            prop_assert!(bytes.len() <= bound);
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(run(&mut decoder, &script), expected);
            prop_assert!(!decoder.is_exhausted());
        }

        #[test]
        fn any_bytes_decode_to_something(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            script in prop::collection::vec((any::<u8>(), any::<u32>()), 0..1000),
        ) {
            run(&mut Decoder::new(&bytes), &script);
        }
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        let script: Vec<_> =
            (0..500_u32).map(|i| (i as u8, i.wrapping_mul(2_654_435_761))).collect();
        let mut encoder = Encoder::new();
        run(&mut encoder, &script);
        let once = encoder.finish().to_vec();
        encoder.reset();
        let values = run(&mut encoder, &script);
        let mark = encoder.mark();
        run(&mut encoder, &script[100..400]);
        encoder.back_to(mark);
        let again = encoder.finish().to_vec();
        assert_eq!(once, again);
        assert_eq!(run(&mut Decoder::new(&again), &script), values);
    }

    #[test]
    fn a_likely_decision_costs_little() {
        let mut encoder = Encoder::new();
        let mut model = Bit::of(128);
        for _ in 0..10_000 {
            encoder.bit(&mut model, false);
        }
        assert!(encoder.finish().len() < 25);
    }
}
