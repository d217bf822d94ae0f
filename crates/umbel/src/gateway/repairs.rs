//! Fetches files from the source of which multicast did not bring everything.
//!
//! ```text
//!           lost          random back-off                 whole, digest right
//! (none) ────────▶ waits ─────────────────▶ asked ──────────────────────────▶ (none)
//!                   │ came after all,         │ failed
//!                   │ or no longer needed     └──▶ waits, or given up
//!                   └──▶ (none)
//! ```
//!
//! A file of which a part came has its digest from the source's signed packets. One of which
//! nothing came must have a signature of the source.
//!
//! The back-off spreads receivers behind one bottleneck, who lose the same packets. Nothing is
//! fetched whose time to play is over.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use umbel_engine::Instant;
use umbel_engine::rlm::StreamKey;
use umbel_net::session::signing;
use umbel_store::hls::FileName;
use umbel_wire::Digest;
use umbel_wire::rlm::ObjectHead;
use umbel_wire::rlm::signed::file_message;

use super::shelf::Need;
use crate::http::{Fetched, Wanted};

/// Shortest back-off, and the time over which it is spread beyond that.
const BACKOFF: Duration = Duration::from_millis(20);
const SPREAD: Duration = Duration::from_millis(200);
/// Most files that wait, and most that are asked for at a time.
const JOBS: usize = 32;
const ASKED: usize = 2;
/// Attempts for a file.
const ATTEMPTS: u8 = 2;
/// Time after which a file that no playlist names is given up.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Longest file of which nothing is known.
const MAX_FILE: u64 = 16 << 20;
/// Most ranges of a file. Beyond that it is fetched from the first to the last of them.
const RANGES: usize = 32;

/// A file of a layer.
pub(crate) type Key = (usize, FileName);

/// Held parts of a file whose head came.
#[derive(Clone, Debug)]
struct Partial {
    digest: Digest,
    held: Bytes,
    missing: Vec<Range<u64>>,
}

#[derive(Debug)]
struct Job {
    since: Instant,
    due: Instant,
    asked: bool,
    attempts: u8,
    /// `None`: nothing came but its name in a playlist.
    partial: Option<Partial>,
}

/// Counters of repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepairStats {
    /// Files restored.
    pub(crate) repaired: u64,
    /// Bytes fetched for these.
    pub(crate) bytes: u64,
    /// Files that were not needed any more when their back-off was over.
    pub(crate) suppressed: u64,
    /// Files given up.
    pub(crate) failed: u64,
}

/// Plans repairs.
#[derive(Debug)]
pub(crate) struct Repairs {
    /// Key of the stream.
    key: StreamKey,
    jobs: BTreeMap<Key, Job>,
    stats: RepairStats,
}

impl Repairs {
    /// Creates the repairs of a stream that this key signs.
    pub(crate) fn of(key: StreamKey) -> Repairs {
        Repairs { key, jobs: BTreeMap::new(), stats: RepairStats::default() }
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> RepairStats {
        self.stats
    }

    /// Takes a file of which multicast brought a part. `draw` is uniform in [0, 1).
    pub(crate) fn lost(
        &mut self,
        now: Instant,
        key: Key,
        head: &ObjectHead,
        (held, missing): (Bytes, Vec<Range<u64>>),
        draw: f64,
    ) {
        let sound = missing.iter().all(|range| range.start < range.end && range.end <= head.len);
        let whole = missing.len() == 1 && missing[0] == (0..head.len);
        if head.len > MAX_FILE || !sound || !(whole || held.len() as u64 == head.len) {
            return;
        }
        let missing = match (missing.first(), missing.last()) {
            (Some(first), Some(last)) if missing.len() > RANGES => {
                vec![Range { start: first.start, end: last.end }]
            }
            _ => missing,
        };
        let held = if whole { Bytes::from(vec![0; head.len as usize]) } else { held };
        let partial = Some(Partial { digest: head.digest, held, missing });
        self.add(now, key, partial, draw);
    }

    /// Takes a file of which nothing came.
    pub(crate) fn absent(&mut self, now: Instant, key: Key, draw: f64) {
        if !self.jobs.contains_key(&key) {
            self.add(now, key, None, draw);
        }
    }

    fn add(&mut self, now: Instant, key: Key, partial: Option<Partial>, draw: f64) {
        if self.jobs.get(&key).is_some_and(|job| job.asked) {
            return;
        }
        if self.jobs.len() >= JOBS && !self.jobs.contains_key(&key) {
            self.stats.failed += 1;
            return;
        }
        let due = now + backoff(draw);
        self.jobs.insert(key, Job { since: now, due, asked: false, attempts: 0, partial });
    }

    /// Returns the next file to ask for. Those that are not needed any more are forgotten.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        needs: impl Fn(usize, &FileName) -> Need,
    ) -> Option<(Key, Wanted)> {
        let mut suppressed = 0;
        self.jobs.retain(|(layer, name), job| {
            let keeps = match needs(*layer, name) {
                _ if job.asked => true,
                Need::Yes => true,
                Need::Unknown => now < job.since + UNKNOWN,
                Need::No => false,
            };
            suppressed += u64::from(!keeps);
            keeps
        });
        self.stats.suppressed += suppressed;
        if self.jobs.values().filter(|job| job.asked).count() >= ASKED {
            return None;
        }
        let is_due = |(layer, name): &Key, job: &Job| {
            !job.asked && job.due <= now && needs(*layer, name) == Need::Yes
        };
        let due = self.jobs.iter_mut().filter(|(key, job)| is_due(key, job));
        let (key, job) = due.min_by_key(|(_, job)| job.due)?;
        job.asked = true;
        job.attempts += 1;
        let wanted = match &job.partial {
            None => Wanted::All(MAX_FILE),
            Some(partial) => Wanted::Parts {
                etag: hex(&partial.digest),
                len: partial.held.len() as u64,
                ranges: partial.missing.clone(),
            },
        };
        Some((key.clone(), wanted))
    }

