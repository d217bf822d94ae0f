//! Lines at the bottom of the terminal that change, and all else, which is printed above them.
//!
//! The terminal is one for the whole process, and so is this. Whatever goes to it, logs included,
//! passes through [`above`].

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use terminal_size::{Height, Width};
use unicode_width::UnicodeWidthChar;

/// Columns that a line leaves free, for the `^C` that the terminal itself adds to it.
const FREE: usize = 2;
/// Size of a terminal that does not tell its own.
const USUAL: Size = Size { columns: 80, rows: 24 };

static SCREEN: Mutex<State> = Mutex::new(State { lines: Vec::new(), drawn: 0 });

/// Size of a terminal.
#[derive(Clone, Copy, Debug)]
struct Size {
    columns: usize,
    rows: usize,
}

#[derive(Debug)]
struct State {
    lines: Vec<String>,
    /// Number of lines that are on the terminal; the cursor is at the end of the last one.
    drawn: usize,
}

/// Returns the columns that a line may fill.
pub fn columns() -> usize {
    size().columns.saturating_sub(FREE)
}

/// Shows lines at the bottom, in place of those before.
pub fn show(lines: Vec<String>) {
    let mut state = state();
    let mut text = String::new();
    state.lines = lines;
    state.draw(size(), &mut text);
    put(&text);
}

/// Removes the lines at the bottom.
pub fn clear() {
    show(Vec::new());
}

/// Leaves the lines at the bottom as they are. What follows is printed below them.
pub fn leave() {
    let mut state = state();
    if state.drawn > 0 {
        put("\n");
    }
    (state.lines, state.drawn) = (Vec::new(), 0);
}

/// Notes that the user has entered a line, which has moved the cursor below the lines at the bottom.
pub(crate) fn entered() {
    let mut state = state();
    if state.drawn > 0 {
        state.drawn += 1;
    }
}

/// Prints something above the lines at the bottom.
pub fn above<R>(print: impl FnOnce() -> R) -> R {
    let mut state = state();
    let mut text = String::new();
    state.erase(&mut text);
    put(&text);
    let result = print();
    text.clear();
    state.draw(size(), &mut text);
    put(&text);
    result
}

/// Removes the lines before the process ends at once, unless another thread is drawing them.
pub fn abandon() {
    if let Ok(mut state) = SCREEN.try_lock() {
        let mut text = String::new();
        state.erase(&mut text);
        put(&text);
    }
}

/// Standard error, above the lines at the bottom.
#[derive(Clone, Copy, Debug)]
pub struct Above;

