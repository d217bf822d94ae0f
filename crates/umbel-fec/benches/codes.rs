//! Prints the speed of the codes in GB of source per second. Measures this thread's CPU time, so
//! that other load on the machine counts as little as possible. Takes about ten seconds.
//!
//! `repair` is the number of repair symbols made per source symbol. Decoding computes the same
//! number of lost source symbols. Symbols have 1,376 bytes.

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use umbel_fec::{Code, Kernel, Points, ReedSolomon, SymbolSet};
use umbel_wire::Scheme;

/// Bytes of an encoding symbol.
const SYMBOL_LEN: usize = 1_376;
/// Duration of the measurement of one cell.
const CELL: Duration = Duration::from_millis(90);

fn main() {
    println!(
        "{:10} {:>6} {:>7} {:>12} {:>12}",
        "code", "k", "repair", "encode GB/s", "decode GB/s"
    );
    for kernel in Kernel::available() {
        let code = ReedSolomon::with_kernel(Points::default(), kernel);
        for k in [20, 60, 128] {
            for percent in [5, 10, 50] {
                row(kernel.name(), k, percent, |case| case.reed_solomon(code));
            }
        }
    }
    let code = Code::new(Scheme::RaptorQ);
    for k in [128, 1_000, 4_096] {
        row("raptorq", k, 10, |case| case.any(code));
    }
}

fn row(name: &str, k: u32, percent: u32, measure: impl Fn(&Case) -> (f64, f64)) {
    let (encode, decode) = measure(&Case::new(k, (k * percent / 100).max(1)));
    println!("{name:10} {k:>6} {percent:>6}% {encode:>12.2} {decode:>12.2}");
}

/// A block and the symbols that it lost.
struct Case {
    k: u32,
    lost: u32,
    source: Vec<u8>,
    present: SymbolSet,
}

impl Case {
    fn new(k: u32, lost: u32) -> Case {
        let bytes = 0..k as usize * SYMBOL_LEN;
        let source = bytes.map(|i| ((i as u64 * 0x9e37_79b9) >> 13) as u8).collect();
        let mut present = SymbolSet::full(k);
        for i in 0..lost {
            present.remove(i * k / lost);
        }
        Case { k, lost, source, present }
    }

    fn reed_solomon(&self, code: ReedSolomon) -> (f64, f64) {
        self.measure(
            |out| code.encode(self.k, SYMBOL_LEN, &self.source, self.esis(0), out).is_ok(),
            |block, repairs| {
                code.restore(self.k, SYMBOL_LEN, block, &self.present, repairs).is_ok()
            },
            0,
        )
    }

    /// Measures any code with two symbols more than needed, so that `RaptorQ` does not fail.
    fn any(&self, code: Code) -> (f64, f64) {
        self.measure(
            |out| code.encode(self.k, SYMBOL_LEN, &self.source, self.esis(2), out).is_ok(),
            |block, repairs| {
                code.restore(self.k, SYMBOL_LEN, block, &self.present, repairs).is_ok()
            },
            2,
        )
    }

    fn esis(&self, more: u32) -> std::ops::Range<u32> {
        self.k..self.k + self.lost + more
    }

    fn measure(
        &self,
        encode: impl Fn(&mut [u8]) -> bool,
        decode: impl Fn(&mut [u8], &[(u32, &[u8])]) -> bool,
        more: u32,
    ) -> (f64, f64) {
        let mut out = vec![0; (self.lost + more) as usize * SYMBOL_LEN];
        let encode_rate = self.rate(|| assert!(encode(black_box(&mut out))));
        let repairs: Vec<(u32, &[u8])> = self.esis(more).zip(out.chunks(SYMBOL_LEN)).collect();
        let mut block = self.source.clone();
        for esi in self.present.missing() {
            block[esi as usize * SYMBOL_LEN..][..SYMBOL_LEN].fill(0);
        }
        let decode_rate = self.rate(|| assert!(decode(black_box(&mut block), &repairs)));
        assert!(block == self.source, "restored wrongly");
        (encode_rate, decode_rate)
    }

    /// Returns GB of source per second, as the median over samples of a few calls each.
    fn rate(&self, mut call: impl FnMut()) -> f64 {
        call();
        let once = time(&mut call).as_secs_f64().max(1e-7);
        let calls = (CELL.as_secs_f64() / 9.0 / once).clamp(1.0, 1e5) as u32;
        let mut samples: Vec<f64> = (0..9)
            .map(|_| time(|| (0..calls).for_each(|_| call())).as_secs_f64() / f64::from(calls))
            .collect();
        samples.sort_by(f64::total_cmp);
        self.source.len() as f64 / samples[4] / 1e9
    }
}

/// Returns the CPU time of this thread that the call takes.
fn time(mut call: impl FnMut()) -> Duration {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    let start = now();
    call();
    (now() - start).into()
}