    /// Takes an answer. Returns the file if it is whole now and its digest is right.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        key: &Key,
        answer: Option<Fetched>,
        draw: f64,
    ) -> Option<Bytes> {
        let mut job = self.jobs.remove(key)?;
        if let Some(answer) = answer {
            let bytes: usize = answer.bodies.iter().map(Bytes::len).sum();
            let body = match &job.partial {
                None => whole(key.1.as_str(), answer, &self.key),
                Some(partial) => join(partial, answer.bodies),
            };
            if let Some(body) = body {
                self.stats.repaired += 1;
                self.stats.bytes += bytes as u64;
                return Some(body);
            }
        }
        if job.attempts < ATTEMPTS {
            (job.asked, job.due) = (false, now + backoff(draw));
            self.jobs.insert(key.clone(), job);
        } else {
            self.stats.failed += 1;
        }
        None
    }
}

/// Returns a file of which nothing had come, if it has the digest and the signature that it should.
fn whole(name: &str, answer: Fetched, key: &StreamKey) -> Option<Bytes> {
    let body = answer.bodies.into_iter().next()?;
    let digest = blake3::hash(&body);
    let signature = BASE64URL_NOPAD.decode(answer.signature?.as_bytes()).ok()?;
    let message = file_message(key.version, name, &Digest(*digest.as_bytes()));
    let is_signed = signing::verify(&key.public, &message, &signature.try_into().ok()?);
    let right = answer.etag.as_deref() == Some(digest.to_hex().as_str());
    (right && is_signed).then_some(body)
}

/// Puts a file together, and checks its digest.
fn join(partial: &Partial, bodies: Vec<Bytes>) -> Option<Bytes> {
    let mut whole = partial.held.to_vec();
    for (range, body) in partial.missing.iter().zip(bodies) {
        let place = whole.get_mut(range.start as usize..range.end as usize)?;
        if place.len() != body.len() {
            return None;
        }
        place.copy_from_slice(&body);
    }
    (*blake3::hash(&whole).as_bytes() == partial.digest.0).then(|| whole.into())
}

fn hex(digest: &Digest) -> String {
    blake3::Hash::from_bytes(digest.0).to_hex().to_string()
}

