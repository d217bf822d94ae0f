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
             Tunnels lose 0.72 % of what they carry in each direction, each packet independently: with \
             that BURST_BASEP makes about the 9 retransmissions that the paper reports. The loss is \
             the one number that was fitted; those of TMTP are measured with it.",
        ),
        note(
            "GOT_IT acknowledges nothing else",
            "GOT_IT is the word of the application, so that a packet whose ACK was lost is sent again \
             even if its receiver has everything: the paper says that most retransmissions come from \
             lost ACKs. An earlier version of this report took GOT_IT as an ACK of every packet, and \
             fitted a loss of 1.3 % to it. Without that rule BURST_BASEP makes 15 retransmissions at \
             1.3 %, and 9 at 0.72 %. There TMTP makes 3.2, not the 6 that are reported, which came out \
             at 1.3 %. That it makes fewer than BURST_BASEP has become clearer.",
        ),
        note(
            "The paper's error control, and Umbel's",
            "The curve TMTP has the rules of the paper: a receiver sends one NACK for a packet that a \
             later one shows to be missing, its parent answers at once, and what is lost beyond that \
             (the last packets, NACKs, repairs) is found after T_retrans, 3.3 s, once for each level of \
             managers that lacks it. Umbel's has beacons \
             and heartbeats that tell how far the source is, repeats NACKs, rests for a round trip \
             after a repair, and fetches from the source what the parent did not repair.",
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
