//! The event queue against a binary heap.
//!
//! Uses the hold model. A fixed number of events wait; the earliest is removed and one is added,
//! some time later. Times are exponential with a mean of 1 ms, or those of a network. Of these nine
//! in ten are packets of about 10 µs, one is a timer of about 100 ms. Run with `cargo bench -p
//! umbel-sim --bench queue`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant as Clock;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_sim::Wheel;
use umbel_sim::random::{self, Purpose};

const HOLDS: u32 = 4_000_000;
const REPETITIONS: usize = 5;

/// Event of the same size as the simulator's.
type Event = [u32; 5];

trait Queue {
    fn push(&mut self, at: u64, event: Event);
    fn pop(&mut self) -> (u64, Event);
}

impl Queue for Wheel<Event> {
    fn push(&mut self, at: u64, event: Event) {
        Wheel::push(self, at, event);
    }

    fn pop(&mut self) -> (u64, Event) {
        self.pop_until(u64::MAX).expect("events wait")
    }
}

/// Heap in which ties leave first in, first out, as required.
#[derive(Default)]
struct Heap {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
}

impl Queue for Heap {
    fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed, event)));
    }

    fn pop(&mut self) -> (u64, Event) {
        let Reverse((at, _, event)) = self.heap.pop().expect("events wait");
        (at, event)
    }
}

#[derive(Clone, Copy)]
enum Times {
    Exponential,
    Network,
}

fn later(times: Times, random: &mut Xoshiro256PlusPlus) -> u64 {
    match times {
        Times::Exponential => random::exponential(random, 1e6) as u64,
        Times::Network if random::below(random, 10) == 0 => {
            90_000_000 + random::below(random, 20_000_000)
        }
        Times::Network => 8_000 + random::below(random, 4_000),
    }
}

/// Returns million events per second, and a sum of their times.
fn hold(queue: &mut impl Queue, waiting: u32, times: Times) -> (f64, u64) {
    let mut random = random::stream(1, Purpose::Workload, 0);
    // Drawn beforehand, so that drawing is not measured.
    let steps: Vec<u64> = (0..1 << 16).map(|_| later(times, &mut random)).collect();
    let step = |n: u32| steps[n as usize % steps.len()];
    for n in 0..waiting {
        queue.push(step(n), [n; 5]);
    }
    let (start, mut sum) = (Clock::now(), 0_u64);
    for n in 0..HOLDS {
        let (at, event) = queue.pop();
        sum = sum.wrapping_mul(3).wrapping_add(at);
        queue.push(at + step(n), black_box(event));
    }
    (f64::from(HOLDS) / start.elapsed().as_secs_f64() / 1e6, sum)
}

fn main() {
    println!("million events/s, median of {REPETITIONS}");
    println!("{:>9}  {:<12} {:>8} {:>8}", "waiting", "times", "wheel", "heap");
    for waiting in [100, 1_000, 100_000, 1_000_000] {
        for (name, times) in [("exponential", Times::Exponential), ("network", Times::Network)] {
            let mut speeds = [Vec::new(), Vec::new()];
            for _ in 0..REPETITIONS {
                let wheel = hold(&mut Wheel::new(), waiting, times);
                let heap = hold(&mut Heap::default(), waiting, times);
                assert_eq!(wheel.1, heap.1, "both take out the same times");
                speeds[0].push(wheel.0);
                speeds[1].push(heap.0);
            }
            let [wheel, heap] = speeds.map(|mut speeds| {
                speeds.sort_by(f64::total_cmp);
                speeds[REPETITIONS / 2]
            });
            println!("{waiting:>9}  {name:<12} {wheel:>8.1} {heap:>8.1}");
        }
    }
}
