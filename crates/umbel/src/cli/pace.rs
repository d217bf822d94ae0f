//! Options of a channel's rate.

use umbel_engine::congestion::{PaceTo, Share};
use umbel_engine::units::Rate;

use super::rate::parse_rate;
use crate::endpoint::pace::PaceOptions;

/// Options of a channel's rate, which is found where none is given.
#[derive(Debug, clap::Args)]
pub(super) struct PaceArgs {
    /// Highest rate, such as 100M or 1.5Mbit (bits per second) or 12MB/s (bytes) [default: that of
    /// the interface]
    #[arg(long, value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Share of a link that others use too: full (all of it), fair (as much as a TCP connection) or
    /// background (what others leave)
    #[arg(long, default_value = "fair", value_parser = parse_share)]
    share: Share,
    /// Whose paths set the rate: most (it delivers most to all together, and half of them carry it),
    /// all (the slowest), or the percentage of receivers that must carry it. Who carries less gets
    /// the rest apart [default: most, and all where a pipe is sent]
    #[arg(long, value_name = "most|all|PERCENT", value_parser = parse_pace)]
    pace_to: Option<PaceTo>,
    /// Rate below which the channel does not go: who carries less gets the rest apart
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    min_rate: Option<Rate>,
}

impl PaceArgs {
    pub(super) fn options(&self) -> PaceOptions {
        let PaceArgs { rate, share, pace_to, min_rate } = *self;
        PaceOptions { rate, share, pace_to, min_rate }
    }
}

fn parse_share(text: &str) -> Result<Share, String> {
    match text {
        "full" => Ok(Share::Full),
        "fair" => Ok(Share::Fair),
        "background" => Ok(Share::Background),
        _ => Err("it is full, fair or background".to_owned()),
    }
}

fn parse_pace(text: &str) -> Result<PaceTo, String> {
    match text {
        "most" => Ok(PaceTo::Most),
        "all" => Ok(PaceTo::All),
        _ => text
            .trim_end_matches('%')
            .parse()
            .ok()
            .filter(|percent| (1..=100).contains(percent))
            .map(PaceTo::Percentile)
            .ok_or_else(|| "it is most, all or a percentage from 1 to 100".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_percentages_are_taken_and_nothing_else() {
        assert_eq!(parse_share("background"), Ok(Share::Background));
        assert!(parse_share("half").is_err());
        assert_eq!(parse_pace("most"), Ok(PaceTo::Most));
        assert_eq!(parse_pace("90"), Ok(PaceTo::Percentile(90)));
        assert_eq!(parse_pace("90%"), Ok(PaceTo::Percentile(90)));
        for wrong in ["0", "101", "-1", "", "some"] {
            assert!(parse_pace(wrong).is_err(), "{wrong}");
        }
    }
}
