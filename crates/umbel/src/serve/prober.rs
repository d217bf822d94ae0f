//! Bursts of probe packets on the data channel, for clients that test whether and how well
//! multicast reaches them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::Sender as Outbox;
use umbel_engine::bucket::Bucket;
use umbel_engine::host::Mailbox;
use umbel_engine::repository::SourceCommand;
use umbel_engine::shares::{self, Origin};
use umbel_engine::units::Rate;
use umbel_engine::{Allowance, Instant, SessionId, TransmitBuf};
use umbel_net::clock::Clock;
use umbel_net::interface::{Family, Interface};
use umbel_net::pacer::Pacer;
use umbel_net::udp::{Sender, SenderOptions};
use umbel_wire::alc::DataHeader;
use umbel_wire::reception::ChannelStamp;
use umbel_wire::{Channel, Scheme, Toi, Tsi};

use crate::bounds::PROBES;

/// Share of the server's rate that bursts take in the long run: one in this number.
const SHARE: u32 = 10;
/// Time for which bursts may take all of the server's rate at once, after a pause.
const AT_ONCE: Duration = Duration::from_secs(2);
/// Longest duration of one burst.
const MOST_TIME: Duration = Duration::from_secs(2);
/// Most packets of one burst.
const MOST_PACKETS: u32 = 20_000;

/// Destination of probe packets.
#[derive(Clone, Debug)]
pub(super) struct ProbeChannel {
    pub(super) interface: Interface,
    pub(super) sender_options: SenderOptions,
    pub(super) channel: Channel,
    pub(super) tsi: Tsi,
    /// The server's rate, which no burst exceeds.
    pub(super) rate: Rate,
}

/// A burst that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) session: SessionId,
    pub(crate) probe: u32,
    pub(crate) packets: u32,
    pub(crate) packet_len: u16,
    pub(crate) rate_bits_per_s: u64,
}

/// Sends one burst after the other.
#[derive(Debug)]
pub(super) struct Prober {
    /// Bursts, with the hosts that ask for them.
    line: Outbox<(Burst, Origin)>,
    mailbox: Mailbox<SourceCommand>,
    waiting: Arc<Waiting>,
}

/// Bursts of each host in line.
#[derive(Debug)]
struct Waiting(Mutex<shares::Budget>);

impl Waiting {
    fn new() -> Waiting {
        Waiting(Mutex::new(PROBES.budget()))
    }

    fn lock(&self) -> MutexGuard<'_, shares::Budget> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a burst of a host, if it may have another one in line. Others are answered as not
    /// sent.
    fn enter(&self, host: Origin) -> bool {
        self.lock().take(host, 1)
    }

    fn leave(&self, host: Origin) {
        self.lock().give(host, 1);
    }
}

/// Limits the bytes of all bursts together. A burst may leave when those before it are paid for.
#[derive(Debug)]
struct Budget {
    bucket: Bucket,
    rate: Rate,
}

impl Budget {
    fn new(rate: Rate) -> Budget {
        Budget { bucket: Bucket::new(AT_ONCE * SHARE), rate }
    }

    /// Reserves room for `bytes`. Returns how long to wait before they leave.
    fn reserve(&mut self, now: Instant, bytes: u64) -> Duration {
        let wait = self.bucket.ready_at().since(now);
        self.bucket.spend(now, self.rate.time_for(bytes).saturating_mul(SHARE));
        wait
    }
}

impl Prober {
    pub(super) fn start(
        to: ProbeChannel,
        mailbox: Mailbox<SourceCommand>,
    ) -> std::io::Result<Prober> {
        let (line, bursts) = crossbeam_channel::bounded::<(Burst, Origin)>(PROBES.all);
        let (answers, waiting) = (mailbox.clone(), Arc::new(Waiting::new()));
        let mut budget = Budget::new(to.rate);
        let (clock, line_of) = (Clock::new(), waiting.clone());
        std::thread::Builder::new().name("umbel-prober".to_owned()).spawn(move || {
            for (burst, host) in bursts {
                let Burst { session, probe, .. } = burst;
                let packets = to.bounded(burst).map_or(0, |burst| {
                    let bytes = u64::from(burst.packets) * u64::from(burst.packet_len);
                    std::thread::sleep(budget.reserve(clock.now(), bytes));
                    send(&to, burst)
                });
                line_of.leave(host);
                // The answer says that the burst is over, so it must come after it.
                std::thread::sleep(Duration::from_millis(20));
                answers.put(SourceCommand::Probed { session, probe, packets });
            }
        })?;
        Ok(Prober { line, mailbox, waiting })
    }

    pub(super) fn burst(&self, burst: Burst, host: Origin) {
        let Burst { session, probe, .. } = burst;
        let taken = self.waiting.enter(host) && {
            let taken = self.line.try_send((burst, host)).is_ok();
            if !taken {
                self.waiting.leave(host);
            }
            taken
        };
        if !taken {
            self.mailbox.put(SourceCommand::Probed { session, probe, packets: 0 });
        }
    }
}

