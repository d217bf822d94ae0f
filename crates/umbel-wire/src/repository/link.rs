//! The text of a symbolic link.

use std::fmt;

use super::limits;

/// Where a symbolic link leads, as its text says: not empty, without NUL, and at most
/// [`limits::LINK_LEN`] bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LinkText(String);

impl LinkText {
    /// Creates it from the text of a link. Returns `None` if no link can have this text.
    pub fn new(text: impl Into<String>) -> Option<LinkText> {
        let text = text.into();
        let fits = !text.is_empty() && text.len() <= limits::LINK_LEN && !text.contains('\0');
        fits.then_some(LinkText(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LinkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_file_system_takes_is_the_text_of_a_link() {
        let longest = "x".repeat(limits::LINK_LEN);
        for text in ["a", "../b/c", "/etc/passwd", ".", "a\nb", &longest] {
            assert_eq!(LinkText::new(text).unwrap().as_str(), text);
        }
        for text in ["", "a\0", "\0", &format!("{longest}x")] {
            assert_eq!(LinkText::new(text), None);
        }
    }
}
