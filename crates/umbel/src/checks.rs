//! Properties that hold for any bytes. The fuzz targets check them, and the tests here check them
//! on the corpora of the fuzz targets.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::directory::{Directory, KnownSenders, Noun, SessionSelector, SessionUrl};
use crate::feed::admission::AdmitList;
use crate::http::range::{Part, content_range};
use crate::smo::serve::http::request::{HEAD_BYTES, Request};

#[cfg(test)]
#[path = "../../umbel-wire/tests/common/corpus.rs"]
mod corpus;

/// Checks that a head is found in the bytes whatever follows, that its path begins at the root, and
/// that no range leaves a body.
pub fn http_request(bytes: &[u8]) {
    let Ok(Some((request, len))) = Request::parse(bytes) else { return };
    assert!(len <= bytes.len().min(HEAD_BYTES) && request.path.starts_with('/'));
    assert_eq!(Request::parse(&bytes[..len]), Ok(Some((request.clone(), len))));
    let range = request.range.as_deref();
    for body in [0, 1, 1_000, u64::MAX] {
        if let Part::Bytes(range) = Part::parse(range, body) {
            assert!(range.start < range.end && range.end <= body);
        }
    }
    if let Some((range, whole)) = range.and_then(content_range) {
        assert!(range.start < range.end && range.end <= whole);
    }
}

/// Hands packets to the table of sessions. Each is a byte that selects the host and how much time
/// passes, its length in two bytes, and its bytes. No host takes more than its room.
pub fn directory(bytes: &[u8]) {
    let mut table = Directory::default();
    let mut now = Instant::now();
    let mut rest = bytes;
    while let Some((&[kind, low, high], after)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (packet, next) = after.split_at(len);
        rest = next;
        now += Duration::from_secs([0, 1, 600, 4_000][usize::from(kind >> 6)]);
        let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, kind & 3));
        table.hear(now, from, packet);
        table.expire(now);
        let sessions = table.sessions();
        assert!(sessions.len() <= 4 * 128, "a host has more than its room");
        for session in sessions {
            let (Some(feed), Some(pin)) = (session.feed(), session.signer) else { continue };
            let url = SessionUrl { noun: Noun::Feed, name: &feed.name, pin }.to_string();
            assert!(url.parse::<SessionSelector>().is_ok_and(|selector| selector.matches(session)));
        }
    }
}

/// Checks that a list has owners for all of its keys or for none, and that these are on the list.
/// With keys, each name has an owner.
pub fn admit_list(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(list) = AdmitList::parse(text) else { return };
    assert!(!list.names.is_empty());
    assert_eq!(list.keys.is_empty(), list.owners.is_empty());
    assert!(
        list.owners.iter().all(|(name, key)| list.names.contains(name) && list.keys.contains(key))
    );
    assert!(
        list.keys.is_empty()
            || list.names.iter().all(|name| list.owners.iter().any(|(of, _)| of == name))
    );
}

/// Checks that what a file of known senders says of a name is what one of its lines says.
pub fn known_senders(bytes: &[u8]) {
    let place = tempfile::tempdir().expect("a directory");
    let mut file = std::fs::File::create(place.path().join("known_feeds")).expect("a file");
    file.write_all(bytes).expect("room");
    let known = KnownSenders::in_dir(Noun::Feed, place.path());
    let name = "a".parse().expect("a name");
    match known.last_of(&name) {
        Ok(Some(known)) => {
            let (pin, text) = (known.pin.to_string(), String::from_utf8_lossy(bytes));
            assert!(text.lines().any(|line| line.starts_with(&pin) && line.ends_with(" a")));
        }
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_of_http_request_replays() {
        corpus::replay("http_request", 6, http_request);
    }

    #[test]
    fn the_corpus_of_directory_replays() {
        corpus::replay("directory", 4, directory);
        let packets: Vec<_> =
            corpus::files("sap_packet").into_iter().map(|(_, bytes)| bytes).collect();
        directory(&steps(&packets));
    }

    /// Hands over these packets from every host, after every pause.
    fn steps(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut steps = Vec::new();
        for kind in [0, 1, 2, 3, 64, 129, 194] {
            for packet in packets {
                steps.push(kind);
                steps.extend_from_slice(&(packet.len() as u16).to_le_bytes());
                steps.extend_from_slice(packet);
            }
        }
        steps
    }

    #[test]
    fn the_corpus_of_admit_list_replays() {
        corpus::replay("admit_list", 4, admit_list);
    }

    #[test]
    fn the_corpus_of_known_senders_replays() {
        corpus::replay("known_senders", 5, known_senders);
    }
}
