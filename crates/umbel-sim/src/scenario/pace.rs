//! Rate of a channel: fixed, or found by congestion control.

use std::str::FromStr;

use serde::Deserialize;
use umbel_engine::congestion::{CongestionConfig, PaceTo, Share};
use umbel_engine::units::Rate;
use umbel_topology::values::Written;

use super::settings::Settings;

/// Key `rate` of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateEntry {
    /// A fixed rate, in bits per second.
    Fixed(Rate),
    /// The rate that the paths carry.
    Auto,
}

impl FromStr for RateEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<RateEntry, String> {
        if text.trim() == "auto" {
            return Ok(RateEntry::Auto);
        }
        let rate = text.parse().map_err(|error| format!("{error}, or \"auto\""))?;
        Ok(RateEntry::Fixed(rate))
    }
}

/// Keys of a rate that is found.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct PaceKeys {
    pub(super) max_rate: Option<Written<Rate>>,
    pub(super) min_rate: Option<Written<Rate>>,
    pub(super) pace_to: Option<Written<PaceTo>>,
    pub(super) share: Option<Written<Share>>,
}

impl Settings for PaceKeys {
    const KEYS: &'static [&'static str] = &["max_rate", "min_rate", "pace_to", "share"];
}

/// Highest rate if none is written: that of an interface that reports no speed.
const MOST: Rate = Rate::from_bits_per_s(10_000_000_000).unwrap();

/// Rate of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// The fixed rate, or the highest.
    pub(super) rate: Rate,
    /// How the rate is found; `None` if it is fixed.
    pub(super) congestion: Option<CongestionConfig>,
}

impl PaceKeys {
    /// Returns the rate for packets of this length.
    ///
    /// # Errors
    ///
    /// If a key needs another rate than is written, or the bounds exclude each other.
    pub(super) fn pace(self, rate: RateEntry, packet_len: u32) -> Result<Pace, String> {
        let PaceKeys { max_rate, min_rate, pace_to, share } = self;
        if let RateEntry::Fixed(rate) = rate {
            let written =
                [max_rate.is_some(), min_rate.is_some(), pace_to.is_some(), share.is_some()];
            let key = written.iter().zip(PaceKeys::KEYS).find(|(written, _)| **written);
            return match key {
                Some((_, key)) => Err(format!("`{key}` goes with rate = \"auto\"")),
                None => Ok(Pace { rate, congestion: None }),
            };
        }
        let most = max_rate.map_or(MOST, |most| most.0);
        let mut config = CongestionConfig::new(most, packet_len);
        config.min_rate = min_rate.map(|least| least.0);
        if config.min_rate.is_some_and(|least| least > most) {
            return Err(format!("min_rate is above the highest rate, {most}"));
        }
        config.pace_to = pace_to.map_or(config.pace_to, |pace| pace.0);
        config.share = share.map_or(config.share, |share| share.0);
        Ok(Pace { rate: most, congestion: Some(config) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bits_per_s: u64) -> Rate {
        Rate::from_bits_per_s(bits_per_s).unwrap()
    }

    #[test]
    fn a_rate_is_a_number_or_auto() {
        assert_eq!("auto".parse(), Ok(RateEntry::Auto));
        assert_eq!("8M".parse(), Ok(RateEntry::Fixed(rate(8_000_000))));
        let error = "fast".parse::<RateEntry>().unwrap_err();
        assert!(error.contains("auto"), "{error}");
    }

    #[test]
    fn keys_of_a_rate_that_is_found_need_one() {
        let keys = PaceKeys { pace_to: Some(Written(PaceTo::All)), ..PaceKeys::default() };
        let pace = keys.pace(RateEntry::Auto, 1_400).unwrap();
        assert_eq!(pace.congestion.unwrap().pace_to, PaceTo::All);
        let error = keys.pace(RateEntry::Fixed(rate(8_000)), 1_400).unwrap_err();
        assert!(error.contains("`pace_to`"), "{error}");
        let bounds = [Some(Written(rate(50))), Some(Written(rate(100)))];
        let keys = PaceKeys { max_rate: bounds[0], min_rate: bounds[1], ..PaceKeys::default() };
        assert!(keys.pace(RateEntry::Auto, 1_400).unwrap_err().contains("above the highest"));
    }
}
