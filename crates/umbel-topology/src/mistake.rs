//! Mistakes in a file or a description, with their places.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Mistake in a topology or a scenario. Displays as one line, like `lossy.toml:12: loss = 2 is not
/// a probability between 0 and 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    file: Option<PathBuf>,
    line: Option<usize>,
    message: String,
}

impl Mistake {
    /// Creates a mistake without a place.
    pub fn new(message: impl Into<String>) -> Mistake {
        Mistake { file: None, line: None, message: message.into() }
    }

    /// Creates a mistake in a line, from 1.
    pub fn at_line(line: usize, message: impl Into<String>) -> Mistake {
        Mistake { line: Some(line), ..Mistake::new(message) }
    }

    /// Creates a mistake at a span of a text.
    pub fn at(text: &str, span: Range<usize>, message: impl Into<String>) -> Mistake {
        let before = text.get(..span.start).unwrap_or_default();
        Mistake::at_line(before.matches('\n').count() + 1, message)
    }

    /// Creates a mistake from an error of the TOML reader.
    pub fn toml(text: &str, error: &toml::de::Error) -> Mistake {
        let message = error.message().trim_end().replace('\n', ", ");
        match error.span() {
            Some(span) => Mistake::at(text, span, message),
            None => Mistake::new(message),
        }
    }

    /// Places the mistake in a file, unless it is known to be in another.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Mistake {
        Mistake { file: self.file.or_else(|| Some(path.to_owned())), ..self }
    }

    /// Returns a mistake in the same place with another message.
    #[must_use]
    pub fn with_message(self, message: String) -> Mistake {
        Mistake { message, ..self }
    }

    /// Returns the file of the mistake.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the line of the mistake, from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns the message without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_says_as_much_of_its_place_as_is_known() {
        let plain = Mistake::new("no");
        assert_eq!(plain.to_string(), "no");
        assert_eq!(plain.in_file(Path::new("a.toml")).to_string(), "a.toml: no");
        let at = Mistake::at("a\nb\nc", 4..5, "no");
        assert_eq!(at.to_string(), "line 3: no");
        let inner = at.in_file(Path::new("b.toml"));
        assert_eq!(inner.in_file(Path::new("a.toml")).to_string(), "b.toml:3: no");
    }
}
