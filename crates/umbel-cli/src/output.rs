//! Destinations of output: standard error for people, JSON on standard output for machines.

use std::io::{IsTerminal, Write};

use serde::Serialize;

/// Output of a command.
#[derive(Clone, Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
    terminal: bool,
}

impl Output {
    /// Creates the output that the command line asks for.
    pub fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet, terminal: std::io::stderr().is_terminal() }
    }

    /// Returns whether the output is for machines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether to draw progress.
    pub fn draws(&self) -> bool {
        self.terminal && !self.quiet && !self.json
    }

    /// Returns whether to print notes and summaries for people.
    pub fn notes(&self) -> bool {
        !self.quiet && !self.json
    }

    /// Prints a JSON object on its own line, if the output is for machines.
    pub fn json(&self, value: &impl Serialize) {
        if !self.json {
            return;
        }
        if let Ok(line) = serde_json::to_string(value) {
            let mut out = std::io::stdout().lock();
            // A reader that is gone is no reason to stop the transfer.
            let _ = writeln!(out, "{line}");
            let _ = out.flush();
        }
    }

    /// Prints a line for people.
    pub fn note(&self, line: impl AsRef<str>) {
        if self.notes() {
            let _ = writeln!(std::io::stderr(), "{}", line.as_ref());
        }
    }

    /// Prints a result for people, on standard output.
    pub fn result(&self, line: impl AsRef<str>) {
        if !self.json {
            let _ = writeln!(std::io::stdout(), "{}", line.as_ref());
        }
    }

    /// Prints an error in one line, even if other output is quiet.
    pub fn error(&self, error: &anyhow::Error) {
        let text = one_line(error);
        self.json(&serde_json::json!({ "event": "error", "message": text }));
        let _ = writeln!(std::io::stderr(), "umbel: {text}");
    }
}

/// Formats an error with its causes. A cause that the error before it quotes is not repeated.
fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| plain(&cause.to_string().replace('\n', " "))) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Makes text from elsewhere safe to show on a terminal. Replaces control characters, and
/// characters that hide other text or change its direction.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_deceptive(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns whether a character is invisible and can disguise others. Such are marks, embeddings,
/// overrides and isolates of direction [UAX #9], line separators, and zero-width characters except
/// joiners, which scripts need.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// A progress line on a terminal; nothing elsewhere.
#[derive(Debug)]
pub struct Meter {
    bar: indicatif::ProgressBar,
    output: Output,
}

impl Meter {
    /// Shows a message that changes.
    pub fn spinner(output: &Output) -> Meter {
        Meter::new(output, indicatif::ProgressBar::new_spinner(), "{spinner} {msg}")
    }

    /// Shows bytes done, rate and time left.
    pub fn bytes(output: &Output) -> Meter {
        let template = "{bar:24} {bytes}/{total_bytes} {bytes_per_sec} {eta} left · {msg}";
        Meter::new(output, indicatif::ProgressBar::new(0), template)
    }

    /// Shows the share of some work that is done, and time left.
    pub fn work(output: &Output) -> Meter {
        let template = "{bar:24} {percent:>3} % {elapsed} so far, {eta} left {msg}";
        Meter::new(output, indicatif::ProgressBar::new(0), template)
    }

    fn new(output: &Output, bar: indicatif::ProgressBar, template: &str) -> Meter {
        if !output.draws() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        if let Ok(style) = indicatif::ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Meter { bar, output: output.clone() }
    }

    /// Returns the bar of the meter, to be drawn with others.
    pub fn bar(&self) -> &indicatif::ProgressBar {
        &self.bar
    }

    /// Sets how much of the total is done.
    pub fn position(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Sets the message beside the bar.
    pub fn message(&self, text: String) {
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Prints a line above the bar that stays.
    pub fn note(&self, line: &str) {
        if self.output.draws() {
            self.bar.println(line);
        } else {
            self.output.note(line);
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_elsewhere_cannot_drive_the_terminal_or_turn_around() {
        let shown = plain("a\u{1b}[2J\u{9b}1m\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}b\r\n");
        let expected =
            "a\u{fffd}[2J\u{fffd}1m\u{fffd}gpj.exe\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}";
        assert_eq!(shown, expected);
        for name in ["größe/日本.txt", "نامه\u{200c}ها", "👩\u{200d}🚀", "שלום"] {
            assert_eq!(plain(name), name);
        }
    }

    #[test]
    fn an_error_is_one_line_that_says_nothing_twice() {
        let inner = anyhow::anyhow!("no\nroom");
        assert_eq!(
            one_line(&inner.context("cannot write: no room").context("x")),
            "x: cannot write: no room"
        );
        assert_eq!(one_line(&anyhow::anyhow!("b").context("a")), "a: b");
    }
}
