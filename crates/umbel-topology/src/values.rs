//! Values as people write them in files.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use umbel_engine::units::ByteCount;

use crate::{Cidr, Queue};

/// Value that is read by `FromStr`, whether TOML has it as a string or as a number.
#[derive(Clone, Copy, Debug)]
pub struct Written<T>(pub T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written<T>, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "expected a number or a string")]
        enum Raw {
            Integer(i64),
            Float(f64),
            Text(String),
        }
        let text = match Raw::deserialize(deserializer)? {
            Raw::Integer(n) => n.to_string(),
            Raw::Float(x) => x.to_string(),
            Raw::Text(text) => text,
        };
        text.parse().map(Written).map_err(D::Error::custom)
    }
}

/// Time, like `20ms` or `2h`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let fail = || format!("`{text}` is not a time: write it like 20ms, 250us, 1.5s or 2h");
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
        let number: f64 = text[..end].parse().map_err(|_| fail())?;
        let seconds = match text[end..].trim() {
            "d" => number * 86_400.0,
            "h" => number * 3_600.0,
            "min" => number * 60.0,
            "s" => number,
            "ms" => number / 1e3,
            "us" | "µs" => number / 1e6,
            "ns" => number / 1e9,
            _ => return Err(fail()),
        };
        if seconds > 1e9 {
            return Err(format!("`{text}` is more than 30 years"));
        }
        Duration::try_from_secs_f64(seconds).map(Time).map_err(|_| fail())
    }
}

/// Travel time of a packet, at most an hour.
#[derive(Clone, Copy, Debug)]
pub struct Delay(pub Duration);

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        match text.parse()? {
            Time(time) if time > Duration::from_hours(1) => {
                Err(format!("`{text}` is more than an hour"))
            }
            Time(time) => Ok(Delay(time)),
        }
    }
}

/// Writes a duration as [`Time`] reads it, exactly.
pub(crate) fn time_text(time: Duration) -> String {
    let ns = time.as_nanos();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if ns.is_multiple_of(unit) {
            return format!("{}{name}", ns / unit);
        }
    }
    format!("{ns}ns")
}

/// Share of a whole, like `0.05` or `5%`. The user of the value checks its range.
#[derive(Clone, Copy, Debug)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let fail = |_| format!("`{text}` is not a probability: write it like 0.05 or 5%");
        match text.trim().strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(|p: f64| Share(p / 100.0)).map_err(fail),
            None => text.trim().parse().map(Share).map_err(fail),
        }
    }
}

impl FromStr for Queue {
    type Err = String;

    /// Reads `64KiB` as bytes, `100` and `100p` as packets.
    fn from_str(text: &str) -> Result<Queue, String> {
        let text = text.trim();
        let packets = text.strip_suffix("packets").or_else(|| text.strip_suffix('p'));
        if let Ok(packets) = packets.unwrap_or(text).trim().parse() {
            return Ok(Queue::Packets(packets));
        }
        text.parse::<ByteCount>()
            .map(Queue::Bytes)
            .map_err(|_| format!("`{text}` is not a queue: write 100 (packets) or 64KiB"))
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let fail = || format!("`{text}` is not an address: write it like 10.1.0.1/24");
        let (address, prefix) = text.split_once('/').ok_or_else(fail)?;
        let address: IpAddr = address.parse().map_err(|_| fail())?;
        let prefix = prefix.parse().map_err(|_| fail())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if prefix > longest || address.is_unspecified() || address.is_multicast() {
            return Err(fail());
        }
        Ok(Cidr { address, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cidr, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, ms) in [("20ms", 20), ("1.5s", 1_500), ("2h", 7_200_000), ("3min", 180_000)] {
            assert_eq!(text.parse::<Time>().unwrap().0, Duration::from_millis(ms), "{text}");
        }
        for text in ["20", "", "s", "-1s", "1.2.3s", "3 weeks", "1e3s", "99999d"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert!("2h".parse::<Delay>().is_err());
    }

    proptest! {
        #[test]
        fn a_time_that_is_written_is_read_as_it_was(ns in 0..3_600_000_000_000_u64) {
            let time = Duration::from_nanos(ns);
            prop_assert_eq!(time_text(time).parse::<Time>().unwrap().0, time);
        }
    }
}
