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
    #[arg(long, default_value = "fair")]
    share: Share,
    /// Whose paths set the rate: most (it delivers most to all together, and half of them carry it),
    /// all (the slowest), or the percentage of receivers that must carry it. Who carries less gets
    /// the rest apart [default: most, and all where a pipe is sent]
    #[arg(long, value_name = "most|all|PERCENT")]
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
