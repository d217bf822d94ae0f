//! Destinations of output: standard error for people, JSON on standard output for machines.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use serde::Serialize;
use serde_json::Value;

use super::descriptors;
use super::screen::above;

/// Version of the JSON objects. It changes if a key changes its meaning or goes away, not if one is
/// added.
const FORMAT: u32 = 1;

/// How often programs hear of progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Whenever something changed, as each command sees fit.
    #[default]
    Changes,
    /// At most once in this time.
    Every(Duration),
    /// Never.
    Off,
}

impl FromStr for Progress {
    type Err = String;

    fn from_str(text: &str) -> Result<Progress, String> {
        if text == "off" {
            return Ok(Progress::Off);
        }
        match humantime::parse_duration(text) {
            Ok(every) if !every.is_zero() => Ok(Progress::Every(every)),
            _ => Err("it is off, or a time such as 1s".to_owned()),
        }
    }
}

/// Output of a command.
#[derive(Clone, Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
    timed: bool,
    progress: Progress,
    /// Time of the last object about progress.
    told: Arc<Mutex<Option<Instant>>>,
    terminal: bool,
    /// The one of several things under way of which this output tells, if there are several.
    of: Option<Arc<str>>,
    /// The first failure of standard output.
    broken: Arc<OnceLock<std::io::Error>>,
}

impl Output {
    /// Creates the output that the command line asks for.
    pub fn new(json: bool, quiet: bool) -> Output {
        let moves = std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
        let terminal = std::io::stderr().is_terminal() && moves;
        let progress = if quiet { Progress::Off } else { Progress::Changes };
        let (told, broken) = (Arc::default(), Arc::default());
        Output { json, quiet, timed: true, progress, told, terminal, of: None, broken }
    }

    /// Leaves the time out of JSON: what runs again says the same.
    #[must_use]
    pub fn without_time(self) -> Output {
        Output { timed: false, ..self }
    }

    /// Sets how often programs hear of progress, and whether people see it.
    #[must_use]
    pub fn with_progress(self, progress: Progress) -> Output {
        Output { progress, ..self }
    }

    /// Returns the output of one of several things under way: notes begin with its name, objects
    /// have it as `of`, and nothing is drawn.
    #[must_use]
    pub fn of(&self, name: &str) -> Output {
        Output { of: Some(name.into()), terminal: false, ..self.clone() }
    }

    /// Returns whether the output is for machines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether to draw progress.
    pub fn draws(&self) -> bool {
        self.terminal && !self.quiet && !self.json && self.progress != Progress::Off
    }

    /// Returns whether to print notes and summaries for people.
    pub fn notes(&self) -> bool {
        !self.quiet && !self.json
    }

    /// Prints a JSON object on its own line, if the output is for machines, with the time and the
    /// version of the format. Progress comes as often as the user wants it.
    pub fn json(&self, value: &impl Serialize) {
        if !self.json {
            return;
        }
        let Ok(mut value) = serde_json::to_value(value) else { return };
        if let Some(object) = value.as_object_mut() {
            let event = object.get("event").and_then(Value::as_str);
            if event.is_some_and(|event| PERIODIC.contains(&event)) && !self.tells_progress() {
                return;
            }
            object.insert("format".to_owned(), FORMAT.into());
            if let Some(of) = &self.of {
                object.insert("of".to_owned(), Value::from(&**of));
            }
            if self.timed {
                let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
                object.insert("time".to_owned(), now.into());
            }
        }
        self.print(&escape(&value.to_string()));
    }

