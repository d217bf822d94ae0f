//! The sessions that were heard, in bounded memory that no one host can take from the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use umbel_engine::shares::{self, Full, Places};
use umbel_net::session::{Pin, signing};
use umbel_wire::sap::SapPacket;
use umbel_wire::sdp::{Description, Origin};
use umbel_wire::session::{SessionKind, SessionName};
use umbel_wire::signed::Signed;

use super::Session;
use crate::bounds::ANNOUNCEMENTS;

/// Most sessions that are remembered; each takes up to 8 KiB.
const MOST: usize = ANNOUNCEMENTS.all;
/// Most sessions that are remembered of one host, and of one key.
const MOST_OF_ONE: usize = ANNOUNCEMENTS.most_of_host();
/// Time without an announcement after which a session is over [RFC 2974 §4].
const EXPIRY: Duration = Duration::from_hours(1);

/// Those who may change and delete a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Author {
    /// The holder of the key by which it is signed.
    Key(Pin),
    /// The host that sent it, whichever announcer it names.
    Host(IpAddr, IpAddr),
}

/// A session that was heard, with what tells a repetition from news.
#[derive(Debug)]
struct Heard {
    session: Session,
    /// Digest of the payload.
    payload: blake3::Hash,
    version: u64,
    /// Host that is charged with it: its own source if that was heard, else its first sender.
    from: IpAddr,
    /// Number of its place.
    place: u64,
}

/// The sessions that were heard.
///
/// A signed session is changed and deleted by its key alone, and only with a greater version; any
/// other by the host that sent it. When all places are taken, the network that has most gives one
/// up, and in a network the host that has most: what it announced longest ago.
#[derive(Debug)]
pub struct Directory {
    sessions: BTreeMap<(Author, Origin), Heard>,
    /// Places of sessions: of networks, and in these of hosts.
    places: Places<shares::Origin, u64>,
    keys: BTreeMap<u64, (Author, Origin)>,
    /// Number of the next place.
    next: u64,
    /// The only names that matter.
    names: Option<BTreeSet<String>>,
    /// Number of packets that were not announcements, were forged, or found or made no room.
    refused: u64,
}

impl Default for Directory {
    fn default() -> Directory {
        Directory {
            sessions: BTreeMap::new(),
            places: Places::new(MOST, MOST_OF_ONE),
            keys: BTreeMap::new(),
            next: 0,
            names: None,
            refused: 0,
        }
    }
}

