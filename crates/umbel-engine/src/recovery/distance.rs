//! Distance of the source from a member, by pings.

use std::net::SocketAddr;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::Tsi;
use umbel_wire::lms::Message;

use crate::Instant;
use crate::chance::Generator;
use crate::lms::rtt::Rtt;
use crate::tmtp::DropReason;

/// Time between measurements.
const EVERY: Duration = Duration::from_secs(10);
/// Least time after which a ping that was not answered is repeated.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Round trip assumed before the first measurement.
const FIRST_RTT: Duration = Duration::from_millis(50);

/// The round trip to the source, and when it is measured again.
#[derive(Debug)]
pub(crate) struct Distance {
    feed: Tsi,
    source: SocketAddr,
    random: Generator,
    rtt: Rtt,
    pinged: Option<(u64, Instant)>,
    ping_at: Option<Instant>,
}

impl Distance {
    /// Creates an unknown distance. The source hears pings at `source`.
    pub(crate) fn new(feed: Tsi, source: SocketAddr, random: Generator) -> Distance {
        let rtt = Rtt::new(FIRST_RTT);
        Distance { feed, source, random, rtt, pinged: None, ping_at: None }
    }

    /// Begins to measure.
    pub(crate) fn start(&mut self, now: Instant) {
        self.ping_at.get_or_insert(now);
    }

    /// Measures no more.
    pub(crate) fn stop(&mut self) {
        self.ping_at = None;
    }

    /// Returns the round trip and its deviation, as measured or assumed.
    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Handles the answer to a ping.
    ///
    /// # Errors
    ///
    /// If it answers none.
    pub(crate) fn on_pong(&mut self, now: Instant, nonce: u64) -> Result<(), DropReason> {
        let pinged = self.pinged.take_if(|(sent, _)| *sent == nonce);
        let (_, at) = pinged.ok_or(DropReason::NotAsked)?;
        self.rtt.on_sample(now - at);
        self.ping_at = self.ping_at.map(|_| now + EVERY);
        Ok(())
    }

    /// Returns when the next ping is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.ping_at
    }

    /// Returns the ping that is due, and where it goes.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        self.ping_at.filter(|&at| at <= now)?;
        let nonce = self.random.next_u64();
        self.pinged = Some((nonce, now));
        self.ping_at = Some(now + self.rtt.timeout(4.0).max(RETRY_MIN));
        let mut bytes = Vec::new();
        Message::Ping { tsi: self.feed, nonce }.emit(&mut bytes);
        Some((self.source, bytes))
    }
}
