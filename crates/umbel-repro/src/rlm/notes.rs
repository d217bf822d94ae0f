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
            "docs/papers/rlm.md has all readings. The density of join-timers in the paper mixes a rate \
             with a time; here their mean is the time that is backed off. The threshold of lasting \
             loss is 10 %. The detection-time is 2 s ± 0.5 s at first, fitted to Figure 8: with the \
             5 s ± 2 s of the authors' ns agents experiments hold each other up.",
        ),
        note(
            "Why an experiment costs less here",
            "An experiment that fails lasts 0.4 to 0.5 s. The queue of 20 packets takes 0.3 s to fill, \
             since the sixth layer exceeds the link by a third; then a quarter of the packets is lost \
             until the leave has come through, about 0.1 s later. So 1 s windows lose about 7 % at \
             short latencies. Independent runs with other people's agents have 7, 0.8 and 0.2 % in \
             windows of 1, 10 and 100 s, which is what Figure 9 has here at 10 ms.",
        ),
        note(
            "Session size",
            "Worst losses of 100 receivers are up to twice those of one, since the first receivers \
             experiment while others are starting, and overlaps make them go through M. They stay at \
             half of the 1 % that the paper reports. Convergence takes 32 s alone and about 105 s among \
             100; other people's agents took 42 s and 121 s.",
        ),
        note(
            "Random early detection",
            "The receivers react to the first loss. RED makes it come sooner if its average is fast: \
             with a weight of 0.1 the worst losses fall by about 30 %. With 0.02 they rise, since the \
             average goes on dropping while it comes down; with the usual 0.002 it averages over 2.7 s \
             at this rate, within which the queue overflows. The paper says that RED improves the \
             loss, and gives no numbers.",
        ),
        note(
            "The controller that looks at delays",
            "With the queue of the paper it loses nothing at latencies of 10 ms, whatever the size of the \
             session, and reaches the best level in less than half the time. The queue takes 0.3 s to \
             fill, and 30 ms of it show after 0.1 s. At latencies above that, and among sessions that \
             fill each other's queues, it is about as good as the paper's.",
        ),
    ]
}