impl Directory {
    /// Remembers sessions of these names only from now on, so that others take no room.
    pub fn look_for<'a>(&mut self, names: impl IntoIterator<Item = &'a SessionName>) {
        let names: BTreeSet<String> =
            names.into_iter().map(|name| name.as_str().to_owned()).collect();
        self.retain(|session| names.contains(&session.description.name));
        self.names = Some(names);
    }

    fn retain(&mut self, keep: impl Fn(&Session) -> bool) {
        let gone = self.sessions.values().filter(|heard| !keep(&heard.session));
        let gone: Vec<u64> = gone.map(|heard| heard.place).collect();
        for place in gone {
            self.forget(place);
        }
    }

    /// Takes a packet that came from this host at `now`. Returns whether it changed anything.
    pub fn hear(&mut self, now: Instant, from: IpAddr, packet: &[u8]) -> bool {
        let changed = self.try_hear(now, from, packet);
        self.refused += u64::from(changed.is_none());
        changed.unwrap_or(false)
    }

    fn try_hear(&mut self, now: Instant, from: IpAddr, bytes: &[u8]) -> Option<bool> {
        let packet = SapPacket::parse(bytes).ok()?;
        let signed = Signed::split(packet.payload).ok()?;
        let text = signed.map_or(packet.payload, |signed| signed.text);
        let origin = Origin::find(text).ok()?;
        let version = origin.version;
        let author = match signed {
            Some(signed) => Author::Key(signing::pin_of(&signed.key)),
            None => Author::Host(from, packet.origin),
        };
        let key = (author, Origin { version: 0, ..origin });
        let genuine = || {
            signed.is_none_or(|Signed { text, key, signature }| {
                signing::verify(&key, &Signed::message(text), &signature)
            })
        };
        if packet.deletion {
            let old = self.sessions.get(&key)?;
            // A stranger that replays a signed announcement cannot turn it into a deletion.
            let newer = version > old.version && text.starts_with(b"o=");
            if signed.is_some() && !(newer && genuine()) {
                return None;
            }
            let place = old.place;
            self.forget(place);
            return Some(true);
        }
        let payload = blake3::hash(packet.payload);
        if let Some(old) = self.sessions.get_mut(&key) {
            if old.payload == payload {
                let place = old.place;
                let is_other = old.from != from;
                if is_other && !old.is_from_source(from) {
                    return Some(false);
                }
                (old.from, old.session.heard) = (from, now);
                if is_other {
                    self.places.leave(place);
                    self.enter(place, from);
                }
                self.places.renew(place);
                return Some(false);
            }
            if version < old.version || version == old.version && signed.is_some() {
                return None;
            }
        }
        let description = Description::parse(text).ok()?;
        if self.names.as_ref().is_some_and(|names| !names.contains(&description.name)) {
            return Some(false);
        }
        if !genuine() {
            return None;
        }
        let (kind, problem) = match SessionKind::from_description(&description) {
            Ok(Some(_)) if signed.is_none() => (None, Some(UNSIGNED.to_owned())),
            Ok(kind) => (kind, None),
            Err(error) => (None, Some(super::problem(&error))),
        };
        let signer = match key.0 {
            Author::Key(pin) => Some(pin),
            Author::Host(..) => None,
        };
        let announcer = packet.origin;
        let key_of = signed.map(|signed| signed.key);
        let session =
            Session { description, kind, problem, announcer, signer, key: key_of, heard: now };
        let place = match self.sessions.get(&key).map(|old| (old.place, old.from)) {
            Some((place, before)) => {
                if before != from {
                    self.places.leave(place);
                    self.enter(place, from);
                }
                self.places.renew(place);
                place
            }
            None => self.take_place(from, &key)?,
        };
        self.sessions.insert(key, Heard { session, payload, version, from, place });
        Some(true)
    }

    /// Takes a place for a session from this host, by this author.
    fn take_place(&mut self, from: IpAddr, key: &(Author, Origin)) -> Option<u64> {
        if let author @ Author::Key(_) = &key.0 {
            let own = self.sessions.iter().filter(|((other, _), _)| other == author);
            if own.clone().count() >= MOST_OF_ONE {
                // A stranger that replays a sender's earlier announcements has none of its latest.
                let oldest = own.min_by_key(|(_, heard)| heard.version);
                let oldest = oldest.map(|(_, heard)| heard.place);
                self.drop_one(oldest);
            }
        }
        let place = self.next;
        if !self.enter(place, from) {
            return None;
        }
        self.next += 1;
        self.keys.insert(place, key.clone());
        Some(place)
    }

    /// Takes a place for a host. One that has as many as it may have gives up its own oldest.
    fn enter(&mut self, place: u64, from: IpAddr) -> bool {
        let (network, host) = (shares::Origin::of(from), shares::Origin::alone(from));
        let entered = match self.places.enter(network, host, place) {
            Err(Full::Host) => {
                let oldest = self.places.yield_of(network, host);
                self.drop_one(oldest);
                self.places.enter(network, host, place)
            }
            entered => entered,
        };
        let Ok(lost) = entered else { return false };
        self.drop_one(lost);
        true
    }

    fn drop_one(&mut self, place: Option<u64>) {
        if let Some(place) = place {
            self.forget(place);
            self.refused += 1;
        }
    }

    fn forget(&mut self, place: u64) {
        self.places.leave(place);
        if let Some(key) = self.keys.remove(&place) {
            self.sessions.remove(&key);
        }
    }

    /// Drops sessions that have not been announced for an hour.
    pub fn expire(&mut self, now: Instant) {
        self.retain(|session| now.duration_since(session.heard) < EXPIRY);
    }

    /// Returns the sessions on the air, by name. Of those that one sender calls alike, the latest
    /// comes last.
    pub fn sessions(&self) -> Vec<&Session> {
        let mut all: Vec<_> = self.sessions.values().map(|heard| &heard.session).collect();
        all.sort_by_key(|session| {
            let Session { description, signer, .. } = session;
            (&description.name, *signer, description.origin.version, session.source())
        });
        all
    }

    /// Returns the number of packets that were not announcements, were forged, or replaced others.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

const UNSIGNED: &str = "it is not signed, so anyone may have announced it";

