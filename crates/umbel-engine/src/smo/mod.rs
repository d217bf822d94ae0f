//! TCP-SMO: one TCP stream to many ordinary TCP sockets [SMO §I].
//!
//! A source accepts TCP connections. Each is a *child* with a control block of its own. A *master*
//! has the send buffer that its children share, and multicasts each new segment once. Each child
//! acknowledges by unicast, and is repaired on its own. Receivers are unmodified TCP stacks. A
//! helper at the receiver's host rewrites the destination and the acknowledgement number of
//! multicast segments, and hands them to the local connections.
//!
//! # Sequence numbers and streams
//!
//! All children of a source share one *base*: byte 0 of every stream has the sequence number
//! `base`. Within the engine, a byte is at a 64-bit *position* of its stream, which does not wrap.
//!
//! ```text
//!                       ┌──────────── Source ───────────┐
//!   Write{Master(m)} ──▶│ master m: buffer, channel     │── multicast ──▶ channel (S, G, port m)
//!                       │   ├ child 1: una, cwnd, rtt   │◀─ ACK ───────── 10.0.0.2:50001
//!                       │   ├ child 2                   │◀─ ACK ───────── 10.0.0.3:50007
//!                       │   └ child 3 (deaf)            │── unicast ────▶ 10.0.0.4:50002
//!   Write{Child(4)} ───▶│ child 4, buffer of its own    │── unicast ────▶ 10.0.0.5:50003
//!                       └───────────────────────────────┘
//! ```
//!
//! A child is served in one of three ways. The engine finds out which, the receiver does not see a
//! difference.
//!
//! - **Hearing**: new data reaches it by multicast. Losses are repaired by unicast, or by multicast
//!   if more than a threshold of the children lack the same segment [SMO §II-E].
//! - **Deaf**: a child of a master that multicast does not reach. There is no helper, its MSS is
//!   too small, or a router does not forward. The same bytes go to it by unicast, at the pace of
//!   its own congestion window. It hears again when it acknowledges what was only multicast.
//! - **Alone**: a child with a stream and a buffer of its own. It is an ordinary TCP connection.
//!
//! How a host uses this depends on [`Join`]:
//!
//! - [`Join::AtOnce`]: a live stream, standard input, a relay. Each connection belongs to master
//!   [`MasterId::FIRST`] from its SYN on, and begins at the stream's current position: the
//!   sequence number of its SYN/ACK is `SND.NXT - 1`.
//! - [`Join::Asked`]: files and HTTP. Each connection begins at position 0. The host hears its
//!   request. Then it either attaches it to a master (all that asked for the same response within a
//!   window of time), or writes to it alone. A response by multicast is the whole stream of the
//!   connection: the same head and body for everyone, and then FIN (`Connection: close`). A child
//!   that has been written to alone cannot be attached any more, since its position differs. Its
//!   later requests on the same connection are answered alone. A late child may be attached as long
//!   as the master's buffer holds position 0; the host answers it alone otherwise.
//!
//! # Membership
//!
//! Several masters, and children that belong to none, share the base. A helper must therefore not
//! deliver the segments of a master to a connection of another. Each master has a channel with a
//! port of its own. Unicast segments of the source carry the *membership* option
//! ([`umbel_wire::tcp::Options::membership`]): the port of the channel whose segments this
//! connection takes, or 0. A helper delivers a multicast segment to the local connections whose
//! last membership was its destination port, and to no other. Until it has seen one, and where a
//! middlebox removes it, a connection is deaf, and nothing is wrong. A deaf child is told again
//! each second, as its host may have a new helper. Once attached, a child belongs to its master
//! until it ends.
//!
//! # The connection of a child
//!
//! [RFC 9293 §3.3.2], without the states of an active opener:
//!
//! ```text
//!                 SYN / SYN,ACK            ACK
//!      (listen) ────────────────▶ SynReceived ───▶ Established
//!                                      │ RST, give up  │  │ FIN / ACK
//!                                      ▼    Finish/FIN │  ▼
//!                                  (forgotten)         │ CloseWait
//!                                                      ▼  │ Finish/FIN
//!                        FIN / ACK  ┌───────────── FinWait1│
//!                                   ▼                  │  ▼
//!                                Closing      ACK of FIN│ LastAck
//!                       ACK of FIN  │                  ▼  │ ACK of FIN
//!                                   │              FinWait2▼
//!                                   ▼  FIN / ACK       │ (closed)
//!                                TimeWait ◀────────────┤
//!                                                      ▼ too long without FIN
//!                                                 (forgotten)
//! ```
//!
//! [RFC 9293 §3.6] sets FIN-WAIT-2 no time. Here it has [`SourceConfig::fin_wait`], whatever comes
//! meanwhile, so that nobody holds a slot of the table for ever.
//!
//! FIN has a position: it follows the last byte of the stream. The FIN of a master is multicast
//! with its last segment.
//!
//! # Sending
//!
//! - **F**, when bytes are released ([`Release`]): when the slowest child has acknowledged them,
//!   when a percentile has, or when the buffer is full [SMO §II-C].
//! - **G**, how far the master may send ([`Fairness`]). *Strict*: up to the least of the right
//!   edges that children permit, `SND.UNA + min(cwnd, rwnd)`. This never is more than a TCP
//!   connection to any of the children would send. It equals the paper's minimum of the windows
//!   [SMO §II-F] where round trips are alike. *Essential*: a window between `a` and `b` times the
//!   least average `cwnd` [SMO eq. 1].
//! - Released bytes stay in the buffer, in half of it at least. A connection that is being opened
//!   thus finds the bytes that passed during its handshake, and a flood of SYNs holds up nobody.
//!   With a percentile, it is also how far a child may fall behind.
//! - **Retransmissions** of a segment are gathered for a quarter of the group's RTT, within the
//!   bounds of [`SourceConfig::gather`]. Children at like distances report the same loss within
//!   such a time. The count is then known: above the threshold, and for two children at least, the
//!   segment is multicast; otherwise each gets its own. The wait ends early when the threshold is
//!   reached. A child that reports a loss that was multicast less than its RTT ago waits for that.
//! - **Acknowledgements** are the receivers' own affair: their stacks decide on every how many
//!   segments they send one [SMO §II-D]. A source sends batches whose last segment alone has PSH,
//!   so that receivers merge them and acknowledge the batch. Windows grow by bytes, not by ACKs,
//!   and the pace ([`SourceEvent::Pace`]) takes the burst out of what a large ACK permits.
//! - With [`SourceConfig::frame`] new data waits for room for a long batch, up to an eighth of the
//!   window, since receivers acknowledge each batch.
//! - With [`SourceConfig::acks_per_window`] the source tells which acknowledgements may be dropped
//!   on their way to it ([`AckFilter`]).
//! - Retransmissions wait for room in the child's congestion window [RFC 6675 §5] where that bounds
//!   the multicast. In other groups what is multicast fills it anyway, and it bounds the
//!   retransmissions alone.
//! - **Lost retransmissions** are found before the RTO. A receiver acknowledges at once what fills
//!   its first hole. So the answer is late after `SRTT + 4 RTTVAR`, or when something arrived that
//!   left later [RFC 8985 §6.2]. A child that is silent for two RTTs is probed [RFC 8985 §7.2], 40
//!   ms later if it has a single segment to acknowledge. Both matter here, since one RTO stops the
//!   whole group. A retransmission [RFC 6675 §6] and a probe [RFC 8985 §7.3] restart the RTO, and
//!   what was multicast less than `SRTT + 4 RTTVAR` before it runs out counts as under way
//!   [RFC 8985 §6.3].
//! - **Questions**: the acknowledgements of many children come at once, and overflow queues. A
//!   probe of a child that hears is therefore a question by unicast (`question.rs`). The answer
//!   says whether anything was lost. So is what follows a retransmission by multicast without an
//!   answer: a helper hands its receiver nothing that the receiver has. An answer is known by a
//!   D-SACK: acknowledgements that left earlier may still wait in a queue.
//! - **Real-time mode** ([`SourceConfig::real_time`]): bytes are released at an age, acknowledged
//!   or not, sent or not. A receiver in real-time mode skips over them, and its acknowledgements go
//!   on. The last segment in the window of the child that is furthest behind stays, as nothing
//!   beyond its window could tell it to skip. An ordinary receiver that lacks them is removed, and
//!   may come again at the current position.
//!
//! # Scope and limitations
//!
//! No timestamps, no ECN, no urgent data, no Fast Open; the source's own window is not scaled.
//! Multicast segments carry the source's full receive window, as they are the same for all
//! children. A child whose host does not consume what it sends may therefore send more than there
//! is room for, which is discarded and sent again. SYN cookies are impossible with a common
//! initial sequence number: the table of half-open connections is bounded instead, a host has a
//! sixteenth of it, and the oldest give way. While it is more than a sixteenth full no SYN/ACK is
//! sent again, since most of those that wait never answer. SYNs that come while too many answers to
//! others wait are dropped.
//!
//! Everyone who connects to a source or receives its channel learns its sequence numbers. A host
//! that can send segments with the source's address can thus inject data, as into a plain TCP
//! connection that it can observe. A receiver that acknowledges what it has not received is found
//! out where it is served by unicast (`skips.rs`). In a group it is never the slowest, and stops
//! limiting the others. A group of such receivers alone is bounded by the host's rate and by the
//! buffer.
//!
//! # Validation
//!
//! `tests/corners.rs` has scripts in the manner of packetdrill, `tests/conditions.rs`,
//! `tests/rules.rs` and `tests/delivery.rs` run sources and [receivers](receiver) in a small
//! network. `tests/seeds.rs` draws networks, transfers and attacks from seeds. The fuzz target
//! `smo_source` stands behind what anyone sends. `umbel-net/tests/smo.rs` has the TCP of kernels as
//! receivers. The bench `smo_acks` counts acknowledgements a second.

mod ack_filter;
mod api;
mod buffer;
mod child;
mod children;
mod config;
mod congestion;
pub mod delivery;
mod drops;
mod hearing;
mod inbox;
mod master;
mod patience;
mod peer_window;
mod peers;
mod question;
mod reassembly;
pub mod receiver;
mod repairs;
mod resent;
mod rtt;
mod scoreboard;
mod skips;
mod source;
#[cfg(test)]
mod tests;
mod tournament;
mod view;

pub use ack_filter::{AckFilter, AckFilterChange, AckRule};
pub use api::{
    ChildId, ChildReport, CloseReason, MasterId, MasterReport, SourceCommand, SourceCommandError,
    SourceEvent, SourceStats, State, Stream, Traffic,
};
pub use config::{Congestion, Fairness, Join, Release, RemovalRules, RttChoice, SourceConfig};
pub use drops::{DropReason, Drops};
pub use source::Source;
