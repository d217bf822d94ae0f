//! The progress of a command, in a line at the bottom of the terminal; nothing elsewhere.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use umbel_engine::units::{ByteCount, Rate};

use super::output::Output;
use super::screen;

/// Time from which the rate of a transfer is taken.
const LAST_SECONDS: Duration = Duration::from_secs(5);
/// The same of computations, whose parts take unlike times.
const LAST_MINUTE: Duration = Duration::from_mins(1);
/// Shortest time from which a rate is taken.
const SHORTEST: Duration = Duration::from_secs(1);
/// Shortest time between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(50);
/// Longest time that is counted in seconds or minutes.
const MANY: u64 = 100;

/// The line of a command that is under way.
#[derive(Debug)]
pub struct Meter {
    output: Output,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    started: Instant,
    pace: Pace,
    drawn: Option<Instant>,
    frame: usize,
    over: bool,
}

impl Meter {
    /// Creates the meter of a transfer.
    pub fn new(output: &Output) -> Meter {
        Meter::over(output, LAST_SECONDS)
    }

    /// Creates the meter of a computation.
    pub fn work(output: &Output) -> Meter {
        Meter::over(output, LAST_MINUTE)
    }

    fn over(output: &Output, window: Duration) -> Meter {
        let state = State {
            started: Instant::now(),
            pace: Pace::over(window),
            drawn: None,
            frame: 0,
            over: false,
        };
        Meter { output: output.clone(), state: Mutex::new(state) }
    }

    /// Shows a message. Nothing moves: what moves later has the rate that it has then.
    pub fn message(&self, text: &str) {
        self.draw(|state, _| {
            state.pace.reset();
            state.frame = (state.frame + 1) % SPINNER.len();
            format!("{} {text}", SPINNER[state.frame])
        });
    }

    /// Shows how many of so many bytes are done, the rate and the time left. A total of 0 is
    /// unknown.
    pub fn bytes(&self, done: u64, total: u64, text: &str) {
        self.draw(|state, columns| {
            state.pace.mark(Instant::now(), done);
            transferred(done, total, state.pace.per_s(), text, columns)
        });
    }

    /// Shows the share of some work that is done, and the time left.
    pub fn share(&self, done: u64, total: u64) {
        self.draw(|state, columns| {
            state.pace.mark(Instant::now(), done);
            let percent = done.min(total) * 100 / total.max(1);
            let so_far = time(state.started.elapsed());
            let left = left(done, total, state.pace.per_s());
            let text = format!("{percent} %, {so_far} so far{left}");
            bar(done, total, columns) + &text
        });
    }

    fn draw(&self, line: impl FnOnce(&mut State, usize) -> String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.over || !self.output.draws() {
            return;
        }
        let text = line(&mut state, screen::columns());
        if state.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY) {
            state.drawn = Some(Instant::now());
            screen::show(text.lines().map(str::to_owned).collect());
        }
    }

    /// Removes the line for good.
    pub fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.over && self.output.draws() {
            screen::clear();
        }
        state.over = true;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.clear();
    }
}

const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// Returns a bar and the space behind it, or nothing where the words need the room.
fn bar(done: u64, total: u64, columns: usize) -> String {
    let cells = match columns {
        98.. => 24,
        68.. => 10,
        _ => return String::new(),
    };
    let filled = u128::from(done.min(total)) * cells as u128 / u128::from(total.max(1));
    let filled = filled as usize;
    format!("{}{} ", "█".repeat(filled), "░".repeat(cells - filled))
}

/// Returns the line of a transfer, with what matters most first.
fn transferred(
    done: u64,
    total: u64,
    bytes_per_s: Option<f64>,
    text: &str,
    columns: usize,
) -> String {
    let rate = bytes_per_s.and_then(|rate| Rate::from_bits_per_s((rate * 8.0) as u64));
    let rate = rate.map_or(String::new(), |rate| format!(", {rate}"));
    if total == 0 {
        return format!("{}{rate} · {text}", ByteCount(done));
    }
    let left = left(done, total, bytes_per_s);
    let bar = bar(done, total, columns);
    format!("{bar}{} of {}{left}{rate} · {text}", ByteCount(done), ByteCount(total))
}

fn left(done: u64, total: u64, per_s: Option<f64>) -> String {
    let seconds = per_s.map(|rate| total.saturating_sub(done) as f64 / rate);
    let left = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    left.map_or(String::new(), |left| format!(", {} left", time(left)))
}

/// Formats a time that need not be exact.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..MANY => format!("{seconds} s"),
        _ if seconds / 60 < MANY => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h", (seconds + 1_800) / 3_600),
    }
}