impl Heard {
    /// Returns whether this host is the source that the session names.
    fn is_from_source(&self, from: IpAddr) -> bool {
        self.session.source().is_some_and(|source| source.ip() == from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{feed, packet, signed_packet, signer, stream};
    use super::*;
    use umbel_wire::feed::Feed;

    fn names(directory: &Directory) -> Vec<&str> {
        directory.sessions().iter().map(|session| &session.description.name[..]).collect()
    }

    fn host(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn announcements_come_change_and_go() {
        let (mut directory, now, keys) = (Directory::default(), Instant::now(), signer(1));
        let (mut a, b) = (feed("a", 1), feed("b", 2));
        let from = host(1);
        let signed = |feed: &Feed, deletion| signed_packet(feed.clone(), deletion, &keys);
        assert!(directory.hear(now, from, &signed(&b, false)));
        assert!(directory.hear(now, from, &signed(&a, false)));
        assert!(!directory.hear(now, from, &signed(&a, false)));
        assert_eq!(names(&directory), ["a", "b"]);
        a.name = "c".parse().unwrap();
        a.version = 2;
        assert!(directory.hear(now, from, &signed(&a, false)));
        assert_eq!(names(&directory), ["b", "c"]);
        assert!(directory.hear(now, from, &signed(&b, true)));
        assert!(!directory.hear(now, from, &signed(&b, true)));
        assert_eq!(names(&directory), ["c"]);
        directory.expire(now + EXPIRY);
        assert_eq!(names(&directory), [""; 0]);
    }

    #[test]
    fn nobody_else_changes_or_deletes_what_is_signed() {
        let (mut directory, now, keys) = (Directory::default(), Instant::now(), signer(1));
        let mut genuine = Feed { version: 5, ..feed("a", 1) };
        let announced = signed_packet(genuine.clone(), false, &keys);
        assert!(directory.hear(now, host(1), &announced));
        let held = |directory: &Directory| directory.sessions()[0].clone();
        let before = held(&directory);

        let forged = Feed { version: 9, scope: 1, ..genuine.clone() };
        let mut other_key = signed_packet(forged.clone(), false, &signer(2));
        // Another key's is another session, and one without a signature cannot be received.
        assert!(directory.hear(now, host(1), &other_key));
        assert!(directory.hear(now, host(1), &packet(forged.clone(), false, [10, 0, 0, 1])));
        let mut found: Vec<_> = directory.sessions().into_iter().cloned().collect();
        found.retain(|session| session.signer == Some(keys.pin()));
        assert_eq!(found, std::slice::from_ref(&before));
        let unsigned = directory.sessions().into_iter().find(|session| session.signer.is_none());
        assert!(unsigned.unwrap().problem.as_ref().unwrap().contains("not signed"));

        let mut directory = Directory::default();
        directory.hear(now, host(1), &announced);
        // A key that is claimed, an earlier version, the same one, a deletion made of it.
        let end = other_key.len();
        let claimed = signed_packet(genuine.clone(), false, &keys);
        let line = umbel_wire::signed::LINE_LEN;
        other_key[end - line..].copy_from_slice(&claimed[claimed.len() - line..]);
        let earlier = Feed { version: 4, scope: 1, ..genuine.clone() };
        let same = Feed { scope: 1, ..genuine.clone() };
        let mut deletion = announced.clone();
        deletion[0] |= 4;
        for bad in [
            other_key,
            signed_packet(earlier, false, &keys),
            signed_packet(same, false, &keys),
            deletion,
            packet(forged.clone(), true, [10, 0, 0, 1]),
            signed_packet(forged, true, &signer(2)),
        ] {
            assert!(!directory.hear(now, host(1), &bad));
            assert_eq!(held(&directory), before);
        }
        genuine.version = 6;
        assert!(directory.hear(now, host(1), &signed_packet(genuine.clone(), false, &keys)));
        assert!(directory.hear(now, host(1), &signed_packet(genuine, true, &keys)));
        assert!(directory.sessions().is_empty());
    }

    #[test]
    fn what_is_not_signed_is_changed_by_its_host_alone() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let origin = [10, 0, 0, 1];
        assert!(directory.hear(now, host(1), &packet(stream("a", 1), false, origin)));
        assert!(!directory.hear(now, host(2), &packet(stream("a", 1), true, origin)));
        // The same claimed by another host stands beside it.
        assert!(directory.hear(now, host(2), &packet(stream("b", 1), false, origin)));
        assert_eq!(names(&directory), ["a", "b"]);
        assert!(directory.hear(now, host(1), &packet(stream("a", 1), true, origin)));
        assert_eq!(names(&directory), ["b"]);
    }

    #[test]
    fn memory_is_bounded_and_a_flood_costs_the_one_who_floods() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let genuine = signed_packet(feed("genuine", 1), false, &signer(1));
        directory.hear(now, host(1), &genuine);
        let mut heard = 0;
        for last in 2..=30 {
            for tsi in 0..300 {
                heard += 1;
                let later = now + Duration::from_millis(heard);
                // Made-up origins do not help.
                let origin = [198, 18, last, tsi as u8];
                directory.hear(later, host(last), &packet(stream("x", tsi), false, origin));
            }
            assert!(directory.sessions().len() <= MOST);
        }
        assert!(directory.refused() > 0);
        assert!(names(&directory).contains(&"genuine"));
        assert!(!directory.hear(now, host(2), b"garbage"));
    }

    #[test]
    fn a_host_with_all_addresses_of_its_network_pushes_nothing_out() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let mut announce = |from: [u16; 8], tsi: u32| {
            let text = stream(if from[1] == 0xDB8 { "x" } else { "genuine" }, tsi);
            directory.hear(now, from.into(), &packet(text, false, [198, 18, 0, 1]))
        };
        assert!(announce([0x2001, 0xDB9, 0, 0, 0, 0, 0, 1], 1));
        for n in 0..10 * MOST as u32 {
            announce([0x2001, 0xDB8, 0, 0, 0, 0, (n >> 16) as u16, n as u16], n);
        }
        // Who was heard is still there, and others find places.
        for tsi in 2..20 {
            assert!(announce([0x2001, 0xDB9, 0, 0, 0, 0, 0, tsi], tsi.into()));
        }
        assert_eq!(names(&directory).iter().filter(|name| **name == "genuine").count(), 19);
        assert_eq!(directory.keys.len(), MOST);
    }

