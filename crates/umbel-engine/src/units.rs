//! Rates, sizes and counts as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteCount(pub u64);

/// An invalid rate or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a number with a known unit.
    #[error("`{text}` is not a {what}: write it like {example}")]
    Syntax {
        /// The invalid text.
        text: String,
        /// The expected quantity, such as "rate".
        what: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// Zero, or too large for 64 bits.
    #[error("`{0}` is out of range: a rate is at least 1 bit/s and below 2^63")]
    Range(String),
}

impl Rate {
    /// Creates a rate of `n` bits per second. Returns `None` for 0.
    pub const fn from_bits_per_s(n: u64) -> Option<Rate> {
        if n == 0 { None } else { Some(Rate(n)) }
    }

    /// Returns the bits per second, never 0.
    pub const fn bits_per_s(self) -> u64 {
        self.0
    }

    /// Returns this rate times `factor`, at least 1 bit/s.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Rate {
        Rate(((self.0 as f64 * factor).round() as u64).max(1))
    }

    /// Returns the time that `bytes` take at this rate.
    pub fn time_for(self, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the number of bytes that pass in `time`.
    pub fn bytes_in(self, time: Duration) -> u64 {
        u64::try_from(u128::from(self.0) * time.as_nanos() / 8_000_000_000).unwrap_or(u64::MAX)
    }
}

/// Splits `12.5Mbit` into the number and the unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

impl FromStr for Rate {
    type Err = UnitError;

    /// Parses `64000`, `100M`, `1.5Mbit`, `10Mbit/s`, `2Gbps`: bits per second, decimal prefixes. A
    /// capital `B` or `byte` means bytes, as in `50MB/s` or `6MiB/s`. `Ki`, `Mi`, `Gi` and `Ti` are
    /// binary prefixes.
    fn from_str(text: &str) -> Result<Rate, UnitError> {
        let syntax = || UnitError::Syntax {
            text: text.to_owned(),
            what: "rate",
            example: "100M or 1.5Mbit (bits per second)",
        };
        let (number, unit) = split(text).ok_or_else(syntax)?;
        let factor = rate_factor(unit).ok_or_else(syntax)?;
        let bits = (number * factor).round();
        if !(1.0..9.2e18).contains(&bits) {
            return Err(UnitError::Range(text.to_owned()));
        }
        Ok(Rate(bits as u64))
    }
}

/// Returns the bits per second of one `unit`. Case matters for `b` and `B` only.
fn rate_factor(unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
    let lower = unit.to_ascii_lowercase();
    let bits = ["bits", "bit"].iter().find_map(|name| lower.strip_suffix(name));
    let bytes = ["bytes", "byte"].iter().find_map(|name| lower.strip_suffix(name));
    let (prefix, bits) = match (bits, bytes) {
        (Some(prefix), _) => (prefix, 1.0),
        (_, Some(prefix)) => (prefix, 8.0),
        _ if unit.ends_with('B') => (&lower[..lower.len() - 1], 8.0),
        _ => (lower.strip_suffix('b').unwrap_or(&lower), 1.0),
    };
    let base: f64 = if prefix.ends_with('i') { 1024.0 } else { 1000.0 };
    let power = match prefix {
        "" => 0,
        "k" | "ki" => 1,
        "m" | "mi" => 2,
        "g" | "gi" => 3,
        "t" | "ti" => 4,
        _ => return None,
    };
    Some(bits * base.powi(power))
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kbit/s", bits / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} Mbit/s", bits / 1e6),
            _ => write!(f, "{:.2} Gbit/s", bits / 1e9),
        }
    }
}

impl FromStr for ByteCount {
    type Err = UnitError;

    /// Parses `512`, `64KiB`, `64K`, `10MB`, `1.5G`. A bare letter and `B` are decimal, `iB` is
    /// binary.
    fn from_str(text: &str) -> Result<ByteCount, UnitError> {
        let syntax =
            || UnitError::Syntax { text: text.to_owned(), what: "size", example: "64KiB or 10MB" };
        let (number, unit) = split(text).ok_or_else(syntax)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            "kib" => 1024.0,
            "mib" => 1024.0 * 1024.0,
            "gib" => 1024.0 * 1024.0 * 1024.0,
            "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(syntax()),
        };
        let bytes = (number * factor).round();
        if !(0.0..9.2e18).contains(&bytes) {
            return Err(syntax());
        }
        Ok(ByteCount(bytes as u64))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

/// Formats a rate in bits per second, which may be 0.
pub fn rate_text(bits_per_s: u64) -> String {
    Rate::from_bits_per_s(bits_per_s).map_or("0 bit/s".to_owned(), |rate| rate.to_string())
}

/// Formats a number of things: "1 file", "2 files". The noun is in the singular; one that ends with
/// a consonant and `y` gets `ies`.
pub fn counted<N: fmt::Display + PartialEq + From<u8> + Copy>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        return format!("1 {noun}");
    }
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match stem {
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_may_be_none() {
        assert_eq!([0, 1, 64_000].map(rate_text), ["0 bit/s", "1 bit/s", "64.0 kbit/s"]);
    }

    #[test]
    fn one_thing_is_singular_and_none_or_several_are_plural() {
        let counts = [counted(0_u64, "file"), counted(1_u32, "file"), counted(2_usize, "file")];
        assert_eq!(counts, ["0 files", "1 file", "2 files"]);
        assert_eq!(counted(2_u8, "copy"), "2 copies");
        assert_eq!(counted(1_u8, "copy"), "1 copy");
        assert_eq!(counted(3_u16, "day"), "3 days");
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bits) in [
            ("64000", 64_000),
            ("64000bit/s", 64_000),
            ("9600 bps", 9_600),
            ("100M", 100_000_000),
            ("1.5Mbit", 1_500_000),
            ("10mbit/s", 10_000_000),
            ("50Mb/s", 50_000_000),
            ("2 Gbps", 2_000_000_000),
            ("1Mib", 1_048_576),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_s(), bits, "{text}");
        }
        for text in ["0", "0M", "", "fast", "-1M", "1Mb8", "1e400", "1MBit/h", "1Q"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_in_bytes_is_eight_times_as_many_bits() {
        for (text, bits) in [
            ("50MB/s", 400_000_000),
            ("50MB", 400_000_000),
            ("50MBps", 400_000_000),
            ("1.5 kbytes/s", 12_000),
            ("100B/s", 800),
            ("6MiB/s", 6 * 8 * 1_048_576),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().bits_per_s(), bits, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("512", 512), ("64KiB", 65_536), ("1.5k", 1_500), ("0", 0)] {
            assert_eq!(text.parse::<ByteCount>().unwrap().0, bytes, "{text}");
        }
        assert!("lots".parse::<ByteCount>().is_err());
    }

    #[test]
    fn a_rate_and_a_time_give_bytes_and_back() {
        let rate = Rate::from_bits_per_s(8_000).unwrap();
        assert_eq!(rate.time_for(500), Duration::from_millis(500));
        assert_eq!(rate.bytes_in(Duration::from_millis(500)), 500);
    }
}
