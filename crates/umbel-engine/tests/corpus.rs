//! Replays the corpora of the fuzz targets that have an engine behind them, and feeds engines the
//! corpora of the messages that they parse.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;
#[path = "../../umbel-wire/tests/common/corpus.rs"]
mod corpus;

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

/// Returns the files of a corpus, in the order of their names.
fn files(target: &str) -> impl Iterator<Item = Vec<u8>> + use<> {
    corpus::files(target).into_iter().map(|(_, bytes)| bytes)
}

/// Steps that hand over these datagrams, each from every sender, after every pause.
fn steps(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for kind in 0..32_u8 {
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
        check(&steps(&datagrams));
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
    for (target, _, messages) in TARGETS {
        let datagrams = messages.iter().flat_map(|target| files(target));
        let seeds = datagrams.enumerate().map(|(number, datagram)| {
            let len = (datagram.len() as u16).to_le_bytes();
            let seed = [&[number as u8 % 32][..], &len, &datagram].concat();
            (format!("message-{number}"), seed)
        });
        corpus::write(target, seeds);
    }
}

#[test]
fn the_corpus_of_smo_delivery_replays() {
    corpus::replay("smo_delivery", 4, checks::smo_delivery);
    checks::smo_delivery(&files("smo_delivery").collect::<Vec<_>>().concat());
}
