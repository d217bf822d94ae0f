//! Runs a source through scripts, in the manner of packetdrill.
//!
//! | line | meaning |
//! |---|---|
//! | `< S 0 win 9000 mss 1000 sack` | A segment of the client: flags, sequence number, options |
//! | `< P. 1 len 5 ack 100 blocks 200-300` | Payload, acknowledgement, SACK blocks |
//! | `< . 1 ack 0 raw 02030000` | Bytes of options as they are, in hexadecimal |
//! | `> S. -1 ack 1` | The next segment to the client |
//! | `* . 0 len 1000` | The next multicast segment |
//! | `! Connected` | The next event |
//! | `+ 200` | Milliseconds pass, and timers run out |
//! | `write 3000`, `send 3000`, `finish`, `shut`, `abort`, `consume 5` | A command: write to all, to the last client alone |
//!
//! Sequence numbers are relative: the source's to position 0, the client's to its SYN. Only windows
//! other than the full one are written. Everything that is sent and told must stand in the script.

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::tcp::{Flags, Head, Membership, Options, Segment, Seq};

use super::network::{PORT, content};
use crate::chance::generator;
use crate::smo::*;
use crate::testing::{self, Tested, channel};
use crate::{Address, Engine, Instant};

/// Sequence number of the client's SYN.
const ISN: u32 = 0xFFFF_FFF0;

struct Script {
    source: Tested<Source>,
    now: Instant,
    base: Seq,
    output: VecDeque<String>,
    child: Option<ChildId>,
}

/// Runs a script on a source with this configuration. `drops` is what it may drop.
#[track_caller]
pub(super) fn run(change: impl FnOnce(&mut SourceConfig), script: &str, drops: &str) {
    let mut channel = channel();
    channel.port = PORT;
    let mut config = SourceConfig::new(PORT, channel);
    (config.mss, config.base) = (1000, Some(u32::MAX - 1500));
    change(&mut config);
    let base = Seq(config.base.unwrap_or_default());
    let source = Source::new(config, generator(0));
    let mut run = Script {
        source: Tested::new(source, |source| source.drops().to_string()),
        now: Instant::from_nanos(1_000_000_000),
        base,
        output: VecDeque::new(),
        child: None,
    };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        run.step(line);
    }
    assert!(run.output.is_empty(), "at the end: {:?}", run.output);
    run.source.assert_dropped(drops);
}

fn number(word: Option<&str>) -> i64 {
    word.expect("a number follows").parse().unwrap()
}

