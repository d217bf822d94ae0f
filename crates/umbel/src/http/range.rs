//! Byte ranges [RFC 9110 §14].

use std::ops::Range;

/// Which part of a body is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it, also if the header is not understood.
    All,
    /// These bytes, at least one.
    Bytes(Range<u64>),
    /// Bytes beyond the end.
    Nothing,
}

impl Part {
    /// Parses a `Range` header for a body of this length. Lists of ranges count as not understood.
    pub(crate) fn parse(header: Option<&str>, len: u64) -> Part {
        match header.and_then(|header| header.strip_prefix("bytes=")) {
            None => Part::All,
            Some(range) => part(range.trim(), len).unwrap_or(Part::All),
        }
    }
}

fn part(range: &str, len: u64) -> Option<Part> {
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse::<u64>().ok() } else { None }
    };
    let range = if first.is_empty() {
        len.saturating_sub(number(last)?)..len
    } else {
        let first = number(first)?;
        let end = if last.is_empty() { len } else { number(last)?.saturating_add(1).min(len) };
        if !last.is_empty() && number(last)? < first {
            return None;
        }
        first..end
    };
    Some(if range.start < range.end { Part::Bytes(range) } else { Part::Nothing })
}

/// Parses the `Content-Range` header of a part: the bytes, and the length of the whole.
pub(crate) fn content_range(header: &str) -> Option<(Range<u64>, u64)> {
    let (range, len) = header.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let (end, len) = (last.checked_add(1)?, len.parse().ok()?);
    (first < end && end <= len).then_some((first..end, len))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_cut_at_the_end_and_what_is_not_understood_is_all() {
        let bytes = |range| Part::Bytes(range);
        for (header, part) in [
            ("bytes=0-0", bytes(0..1)),
            ("bytes=2-", bytes(2..10)),
            ("bytes=2-99", bytes(2..10)),
            ("bytes=-3", bytes(7..10)),
            ("bytes=-99", bytes(0..10)),
            ("bytes=10-", Part::Nothing),
            ("bytes=-0", Part::Nothing),
            ("bytes=3-2", Part::All),
            ("bytes=1-2,4-5", Part::All),
            ("bytes=+1-2", Part::All),
            ("lines=1-2", Part::All),
            ("bytes=", Part::All),
            ("bytes=18446744073709551616-", Part::All),
        ] {
            assert_eq!(Part::parse(Some(header), 10), part, "{header}");
        }
        assert_eq!(Part::parse(None, 10), Part::All);
        assert_eq!(content_range("bytes 2-4/10"), Some((2..5, 10)));
        assert_eq!((content_range("bytes 2-10/10"), content_range("bytes */10")), (None, None));
    }

    proptest! {
        #[test]
        fn a_part_is_never_beyond_the_body(header in "(bytes=)?[0-9,-]{0,24}", len in 0_u64..100) {
            if let Part::Bytes(range) = Part::parse(Some(&header), len) {
                prop_assert!(range.start < range.end && range.end <= len);
            }
            let _ = content_range(&header);
        }
    }
}
