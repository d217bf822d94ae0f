//! Replays the corpus of the fuzz target `pipe_block`.

use ring::signature::{Ed25519KeyPair, KeyPair};
use umbel_engine::symbols::{BlockId, Load, SymbolSource};
use umbel_engine::tmtp::FEED;
use umbel_store::feed::{PipeOutcome, pipe};

use crate::{checks, corpus};

/// The secret key of the sender [RFC 8032 §7.1, test 1].
const SEED: [u8; 32] = [
    0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4,
    0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
];

/// Continuation of the writer after the first block.
#[derive(Clone, Copy)]
enum Then {
    Writes,
    Ends,
    Fails,
}

/// Returns the first block of a pipe with this content.
fn block(content: &[u8], then: Then) -> Vec<u8> {
    let keys = Ed25519KeyPair::from_seed_unchecked(&SEED).unwrap();
    assert_eq!(keys.public_key().as_ref(), checks::PIPE_KEY);
    let sign = Box::new(move |run: &[u8]| keys.sign(run).as_ref().try_into().unwrap());
    let (mut writer, mut feed) =
        pipe(checks::PIPE, checks::PIPE_SHAPE, 1 << 20, None, sign).unwrap();
    let mut symbols = Vec::new();
    if !content.is_empty() {
        writer.read_from(&mut &content[..]).unwrap();
    }
    match then {
        Then::Ends => writer.end(None, |k| symbols.push(k)),
        Then::Fails => writer.end(Some("no input"), |k| symbols.push(k)),
        Then::Writes => {
            writer.cut();
            writer.sign(|k| symbols.push(k));
        }
    }
    let id = BlockId { toi: FEED, sbn: 0 };
    let symbol = |esi| match feed.symbol(id, esi) {
        Load::Ready(symbol) => symbol,
        other => panic!("{other:?}"),
    };
    (0..symbols[0].into()).flat_map(symbol).collect()
}

fn seeds() -> Vec<corpus::Seed> {
    vec![
        ("first", block(b"content", Then::Writes)),
        ("only", block(b"content", Then::Ends)),
        ("empty", block(b"", Then::Ends)),
        ("failed", block(b"", Then::Fails)),
    ]
}

#[test]
fn the_corpus_of_pipe_block_replays() {
    corpus::replay("pipe_block", seeds().len(), checks::pipe_block);
}

#[test]
fn the_seeds_are_still_what_we_emit_and_are_taken() {
    corpus::assert_holds("pipe_block", seeds());
    let ends = [None, Some(PipeOutcome::Whole), Some(PipeOutcome::Whole)];
    let failed = Some(PipeOutcome::Failed("no input".to_owned()));
    for ((name, bytes), end) in seeds().into_iter().zip(ends.into_iter().chain([failed])) {
        let content = if ["first", "only"].contains(&name) { &b"content"[..] } else { b"" };
        assert_eq!(checks::read_pipe(&bytes), (content.to_vec(), end), "{name}");
    }
}

#[test]
#[ignore = "writes the seeds into the corpus"]
fn write_the_seeds() {
    corpus::write("pipe_block", seeds());
}