    /// Returns whether it is time to tell of progress, and notes that it is told.
    fn tells_progress(&self) -> bool {
        let every = match self.progress {
            Progress::Changes => return true,
            Progress::Off => return false,
            Progress::Every(every) => every,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_due = told.is_none_or(|last| now - last >= every);
        if is_due {
            *told = Some(now);
        }
        is_due
    }

    /// Prints a line for people.
    pub fn note(&self, line: impl AsRef<str>) {
        if self.notes() {
            let of = self.of.as_ref().map_or_else(String::new, |of| format!("{}: ", plain(of)));
            let lines = line.as_ref().split('\n');
            let lines: Vec<_> = lines.map(|line| format!("{of}{}", plain(line))).collect();
            let _ = above(|| writeln!(std::io::stderr(), "{}", lines.join("\n")));
        }
    }

    /// Prints a result for people, on standard output.
    pub fn result(&self, line: impl AsRef<str>) {
        if !self.json {
            self.print(line.as_ref());
        }
    }

    /// Prints an error in one line, even if other output is quiet.
    pub fn error(&self, error: &anyhow::Error) {
        let text = one_line(error);
        self.json(&serde_json::json!({ "event": "error", "message": text }));
        let _ = above(|| writeln!(std::io::stderr(), "umbel: {text}"));
    }

    /// Prints a line on standard output. Transfers go on though nobody reads of them any more.
    fn print(&self, line: &str) {
        let printed = above(|| {
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "{line}").and_then(|()| stdout.flush())
        });
        if let Err(error) = printed {
            let _ = self.broken.set(error);
        }
    }

    /// Returns whether standard output takes what is printed. A command that only prints can end
    /// if it does not.
    pub fn is_read(&self) -> bool {
        self.broken.get().is_none()
    }

    /// Ends the output.
    ///
    /// # Errors
    ///
    /// If something could not be printed, unless its reader has gone away, as `head` does.
    pub fn finish(&self) -> anyhow::Result<()> {
        match self.broken.get() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                bail!("cannot write standard output: {error}")
            }
            _ => Ok(()),
        }
    }
}

/// Events that come again and again while nothing else happens.
const PERIODIC: [&str; 2] = ["progress", "second"];

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
    match descriptors::advice(&text) {
        Some(advice) => format!("{text}: {advice}"),
        None => text,
    }
}

/// Makes text from elsewhere safe to show on a terminal. Replaces control characters, and
/// characters that hide other text or change its direction.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_deceptive(c) { '\u{fffd}' } else { c }).collect()
}

/// Escapes the same characters in JSON, where they can be in strings only. Programs read the same,
/// and who looks at it on a terminal is not deceived.
fn escape(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() || is_deceptive(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns whether a character is invisible and can disguise others. Such are marks, embeddings,
/// overrides and isolates of direction [UAX #9], line separators, fillers and blanks that are not
/// spaces, and zero-width characters except joiners, which scripts need.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_as_often_as_the_user_wants() {
        let output = Output::new(true, false);
        assert!(output.tells_progress() && output.tells_progress());
        let seldom = output.with_progress("1h".parse().unwrap());
        assert!(seldom.tells_progress() && !seldom.tells_progress());
        assert!(!seldom.with_progress("off".parse().unwrap()).tells_progress());
        assert!(!Output::new(true, true).tells_progress(), "quiet is quiet for programs, too");
        assert!("0s".parse::<Progress>().is_err() && "often".parse::<Progress>().is_err());
    }

    #[test]
    fn text_from_elsewhere_cannot_drive_the_terminal_or_turn_around() {
        let shown = plain("a\u{1b}[2J\u{9b}1m\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}b\r\n");
        let expected =
            "a\u{fffd}[2J\u{fffd}1m\u{fffd}gpj.exe\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}";
        assert_eq!(shown, expected);
        let blank = "\u{ad}\u{34f}\u{115f}\u{1160}\u{17b4}\u{2800}\u{3164}\u{ffa0}\u{e0041}";
        assert!(plain(blank).chars().all(|c| c == '\u{fffd}'));
        for name in ["größe/日本.txt", "نامه\u{200c}ها", "👩\u{200d}🚀", "שלום"] {
            assert_eq!(plain(name), name);
        }
    }

    #[test]
    fn json_says_the_same_without_what_deceives() {
        let text = "a\u{1b}\u{9b}\u{202e}gpj\u{3164}\u{e0041}\"\\größe";
        let json = escape(&serde_json::to_string(text).unwrap());
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        assert_eq!(plain(&json), json);
        assert!(json.contains("\\u202e") && json.contains("größe"), "{json}");
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
