//! Times on the command line: `10s`, `1.5min`, `300ms`.

use std::time::Duration;

/// Parses a time with its unit.
///
/// # Errors
///
/// One line that says what it should look like.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time such as 300ms, 10s, 5min or 1h");
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Parses a time with its unit, or a number of seconds.
///
/// # Errors
///
/// As [`parse_duration`].
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse().ok().map(Duration::try_from_secs_f64);
    seconds.and_then(Result::ok).map_or_else(|| parse_duration(text), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_may_be_seconds() {
        for (text, millis) in
            [("5", 5_000), ("0.5", 500), ("0", 0), ("500ms", 500), ("2m", 120_000)]
        {
            assert_eq!(parse_seconds(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1", "nan", "inf", "1e400", "soon"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_has_a_unit() {
        for (text, millis) in [
            ("300ms", 300),
            ("10s", 10_000),
            ("1.5min", 90_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1d", "nan s", "1e400s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