/// Speed of something over the last seconds.
#[derive(Debug)]
pub struct Pace {
    window: Duration,
    /// What was done at which times, from the beginning of the window on.
    marks: VecDeque<(Instant, u64)>,
}

impl Pace {
    /// Creates the pace of a transfer.
    pub fn of_transfer() -> Pace {
        Pace::over(LAST_SECONDS)
    }

    fn over(window: Duration) -> Pace {
        Pace { window, marks: VecDeque::new() }
    }

    /// Forgets what was.
    fn reset(&mut self) {
        self.marks.clear();
    }

    /// Notes how much is done now.
    pub fn mark(&mut self, now: Instant, done: u64) {
        // What was damaged is done again.
        if self.marks.back().is_some_and(|&(_, before)| before > done) {
            self.reset();
        }
        // Bounds the number of marks: the last one is moved until it is far from the one before.
        let recent = |&(at, _): &(Instant, u64)| now - at < self.window / 50;
        if self.marks.len() > 1 && self.marks.iter().rev().nth(1).is_some_and(recent) {
            self.marks.pop_back();
        }
        self.marks.push_back((now, done));
        while self.marks.get(1).is_some_and(|&(at, _)| now - at >= self.window) {
            self.marks.pop_front();
        }
    }

    /// Returns how much is done a second, unless nothing is known or nothing moves.
    pub fn per_s(&self) -> Option<f64> {
        let (&(from, before), &(to, after)) = (self.marks.front()?, self.marks.back()?);
        let time = to - from;
        (time >= SHORTEST && after > before).then(|| (after - before) as f64 / time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(tenths * 100);
        let mut pace = Pace::over(Duration::from_secs(5));
        assert_eq!(pace.per_s(), None);
        // It waits for ten seconds, and then does a thousand a second.
        for tenths in 0..100 {
            pace.mark(at(tenths), 0);
            assert_eq!(pace.per_s(), None, "{tenths}");
        }
        for tenths in 0..60 {
            pace.mark(at(100 + tenths), tenths * 100);
        }
        assert_eq!(pace.per_s().map(f64::round), Some(1_000.0));
        // Twice as fast: five seconds later nothing else is known.
        for tenths in 0..51 {
            pace.mark(at(160 + tenths), 6_000 + tenths * 200);
        }
        assert_eq!(pace.per_s().map(f64::round), Some(2_000.0));
        for tenths in 0..51 {
            pace.mark(at(211 + tenths), 16_000);
        }
        assert_eq!(pace.per_s(), None, "nothing moves any more");
        // Less than before is another beginning.
        pace.mark(at(270), 10);
        assert_eq!(pace.marks.len(), 1);
    }

    #[test]
    fn many_marks_take_little_memory() {
        let start = Instant::now();
        let mut pace = Pace::over(Duration::from_secs(5));
        for n in 0..100_000 {
            pace.mark(start + Duration::from_micros(n * 100), n);
            assert!(pace.marks.len() < 110);
        }
        assert_eq!(pace.per_s().map(|rate| (rate / 100.0).round()), Some(100.0));
    }

    #[test]
    fn a_line_has_the_room_that_it_needs_and_one_unit_for_each_quantity() {
        let line = |columns| {
            transferred(8_000_000, 25_200_000, Some(2_500_000.0), "1 of 3 receivers done", columns)
        };
        let words = "8.0 MB of 25.2 MB, 7 s left, 20.0 Mbit/s · 1 of 3 receivers done";
        assert_eq!(line(40), words);
        assert_eq!(line(78), format!("███░░░░░░░ {words}"));
        assert_eq!(line(98), format!("███████░░░░░░░░░░░░░░░░░ {words}"));
        assert!(line(78).chars().count() <= 78 && line(98).chars().count() <= 98);
        // Neither rate nor time is known at first, nor how much there is of a pipe.
        assert_eq!(transferred(0, 9_000, None, "x", 40), "0 B of 9.0 kB · x");
        assert_eq!(transferred(9_000, 0, Some(1e3), "x", 98), "9.0 kB, 8.0 kbit/s · x");
        // More than all, of what grew.
        assert_eq!(transferred(10, 9, Some(1e3), "x", 40), "10 B of 9 B, 0 s left, 8.0 kbit/s · x");
    }

    #[test]
    fn times_are_as_long_as_people_count_them() {
        for (seconds, text) in
            [(0, "0 s"), (99, "99 s"), (100, "2 min"), (5_999, "100 min"), (6_000, "2 h")]
        {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }
}
