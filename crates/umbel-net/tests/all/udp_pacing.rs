//! The pacer with a real clock and real sockets. It checks that the parts fit. The simulated tests
//! beside the pacer check how exactly a rate is held, as this machine may be busy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::units::Rate;
use umbel_engine::{Allowance, TransmitBuf};
use umbel_net::clock::Clock;
use umbel_net::interface::{Family, Interface};
use umbel_net::pacer::Pacer;
use umbel_net::udp::{Sender, SenderOptions};
use umbel_net::wake::{Waker, wait_precisely};

/// Sends datagrams of `bytes` at a rate for `seconds`, and returns the rate that it reached.
fn rate_reached(bits_per_s: u64, bytes: usize, seconds: f64) -> f64 {
    wait_precisely().unwrap();
    let interface = Interface::resolve("lo").unwrap();
    let mut sender = Sender::open(&interface, &SenderOptions::new(Family::V4)).unwrap();
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let group = IpAddr::V4(Ipv4Addr::new(239, 99, high, low));
    let to = SocketAddr::new(group, 7_702);

    let clock = Clock::new();
    let waker = Waker::new().unwrap();
    let body = Bytes::from(vec![0; bytes]);
    let mut buf = TransmitBuf::default();
    let batch = sender.max_batch(bytes);
    let mut pacer = Pacer::new(Rate::from_bits_per_s(bits_per_s), bytes, batch, clock.now());
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed().as_secs_f64() < seconds {
        let now = clock.now();
        let packets = pacer.allow(now);
        if packets == 0 {
            let left = clock.until(pacer.next(now));
            waker.wait(Some(left.min(Duration::from_millis(200)))).unwrap();
            continue;
        }
        buf.reset(Allowance::data(packets));
        for _ in 0..packets {
            buf.push(&[], body.clone());
        }
        let report = sender.send(to, &buf).unwrap();
        pacer.sent(now, report.bytes);
        sent += report.bytes;
    }
    sent as f64 * 8.0 / start.elapsed().as_secs_f64()
}

#[test]
fn a_low_and_a_high_rate_are_held_on_a_real_clock() {
    for (bits_per_s, bytes, seconds) in [(64_000, 200, 1.0), (50_000_000, 1_400, 0.5)] {
        // Never more than the rate, but for the start and what is made good. Less only while the
        // machine is too busy to wake us within 5 ms, which is not so all the time.
        let reached = (0..20).any(|_| {
            let share = rate_reached(bits_per_s, bytes, seconds) / bits_per_s as f64;
            eprintln!("{bits_per_s} bit/s: {share:.4} of it");
            assert!(share <= 1.1, "{bits_per_s} bit/s: {share:.4} of it");
            share >= 0.5
        });
        assert!(reached, "never half of {bits_per_s} bit/s");
    }
}
