//! Rates on the command line, as in files, but never without a unit.

use umbel_engine::units::Rate;

/// Parses a rate with its unit.
///
/// # Errors
///
/// One line that says what it should look like.
pub(super) fn parse_rate(text: &str) -> Result<Rate, String> {
    let number = text.trim();
    let bare = number.parse().is_ok_and(|rate: f64| rate > 0.0);
    if bare {
        return Err(format!(
            "`{number}` has no unit: write {number}M for megabits per second, or {number}bit/s"
        ));
    }
    text.parse().map_err(|error: umbel_engine::units::UnitError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_without_a_unit_is_refused_with_what_to_write() {
        for text in ["50", " 50 ", "64000", "1.5"] {
            let error = parse_rate(text).unwrap_err();
            assert!(error.contains(&format!("write {}M", text.trim())), "{error}");
        }
        assert_eq!(parse_rate("50M").unwrap().bits_per_s(), 50_000_000);
        assert_eq!(parse_rate("50MB/s").unwrap().bits_per_s(), 400_000_000);
        assert!(parse_rate("0").unwrap_err().contains("out of range"));
        assert!(parse_rate("fast").unwrap_err().contains("100M"));
    }
}
