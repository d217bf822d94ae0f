//! Bursts of probe packets on the data channel, for clients that test whether and how well
//! multicast reaches them.

use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Sender as Outbox, TrySendError};
use umbel_engine::host::Mailbox;
use umbel_engine::repository::SourceCommand;
use umbel_engine::units::Rate;
use umbel_engine::{Allowance, SessionId, TransmitBuf};
use umbel_net::clock::Clock;
use umbel_net::interface::Interface;
use umbel_net::pacer::Pacer;
use umbel_net::udp::{Sender, SenderOptions};
use umbel_wire::alc::DataHeader;
use umbel_wire::{Channel, Scheme, Toi, Tsi};

/// Most bursts that wait; further ones are answered as not sent.
const LINE: usize = 64;
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
    line: Outbox<Burst>,
    mailbox: Mailbox<SourceCommand>,
}

impl Prober {
    pub(super) fn start(
        to: ProbeChannel,
        mailbox: Mailbox<SourceCommand>,
    ) -> std::io::Result<Prober> {
        let (line, bursts) = crossbeam_channel::bounded::<Burst>(LINE);
        let answers = mailbox.clone();
        std::thread::Builder::new().name("umbel-prober".to_owned()).spawn(move || {
            for burst in bursts {
                let packets = send(&to, burst);
                let Burst { session, probe, .. } = burst;
                // The answer says that the burst is over, so it must come after it.
                std::thread::sleep(Duration::from_millis(20));
                answers.put(SourceCommand::Probed { session, probe, packets });
            }
        })?;
        Ok(Prober { line, mailbox })
    }

    pub(super) fn burst(&self, burst: Burst) {
        match self.line.try_send(burst) {
            Ok(()) => {}
            Err(TrySendError::Full(burst) | TrySendError::Disconnected(burst)) => {
                let Burst { session, probe, .. } = burst;
                self.mailbox.put(SourceCommand::Probed { session, probe, packets: 0 });
            }
        }
    }
}

/// Sends a burst. Returns the number of packets that left.
fn send(to: &ProbeChannel, burst: Burst) -> u32 {
    let Some(rate) = Rate::from_bits_per_s(burst.rate_bits_per_s) else { return 0 };
    let len = usize::from(burst.packet_len).max(DataHeader::LEN);
    let mut sender = match Sender::open(&to.interface, &to.sender_options) {
        Ok(sender) => sender,
        Err(error) => {
            tracing::warn!("no probe: {error}");
            return 0;
        }
    };
    let in_time = rate.bytes_in(MOST_TIME) / len as u64;
    let packets = burst.packets.min(MOST_PACKETS).min(u32::try_from(in_time.max(8)).unwrap_or(8));
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
        scheme: Scheme::NoCode,
        sbn: 0,
        esi: index & 0xffff,
    };
    if let Ok(head) = header.emit() {
        buf.push(&head, body.clone());
    }
}
