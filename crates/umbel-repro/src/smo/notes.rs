//! Choices and findings.

use crate::output::Note;

fn note(title: &str, text: &str) -> Note {
    Note { title: title.to_owned(), text: text.to_owned() }
}

/// Returns the notes of the report.
pub(super) fn notes() -> Vec<Note> {
    vec![
        note(
            "How it was read",
            "docs/papers/smo.md has all readings. Receivers are models of ordinary TCP stacks with a \
             helper, spread over five hosts. It also has sessions with the stacks of the kernel, in the \
             lab.",
        ),
        note(
            "The server's limit",
            "The paper's 930 MHz server processed 50,000 to 60,000 ACKs/s, which bounded its \
             throughput. Here this is a parameter: ACKs wait in a queue that is served 55,000 times \
             a second. The curves without it show what the protocol does by itself.",
        ),
        note(
            "Congestion control",
            "The paper's prototype had none [SMO §V]. Umbel's source has it, so that with losses the \
             strictly fair session is as slow as the slowest of its children. Where the paper's \
             numbers depend on this, both are shown; a master whose window is the receive \
             window alone stands for the prototype.",
        ),
    ]
}
