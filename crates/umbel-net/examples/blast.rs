//! Multicasts as fast as possible, or at a rate, and counts the datagrams that arrive: the ceiling
//! of a test-bed.
//!
//! ```text
//! blast recv GROUP PORT IFACE                          # one in each receiver, first
//! blast send GROUP PORT IFACE PAYLOAD SECONDS [RATE]   # PAYLOAD in bytes, RATE such as 200M
//! ```
//!
//! Each prints one line of JSON. A receiver ends a second after the last datagram.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use umbel_engine::units::Rate;
use umbel_engine::{Allowance, TransmitBuf};
use umbel_net::clock::Clock;
use umbel_net::interface::{Family, Interface};
use umbel_net::pacer::Pacer;
use umbel_net::udp::{Receiver, ReceiverOptions, Sender, SenderOptions};
use umbel_net::wake::{Waker, wait_precisely};
use umbel_wire::Channel;

type Error = Box<dyn std::error::Error>;

/// Length of the number at the start of each datagram.
const HEAD: usize = 8;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["recv", group, port, interface] => {
            receive(group.parse()?, port.parse()?, &Interface::resolve(interface)?)
        }
        ["send", group, port, interface, payload, seconds, ref rate @ ..] => {
            let to = SocketAddr::new(group.parse()?, port.parse()?);
            let rate = rate.first().map(|rate| rate.parse()).transpose()?;
            let seconds = Duration::from_secs_f64(seconds.parse()?);
            send(to, &Interface::resolve(interface)?, payload.parse()?, seconds, rate)
        }
        _ => Err("usage: blast recv GROUP PORT IFACE | \
                  blast send GROUP PORT IFACE PAYLOAD SECONDS [RATE]"
            .into()),
    }
}

fn send(
    to: SocketAddr,
    interface: &Interface,
    payload: usize,
    time: Duration,
    rate: Option<Rate>,
) -> Result<(), Error> {
    wait_precisely()?;
    let options = SenderOptions { rate, ..SenderOptions::new(Family::of(to.ip())) };
    let mut sender = Sender::open(interface, &options)?;
    let body = Bytes::from(vec![0; payload.checked_sub(HEAD).ok_or("PAYLOAD is at least 8")?]);
    let (clock, waker) = (Clock::new(), Waker::new()?);
    let mut pacer = Pacer::new(rate, payload, sender.max_batch(payload), clock.now());
    let mut buf = TransmitBuf::default();
    let mut number = 0_u64;
    let start = Instant::now();
    while start.elapsed() < time {
        let now = clock.now();
        let packets = pacer.allow(now);
        if packets == 0 {
            waker.wait(Some(clock.until(pacer.next(now))))?;
            continue;
        }
        buf.reset(Allowance::data(packets));
        for _ in 0..packets {
            buf.push(&number.to_be_bytes(), body.clone());
            number += 1;
        }
        let report = sender.send(to, &buf)?;
        pacer.sent(now, report.bytes);
    }
    let seconds = start.elapsed().as_secs_f64();
    let counts = sender.counts();
    println!(
        "{{\"sent\":{},\"bits_per_s\":{:.0},\"seconds\":{seconds:.3},\"calls\":{},\"waits\":{},\
         \"offload\":{},\"cpu_seconds\":{:.3}}}",
        counts.datagrams,
        counts.bytes as f64 * 8.0 / seconds,
        counts.calls,
        counts.waits,
        sender.offloads(),
        cpu_seconds()?,
    );
    Ok(())
}

fn receive(group: IpAddr, port: u16, interface: &Interface) -> Result<(), Error> {
    let options = ReceiverOptions::default();
    let mut receiver = Receiver::open(port, Family::of(group), interface, &options)?;
    receiver.join(&Channel { source: None, group, port })?;
    eprintln!("{}", receiver.buffer());
    let (mut datagrams, mut bytes, mut highest) = (0_u64, 0_u64, 0_u64);
    let mut first = None;
    let mut last = Instant::now();
    // Waits forever until the first datagram arrives, then until none has arrived for a second.
    loop {
        let patience = first.map(|_| Duration::from_secs(1));
        let reception = receiver.receive(patience, None, |datagram| {
            if let Some(head) = datagram.payload.first_chunk::<HEAD>() {
                highest = highest.max(u64::from_be_bytes(*head));
            }
        })?;
        if reception.datagrams > 0 {
            last = Instant::now();
            first.get_or_insert(last);
            datagrams += reception.datagrams as u64;
            bytes += reception.bytes;
        } else if first.is_some() && last.elapsed() >= Duration::from_secs(1) {
            break;
        }
    }
    let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
    let loss = 1.0 - datagrams as f64 / (highest + 1) as f64;
    println!(
        "{{\"received\":{datagrams},\"bits_per_s\":{:.0},\"seconds\":{seconds:.3},\
         \"loss\":{loss:.6},\"kernel_drops\":{},\"cpu_seconds\":{:.3}}}",
        bytes as f64 * 8.0 / seconds,
        receiver.drops().kernel,
        cpu_seconds()?,
    );
    Ok(())
}

/// Returns the processor time that this process has used, in user and in kernel mode.
fn cpu_seconds() -> Result<f64, Error> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
