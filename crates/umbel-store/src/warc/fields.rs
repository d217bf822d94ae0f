//! Named fields, one per line, in the headers of WARC records and of HTTP.

/// Maximum bytes of a header.
pub(super) const MAX_HEADER: u64 = 64 * 1024;

/// Returns the value of the first field with this name, ignoring case. Lines that are not fields
/// are ignored, because crawlers keep headers as servers sent them.
pub(super) fn field<'a>(header: &'a [u8], name: &str) -> Option<&'a [u8]> {
    header.split(|&byte| byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (found, value) = line.split_at(colon);
        found.trim_ascii().eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii())
    })
}

/// Finds a value as [`field`] does, and returns it if it is text.
pub(super) fn text<'a>(header: &'a [u8], name: &str) -> Option<&'a str> {
    std::str::from_utf8(field(header, name)?).ok()
}

/// Returns whether a line ends a header.
pub(super) fn is_blank(line: &[u8]) -> bool {
    matches!(line, b"\r\n" | b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_their_case_and_spacing() {
        let header =
            b"HTTP/1.1 200 OK\r\nContent-type:text/html \r\nrubbish\r\nX: a:b\nx: second\n";
        assert_eq!(text(header, "Content-Type"), Some("text/html"));
        assert_eq!(text(header, "x"), Some("a:b"));
        assert_eq!(text(header, "rubbish"), None);
        assert_eq!(text(b"a: \xff", "a"), None);
        assert_eq!(field(b"", "a"), None);
    }
}
