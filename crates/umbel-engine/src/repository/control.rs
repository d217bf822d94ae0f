//! The multicast control channel: announcements to all clients at once by SRM [Repository §2].
//!
//! ```text
//! server ──announcement──▶ SRM group ──▶ clients: join the data channel
//!    ▲                       ▲   │
//!    │ "I hear you" (session)│   └─ requests and repairs, from anyone
//!    └───────────────────────┴─ client
//! ```
//!
//! Server and clients are members of the group, but only the server's messages count. A client that
//! hears the server there says so on its session, and from then on hears of transmissions in the
//! group only. When the server falls silent there, the client takes this back, and announcements
//! come on its session again. A network without any-source multicast thus costs only a few
//! messages.
//!
//! Each datagram ends in a tag under a key that the server hands to admitted clients on their
//! sessions. Where the data channel is sealed, the datagrams are sealed as well, with the same
//! group key. A replay window for each sender drops replayed ones. Otherwise SRM takes each unit
//! once, and only what is newer than all before shows that the server is there. Others can neither
//! announce nor request. Clients can, because they all hold the key. But an announcement only says
//! which transmission to listen to, and received items are verified by their digests.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Channel;
use umbel_wire::control::Parsed;
use umbel_wire::repository::{Announcement, ControlGroup, ControlKey, ServerMessage};
use umbel_wire::srm::{MemberId, Message};

