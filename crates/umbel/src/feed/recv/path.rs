//! Notices a path that carries short packets only, because a link's MTU is too small.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::tmtp::ReceiverStats;
use umbel_wire::SmallBlockHeader;
use umbel_wire::feed::Feed;

/// Time without a full packet after which the user is told. Nothing else may be wrong than much
/// loss.
const SUSPICIOUS: Duration = Duration::from_secs(5);
/// Time after which no full packet is expected any more. Repairs were asked for meanwhile.
const CERTAIN: Duration = Duration::from_secs(30);
/// Number of packets that the source must have had time to send.
const PACKETS: u64 = 32;
/// Number of heartbeats that must have come. They take the same way as data, and are short.
const HEARTBEATS: u64 = 4;
/// Values of `--mtu` that are worth a try: the least MTU of IPv6, and that of any IPv4 host.
const ADVISED: [u64; 2] = [1280, 576];

/// Conclusion about the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Full packets may not pass.
    Suspicious,
    /// No full packet passes.
    TooNarrow,
}

/// The path from the source to this receiver.
#[derive(Debug)]
pub(super) struct Path {
    /// Bytes of a full packet.
    packet: u64,
    /// Time for which the source sends [`PACKETS`].
    sending: Duration,
    /// Time since which data are known to have been sent, and the heartbeats that had come by then.
    since: Option<(Instant, u64)>,
    told: bool,
}

impl Path {
    pub(super) fn new(feed: &Feed) -> Path {
        let payload = u64::from(feed.symbol_len) + SmallBlockHeader::LEN as u64;
        let headers = super::super::family(&feed.data).header_bytes() as u64;
        let (bits, rate) = (PACKETS * payload * 8, feed.kbit_per_s.max(1));
        let (packet, sending) = (payload + headers, Duration::from_millis(bits / rate));
        Path { packet, sending, since: None, told: false }
    }

    /// Concludes from what came so far. `known` blocks were sent. Returns only what is new.
    pub(super) fn look(
        &mut self,
        now: Instant,
        known: u32,
        stats: &ReceiverStats,
    ) -> Option<Finding> {
        let repairs = stats.repairs_received + stats.repairs_unneeded;
        if known == 0 || stats.data_received + stats.fetched_received + repairs > 0 {
            self.since = None;
            return None;
        }
        let (since, heartbeats) = *self.since.get_or_insert((now, stats.heartbeats));
        let silence = now.since(since).saturating_sub(self.sending);
        if stats.heartbeats < heartbeats + HEARTBEATS {
            None
        } else if silence >= CERTAIN {
            Some(Finding::TooNarrow)
        } else if silence >= SUSPICIOUS && !self.told {
            self.told = true;
            Some(Finding::Suspicious)
        } else {
            None
        }
    }

    /// Returns a line that says what is wrong and what mends it.
    pub(super) fn advice(&self) -> String {
        let mtu = ADVISED.into_iter().find(|mtu| *mtu < self.packet).unwrap_or(256);
        format!(
            "packets of {} bytes do not arrive, shorter ones do: the path's MTU is smaller; the \
             sender needs `umbel send --mtu {mtu}`",
            self.packet
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_heartbeats_without_data_show_a_narrow_path() {
        let of = |data_received, heartbeats| {
            let stats = ReceiverStats { data_received, heartbeats, ..ReceiverStats::default() };
            let sending = Duration::from_millis(10);
            let mut path = Path { packet: 1428, sending, since: None, told: false };
            let at = |s| Instant::EPOCH + Duration::from_secs(s);
            path.look(at(0), 1, &ReceiverStats::default());
            [6, 7, 31].map(|s| path.look(at(s), 1, &stats))
        };
        assert_eq!(of(0, 30), [Some(Finding::Suspicious), None, Some(Finding::TooNarrow)]);
        // The channel does not arrive at all, or is lossy.
        assert_eq!([of(0, 3), of(1, 30)], [[None; 3]; 2]);
    }

    #[test]
    fn the_advice_is_smaller_than_what_is_sent() {
        let advice = |packet| {
            let path = Path { packet, sending: Duration::ZERO, since: None, told: false };
            path.advice().rsplit_once(' ').unwrap().1.to_owned()
        };
        assert_eq!([1428, 1208, 504].map(advice), ["1280`", "576`", "256`"]);
    }
}
