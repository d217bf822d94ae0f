//! ARC, the format of crawls before WARC: a line before each document, with its length.
//!
//! Version 1 has `URL address date type length`, version 2 adds fields before the length [ARC 1996].
//! The first line names the file itself: `filedesc://…`.

/// Maximum bytes of a line.
pub(super) const MAX_LINE: u64 = 16 * 1024;

/// The line before a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) url: &'a str,
    /// `YYYYMMDDhhmmss`
    pub(super) date: &'a str,
    pub(super) media_type: &'a str,
    /// Bytes of the document.
    pub(super) len: u64,
}

impl Line<'_> {
    pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
        let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
        let words: Vec<&str> = line.trim_end_matches('\r').rsplitn(10, ' ').collect();
        // A URL may hold spaces, and no other field does. So the fields are counted from the end.
        let (url, date, media_type) = match &words[..] {
            [_, _, _, _, _, _, media_type, date, _, url] if is_date(date) => {
                (*url, *date, *media_type)
            }
            _ => {
                let mut words = line.trim_end_matches('\r').rsplitn(5, ' ');
                let (_len, media_type, date) = (words.next()?, words.next()?, words.next()?);
                let (_address, url) = (words.next()?, words.next()?);
                (url, date, media_type)
            }
        };
        let len = words.first()?.parse().ok()?;
        (is_date(date) && url.contains(':')).then_some(Line { url, date, media_type, len })
    }

    /// Returns whether it names the archive.
    pub(super) fn is_description(&self) -> bool {
        self.url.starts_with("filedesc:")
    }

    /// Returns the date in nanoseconds since the Unix epoch.
    pub(super) fn date_ns(&self) -> Option<i64> {
        let part = |from: usize, to: usize| self.date.get(from..to).unwrap_or("00");
        let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
        let (hour, minute, second) = (part(8, 10), part(10, 12), part(12, 14));
        let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
        super::header::parse_date(&text)
    }
}

fn is_date(text: &str) -> bool {
    (8..=17).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_the_line_are_read() {
        let one = Line::parse(b"http://h/a b 192.0.2.1 20010203040506 text/html 120\n").unwrap();
        assert_eq!((one.url, one.media_type, one.len), ("http://h/a b", "text/html", 120));
        assert_eq!(one.date_ns(), Some(981_173_106_000_000_000));
        let two =
            b"http://h/ 192.0.2.1 20010203040506 text/html 200 fac069150613fe55 - 49 f.arc 9\r\n";
        let two = Line::parse(two).unwrap();
        assert_eq!((two.url, two.date, two.len), ("http://h/", "20010203040506", 9));
        let file = Line::parse(b"filedesc://f.arc 0.0.0.0 20010203040506 text/plain 76\n").unwrap();
        assert!(file.is_description());
        for line in [&b""[..], b"\n", b"WARC/1.0\n", b"a b c d e\n", b"http://h/ 1 2 3 4\n"] {
            assert_eq!(Line::parse(line), None);
        }
    }
}
