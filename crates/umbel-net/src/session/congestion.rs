//! Congestion control of sessions: CUBIC with a floor, and a record of the peer's feedback.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::Connection;
use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn_proto::RttEstimator;

/// Minimum window in packets: QUIC's initial one [RFC 9002 §7.2]. QUIC's own minimum is two
/// packets. On a path with random loss that does not even let a few messages follow each other.
const LEAST_WINDOW: u64 = 10;

/// The peer's feedback on the packets of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Time at which the newest acknowledged packet was sent.
    pub(super) acknowledged: Option<Instant>,
    /// Time at which a packet was last found to be lost.
    pub(super) lost: Option<Instant>,
    /// The shortest round trip. QUIC's mean contains waits for lost packets.
    pub(super) shortest_rtt: Duration,
}

impl Seen {
    /// Returns the feedback so far on `connection`.
    pub(super) fn on(connection: &Connection) -> Seen {
        let control = connection.congestion_state().into_any().downcast::<Control>();
        control.map(|control| control.seen).unwrap_or_default()
    }
}

/// Creates the controller of each connection.
#[derive(Debug, Default)]
pub(super) struct Congestion {
    cubic: Arc<CubicConfig>,
}

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let cubic = self.cubic.clone().build(now, mtu);
        Box::new(Control { cubic, least: LEAST_WINDOW * u64::from(mtu), seen: Seen::default() })
    }
}

struct Control {
    cubic: Box<dyn Controller>,
    least: u64,
    seen: Seen,
}

impl Controller for Control {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet: u64) {
        self.cubic.on_sent(now, bytes, last_packet);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.seen.acknowledged = self.seen.acknowledged.max(Some(sent));
        self.seen.shortest_rtt = rtt.min();
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64) {
        self.seen.lost = Some(now);
        self.cubic.on_congestion_event(now, sent, persistent, lost);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.cubic.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.cubic.window().max(self.least)
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Control { cubic: self.cubic.clone_box(), least: self.least, seen: self.seen })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_shrinks_with_loss_but_not_below_its_floor() {
        let start = Instant::now();
        let mut control = Arc::new(Congestion::default()).build(start, 1200);
        for n in 1..100 {
            let now = start + Duration::from_millis(n);
            control.on_congestion_event(now, now, true, 1200);
            assert!(control.window() >= 12_000, "{} bytes", control.window());
        }
        assert_eq!(control.window(), 12_000);
    }

    #[test]
    fn a_copy_knows_what_was_lost() {
        let now = Instant::now();
        let mut control = Arc::new(Congestion::default()).build(now, 1200);
        control.on_congestion_event(now, now, false, 1200);
        let copy = control.clone_box().into_any().downcast::<Control>().unwrap();
        assert_eq!(copy.seen.lost, Some(now));
        assert_eq!(copy.seen.acknowledged, None);
    }
}
