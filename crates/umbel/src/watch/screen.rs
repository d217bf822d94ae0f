//! The threads between the engine and an output.
//!
//! ```text
//! host ── packets ──▶ decoder, with the clock ── pictures, two at most ──▶ writer ──▶ output
//! host ── packets ──▶ relay, with the clock ── RTP ──▶ player
//! ```
//!
//! No thread waits for one further on. Packets for which the decoder has no time, and pictures for
//! which the reader of the output has none, are dropped and counted.

use std::net::UdpSocket;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use umbel_net::clock::Clock;
use umbel_video::Frame;

use super::host::{Screen, ScreenStats};
use super::playout::Playout;
use super::rtp::{Relay, RtpTarget};

/// Packets that may wait for the decoder: about a second of a fast stream.
const WAITING: usize = 4096;
/// Packets that are decoded before the clock is looked at.
const AT_ONCE: usize = 64;
/// Longest time for which a decoder without anything to do sleeps.
const IDLE: Duration = Duration::from_secs(1);

/// A screen whose packets are decoded on a thread, or only counted.
pub(crate) struct ThreadScreen {
    /// `None` if nothing is shown.
    packets: Option<Sender<(u8, Bytes)>>,
    stats: Arc<Mutex<ScreenStats>>,
    refused: u64,
}

impl ThreadScreen {
    /// Starts a decoder whose pictures go to an output.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(crate) fn start(
        playout: Playout,
        pictures: Sender<Frame>,
    ) -> std::io::Result<ThreadScreen> {
        let (give, take) = crossbeam_channel::bounded(WAITING);
        let stats = Arc::<Mutex<ScreenStats>>::default();
        let told = stats.clone();
        std::thread::Builder::new()
            .name("umbel-decoder".to_owned())
            .spawn(move || run(playout, &take, &pictures, &told))?;
        Ok(ThreadScreen { packets: Some(give), stats, refused: 0 })
    }

    /// Starts a thread that sends the packets of a stream of RTP to a player.
    ///
    /// # Errors
    ///
    /// If the system cannot start it.
    pub(crate) fn relay(
        relay: Relay,
        socket: Arc<UdpSocket>,
        target: RtpTarget,
    ) -> std::io::Result<ThreadScreen> {
        let (give, take) = crossbeam_channel::bounded(WAITING);
        let stats = Arc::<Mutex<ScreenStats>>::default();
        let told = stats.clone();
        std::thread::Builder::new()
            .name("umbel-relay".to_owned())
            .spawn(move || send(relay, &take, &socket, &target, &told))?;
        Ok(ThreadScreen { packets: Some(give), stats, refused: 0 })
    }

    /// Creates a screen that shows nothing.
    pub(crate) fn blind() -> ThreadScreen {
        ThreadScreen { packets: None, stats: Arc::default(), refused: 0 }
    }
}

impl Screen for ThreadScreen {
    fn unit(&mut self, layer: u8, body: Bytes) {
        if let Some(packets) = &self.packets
            && packets.try_send((layer, body)).is_err()
        {
            self.refused += 1;
        }
    }

    fn stats(&self) -> ScreenStats {
        let stats = *self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        ScreenStats { refused: stats.refused + self.refused, ..stats }
    }
}

fn run(
    mut playout: Playout,
    packets: &Receiver<(u8, Bytes)>,
    pictures: &Sender<Frame>,
    stats: &Mutex<ScreenStats>,
) {
    let clock = Clock::new();
    let mut skipped = 0;
    loop {
        let now = clock.now();
        let wait = playout.next().map_or(IDLE, |next| next.since(now));
        match packets.recv_timeout(wait) {
            Ok((layer, body)) => {
                let now = clock.now();
                playout.unit(now, layer, &body);
                for (layer, body) in packets.try_iter().take(AT_ONCE) {
                    playout.unit(now, layer, &body);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(picture) = playout.show(clock.now()) {
            match pictures.try_send(picture.clone()) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => skipped += 1,
                // The output is closed, and the host hears of it.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
        *stats.lock().unwrap_or_else(PoisonError::into_inner) =
            ScreenStats { skipped, ..playout.stats() };
    }
}

fn send(
    mut relay: Relay,
    packets: &Receiver<(u8, Bytes)>,
    socket: &UdpSocket,
    target: &RtpTarget,
    stats: &Mutex<ScreenStats>,
) {
    let clock = Clock::new();
    let mut skipped = 0;
    loop {
        let now = clock.now();
        let wait = relay.next().map_or(IDLE, |next| next.since(now));
        match packets.recv_timeout(wait) {
            Ok((layer, body)) => relay.unit(clock.now(), layer, body),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some((lane, packet)) = relay.pop(clock.now()) {
            // A player that is not there yet, or too slow, loses it like any receiver of RTP.
            skipped += u64::from(socket.send_to(&packet, target.of_lane(lane)).is_err());
        }
        *stats.lock().unwrap_or_else(PoisonError::into_inner) =
            ScreenStats { skipped, ..relay.stats() };
    }
}
