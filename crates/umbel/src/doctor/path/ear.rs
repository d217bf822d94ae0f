//! Receives the probe packets of a channel, on its own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use umbel_engine::Instant;
use umbel_engine::units::Rate;
use umbel_net::clock::Clock;
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::{Received, Receiver, ReceiverOptions};
use umbel_net::wake::Waker;
use umbel_wire::{Channel, DataPacket, Toi};

/// A packet of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Number of the burst.
    pub(super) probe: u32,
    /// Number of the packet in the burst.
    pub(super) index: u32,
    /// Time of arrival.
    pub(super) at: Instant,
}

/// A member of the channel until it is dropped.
pub(super) struct Ear {
    stop: Arc<AtomicBool>,
    waker: Waker,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    /// Joins the channel and calls `tell` for each packet, on another thread.
    pub(super) fn open(
        interface: &Interface,
        channel: Channel,
        rate: Option<Rate>,
        tell: impl Fn(Heard) + Send + 'static,
    ) -> Result<Ear, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let options = ReceiverOptions { rate, ..ReceiverOptions::default() };
        let family = Family::of(channel.group);
        let mut receiver = Receiver::open(channel.port, family, interface, &options)
            .map_err(|error| text(&error))?;
        receiver.join(&channel).map_err(|error| text(&error))?;
        let waker = Waker::new().map_err(|error| text(&error))?;
        let (stop, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::Builder::new().name("umbel-ear".to_owned()).spawn({
            let (stop, dropped, waker) = (stop.clone(), dropped.clone(), waker.clone());
            move || {
                let clock = Clock::new();
                while !stop.load(Ordering::Relaxed) {
                    let mut at = None;
                    let received = receiver.receive(None, Some(&waker), |received| {
                        let at = *at.get_or_insert_with(|| clock.now());
                        hear(&received, at).into_iter().for_each(&tell);
                    });
                    if let Err(error) = received {
                        tracing::warn!("cannot receive: {error}");
                        return;
                    }
                    dropped.store(receiver.drops().kernel, Ordering::Relaxed);
                }
            }
        });
        let thread = Some(thread.map_err(|error| text(&error))?);
        Ok(Ear { stop, waker, dropped, thread })
    }

    /// Returns the number of messages that the kernel has dropped for lack of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the doctor's ear panicked");
        }
    }
}

fn hear(received: &Received<'_>, at: Instant) -> Option<Heard> {
    let header = DataPacket::parse(received.payload).ok()?.header;
    let heard = Heard { probe: header.transmission, index: header.index, at };
    (header.toi == Toi::PROBE).then_some(heard)
}