use crate::chance::Generator;
use crate::seal::Keyring;
use crate::srm::{self, Command, Event, Member};
use crate::units::Rate;
use crate::{Address, Allowance, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

/// The server's name in its group.
pub(super) const SERVER: MemberId = MemberId(0);

/// Length of the tag in bytes.
const TAG_LEN: usize = blake3::OUT_LEN;

/// Announcements are repaired for this long. Later they are useless.
const KEPT: Duration = Duration::from_secs(10);

/// Greatest number of messages that are repaired, so that clients never wait for one while their
/// windows fill.
const MOST_KEPT: usize = 512;

/// Delay of the server's first session message after an announcement. It reveals the loss of the
/// announcement early.
const HEARTBEAT: Duration = Duration::from_millis(10);

/// A client that has not heard the server in the group for this long asks for announcements on its
/// session. The server's session messages come about every second.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// Session messages of the whole group take this share of the data channel's rate, within these
/// bounds, in bits per second. The bounds matter because every client wakes up for each of them.
const SESSION_SHARE: u64 = 20;
const SESSION_RATE: RangeInclusive<u64> = 10_000..=50_000;

/// One end of the control channel: its member, key and counters.
#[derive(Debug)]
pub(super) struct Control {
    channel: Channel,
    id: MemberId,
    /// Key of the tags; `None` if the group is sealed.
    key: Option<ControlKey>,
    member: Member,
    buf: TransmitBuf,
    /// The server's units of the last [`KEPT`], with their sending times.
    kept: VecDeque<(Instant, u64)>,
    sent: u64,
    server_heard: Option<Instant>,
    newest: Newest,
    forged: u64,
}

/// The newest of what the server said. Earlier messages do not show that it is there.
#[derive(Debug, Default)]
struct Newest {
    /// Number of a unit, and time of a session message.
    unit: Option<u64>,
    time: Option<u64>,
}

impl Newest {
    /// Returns whether a message is the server's, and newer than those before.
    fn takes(&mut self, message: &[u8]) -> bool {
        let Ok(Parsed::Message { message, .. }) = Message::parse(message) else { return false };
        let (last, now) = match message {
            Message::Data { source: SERVER, sequence, .. } => (&mut self.unit, sequence),
            Message::Session { sender: SERVER, timestamp_ns, .. } => (&mut self.time, timestamp_ns),
            _ => return false,
        };
        let newer = last.is_none_or(|last| now > last);
        *last = (*last).max(Some(now));
        newer
    }
}

impl Control {
    /// Creates the server's end, which joins the group at `now`. Its data channel has this rate.
    pub(super) fn server(
        now: Instant,
        channel: Channel,
        key: Option<ControlKey>,
        random: Generator,
        data_rate: Rate,
    ) -> Control {
        let bits_per_s = data_rate.bits_per_s();
        let mut control = Control::new(now, channel, key, SERVER, random, bits_per_s);
        // A member that has sent something is a source, and clients notice when its frequent
        // session messages are missing. From these, clients know whether they hear the group.
        control.announce(now, data_rate, Duration::ZERO, Duration::ZERO, Vec::new());
        control
    }

    /// Creates a client's end, which joins the group at `now`. `server_distance` is one way, and
    /// `data_bits_per_s` is the data channel's rate.
    pub(super) fn client(
        now: Instant,
        group: &ControlGroup,
        random: Generator,
        server_distance: Duration,
        data_bits_per_s: u64,
    ) -> Control {
        let ControlGroup { channel, key, client, .. } = *group;
        let mut control = Control::new(now, channel, key, client, random, data_bits_per_s);
        control.know_distance(now, group.server, server_distance);
        control
    }

    fn new(
        now: Instant,
        channel: Channel,
        key: Option<ControlKey>,
        id: MemberId,
        random: Generator,
        data_bits_per_s: u64,
    ) -> Control {
        let mut config = srm::Config::new(id, channel);
        // An old announcement is useless, and none needs to wait for another.
        config.recover_from_horizon = false;
        config.in_order = false;
        config.give_up_after = KEPT;
        config.window.units = 2 * MOST_KEPT as u64;
        // Clients on one network are about equally far from the server. Only random delays keep
        // them from requesting all at once, and the delays must grow with the number of clients.
        config.adaptive = true;
        config.session.heartbeat = Some(HEARTBEAT);
        let (least, most) = (*SESSION_RATE.start(), *SESSION_RATE.end());
        let session_rate = (data_bits_per_s / SESSION_SHARE).clamp(least, most);
        config.session.rate = Rate::from_bits_per_s(session_rate).expect("above 0");
        let mut member = Member::new(config, random);
        member.handle_command(now, Command::Join).expect("whoever is outside may join");
        Control {
            channel,
            id,
            key,
            member,
            buf: TransmitBuf::default(),
            kept: VecDeque::new(),
            sent: 0,
            server_heard: None,
            newest: Newest::default(),
            forged: 0,
        }
    }

    /// Returns whether a datagram came on the group's channel.
    pub(super) fn owns(&self, channel: &Channel) -> bool {
        (channel.group, channel.port) == (self.channel.group, self.channel.port)
    }

    /// Returns the group's channel.
    pub(super) fn channel(&self) -> Channel {
        self.channel
    }

    /// Sets the distance to a member, one way, as measured on a session.
    pub(super) fn know_distance(&mut self, now: Instant, member: MemberId, distance: Duration) {
        self.member
            .handle_command(now, Command::Distance(member, distance))
            .expect("a distance can be told at any time");
    }

    /// Sends a message to all members that hear the group.
    pub(super) fn say(&mut self, now: Instant, message: &ServerMessage) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        while self.kept.len() >= MOST_KEPT
            || self.kept.front().is_some_and(|(at, _)| *at + KEPT <= now)
        {
            let Some((_, sequence)) = self.kept.pop_front() else { break };
            let _ = self.member.handle_command(now, Command::Horizon(sequence + 1));
        }
        // A message that the member refuses is lost, as it may be on the way. The member takes
        // thousands.
        if self.member.handle_command(now, Command::Send(bytes.into())).is_ok() {
            self.kept.push_back((now, self.sent));
            self.sent += 1;
        }
    }

    /// Announces transmissions to all members that hear the group.
    pub(super) fn announce(
        &mut self,
        now: Instant,
        rate: Rate,
        starts_in: Duration,
        nak_spread: Duration,
        announcements: Vec<Announcement>,
    ) {
        let rate_bits_per_s = rate.bits_per_s();
        let message =
            ServerMessage::Announce { rate_bits_per_s, starts_in, nak_spread, announcements };
        self.say(now, &message);
    }

    /// Handles a datagram of the group. A datagram without a valid tag or seal, or one that comes
    /// again, is dropped and counted.
    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        by: Channel,
        payload: &[u8],
        ring: Option<&mut Keyring>,
    ) {
        let opened;
        let message = match (&self.key, ring) {
            (Some(key), _) => payload
                .split_last_chunk::<TAG_LEN>()
                .filter(|(message, theirs)| tag(key, message) == blake3::Hash::from_bytes(**theirs))
                .map(|(message, _)| message),
            (None, Some(ring)) => {
                opened = ring.open_message(payload);
                opened.as_deref().ok()
            }
            (None, None) => None,
        };
        let Some(message) = message else {
            self.forged += 1;
            return;
        };
        if self.newest.takes(message) {
            self.server_heard = Some(now);
        }
        let by = Address::Channel(by);
        self.member.handle_datagram(now, Datagram { by, hop_limit: None, payload: message });
    }

    /// Returns the time at which the server was last heard in the group.
    pub(super) fn server_heard(&self) -> Option<Instant> {
        self.server_heard
    }

    /// Returns the next message of the server.
    pub(super) fn poll_message(&mut self) -> Option<ServerMessage> {
        loop {
            match self.member.poll_event()? {
                Event::Delivered { unit, payload } if unit.source == SERVER => {
                    let parsed = ServerMessage::parse(&payload).ok().and_then(Parsed::message);
                    if parsed.is_some() {
                        return parsed;
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.member.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.member.poll_timeout()
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.member.poll_membership()
    }

    /// Appends the next datagram, with its tag or sealed.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut TransmitBuf,
        mut ring: Option<&mut Keyring>,
    ) -> Option<Transmit> {
        self.buf.reset(Allowance::data(0));
        let transmit = self.member.poll_transmit(now, &mut self.buf)?;
        for (_, message) in self.buf.iter() {
            match (&self.key, &mut ring) {
                (Some(key), _) => {
                    buf.push(message, Bytes::copy_from_slice(tag(key, message).as_bytes()));
                }
                (None, Some(ring)) => {
                    // A message that cannot be sealed is lost, as it may be on the way.
                    if let Some(sealed) = ring.seal_message(self.id, message) {
                        buf.push_message(sealed);
                    }
                }
                (None, None) => {}
            }
        }
        Some(transmit)
    }

    /// Returns the member's counters, and the number of datagrams without a valid tag.
    pub(super) fn stats(&self) -> (srm::Stats, u64) {
        (self.member.stats(), self.forged)
    }
}

/// Returns the tag of a message. Hashes compare in constant time.
fn tag(key: &ControlKey, message: &[u8]) -> blake3::Hash {
    blake3::keyed_hash(&key.0, message)
}

#[cfg(test)]
mod tests {
    use crate::chance::generator;
    use std::net::{IpAddr, Ipv4Addr};

    use umbel_wire::repository::{GroupKey, GroupSecret};

    use super::*;

    const CHANNEL: Channel =
        Channel { source: None, group: IpAddr::V4(Ipv4Addr::new(239, 255, 1, 2)), port: 7701 };
    const KEY: ControlKey = ControlKey([3; 32]);
    const RATE: Rate = Rate::from_bits_per_s(1_000_000).unwrap();

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn client(key: ControlKey) -> Control {
        let group =
            ControlGroup { channel: CHANNEL, server: SERVER, client: MemberId(7), key: Some(key) };
        Control::client(at(0), &group, generator(1), Duration::from_millis(5), RATE.bits_per_s())
    }

    /// Returns the datagrams that one end sends now.
    fn sent(now: Instant, control: &mut Control) -> Vec<Vec<u8>> {
        let mut buf = TransmitBuf::new(Allowance::data(0));
        let mut datagrams = Vec::new();
        while control.poll_transmit(now, &mut buf, None).is_some() {
            datagrams.extend(buf.iter().map(|(head, body)| [head, body].concat()));
            buf.reset(Allowance::data(0));
        }
        datagrams
    }

    fn end(transmission: u32) -> ServerMessage {
        ServerMessage::End { transmission }
    }

    fn heard(control: &mut Control) -> Vec<ServerMessage> {
        std::iter::from_fn(|| control.poll_message()).collect()
    }

    #[test]
    fn what_the_server_says_reaches_a_client_once() {
        let mut server = Control::server(at(0), CHANNEL, Some(KEY), generator(1), RATE);
        let mut client = client(KEY);
        assert_eq!(sent(at(0), &mut server).len(), 1);
        server.say(at(1), &end(4));
        for datagram in sent(at(1), &mut server) {
            client.handle_datagram(at(2), CHANNEL, &datagram, None);
            client.handle_datagram(at(3), CHANNEL, &datagram, None);
        }
        assert_eq!(heard(&mut client), [end(4)]);
        assert_eq!(client.server_heard(), Some(at(2)), "what comes again is no sign of life");
    }

    #[test]
    fn what_bears_a_wrong_tag_is_dropped_and_counted() {
        let mut server =
            Control::server(at(0), CHANNEL, Some(ControlKey([4; 32])), generator(1), RATE);
        server.say(at(0), &end(4));
        let mut client = client(KEY);
        for mut datagram in sent(at(0), &mut server) {
            client.handle_datagram(at(0), CHANNEL, &datagram, None);
            datagram.truncate(10);
            client.handle_datagram(at(0), CHANNEL, &datagram, None);
        }
        assert_eq!((heard(&mut client), client.server_heard()), (vec![], None));
        assert_eq!(client.stats().1, 4);
    }

    #[test]
    fn what_another_client_announces_does_not_count() {
        let mut other = client(KEY);
        other.say(at(0), &end(4));
        let group =
            ControlGroup { channel: CHANNEL, server: SERVER, client: MemberId(8), key: Some(KEY) };
        let mut client =
            Control::client(at(0), &group, generator(1), Duration::ZERO, RATE.bits_per_s());
        for datagram in sent(at(0), &mut other) {
            client.handle_datagram(at(0), CHANNEL, &datagram, None);
        }
        assert_eq!((heard(&mut client), client.server_heard()), (vec![], None));
    }

    #[test]
    fn an_announcement_that_was_lost_is_recovered_and_an_old_one_is_not() {
        let mut server = Control::server(at(0), CHANNEL, Some(KEY), generator(1), RATE);
        let mut client = client(KEY);
        for datagram in sent(at(0), &mut server) {
            client.handle_datagram(at(0), CHANNEL, &datagram, None);
        }
        heard(&mut client);
        server.say(at(1), &end(1));
        sent(at(1), &mut server);
        // The heartbeat reveals it.
        for ms in 2..200 {
            server.handle_timeout(at(ms));
            client.handle_timeout(at(ms));
            for datagram in sent(at(ms), &mut server) {
                client.handle_datagram(at(ms), CHANNEL, &datagram, None);
            }
            for datagram in sent(at(ms), &mut client) {
                server.handle_datagram(at(ms), CHANNEL, &datagram, None);
            }
        }
        assert_eq!(heard(&mut client), [end(1)]);
        server.say(at(20_000), &end(2));
        sent(at(20_000), &mut server);
        server.say(at(40_000), &end(3));
        for datagram in sent(at(40_000), &mut server) {
            client.handle_datagram(at(40_000), CHANNEL, &datagram, None);
        }
        assert_eq!(heard(&mut client), [end(3)]);
        assert_eq!(client.member.stats().lost, 1);
    }

    #[test]
    fn lost_announcements_do_not_hold_up_thousands_of_later_ones() {
        let mut server = Control::server(at(0), CHANNEL, Some(KEY), generator(1), RATE.scaled(1e3));
        let mut client = client(KEY);
        let (mut heard_in_time, mut said) = (0, 0);
        // 10,000 messages a second for three seconds. One in 50 is lost, and a run of 1,000.
        for step in 1..30_000_u64 {
            let now = Instant::from_nanos(step * 100_000);
            let number = step as u32;
            server.handle_timeout(now);
            client.handle_timeout(now);
            server.say(now, &end(number));
            let lost = number.is_multiple_of(50) || (5_000..6_000).contains(&number);
            for datagram in sent(now, &mut server).into_iter().filter(|_| !lost) {
                client.handle_datagram(now, CHANNEL, &datagram, None);
            }
            for datagram in sent(now, &mut client) {
                server.handle_datagram(now, CHANNEL, &datagram, None);
            }
            let heard = heard(&mut client);
            said += u32::from(!lost);
            heard_in_time += u32::from(heard.contains(&end(number)));
        }
        assert_eq!(heard_in_time, said, "{:?}", client.member.stats());
    }

    #[test]
    fn what_is_sealed_is_heard_once_and_keeps_a_silent_server_silent() {
        let key = GroupKey { id: 1, secret: GroupSecret([5; 32]) };
        let (mut ours, mut theirs) = (Keyring::new(key.clone()), Keyring::new(key));
        let mut server = Control::server(at(0), CHANNEL, None, generator(1), RATE);
        let group =
            ControlGroup { channel: CHANNEL, server: SERVER, client: MemberId(7), key: None };
        let mut client =
            Control::client(at(0), &group, generator(1), Duration::ZERO, RATE.bits_per_s());
        server.say(at(0), &end(4));
        let mut buf = TransmitBuf::new(Allowance::data(0));
        let mut datagrams: Vec<bytes::Bytes> = Vec::new();
        while server.poll_transmit(at(0), &mut buf, Some(&mut ours)).is_some() {
            datagrams.extend(buf.messages());
            buf.reset(Allowance::data(0));
        }
        for datagram in &datagrams {
            assert!(!datagram.windows(2).any(|two| two == b"Um"), "nothing of it is in clear");
            client.handle_datagram(at(1), CHANNEL, datagram, Some(&mut theirs));
        }
        assert_eq!((heard(&mut client).pop(), client.server_heard()), (Some(end(4)), Some(at(1))));
        for datagram in &datagrams {
            client.handle_datagram(at(9_000), CHANNEL, datagram, Some(&mut theirs));
        }
        assert_eq!(client.server_heard(), Some(at(1)));
        assert_eq!(client.stats().1, datagrams.len() as u64);
    }
}
