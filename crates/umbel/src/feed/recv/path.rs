//! Notices a path that carries short packets only, because a link's MTU is too small.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::tmtp::ReceiverStats;
use umbel_wire::SmallBlockHeader;
use umbel_wire::feed::Feed;

/// Time without progress after which the user is told. Nothing else may be wrong than much loss.
const SUSPICIOUS: Duration = Duration::from_secs(5);
/// Time after which no full packet is expected any more. A parent evicts after 30 s.
const CERTAIN: Duration = Duration::from_secs(15);
/// Number of packets that the source must have had time to send.
const PACKETS: u64 = 32;
/// Number of heartbeats that must have come, and of requests that must have been sent. Heartbeats
/// take the same way as data, and are short.
const SIGNS: u64 = 4;
/// Number of requests without an answer that make it certain. Where links lose a fifth of all
/// packets, four in a row are often in vain.
const CERTAIN_REQUESTS: u64 = 12;
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

/// Time without progress.
#[derive(Clone, Copy, Debug)]
struct Standstill {
    since: Instant,
    /// Complete blocks, heartbeats and requests at its beginning.
    held: u32,
    heartbeats: u64,
    asked: u64,
}

/// The path from the source to this receiver.
#[derive(Debug)]
pub(super) struct Path {
    /// Bytes of a full packet.
    packet: u64,
    /// Time for which the source sends [`PACKETS`].
    sending: Duration,
    standstill: Option<Standstill>,
    suspicious: bool,
}

impl Path {
    pub(super) fn new(feed: &Feed) -> Path {
        let payload = u64::from(feed.symbol_len) + SmallBlockHeader::STAMPED_LEN as u64;
        let headers = super::super::family(&feed.data).header_bytes() as u64;
        let (bits, rate) = (PACKETS * payload * 8, feed.kbit_per_s.max(1));
        let (packet, sending) = (payload + headers, Duration::from_millis(bits / rate));
        Path { packet, sending, standstill: None, suspicious: false }
    }

    /// Returns whether full packets may not pass.
    pub(super) fn is_suspicious(&self) -> bool {
        self.suspicious
    }

    /// Concludes from what came so far: `held` of `known` blocks are complete. Returns only what is
    /// new.
    pub(super) fn look(
        &mut self,
        now: Instant,
        (held, known): (u32, u32),
        stats: &ReceiverStats,
    ) -> Option<Finding> {
        if held >= known || stats.full_received > 0 {
            (self.standstill, self.suspicious) = (None, false);
            return None;
        }
        let heartbeats = stats.heartbeats;
        let asked = stats.nacks_sent + stats.nacks_suppressed + stats.fetches_sent;
        let fresh = Standstill { since: now, held, heartbeats, asked };
        let standstill = self.standstill.filter(|still| still.held == held).unwrap_or(fresh);
        self.standstill = Some(standstill);
        let time = now.since(standstill.since).saturating_sub(self.sending);
        let asked = asked - standstill.asked;
        if heartbeats < standstill.heartbeats + SIGNS || asked < SIGNS {
            None
        } else if time >= CERTAIN && asked >= CERTAIN_REQUESTS {
            Some(Finding::TooNarrow)
        } else if time >= SUSPICIOUS && !self.suspicious {
            self.suspicious = true;
            Some(Finding::Suspicious)
        } else {
            None
        }
    }

    /// Returns the fault.
    pub(super) fn cause(&self) -> String {
        format!(
            "packets of {} bytes do not arrive, shorter ones do: the path's MTU is smaller",
            self.packet
        )
    }

    /// Returns a line with the fault and its remedy.
    pub(super) fn advice(&self) -> String {
        let mtu = ADVISED.into_iter().find(|mtu| *mtu < self.packet).unwrap_or(256);
        format!("{}; the sender needs `umbel send --mtu {mtu}`", self.cause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings after 6, 7 and 16 s with these counts.
    fn findings(full_received: u64, heartbeats: u64, nacks_sent: u64) -> [Option<Finding>; 3] {
        let stats =
            ReceiverStats { full_received, heartbeats, nacks_sent, ..ReceiverStats::default() };
        let mut path = path(1428);
        let at = |s| Instant::EPOCH + Duration::from_secs(s);
        path.look(at(0), (1, 2), &ReceiverStats::default());
        [6, 7, 16].map(|s| path.look(at(s), (1, 2), &stats))
    }

    fn path(packet: u64) -> Path {
        let sending = Duration::from_millis(10);
        Path { packet, sending, standstill: None, suspicious: false }
    }

    #[test]
    fn only_short_packets_for_a_while_show_a_narrow_path() {
        let narrow = [Some(Finding::Suspicious), None, Some(Finding::TooNarrow)];
        assert_eq!(findings(0, 30, 12), narrow);
        let suspicious = [Some(Finding::Suspicious), None, None];
        assert_eq!(findings(0, 30, 9), suspicious, "too few requests to be certain");
        // The channel is lossy, does not arrive at all, or nothing is asked for.
        for other in [findings(1, 30, 12), findings(0, 3, 12), findings(0, 30, 3)] {
            assert_eq!(other, [None; 3]);
        }
    }

    #[test]
    fn the_advice_is_smaller_than_what_is_sent() {
        let advice = |packet| path(packet).advice().rsplit_once(' ').unwrap().1.to_owned();
        assert_eq!([1428, 1208, 504].map(advice), ["1280`", "576`", "256`"]);
    }
}