impl Write for Above {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        above(|| io::stderr().write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn state() -> MutexGuard<'static, State> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn size() -> Size {
    let size = terminal_size::terminal_size_of(io::stderr());
    let size = size.map(|(Width(columns), Height(rows))| (columns.into(), rows.into()));
    let told = size.filter(|&(columns, rows)| columns > 0 && rows > 0);
    told.map_or(USUAL, |(columns, rows)| Size { columns, rows })
}

/// Writes to the terminal. One that is gone is no reason to stop.
fn put(text: &str) {
    if !text.is_empty() {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

impl State {
    /// Removes what is on the terminal.
    fn erase(&mut self, text: &mut String) {
        if self.drawn > 0 {
            self.to_first(text);
            text.push_str("\x1b[J");
        }
        self.drawn = 0;
    }

    /// Draws the lines over those that are on the terminal, without flicker.
    fn draw(&mut self, size: Size, text: &mut String) {
        let lines = self.lines.iter().take(size.rows.saturating_sub(1));
        let lines: Vec<String> =
            lines.map(|line| cut(line, size.columns.saturating_sub(FREE))).collect();
        if lines.is_empty() {
            return self.erase(text);
        }
        if self.drawn > 0 {
            self.to_first(text);
        }
        for (n, line) in lines.iter().enumerate() {
            let end = if n == 0 { "" } else { "\r\n" };
            let _ = write!(text, "{end}{line}\x1b[K");
        }
        text.push_str("\x1b[J");
        self.drawn = lines.len();
    }

    fn to_first(&self, text: &mut String) {
        text.push('\r');
        if self.drawn > 1 {
            let _ = write!(text, "\x1b[{}A", self.drawn - 1);
        }
    }
}

/// Cuts a line to a number of columns. Sequences that set colours take none.
pub fn cut(line: &str, columns: usize) -> String {
    let (mut kept, mut used) = (String::new(), 0);
    // Place before which a line that is too long ends.
    let mut end = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            kept.push(c);
            for c in chars.by_ref() {
                kept.push(c);
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
            continue;
        }
        let width = c.width().unwrap_or(0);
        if used + width >= columns && end.is_none() {
            end = Some(kept.len());
        }
        if used + width > columns {
            kept.truncate(end.unwrap_or_default());
            if columns > 0 {
                kept.push('…');
            }
            if line.contains('\x1b') {
                kept.push_str("\x1b[0m");
            }
            return kept;
        }
        used += width;
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    const NARROW: Size = Size { columns: 20, rows: 6 };

    /// A terminal, and what is drawn on it.
    struct Shown {
        terminal: vt100::Parser,
        state: State,
    }

    impl Shown {
        fn new() -> Shown {
            let [rows, columns] = [NARROW.rows, NARROW.columns]
                .map(|cells| NonZero::new(cells as u16).expect("it has a size"));
            let terminal = vt100::Parser::new(rows, columns, 0);
            Shown { terminal, state: State { lines: Vec::new(), drawn: 0 } }
        }

        fn draw(&mut self, lines: &[&str]) {
            let mut text = String::new();
            self.state.lines = lines.iter().map(ToString::to_string).collect();
            self.state.draw(NARROW, &mut text);
            self.terminal.process(text.as_bytes());
        }

        /// Prints as [`above`] does.
        fn print(&mut self, line: &str) {
            let mut text = String::new();
            self.state.erase(&mut text);
            let _ = write!(text, "{line}\r\n");
            self.state.draw(NARROW, &mut text);
            self.terminal.process(text.as_bytes());
        }

        #[track_caller]
        fn has(&self, expected: &[&str]) {
            let contents = self.terminal.screen().contents();
            assert_eq!(contents.lines().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn nothing_of_earlier_lines_remains() {
        let mut shown = Shown::new();
        shown.draw(&["one of three", "two"]);
        shown.draw(&["1"]);
        shown.has(&["1"]);
        shown.print("said");
        shown.has(&["said", "1"]);
        shown.draw(&["a", "b", "c"]);
        shown.has(&["said", "a", "b", "c"]);
        shown.draw(&[]);
        shown.has(&["said"]);
        shown.print("last");
        shown.has(&["said", "last"]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_an_interruption_leaves_nothing_of_it() {
        let mut shown = Shown::new();
        shown.draw(&["a line of more than twenty columns"]);
        shown.has(&["a line of more th…"]);
        // What the terminal itself shows of Ctrl-C.
        shown.terminal.process(b"^C");
        shown.print("interrupted");
        shown.has(&["interrupted", "a line of more th…"]);
        shown.draw(&[]);
        shown.has(&["interrupted"]);
    }

    #[test]
    fn more_lines_than_the_terminal_has_do_not_scroll_it() {
        let mut shown = Shown::new();
        shown.print("above");
        for _ in 0..3 {
            shown.draw(&["1", "2", "3", "4", "5", "6", "7"]);
        }
        shown.draw(&["end"]);
        shown.has(&["above", "end"]);
    }

    #[test]
    fn lines_are_cut_by_the_width_of_their_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("\x1b[36mab\x1b[0m", 2), "\x1b[36mab\x1b[0m");
        assert_eq!(cut("\x1b[36mabc\x1b[0m", 2), "\x1b[36ma…\x1b[0m");
        assert_eq!(cut("abc", 0), "");
    }
}