fn backoff(draw: f64) -> Duration {
    BACKOFF + SPREAD.mul_f64(draw.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::signer;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn key() -> Key {
        (0, FileName::parse("v0/1.m4s").unwrap())
    }

    fn head(content: &[u8]) -> ObjectHead {
        ObjectHead {
            name: "v0/1.m4s".to_owned(),
            len: content.len() as u64,
            digest: Digest(*blake3::hash(content).as_bytes()),
            symbol_len: 2,
            block_symbols: 9,
        }
    }

    fn needed(_: usize, _: &FileName) -> Need {
        Need::Yes
    }

    fn repairs() -> Repairs {
        Repairs::of(StreamKey { public: signer(1).public(), version: 7 })
    }

    fn lost(repairs: &mut Repairs) {
        let held = Bytes::from_static(b"01\0\x0045\0\089");
        repairs.lost(at(0), key(), &head(b"0123456789"), (held, vec![2..4, 6..8]), 0.0);
    }

    fn bodies(bodies: &[&'static str]) -> Fetched {
        let bodies = bodies.iter().map(|body| Bytes::from_static(body.as_bytes())).collect();
        Fetched { bodies, ..Fetched::default() }
    }

    #[test]
    fn what_is_missing_is_asked_for_after_a_back_off_and_put_together() {
        let mut repairs = repairs();
        lost(&mut repairs);
        assert_eq!(repairs.poll(at(19), needed), None);
        let (asked, wanted) = repairs.poll(at(20), needed).unwrap();
        let Wanted::Parts { etag, len, ranges } = wanted else { panic!() };
        assert_eq!((asked, len, ranges), (key(), 10, vec![2..4, 6..8]));
        assert_eq!(etag, blake3::hash(b"0123456789").to_hex().to_string());
        assert_eq!(repairs.poll(at(99), needed), None);
        let whole = repairs.answered(at(99), &key(), Some(bodies(&["23", "67"])), 0.0);
        assert_eq!(whole.unwrap(), "0123456789");
        assert_eq!((repairs.stats().repaired, repairs.stats().bytes), (1, 4));
    }

    #[test]
    fn a_wrong_digest_or_length_is_refused_and_tried_twice() {
        let mut repairs = repairs();
        lost(&mut repairs);
        for (ms, wrong) in [(100, ["23", "6"]), (200, ["23", "66"])] {
            assert!(repairs.poll(at(ms), needed).is_some());
            assert_eq!(repairs.answered(at(ms), &key(), Some(bodies(&wrong)), 0.0), None);
            assert_eq!(repairs.poll(at(ms + 19), needed), None);
        }
        assert_eq!(repairs.poll(at(9000), needed), None);
        assert_eq!(repairs.stats().failed, 1);
    }

    #[test]
    fn what_is_no_longer_needed_is_not_asked_for() {
        let mut repairs = repairs();
        lost(&mut repairs);
        assert_eq!(repairs.poll(at(999), |_, _| Need::No), None);
        assert_eq!(repairs.poll(at(999), needed), None);
        assert_eq!(repairs.stats().suppressed, 1);
        lost(&mut repairs);
        assert_eq!(repairs.poll(at(4999), |_, _| Need::Unknown), None);
        assert!(repairs.poll(at(4999), needed).is_some());
    }

    #[test]
    fn a_file_of_which_nothing_came_must_be_signed_and_have_the_digest_that_the_source_tells() {
        let (right, wrong) = (blake3::hash(b"body"), blake3::hash(b"bodies"));
        let sign = |number, version, name: &str| {
            let message = file_message(version, name, &Digest(*right.as_bytes()));
            Some(BASE64URL_NOPAD.encode(&signer(number).sign(&message)))
        };
        let mut repairs = repairs();
        for (signature, etag, taken) in [
            (None, right, false),
            (Some("x".to_owned()), right, false),
            (sign(2, 7, "v0/1.m4s"), right, false),
            (sign(1, 6, "v0/1.m4s"), right, false),
            (sign(1, 7, "v0/2.m4s"), right, false),
            (sign(1, 7, "v0/1.m4s"), wrong, false),
            (sign(1, 7, "v0/1.m4s"), right, true),
        ] {
            repairs.absent(at(0), key(), 0.5);
            assert_eq!(repairs.poll(at(400), needed).unwrap().1, Wanted::All(MAX_FILE));
            let etag = Some(etag.to_hex().to_string());
            let answer = Fetched { etag, signature: signature.clone(), ..bodies(&["body"]) };
            let body = repairs.answered(at(400), &key(), Some(answer), 0.0);
            assert_eq!(body, taken.then(|| Bytes::from_static(b"body")), "{signature:?}");
            repairs.jobs.clear();
        }
    }

    #[test]
    fn a_flood_of_losses_takes_no_more_room() {
        let mut repairs = repairs();
        for n in 0..1000 {
            let name = FileName::parse(&format!("{n}.m4s")).unwrap();
            repairs.absent(at(0), (0, name), 0.0);
        }
        assert_eq!(repairs.jobs.len(), JOBS);
        assert!((0..9).filter(|_| repairs.poll(at(999), needed).is_some()).count() == ASKED);
        let absurd = ObjectHead { len: u64::MAX, ..head(b"") };
        let mut repairs = self::repairs();
        let missing = |range: Range<u64>| std::iter::once(range).collect::<Vec<_>>();
        repairs.lost(at(0), key(), &absurd, (Bytes::new(), missing(0..u64::MAX)), 0.0);
        let held = Bytes::from_static(b"0123456789");
        repairs.lost(at(0), key(), &head(&held), (held.clone(), missing(5..99)), 0.0);
        assert!(repairs.jobs.is_empty());
    }
}
