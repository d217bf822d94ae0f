//! Formatting of numbers for readers.

/// Formats a number with four significant digits and its unit: `1,234 s`, `0.05`, `1.5e-7`.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => rounded(value),
        _ if value.is_nan() => rounded(value),
        unit => format!("{}\u{a0}{unit}", rounded(value)),
    }
}

/// Formats a range with its unit; an unbounded side is omitted.
pub(super) fn range(low: f64, high: f64, unit: &str) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) if low.to_bits() == high.to_bits() => with_unit(low, unit),
        (true, true) => format!("{} – {}", rounded(low), with_unit(high, unit)),
        (true, false) if is_round(low.next_down()) => {
            format!("> {}", with_unit(low.next_down(), unit))
        }
        (true, false) => format!("≥ {}", with_unit(low, unit)),
        (false, true) if is_round(high.next_up()) => {
            format!("< {}", with_unit(high.next_up(), unit))
        }
        (false, true) => format!("≤ {}", with_unit(high, unit)),
        (false, false) => "any".to_owned(),
    }
}

/// Returns whether the number is short in decimal; a bound just beside such a number excludes it.
fn is_round(value: f64) -> bool {
    value.to_string().len() <= 8
}

/// Formats a number with four significant digits, or more if it has more before the decimal point.
pub(super) fn rounded(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "–"
        } else if value > 0.0 {
            "∞"
        } else {
            "−∞"
        }
        .to_owned();
    }
    let decimals = (3 - magnitude(value)).clamp(0, 7) as usize;
    let text = fixed(value, decimals);
    if text.contains('.') && !text.contains('e') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Formats a number with `decimals` decimals, and commas between the thousands.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(-5..15).contains(&magnitude(value)) {
        return format!("{value:.3e}").replace(".000e", "e").replace('-', "−");
    }
    let digits = format!("{:.decimals$}", value.abs());
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    // A number that rounds to zero has no sign.
    let negative = value < 0.0 && digits.contains(|c| ('1'..='9').contains(&c));
    let mut text = if negative { "−".to_owned() } else { String::new() };
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// Returns the power of ten of the first digit; 0 for 0.
pub(super) fn magnitude(value: f64) -> i32 {
    if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 }
}