/// Returns the bytes that hexadecimal digits say, whole words of 32 bits.
fn bytes_of(digits: &str) -> Vec<u8> {
    assert_eq!(digits.len() % 8, 0, "{digits}");
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

impl Script {
    #[track_caller]
    fn step(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if matches!(first, ">" | "*" | "!") {
            let output = self.output.pop_front();
            assert_eq!(output.as_deref(), Some(line), "and then {:?}", self.output);
            return;
        }
        assert!(self.output.is_empty(), "before `{line}`: {:?}", self.output);
        let to = Stream::Master(MasterId::FIRST);
        match first {
            "<" => self.receive(words),
            "+" => self.pass(Duration::from_millis(number(words.next()) as u64)),
            "write" => {
                let bytes = content(number(words.next()) as usize);
                self.command(SourceCommand::Write { to, bytes });
            }
            "send" => {
                let to = Stream::Child(self.child.unwrap());
                let bytes = content(number(words.next()) as usize);
                self.command(SourceCommand::Write { to, bytes });
            }
            "finish" => self.command(SourceCommand::Finish { to }),
            "shut" => {
                let to = Stream::Child(self.child.unwrap());
                self.command(SourceCommand::Finish { to });
            }
            "abort" => self.command(SourceCommand::Abort { child: self.child.unwrap() }),
            "consume" => {
                let bytes = number(words.next()) as usize;
                self.command(SourceCommand::Consumed { child: self.child.unwrap(), bytes });
            }
            _ => panic!("{line}"),
        }
        self.drain();
    }

    fn command(&mut self, command: SourceCommand) {
        self.source.handle_command(self.now, command).unwrap();
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.source.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.source.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn receive<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) {
        let client = testing::host(2);
        let letters = words.next().unwrap();
        let flags = [
            ('S', Flags::SYN),
            ('F', Flags::FIN),
            ('R', Flags::RST),
            ('P', Flags::PSH),
            ('.', Flags::ACK),
        ];
        let flags = flags.into_iter().filter(|(letter, _)| letters.contains(*letter));
        let mut head = Head {
            source_port: client.port(),
            destination_port: PORT,
            seq: Seq(ISN.wrapping_add(number(words.next()) as u32)),
            flags: flags.fold(Flags::default(), |all, (_, flag)| all | flag),
            window: u16::MAX,
            ..Head::default()
        };
        let (mut payload, mut raw) = (Vec::new(), Vec::new());
        let options: &mut Options = &mut head.options;
        while let Some(word) = words.next() {
            match word {
                "len" => payload = content(number(words.next()) as usize).to_vec(),
                "ack" => head.ack = self.base.plus(number(words.next()) as u32),
                "win" => head.window = number(words.next()) as u16,
                "mss" => options.mss = Some(number(words.next()) as u16),
                "scale" => options.window_scale = Some(number(words.next()) as u8),
                "sack" => options.sack_permitted = true,
                "raw" => raw = bytes_of(words.next().unwrap()),
                "blocks" => {
                    let (left, right) = words.next().unwrap().split_once('-').unwrap();
                    let at = |n: &str| self.base.plus(n.parse().unwrap());
                    options.sack.push(at(left), at(right));
                }
                _ => panic!("{word}"),
            }
        }
        let mut bytes = Vec::new();
        head.emit(&mut bytes);
        bytes.extend(&raw);
        // The length of the header, in words of 32 bits.
        bytes[12] += (raw.len() as u8 / 4) << 4;
        bytes.extend(payload);
        testing::give(&mut *self.source, self.now, Address::Host(client), &bytes);
    }

    fn drain(&mut self) {
        for (to, bytes) in testing::sent(&mut *self.source, self.now) {
            let Segment { head, payload } = Segment::parse(&bytes).unwrap();
            let is_multicast = matches!(to, Address::Channel(_));
            let way = if is_multicast { '*' } else { '>' };
            let mut parts = vec![format!("{way} {:?} {}", head.flags, head.seq.since(self.base))];
            if !payload.is_empty() {
                parts.push(format!("len {}", payload.len()));
            }
            if !is_multicast && head.flags.has(Flags::ACK) {
                parts.push(format!("ack {}", head.ack.since(Seq(ISN))));
            }
            if head.window != u16::MAX && !head.flags.has(Flags::RST) {
                parts.push(format!("win {}", head.window));
            }
            if let Some(Membership::Port(port)) = head.options.membership {
                parts.push(format!("member {port}"));
            }
            self.output.push_back(parts.join(" "));
        }
        for event in testing::events(&mut *self.source) {
            let text = match event {
                SourceEvent::Pace { .. } | SourceEvent::AckFilter(_) => continue,
                SourceEvent::Connected { child, .. } => {
                    self.child = Some(child);
                    "Connected".to_owned()
                }
                SourceEvent::Received { bytes, .. } => format!("Received {}", bytes.len()),
                SourceEvent::ReceivedEnd { .. } => "ReceivedEnd".to_owned(),
                SourceEvent::Writable { room, .. } => format!("Writable {room}"),
                SourceEvent::Drained { .. } => "Drained".to_owned(),
                SourceEvent::Closed { .. } => "Closed".to_owned(),
                SourceEvent::Removed { reason, .. } => format!("Removed {reason:?}"),
            };
            self.output.push_back(format!("! {text}"));
        }
    }
}