    #[test]
    fn earlier_announcements_of_a_sender_do_not_push_out_its_latest() {
        let (mut directory, now, keys) = (Directory::default(), Instant::now(), signer(1));
        let latest = Feed { version: 1_000, ..feed("a", 0) };
        // The stranger that repeats them was quicker.
        directory.hear(now, host(9), &signed_packet(latest, false, &keys));
        for tsi in 1..200 {
            let old = Feed { version: tsi.into(), ..feed("a", tsi) };
            let later = now + Duration::from_millis(tsi.into());
            directory.hear(later, host((tsi % 200) as u8 + 10), &signed_packet(old, false, &keys));
        }
        assert_eq!(directory.sessions().len(), MOST_OF_ONE);
        assert_eq!(directory.sessions().last().unwrap().description.origin.version, 1_000);
    }

    #[test]
    fn who_looks_for_one_name_remembers_no_other() {
        let (mut directory, now, keys) = (Directory::default(), Instant::now(), signer(1));
        directory.hear(now, host(1), &signed_packet(feed("b", 2), false, &keys));
        directory.look_for([&"a".parse().unwrap()]);
        assert!(directory.sessions().is_empty());
        assert!(!directory.hear(now, host(1), &signed_packet(feed("b", 2), false, &keys)));
        assert!(directory.hear(now, host(1), &signed_packet(feed("a", 1), false, &keys)));
        assert_eq!(names(&directory), ["a"]);
    }

    #[test]
    fn a_session_of_another_version_says_which_and_what_to_do() {
        let (mut directory, now) = (Directory::default(), Instant::now());
        let (feed, stream) = (feed("a", 1), stream("b", 2));
        for (theirs, attribute, session) in
            [(2, "tmtp", SessionKind::from(feed)), (9, "rlm", SessionKind::from(stream))]
        {
            let text = session.describe("umbel").emit();
            let text = text.replace(&format!("{attribute}:1"), &format!("{attribute}:{theirs}"));
            let mut packet = Vec::new();
            SapPacket::new(false, [10, 0, 0, theirs].into(), text.as_bytes()).emit(&mut packet);
            assert!(directory.hear(now, host(theirs), &packet));
            let sessions = directory.sessions();
            let session = sessions.into_iter().find(|session| session.announcer == host(theirs));
            let problem = session.unwrap().problem.clone().unwrap();
            for part in [&format!("version {theirs}"), "version 1", "the same release"] {
                assert!(problem.contains(part), "{problem}");
            }
        }
    }
}
