//! Delivery by a thread: a packet socket in, a raw socket out.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::PollFlags;
use umbel_engine::smo::delivery::{
    Checksum, Connection, Delivery as Rules, DeliveryCounts, Direction,
};

use super::{Deliverer, DeliveryError, MAX_CONNECTIONS, Way};
use crate::interface::Interface;
use crate::packet::filter::Program as Filter;
use crate::packet::frame::ETHERNET;
use crate::packet::ring::{self, Frame, Ring};
use crate::packet::sys;
use crate::wake::{self, Waker};

/// Bytes of the ring: what a source sends in some 100 ms at 1 Gbit/s.
const RING_BYTES: usize = 16 << 20;

/// Frames of the ring that are handled before others can see what was done.
const FRAMES_AT_ONCE: usize = 4096;

/// Interval at which the addresses of this host are looked up.
const ADDRESSES_EVERY: Duration = Duration::from_secs(2);

/// Silence after which a connection is forgotten, in these intervals, and at most twice as long.
/// Those whose end was missed would take the places of others.
const SILENCE: u32 = 60;

/// A thread that delivers until it is dropped.
pub(super) struct Agent {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Mutex<Shared>>,
}

/// State of the thread that others see.
#[derive(Debug, Default)]
struct Shared {
    counts: DeliveryCounts,
    connections: Vec<(Connection, u16)>,
    failure: Option<String>,
    stopped: bool,
}

impl Agent {
    pub(super) fn start(
        source: SocketAddr,
        group: IpAddr,
        interface: &Interface,
    ) -> Result<Agent, DeliveryError> {
        let failed = |error| DeliveryError::system(error, interface);
        let filter = Filter::between(source.ip());
        // This host's own segments tell which connections there are. The kernel shows them only to
        // those who want every protocol.
        let ring = Ring::open(interface.index, libc::ETH_P_ALL, &filter, true, RING_BYTES)
            .map_err(failed)?;
        let out = sys::ip_socket(source.ip()).map_err(failed)?;
        let waker = Waker::new().map_err(failed)?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let rules = Rules::new(source, group, MAX_CONNECTIONS);
        let work = Work { ring, out, rules, waker: waker.clone(), shared: shared.clone() };
        let thread = thread::Builder::new()
            .name("delivery".to_owned())
            .spawn(move || work.run())
            .map_err(failed)?;
        Ok(Agent { waker, thread: Some(thread), shared })
    }

    fn read<T>(&self, read: impl FnOnce(&Shared) -> T) -> T {
        read(&self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Deliverer for Agent {
    fn way(&self) -> Way {
        Way::Agent
    }

    fn counts(&self) -> DeliveryCounts {
        self.read(|shared| shared.counts)
    }

    fn connections(&self) -> Vec<(Connection, u16)> {
        self.read(|shared| shared.connections.clone())
    }

    fn failure(&self) -> Option<String> {
        self.read(|shared| shared.failure.clone())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tools of the thread.
struct Work {
    ring: Ring,
    out: socket2::Socket,
    rules: Rules,
    waker: Waker,
    shared: Arc<Mutex<Shared>>,
}

impl Work {
    fn run(mut self) {
        if let Err(error) = self.deliver() {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.failure = Some(error.to_string());
        }
    }

    fn deliver(&mut self) -> io::Result<()> {
        for round in 1_u32.. {
            if round.is_multiple_of(SILENCE) {
                self.rules.forget_silent();
            }
            let own = Interface::list().map_err(io::Error::other)?;
            self.rules.set_own_addresses(own.iter().flat_map(|interface| {
                let v4 = interface.v4.iter().copied().map(IpAddr::from);
                v4.chain(interface.v6.iter().copied().map(IpAddr::from))
            }));
            let until = std::time::Instant::now() + ADDRESSES_EVERY;
            while let Some(left) = until.checked_duration_since(std::time::Instant::now()) {
                let fds = [self.ring.as_fd(), self.waker.as_fd()];
                let [frames, _] = wake::wait_for(fds, PollFlags::POLLIN, Some(left))?;
                self.waker.take();
                self.take_frames();
                if frames {
                    // An interface that is down comes up again.
                    let _ = self.ring.take_error();
                }
                let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                if shared.stopped {
                    return Ok(());
                }
                shared.counts = self.rules.counts();
                shared.connections.clear();
                shared.connections.extend(self.rules.connections());
            }
        }
        Ok(())
    }

    fn take_frames(&mut self) {
        let (rules, out) = (&mut self.rules, &self.out);
        self.ring.take(FRAMES_AT_ONCE, &mut |frame: Frame<'_>| {
            let Some(packet) = frame.bytes.get(ETHERNET..) else { return };
            let direction = if frame.outgoing { Direction::Out } else { Direction::In };
            let checksum = match frame.checksum {
                ring::Checksum::Partial => Checksum::Partial,
                ring::Checksum::Right | ring::Checksum::Unknown => Checksum::Whole,
            };
            rules.handle_packet(direction, packet, checksum, &mut |to, packet| {
                // A segment that does not find its way counts as lost on it, and is sent again by
                // unicast.
                if let Err(error) = sys::send_packet(out, packet, to) {
                    tracing::debug!("not delivered to {to}: {error}");
                }
            });
        });
    }
}
