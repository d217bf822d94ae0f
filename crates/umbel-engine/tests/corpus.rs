//! Replays the corpora of the fuzz targets that have an engine behind them, and feeds engines the
//! corpora of the messages that they parse.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;

use std::fs;
use std::path::PathBuf;

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

fn corpus(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", target].iter().collect()
}

/// The files of a corpus in the order of their names.
fn files(target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> =
        fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
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
        let files = files(target);
        assert!(!files.is_empty(), "{target}");
        for file in files {
            check(&file);
        }
    }
}

#[test]
#[ignore = "writes seeds into the corpora"]
fn write_the_seeds() {
    for (target, _, messages) in TARGETS {
        fs::create_dir_all(corpus(target)).unwrap();
        for (number, datagram) in messages.iter().flat_map(|target| files(target)).enumerate() {
            let len = (datagram.len() as u16).to_le_bytes();
            let seed = [&[number as u8 % 32][..], &len, &datagram].concat();
            fs::write(corpus(target).join(format!("message-{number}")), seed).unwrap();
        }
    }
}

#[test]
fn the_corpus_of_smo_delivery_replays() {
    let all = files("smo_delivery");
    assert!(all.len() >= 4);
    for bytes in &all {
        checks::smo_delivery(bytes);
    }
    checks::smo_delivery(&all.concat());
}
