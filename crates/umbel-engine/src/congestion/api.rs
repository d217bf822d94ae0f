//! What a controller is told, and what it tells.

use std::str::FromStr;
use std::time::Duration;

use umbel_wire::reception::ReportSchedule;

use crate::units::Rate;

/// How much of a queue that others use too a channel takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// All that there is: the link is the channel's own.
    Full,
    /// As much as a TCP connection in its place, between half and twice.
    #[default]
    Fair,
    /// What others leave.
    Background,
}

/// Whose paths set the pace of a channel. Who carries less leaves the pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaceTo {
    /// The rate at which most is delivered to all receivers together, among those that at least half
    /// of them carry.
    #[default]
    Most,
    /// The slowest path.
    All,
    /// The rate that this percentage of receivers carries, from 1 to 100.
    Percentile(u8),
}

impl FromStr for Share {
    type Err = &'static str;

    /// Reads `full`, `fair` or `background`.
    fn from_str(text: &str) -> Result<Share, &'static str> {
        match text {
            "full" => Ok(Share::Full),
            "fair" => Ok(Share::Fair),
            "background" => Ok(Share::Background),
            _ => Err("it is full, fair or background"),
        }
    }
}

impl FromStr for PaceTo {
    type Err = &'static str;

    /// Reads `most`, `all` or a percentage, with or without its sign.
    fn from_str(text: &str) -> Result<PaceTo, &'static str> {
        let percent = || text.trim_end_matches('%').parse().ok();
        match text {
            "most" => Ok(PaceTo::Most),
            "all" => Ok(PaceTo::All),
            _ => percent()
                .filter(|percent| (1..=100).contains(percent))
                .map(PaceTo::Percentile)
                .ok_or("it is most, all or a percentage from 1 to 100"),
        }
    }
}

/// What a controller tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<Who> {
    /// The channel's rate has changed.
    Rate(Rate),
    /// The path of a receiver carries less than the channel's pace. It does not count any more; its
    /// reports are ignored until it is forgotten.
    Left {
        /// The receiver.
        who: Who,
        /// Rate that its path carries.
        carries: Rate,
    },
    /// One receiver reports by another schedule from now on.
    Schedule {
        /// The receiver.
        who: Who,
        /// Its schedule.
        schedule: ReportSchedule,
    },
    /// All receivers without a schedule of their own report by this one from now on.
    ScheduleOthers(ReportSchedule),
}

/// What limits the rate of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit<Who> {
    /// No limit is known yet.
    Start,
    /// The path of a receiver.
    Path(Who),
    /// The machine of a receiver drops packets.
    Machine(Who),
    /// The source does not send as fast as it may: its disk, processor or link.
    Source,
    /// The operator's bound, or the speed of the interface.
    Bound,
    /// The operator's policy: the pace is not that of the slowest path, or not below a bound.
    Policy,
    /// No receiver reports.
    Silence,
}

impl<Who> Limit<Who> {
    /// Names the receiver in another way.
    pub fn map<Name>(self, name: impl FnOnce(Who) -> Name) -> Limit<Name> {
        match self {
            Limit::Start => Limit::Start,
            Limit::Path(who) => Limit::Path(name(who)),
            Limit::Machine(who) => Limit::Machine(name(who)),
            Limit::Source => Limit::Source,
            Limit::Bound => Limit::Bound,
            Limit::Policy => Limit::Policy,
            Limit::Silence => Limit::Silence,
        }
    }
}

/// The path to a receiver, for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathStatus {
    /// Whether anything was reported of it.
    pub is_known: bool,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Time that packets waited in queues, by the last report.
    pub queue: Duration,
    /// Rate that the path carries, if that is known to be its limit.
    pub carries: Option<Rate>,
    /// Share of packets that the path loses at any rate.
    pub loss: f64,
    /// Whether the channel's rate is what this path carries.
    pub is_limiting: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_percentages_are_taken_and_nothing_else() {
        assert_eq!("background".parse(), Ok(Share::Background));
        assert!("half".parse::<Share>().is_err());
        assert_eq!("most".parse(), Ok(PaceTo::Most));
        assert_eq!("90".parse(), Ok(PaceTo::Percentile(90)));
        assert_eq!("90%".parse(), Ok(PaceTo::Percentile(90)));
        for wrong in ["0", "101", "-1", "", "some"] {
            assert!(wrong.parse::<PaceTo>().is_err(), "{wrong}");
        }
    }
}
