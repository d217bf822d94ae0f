//! Choices and findings.

use crate::output::Note;

fn note(title: &str, text: &str) -> Note {
    Note { title: title.to_owned(), text: text.to_owned() }
}

/// Returns the notes of the report.
pub(super) fn notes() -> Vec<Note> {
    vec![
        note(
            "What the sites are joined by",
            "The paper names seven sites and a round trip of about 1 s to the farthest. Chosen are \
             tunnels that join Washington University to Purdue (30 ms one way), Berkeley (80 ms) and \
             Rutgers (60 ms), Rutgers to Delaware (20 ms) and to London (240 ms), and London to \
             Mannheim (195 ms); a local network takes 2.5 ms. The sender is at Washington \
             University in a subnet of its own, so that it has the same children whatever \
             the number of receivers.\n\n\
             Tunnels lose 1.3 % of what they carry in each direction, each packet independently: with \
             that BURST_BASEP makes about the 9 retransmissions that the paper reports. The \
             retransmissions of TMTP are measured with the same loss.",
        ),
        note(
            "GOT_IT acknowledges everything",
            "Here a receiver of BASEP that has the whole file answers with GOT_IT, and the sender takes \
             that as an ACK of every packet. The paper does not have this rule: its GOT_IT is the \
             application's, the protocol \"expects positive ACKs from each receiver\", and \"most \
             retransmissions occurred as a result of dropped ACKs\". The loss above was fitted with the \
             rule. In an independent model of the same network BURST_BASEP makes 8.6 retransmissions at \
             1.3 % with the rule and 15.0 without it; without it 9 of them need 0.72 %, where TMTP would \
             make about 3.5 instead of 6. So the number of TMTP's retransmissions depends on this rule; \
             that it makes fewer does not: without it the distance is greater.",
        ),
        note(
            "The window of TMTP",
            "The paper gives TMTP \"a window size of 5\" and defines the window as what is sent in \
             T_retrans, which is 33 packets at 10 packets/s and 3.3 s. With 5 packets to be \
             acknowledged every 1.1 s a file of 30 takes about 7 s, which the curves of a protocol \
             that is \"substantially\" faster than BURST_BASEP cannot show. The figures have the \
             window of the definition, the table both.",
        ),
        note(
            "Why BURST_BASEP is faster here",
            "At 10 packets/s the last of 30 packets leaves after 2.9 s; with the way to the \
             farthest site and back TMTP cannot take less than 3.9 s. BURST_BASEP sends \
             everything at once, and 9 retransmissions of 30 packets mean one time-out of 2 s, seldom two, \
             after the first second. With up to about 6 KB TMTP is as fast or faster, as the paper says; \
             beyond, the rate decides. For the paper's curves a BURST_BASEP with 9 retransmissions must have \
             lost time where no packet is sent: over a thousand ACKs are to be taken in by a process on a \
             workstation of 1995, and bursts of 30 KB through tunnels that carry a few hundred kbit/s. \
             Neither is in the text, and neither is modelled here: processing takes no time.",
        ),
        note(
            "What is counted",
            "Load is what the paper lists: ACKs and NACKs that came, time-outs of retransmission, and \
             retransmissions, from the first packet until the sender has nothing left to wait for. GOT_IT \
             comes over a connection of its own that loses nothing. Only what belongs to the transfer is \
             lost; searches and joins are not, so that the tree is the same in all runs, as it was in the \
             paper's.",
        ),
        note(
            "How deep the tree is",
            "Managers choose the closest parent, not the shallowest, and chains of neighbours arise: the mean \
             depth is about log_K of the subnets, the greatest about twice that. With K = 4 the source has \
             K children from 40 subnets on; with K = 8 it has 5.4 of 40, 6.6 of 200 and 8 of 1,000 on \
             average, and its load follows them.",
        ),
    ]
}
