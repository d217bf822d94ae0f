//! Nudges: small packets that keep a session going on a path with heavy loss.
//!
//! QUIC retransmits possibly lost packets after a time that doubles until a reply comes. That time
//! starts from a mean round trip which contains such waits [RFC 9002 §5.3, §6.2]. On a path that
//! loses half of all packets both ways, each makes the other longer. In the end a session stands
//! still for more than its idle timeout.
//!
//! Nudges follow when the last message has gone unacknowledged for longer than it should. Each
//! packet carries a datagram of one byte that is never read. Any of them may bring the
//! acknowledgement that ends the doubling, reveals losses, and measures a round trip without waits.
//! Without loss there are no nudges.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::Connection;
use tokio::time::sleep;

use super::congestion::Seen;
use super::outbox::Outbox;

/// Packets sent in succession. QUIC declares a packet lost when one sent three later has arrived
/// [RFC 9002 §6.1.1].
const BURST: usize = 3;

/// Time that an acknowledgement may take beyond two round trips: the 25 ms for which a peer may
/// delay it, and some for busy machines.
const FIRST_PAUSE: Duration = Duration::from_millis(35);

/// Maximum time between two bursts, beyond two round trips.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Nudges the peer whenever data written from the outbox seems to be lost. A round trip as long as
/// `doubtful` is measured again at once.
pub(super) async fn nudge(
    connection: &Connection,
    outbox: &Outbox,
    doubtful: Duration,
) -> Infallible {
    if connection.rtt() >= doubtful {
        send_burst(connection);
    }
    loop {
        let mut vigil = Vigil::over(outbox.wrote().await);
        loop {
            let round_trips = 2 * Seen::on(connection).shortest_rtt;
            sleep(vigil.pause + round_trips).await;
            match vigil.turn(&Seen::on(connection), outbox.last_write()) {
                Turn::Wait => {}
                Turn::Nudge => send_burst(connection),
                Turn::Rest => break,
            }
        }
    }
}

fn send_burst(connection: &Connection) {
    for _ in 0..BURST {
        // A peer that accepts no datagrams is left to QUIC.
        let _ = connection.send_datagram(Bytes::from_static(&[0]));
    }
}

/// The wait for an acknowledgement of written data.
#[derive(Debug)]
struct Vigil {
    /// Packets sent after this time have not been acknowledged yet.
    since: Instant,
    pause: Duration,
}

/// The action after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Wait again, since more was sent meanwhile.
    Wait,
    /// Nudge, and wait again.
    Nudge,
    /// Stop waiting, since all data was acknowledged.
    Rest,
}

impl Vigil {
    fn over(written: Instant) -> Vigil {
        Vigil { since: written, pause: FIRST_PAUSE }
    }

    fn turn(&mut self, seen: &Seen, last_write: Option<Instant>) -> Turn {
        // The lost packets have been sent again.
        if let Some(lost) = seen.lost.filter(|&lost| lost > self.since) {
            *self = Vigil::over(lost);
            return Turn::Wait;
        }
        if seen.acknowledged < Some(self.since) {
            self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
            return Turn::Nudge;
        }
        match last_write.filter(|&write| write > self.since) {
            Some(write) => {
                *self = Vigil::over(write);
                Turn::Wait
            }
            None => Turn::Rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(acknowledged: Option<Instant>, lost: Option<Instant>) -> Seen {
        Seen { acknowledged, lost, shortest_rtt: Duration::ZERO }
    }

    #[test]
    fn what_is_acknowledged_needs_no_nudge() {
        let written = Instant::now();
        let later = written + Duration::from_millis(1);
        let mut vigil = Vigil::over(written);
        assert_eq!(vigil.turn(&seen(Some(later), None), Some(written)), Turn::Rest);
        // Written during the pause, so its time is not over yet.
        assert_eq!(vigil.turn(&seen(Some(written), None), Some(later)), Turn::Wait);
        assert_eq!(vigil.turn(&seen(Some(later), None), Some(later)), Turn::Rest);
    }

    #[test]
    fn silence_is_answered_with_nudges_that_grow_rarer() {
        let written = Instant::now();
        let before = written.checked_sub(Duration::from_millis(1));
        let mut vigil = Vigil::over(written);
        let mut pauses = vec![vigil.pause];
        for _ in 0..20 {
            assert_eq!(vigil.turn(&seen(before, None), Some(written)), Turn::Nudge);
            pauses.push(vigil.pause);
        }
        assert!(pauses.is_sorted());
        assert_eq!(pauses.first(), Some(&FIRST_PAUSE));
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
    }

    #[test]
    fn what_is_sent_again_after_a_loss_is_watched_too() {
        let written = Instant::now();
        let lost = written + Duration::from_millis(5);
        let mut vigil = Vigil::over(written);
        assert_eq!(vigil.turn(&seen(Some(written), Some(lost)), Some(written)), Turn::Wait);
        assert_eq!(vigil.turn(&seen(Some(written), Some(lost)), Some(written)), Turn::Nudge);
        assert_eq!(vigil.turn(&seen(Some(lost), Some(lost)), Some(written)), Turn::Rest);
    }
}
