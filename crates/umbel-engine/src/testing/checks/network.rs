//! The network that an input rules: steps of time and datagrams for one engine, or what becomes of
//! the datagrams between two.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::{Address, Allowance, Datagram, Engine, Instant, RateClass, TransmitBuf};

/// Steps of the time between two datagrams.
const PAUSES_MS: [u64; 8] = [0, 1, 5, 20, 100, 500, 2_000, 30_000];

/// Greatest number of outputs between two inputs, and of wake-ups at one moment.
pub(super) const MOST: usize = 10_000;

/// Length of a step's head.
pub(super) const HEAD: usize = 3;

/// Hands the steps of `bytes` to an engine, and does what a machine does around it.
pub(super) fn drive<E: Engine>(
    engine: &mut E,
    start: Instant,
    bytes: &[u8],
    senders: &[Address],
    mut answer: impl FnMut(&mut E, Instant, E::Event),
) {
    let mut now = start;
    drain(engine, now, &mut answer);
    for_each_step(bytes, |kind, payload| {
        now = pass(engine, now, now + Duration::from_millis(pause(kind)), &mut answer);
        let by = senders[usize::from(kind & 3) % senders.len()];
        engine.handle_datagram(now, Datagram { by, hop_limit: Some(kind), payload });
        drain(engine, now, &mut answer);
    });
    pass(engine, now, now + Duration::from_mins(1), &mut answer);
}

/// Hands over the steps of an input: the first byte of each, and its datagram.
pub(super) fn for_each_step(bytes: &[u8], mut step: impl FnMut(u8, &[u8])) {
    let mut rest = bytes;
    while let Some((&[kind, low, high], after)) = rest.split_first_chunk::<HEAD>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (payload, next) = after.split_at(len);
        rest = next;
        step(kind, payload);
    }
}

/// One of two engines that talk to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    First,
    Second,
}

/// A datagram between two engines: its sender, the sender that the other engine sees, and its
/// content.
type Underway = (Side, Address, Bytes);

/// Has two engines talk to each other while `bytes` rule the network between them. The network
/// delivers, drops, repeats and alters what they send, makes up what they did not, and lets time
/// pass. `by` says as whose the other side hears what one sends to an address, if at all.
pub(super) fn converse<A: Engine, B: Engine>(
    first: &mut A,
    second: &mut B,
    start: Instant,
    bytes: &[u8],
    by: impl Fn(Side, Address) -> Option<Address>,
    mut answer: impl FnMut(&mut A, Instant, A::Event),
) {
    let (mut now, mut rest) = (start, bytes);
    let mut network: VecDeque<Underway> = VecDeque::new();
    loop {
        drain_into(first, now, &mut answer, &mut |to, body| {
            network.extend(by(Side::First, to).map(|by| (Side::First, by, body)));
        });
        drain_into(second, now, &mut |_, _, _| {}, &mut |to, body| {
            network.extend(by(Side::Second, to).map(|by| (Side::Second, by, body)));
        });
        network.truncate(MOST);
        let Some((&kind, after)) = rest.split_first() else { break };
        rest = after;
        let mut next = || {
            let (byte, after) = rest.split_first().map_or((0, rest), |(byte, rest)| (*byte, rest));
            rest = after;
            byte
        };
        let heard = match kind % 8 {
            3 => {
                network.pop_front();
                None
            }
            4 => {
                network.rotate_left(usize::from(network.len() > 1));
                network.back().cloned()
            }
            5 => network.pop_front().map(|(from, by, body)| {
                let mut body = body.to_vec();
                let at = usize::from(next()) % body.len().max(1);
                let change = next();
                body.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= change);
                (from, by, body.into())
            }),
            6 => network.front().map(|(from, by, _)| (*from, *by)).map(|(from, by)| {
                let len = usize::from(next());
                let body: Vec<u8> = (0..len).map(|_| next()).collect();
                (from, by, body.into())
            }),
            7 => {
                // Datagrams sent meanwhile are on their way after it.
                let (before, until) = (now, now + Duration::from_millis(pause(next())));
                now = pass_into(first, before, until, &mut answer, &mut |to, body| {
                    network.extend(by(Side::First, to).map(|by| (Side::First, by, body)));
                });
                pass_into(second, before, until, &mut |_, _, _| {}, &mut |to, body| {
                    network.extend(by(Side::Second, to).map(|by| (Side::Second, by, body)));
                });
                None
            }
            _ => network.pop_front(),
        };
        let Some((from, by, body)) = heard else { continue };
        let datagram = Datagram { by, hop_limit: Some(1), payload: &body };
        match from {
            Side::First => second.handle_datagram(now, datagram),
            Side::Second => first.handle_datagram(now, datagram),
        }
    }
}

/// Returns the time that passes before a step, in milliseconds.
pub(super) fn pause(kind: u8) -> u64 {
    PAUSES_MS[usize::from(kind >> 2) % PAUSES_MS.len()]
}

/// Lets time pass; returns the time after it.
fn pass<E: Engine>(
    engine: &mut E,
    now: Instant,
    until: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
) -> Instant {
    pass_into(engine, now, until, answer, &mut |_, _| {})
}

/// Lets time pass like [`pass`], and passes on what the engine sends meanwhile.
fn pass_into<E: Engine>(
    engine: &mut E,
    mut now: Instant,
    until: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
    send: &mut impl FnMut(Address, Bytes),
) -> Instant {
    let mut at_once = 0;
    while let Some(due) = engine.poll_timeout().filter(|due| *due <= until) {
        at_once = if due > now { 0 } else { at_once + 1 };
        assert!(at_once < MOST, "it asks again and again for a time that has passed");
        now = due.max(now);
        engine.handle_timeout(now);
        drain_into(engine, now, answer, send);
    }
    until
}

fn drain<E: Engine>(
    engine: &mut E,
    now: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
) {
    drain_into(engine, now, answer, &mut |_, _| {});
}

/// Takes all that an engine has to say, and passes on its datagrams with their destinations.
fn drain_into<E: Engine>(
    engine: &mut E,
    now: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
    send: &mut impl FnMut(Address, Bytes),
) {
    let mut buf = TransmitBuf::default();
    for _ in 0..MOST {
        let mut quiet = true;
        while engine.poll_membership().is_some() {
            quiet = false;
        }
        // Without a pace, so that all that is due comes at once; no more than a burst of data.
        let mut allowance = Allowance::data(usize::from(quiet));
        allowance.set(RateClass::Layer(0), usize::from(quiet));
        allowance.set(RateClass::Layer(1), usize::from(quiet));
        buf.reset(allowance);
        if let Some(transmit) = engine.poll_transmit(now, &mut buf) {
            assert!(!buf.is_empty() && buf.bytes() <= 4 << 20);
            buf.messages().for_each(|body| send(transmit.to, body));
            quiet = false;
        }
        while let Some(event) = engine.poll_event() {
            answer(engine, now, event);
            quiet = false;
        }
        if quiet {
            return;
        }
    }
    panic!("it has always something to say");
}