impl ProbeChannel {
    /// Returns a burst as it may be sent: no faster than the server sends, and not for long.
    /// Returns `None` if its packets are longer than the interface carries.
    fn bounded(&self, burst: Burst) -> Option<Burst> {
        let family = Family::of(self.channel.group);
        let packet_len = burst.packet_len.max(DataHeader::LEN as u16);
        if usize::from(packet_len) + family.header_bytes() > self.interface.mtu {
            return None;
        }
        let rate = Rate::from_bits_per_s(burst.rate_bits_per_s)?.min(self.rate);
        let in_time = rate.bytes_in(MOST_TIME) / u64::from(packet_len);
        let in_time = u32::try_from(in_time.max(8)).unwrap_or(8);
        let packets = burst.packets.min(MOST_PACKETS).min(in_time);
        Some(Burst { packets, packet_len, rate_bits_per_s: rate.bits_per_s(), ..burst })
    }
}

/// Sends a bounded burst. Returns the number of packets that left.
fn send(to: &ProbeChannel, burst: Burst) -> u32 {
    let Some(rate) = Rate::from_bits_per_s(burst.rate_bits_per_s) else { return 0 };
    let (len, packets) = (usize::from(burst.packet_len), burst.packets);
    let mut sender = match Sender::open(&to.interface, &to.sender_options) {
        Ok(sender) => sender,
        Err(error) => {
            tracing::warn!("no probe: {error}");
            return 0;
        }
    };
    let body = Bytes::from(vec![0; len - DataHeader::LEN]);
    let clock = Clock::new();
    let batch = sender.max_batch(len);
    let mut pacer = Pacer::new(Some(rate), len, batch, clock.now());
    let mut buf = TransmitBuf::default();
    let mut index = 0;
    while index < packets {
        let now = clock.now();
        let allowed = pacer.allow(now).min((packets - index) as usize);
        if allowed == 0 {
            std::thread::sleep(clock.until(pacer.next(now)));
            continue;
        }
        buf.reset(Allowance::data(allowed));
        for number in index..index + allowed as u32 {
            push(&mut buf, to, burst.probe, number, &body);
        }
        match sender.send(to.channel.destination(), &buf) {
            Ok(_) => {}
            Err(error) if error.is_transient() => tracing::info!("probe: {error}"),
            Err(error) => {
                tracing::info!("probe: {error}");
                return index;
            }
        }
        pacer.sent(now, (allowed * len) as u64);
        index += allowed as u32;
    }
    packets
}

fn push(buf: &mut TransmitBuf, to: &ProbeChannel, probe: u32, index: u32, body: &Bytes) {
    let header = DataHeader {
        tsi: to.tsi,
        toi: Toi::PROBE,
        transmission: probe,
        index,
        stamp: ChannelStamp::default(),
        scheme: Scheme::NoCode,
        sbn: 0,
        esi: index & 0xffff,
    };
    if let Ok(head) = header.emit() {
        buf.push(&head, body.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn rate(bits_per_s: u64) -> Rate {
        Rate::from_bits_per_s(bits_per_s).unwrap()
    }

    fn channel(mtu: usize) -> ProbeChannel {
        let loopback = Interface::resolve("127.0.0.1").unwrap();
        let group = Ipv4Addr::new(232, 1, 2, 3).into();
        let source = Some(Ipv4Addr::LOCALHOST.into());
        ProbeChannel {
            interface: Interface { mtu, ..loopback },
            sender_options: SenderOptions::new(Family::V4),
            channel: Channel { source, group, port: 7702 },
            tsi: Tsi(1),
            rate: rate(8_000_000),
        }
    }

    fn burst(packets: u32, packet_len: u16, rate_bits_per_s: u64) -> Burst {
        Burst { session: SessionId(1), probe: 1, packets, packet_len, rate_bits_per_s }
    }

    #[test]
    fn a_burst_is_no_faster_no_longer_and_no_larger_than_the_server_allows() {
        let to = channel(1_500);
        let asked = burst(1_000_000, 1_000, 10_000_000_000);
        let bounded = to.bounded(asked).unwrap();
        assert_eq!(bounded.rate_bits_per_s, 8_000_000);
        assert_eq!(bounded.packets, 2_000, "two seconds of the server's rate");
        assert!(to.bounded(burst(1, 1_473, 1_000_000)).is_none(), "no fragments");
        assert_eq!(to.bounded(burst(8, 1_472, 1_000_000)).unwrap().packets, 8);
        assert_eq!(channel(65_536).bounded(burst(9, u16::MAX, 0)).map(|burst| burst.packets), None);
    }

    #[test]
    fn ten_times_as_many_bursts_as_the_budget_allows_take_ten_times_as_long() {
        let mut budget = Budget::new(rate(8_000_000));
        let (mut now, mut sent) = (Instant::EPOCH, 0);
        while now < Instant::EPOCH + Duration::from_secs(100) {
            now += budget.reserve(now, 1_000_000);
            sent += 1_000_000_u64;
        }
        // Two seconds at once, a tenth of 100 s, and one burst on credit.
        assert!((12_000_000..=14_000_000).contains(&sent), "{sent}");
    }

    fn host(number: u8) -> Origin {
        Origin::of([192, 0, 2, number].into())
    }

    #[test]
    fn one_host_does_not_fill_the_line() {
        let waiting = Waiting::new();
        let [greedy, other] = [1, 2].map(host);
        let taken = (0..10 * PROBES.all).filter(|_| waiting.enter(greedy)).count();
        assert_eq!(taken, PROBES.most_of_host());
        assert!(waiting.enter(other));
        waiting.leave(other);
        for _ in 0..taken {
            waiting.leave(greedy);
        }
        assert!(waiting.lock().is_empty());
    }
}
