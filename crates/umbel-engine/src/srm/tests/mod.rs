//! A member driven by a script: its exact output, to the nanosecond where no randomness is
//! involved. It is [`Tested`]. Several members meet in [`world`].

mod bad_input;
mod recovery;
mod sessions;
mod world;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Channel;
use umbel_wire::srm::{MemberId, Message, SourceState, UnitRun};

use super::{Command, Config, DropReason, Event, Member, Step, Unit};
use crate::chance::generator;
use crate::testing::{Tested, give, ms, sent};
use crate::{Address, Engine, Instant, Membership};

const ME: MemberId = MemberId(1);
const SOURCE: MemberId = MemberId(2);
const OTHER: MemberId = MemberId(3);

const CHANNEL: Channel =
    Channel { source: None, group: IpAddr::V4(Ipv4Addr::new(239, 255, 0, 1)), port: 7701 };

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns a configuration without session messages for the first second or so, and without other
/// randomness. The source is 10 ms away, the other member 20 ms.
fn config() -> Config {
    let mut config = Config::new(ME, CHANNEL);
    config.session.min_interval = Duration::from_secs(1000);
    config.session.heartbeat = None;
    config.repair_timer = Some((1.0, 1.0));
    config.observe = true;
    config
}

/// A member in its group.
struct Script {
    member: Tested<Member>,
    now: Instant,
}

impl Script {
    fn new(config: Config) -> Script {
        Script::drawing(config, 7)
    }

    /// Creates a member whose delays follow from the seed.
    fn drawing(config: Config, seed: u64) -> Script {
        let engine = Member::new(config, generator(seed));
        let mut member = Tested::new(engine, |member| member.drops().to_string());
        member.handle_command(ms(0), Command::Join).unwrap();
        assert_eq!(member.poll_membership(), Some(Membership::Join(CHANNEL)));
        member.handle_command(ms(0), Command::Distance(SOURCE, millis(10))).unwrap();
        member.handle_command(ms(0), Command::Distance(OTHER, millis(20))).unwrap();
        Script { member, now: ms(0) }
    }

    /// Delivers a message to the member.
    fn hear(&mut self, message: &Message<'_>) {
        let mut payload = Vec::new();
        message.emit(&mut payload);
        self.hear_bytes(&payload);
    }

    fn hear_bytes(&mut self, payload: &[u8]) {
        let from = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)));
        let by = Address::Channel(Channel { source: from, ..CHANNEL });
        give(&mut self.member, self.now, by, payload);
    }

    /// Returns the messages that the member sends now.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let sent = sent(&mut self.member, self.now).into_iter();
        sent.inspect(|(to, _)| assert_eq!(*to, Address::Channel(CHANNEL)))
            .map(|sent| sent.1)
            .collect()
    }

    /// Lets time pass until the member sends a message other than a session message, or until the
    /// given time. Returns the time and the message.
    fn next_sent(&mut self, until: Instant) -> Option<(Instant, Vec<u8>)> {
        loop {
            let recovery =
                self.sent().into_iter().find(|m| !matches!(parse(m), Message::Session { .. }));
            if let Some(message) = recovery {
                return Some((self.now, message));
            }
            let wake = self.member.poll_timeout()?;
            if wake > until {
                self.now = until;
                return None;
            }
            assert!(wake >= self.now);
            self.now = wake;
            self.member.handle_timeout(wake);
        }
    }

    /// Lets time pass until the member sends a session message. Returns the time and its bytes.
    fn next_session(&mut self) -> (Instant, Vec<u8>) {
        loop {
            let session =
                self.sent().into_iter().find(|m| matches!(parse(m), Message::Session { .. }));
            if let Some(message) = session {
                return (self.now, message);
            }
            self.now = self.member.poll_timeout().unwrap();
            self.member.handle_timeout(self.now);
        }
    }

    /// Returns the sequence numbers of the delivered units, and the steps of recovery.
    fn events(&mut self) -> (Vec<u64>, Vec<(u64, Step)>) {
        let (mut delivered, mut steps) = (Vec::new(), Vec::new());
        while let Some(event) = self.member.poll_event() {
            match event {
                Event::Delivered { unit, payload } => {
                    assert_eq!(payload, content(unit));
                    delivered.push(unit.sequence);
                }
                Event::Step { unit, step } => steps.push((unit.sequence, step)),
                Event::Lost { .. } => {}
            }
        }
        (delivered, steps)
    }

    #[track_caller]
    fn assert_dropped(&mut self, reason: DropReason, times: u64) {
        self.member.assert_dropped(&format!("{reason:?} {times}"));
    }
}

fn parse(message: &[u8]) -> Message<'_> {
    Message::parse(message).unwrap().message().unwrap()
}

fn content(unit: Unit) -> Bytes {
    format!("{}:{}", unit.source.0, unit.sequence).into()
}

fn with_data(sequence: u64, then: impl FnOnce(&Message<'_>)) {
    let payload = content(Unit { source: SOURCE, sequence });
    then(&Message::Data { source: SOURCE, sequence, horizon: 0, payload: &payload });
}

fn with_repair(sequence: u64, requester: MemberId, then: impl FnOnce(&Message<'_>)) {
    let payload = content(Unit { source: SOURCE, sequence });
    then(&Message::Repair {
        sender: OTHER,
        source: SOURCE,
        sequence,
        requester,
        distance: millis(5),
        scope: None,
        payload: &payload,
    });
}

fn request(source: MemberId, first: u64, count: u64) -> Message<'static> {
    Message::Request {
        sender: OTHER,
        source,
        runs: vec![UnitRun { first, count }],
        distance: millis(30),
        scope: None,
    }
}

fn session(sources: Vec<SourceState>) -> Message<'static> {
    Message::Session { sender: OTHER, timestamp_ns: 5, sources, echoes: vec![], leaving: false }
}
