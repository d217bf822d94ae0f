//! Replays the corpora of the fuzz targets that have an engine behind them, and feeds engines the
//! corpora of the messages that they parse.

use std::ops::RangeInclusive;

use super::{checks, corpus};

/// A target, and the targets that have messages for it.
type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

const TARGETS: [Target; 7] = [
    ("repository_server", checks::repository_server, &["client_message", "srm_message"]),
    (
        "repository_client",
        checks::repository_client,
        &["server_message", "data_packet", "srm_message"],
    ),
    ("tmtp_source", checks::tmtp_source, &["tmtp_message", "lms_message"]),
    ("tmtp_receiver", checks::tmtp_receiver, &["tmtp_message", "lms_message"]),
    ("smo_source", checks::smo_source, &["tcp_segment"]),
    ("rlm_source", checks::rlm_source, &["rlm_message", "tmtp_message"]),
    ("rlm_receiver", checks::rlm_receiver, &["rlm_message", "tmtp_message"]),
];

/// A target with two engines that talk to each other.
type Pair = (&'static str, fn(&[u8]));

const PAIRS: [Pair; 3] = [
    ("repository_sealed", checks::repository_sealed),
    ("tmtp_closed", checks::tmtp_closed),
    ("tmtp_keyed", checks::tmtp_keyed),
];

/// Returns the files of a corpus, in the order of their names.
fn files(target: &str) -> impl Iterator<Item = Vec<u8>> + use<> {
    corpus::files(target).into_iter().map(|(_, bytes)| bytes)
}

/// Steps of these kinds, each with each of these datagrams.
fn steps(kinds: RangeInclusive<u8>, datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for kind in kinds {
        for datagram in datagrams {
            out.push(kind);
            out.extend_from_slice(&(datagram.len() as u16).to_le_bytes());
            out.extend_from_slice(datagram);
        }
    }
    out
}

#[test]
fn engines_take_every_message_from_everyone_at_any_time() {
    for (target, check, messages) in TARGETS {
        let datagrams: Vec<_> = messages.iter().flat_map(|target| files(target)).collect();
        assert!(datagrams.len() > 7, "{target}");
        // From every sender, after every pause.
        check(&steps(0..=31, &datagrams));
    }
}

#[test]
fn the_corpora_of_engines_replay() {
    for (target, check, _) in TARGETS {
        corpus::replay(target, 1, check);
    }
}

#[test]
#[ignore = "writes seeds into the corpora"]
fn write_the_seeds() {
    let routers: Target = ("lms_router", checks::lms_router, &["lms_message"]);
    for (target, _, messages) in TARGETS.into_iter().chain([routers]) {
        let datagrams = messages.iter().flat_map(|target| files(target));
        let seeds = datagrams.enumerate().map(|(number, datagram)| {
            let len = (datagram.len() as u16).to_le_bytes();
            let seed = [&[number as u8 % 32][..], &len, &datagram].concat();
            (format!("message-{number}"), seed)
        });
        corpus::write(target, seeds);
    }
    // Most actions of the network, besides delivering what is sent.
    let deeds = (0..8_u8).map(|deed| {
        let turn = [&[0, 0, 0, 0, deed, 40, 1, 7, 8][..]; 60].concat();
        (format!("deed-{deed}"), turn)
    });
    let seeds: Vec<_> = deeds.chain([("delivered".to_owned(), delivered())]).collect();
    for (target, _) in PAIRS {
        corpus::write(target, seeds.clone());
    }
}

#[test]
fn lms_routers_take_every_message_from_everyone_at_any_time() {
    let datagrams: Vec<_> = files("lms_message").collect();
    checks::lms_router(&steps(0..=u8::MAX, &datagrams));
    corpus::replay("lms_router", datagrams.len(), checks::lms_router);
}

/// Returns an input in which the network delivers all that is sent, with a little time now and
/// then.
fn delivered() -> Vec<u8> {
    [[0; 6].as_slice(), &[7, 16]].concat().repeat(200)
}

#[test]
fn the_corpora_of_engines_that_talk_to_each_other_replay() {
    for (target, check) in PAIRS {
        corpus::replay(target, 9, check);
    }
}

#[test]
fn the_corpus_of_smo_delivery_replays() {
    corpus::replay("smo_delivery", 4, checks::smo_delivery);
    checks::smo_delivery(&files("smo_delivery").collect::<Vec<_>>().concat());
}

/// Two engines that talk to each other behind a token, a seal or keys; returns the symbols that came
/// through.
type Symbols = (&'static str, fn(&[u8]) -> usize);

const SYMBOLS: [Symbols; 3] = [
    ("repository_sealed", checks::symbols_of_sealed_repository),
    ("tmtp_closed", checks::symbols_of_closed_feed),
    ("tmtp_keyed", checks::symbols_of_keyed_feed),
];

#[test]
fn the_seeds_get_past_the_opening_of_the_seal() {
    for (target, symbols) in SYMBOLS {
        let taken: Vec<_> = corpus::files(target)
            .into_iter()
            .map(|(name, bytes)| (name, symbols(&bytes)))
            .collect();
        let deep = taken.iter().filter(|(_, symbols)| *symbols > 0).count();
        // Some seeds stand for a network that drops all, or in which little time passes.
        assert!(deep * 2 >= taken.len(), "{target}: {taken:?}");
    }
}
