//! Replays the corpus of the fuzz target `router_control`, and hands a control plane the corpora of
//! the messages that it parses.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "common/checks.rs"]
mod checks;
#[path = "../../umbel-wire/tests/common/corpus.rs"]
mod corpus;

/// Corpora of messages, and the protocol by which a step hands them over.
const MESSAGES: [(&str, &[u8]); 3] =
    [("igmp_message", &[0]), ("mld_message", &[4]), ("pim_message", &[2, 6])];

/// Returns a step for each message: from which interface, host and pause, and the message.
fn steps(who: u8) -> Vec<Vec<u8>> {
    let mut steps = Vec::new();
    for (target, kinds) in MESSAGES {
        for ((_, message), kind) in corpus::files(target)
            .into_iter()
            .flat_map(|file| kinds.iter().map(move |kind| (file.clone(), kind)))
        {
            for to in 0..4 {
                let len = (message.len() as u16).to_le_bytes();
                steps.push([&[who, kind | to << 3][..], &len, &message].concat());
            }
        }
    }
    steps
}

#[test]
fn a_control_plane_takes_every_message_from_everyone_at_any_time() {
    for pause in 0..4 {
        let all = (0..64).step_by(7).flat_map(|host| steps(host | pause << 6)).flatten();
        checks::router_control(&all.collect::<Vec<u8>>());
    }
}

#[test]
fn the_corpus_of_router_control_replays() {
    corpus::replay("router_control", 4, checks::router_control);
}

#[test]
#[ignore = "writes seeds into the corpus"]
fn write_the_seeds() {
    let seeds = [0, 5, 70, 140].map(|who| (format!("host-{who}"), steps(who).concat()));
    corpus::write("router_control", seeds);
}
