//! Findings.

use crate::output::Note;

/// Returns the notes of the report.
pub(super) fn notes() -> Vec<Note> {
    let note =
        |heading: &str, text: &str| Note { title: heading.to_owned(), text: text.to_owned() };
    vec![
        note(
            "Rescheduling needs no tuning",
            "Everything that is built on R(0) follows from Table 1: with any pattern of arrivals, \
             and with about 9 items a client however they are distributed, these curves lie within \
             5 to 10 % of the paper's.",
        ),
        note(
            "R(∞) depends on when retransmissions are sent",
            "The paper's R(∞) is slow because of clients that come between an item's transmission \
             and its retransmission: they hear the few retransmitted packets, and then ask for all \
             the rest. How many do so depends on how long that time is. A server that retransmits \
             as soon as the NAKs are in, within one other item, gives 29 to 43 % less delay than the \
             paper has at the points of Figures 3 to 6. About 15 s, the time of three items, gives nearly every number of the \
             paper; what in the paper's simulator took that long is not said.",
        ),
        note(
            "What was fitted",
            "The 15 s are the one number that was fitted to the paper's. But the paper leaves seven \
             more things open, and of each the reading was taken that comes nearest to its numbers: \
             clients come at regular times; each wants each item with the same probability; all of \
             the 15 s are waited; retransmissions are told to everyone; any NAK joins one that is \
             gathered; the channel does not wait for NAKs; retransmissions are not expanded. What the \
             other readings give is in the table of readings. About 14 numbers of R(∞) hang on the \
             15 s: with retransmission as soon as the NAKs are in Figures 3 to 6 would miss.",
        ),
        note(
            "Rules that differ from the paper",
            "A NAK travels for 80 ms and an exponential time of 20 ms on average: the paper's Table 1 \
             has the minimum and the mean, 100 ms, and no distribution. A block of Reed–Solomon has \
             at most 255 symbols, so that FEC(0.05R) stops growing at R = 65; the paper has \"a large \
             pool\". Not offered are the delay weighted by loss of its §6 and the biased variants of \
             R/Q of its §6.3.2.",
        ),
        note(
            "Who asks for the rest",
            "Retransmissions are announced to everyone who wants the item, as on the paper's one \
             control channel. A client that came while the item itself was being sent, and was not \
             told of it, does not know of that item until its next transmission: with this reading \
             notification hurts R(∞), as in the paper; without it, it would help a little.",
        ),
        note(
            "Figure 4: FEC(0.2) at 4 %",
            "The paper says \"over 15 %\" less delay than without error correction; here it is about \
             30 %, within the tolerance but near its edge. Both delays lie within theirs. The quotient follows the \
             choices more than others do: it is less with exactly 9 items a client and with expanded \
             retransmissions, and near 1 where retransmissions are sent at once (see the table of \
             readings). No reading gives it and the paper's R(∞) together better than the chosen one.",
        ),
        note(
            "Figure 4: FEC(0.1) is better here",
            "The paper says that FEC(0.1) is about 1 % worse than no error correction at 4 % loss, \
             where the server's link loses 10 % on top. Here it is better by some 4 % there, and at \
             nearly every other loss: both delays are within the tolerance of the paper's 17.5 \
             minutes, their order is not.",
        ),
        note(
            "Figure 5: notification gains less for R(0) than reported",
            "A new client wants the item that is being sent with probability 9 %, and then saves one \
             of about 18 transmissions that it needs: some 5 s of 900 s. The paper's 30 s cannot \
             come from this, and no reading gives it, though Poisson arrivals come nearer.",
        ),
        note(
            "Figure 11: R(0) with R/(Q/fill)",
            "Without error correction the loss-sensitive scheduler is a few percent worse than R/Q, \
             about the tolerance: it puts off what bad clients are about to complete, and nearly \
             every transmission has to be repeated for some anyway. With FEC(0.01R) and FEC(0.05R) \
             the two agree within 1 or 2 %, as the paper says. Clients that want 1 to 17 items \
             bring R(0) within the tolerance, too.",
        ),
        note(
            "Figure 9 with few bad clients",
            "With all clients at 5 % loss, FEC(maxloss) adds 3 packets to 60, and a third of the \
             clients lose more than that. Padding then helps, as Figure 4 also has it. It still helps \
             with 5 % of bad clients, by 7 % (five seeds: 771 s without padding, 717 s with 0.05); at \
             10 % the two are alike. Only beyond that is padding worse, as the paper has it across \
             the plot. An independent model of the paper's server gives the same sign.",
        ),
        note(
            "Figure 8's right edge",
            "With bad clients only, the paper finds that another expansion factor may be helpful. Here \
             FEC(0.01R) stays the best of the three, as in an independent model of the server.",
        ),
        note(
            "Figure 11's 110 minutes",
            "The text gives both schedulers \"about 110 minutes\" at 45 % bad clients. Its Figure 10 \
             has 16 minutes at 10 %, and no rescheduling scheme gets near 110 minutes even at 100 %. \
             1,100 seconds agrees with everything else.",
        ),
        note(
            "What is measured",
            "The paper simulates a day from an empty start. Here the first clients are left out and the \
             runs are shorter. Each measured client is followed until it is done, but not beyond twice \
             the time: who is not done then counts with what it has waited. The introduction of this \
             page and `runs.csv` say how many these are. Where there are many, as with FEC(0.1) and R(∞) \
             at 100 % of bad clients, the number depends on how long the run is. `--duration 24h --warm-up 0` is the paper's own. A packet takes 80 ms, as in the paper, whatever its \
             length; joining and announcing take no time.",
        ),
    ]
}
