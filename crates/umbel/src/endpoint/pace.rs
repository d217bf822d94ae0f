//! The rate of a channel: what the operator says of it, and what is found.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;
use umbel_engine::congestion::{CongestionConfig, Limit, PaceTo, Share};
use umbel_engine::units::Rate;

/// What the operator says of a channel's rate. By default the rate is found.
#[derive(Clone, Copy, Debug, Default)]
pub struct PaceOptions {
    /// Highest rate, in bits of UDP payload per second. Default: the speed that the interface
    /// reports, or 10 Gbit/s.
    pub rate: Option<Rate>,
    /// Share of a queue that others use too.
    pub share: Share,
    /// Whose paths set the rate. Default: [`PaceTo::Most`], and [`PaceTo::All`] for a pipe.
    pub pace_to: Option<PaceTo>,
    /// Rate below which the channel does not go for anybody's path. Default: none.
    pub min_rate: Option<Rate>,
}

impl PaceOptions {
    /// Creates options with a highest rate.
    pub fn at_most(rate: Rate) -> PaceOptions {
        PaceOptions { rate: Some(rate), ..PaceOptions::default() }
    }

    /// Returns the constants of a controller for packets of this length.
    ///
    /// # Errors
    ///
    /// If the least rate is above the highest.
    pub(crate) fn congestion(
        &self,
        most: Rate,
        packet_len: u16,
    ) -> anyhow::Result<CongestionConfig> {
        let least = self.min_rate.filter(|least| *least > most);
        ensure!(least.is_none(), "the least rate is above the highest, {most}");
        let mut config = CongestionConfig::new(most, packet_len.into());
        config.share = self.share;
        config.pace_to = self.pace_to.unwrap_or_default();
        config.min_rate = self.min_rate;
        Ok(config)
    }
}

/// What limits the rate of a channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitReport {
    /// One of `start`, `path`, `machine`, `source`, `bound`, `policy`, `silence`.
    pub by: &'static str,
    /// The receiver, if it is its path or machine.
    pub receiver: Option<String>,
    /// Seconds since it has been so.
    pub for_s: f64,
}

impl LimitReport {
    /// Reports a limit; `name` returns what people call a receiver.
    pub(crate) fn new<Who>(
        limit: &Limit<Who>,
        since: Duration,
        name: impl Fn(&Who) -> Option<String>,
    ) -> LimitReport {
        let (by, who) = match limit {
            Limit::Start => ("start", None),
            Limit::Path(who) => ("path", Some(who)),
            Limit::Machine(who) => ("machine", Some(who)),
            Limit::Source => ("source", None),
            Limit::Bound => ("bound", None),
            Limit::Policy => ("policy", None),
            Limit::Silence => ("silence", None),
        };
        LimitReport { by, receiver: who.and_then(name), for_s: since.as_secs_f64() }
    }
}

impl fmt::Display for LimitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let receiver = self.receiver.as_deref().unwrap_or("a receiver");
        match self.by {
            "start" => write!(f, "looking for the rate"),
            "path" => write!(f, "limited by the path to {receiver}"),
            "machine" => write!(f, "limited by the machine {receiver}"),
            "source" => write!(f, "limited by this machine"),
            "bound" => write!(f, "the highest rate"),
            "policy" => write!(f, "limited by --pace-to or --min-rate"),
            _ => write!(f, "nobody reports how it arrives"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_least_rate_above_the_highest_is_refused() {
        let rate = |n| Rate::from_bits_per_s(n).unwrap();
        let options = PaceOptions { min_rate: Some(rate(50)), ..PaceOptions::default() };
        assert!(options.congestion(rate(100), 1400).is_ok());
        let error = options.congestion(rate(40), 1400).unwrap_err();
        assert!(error.to_string().contains("above the highest"), "{error}");
    }

    #[test]
    fn a_limit_names_the_receiver() {
        let name = |who: &u32| Some(format!("192.0.2.{who}"));
        let report = LimitReport::new(&Limit::Path(7), Duration::from_secs(2), name);
        assert_eq!(report.to_string(), "limited by the path to 192.0.2.7");
        let report = LimitReport::new(&Limit::Bound, Duration::from_secs(2), name);
        assert_eq!((report.by, report.receiver), ("bound", None));
    }
}
