//! TMTP, the Tree-based Multicast Transport Protocol. One source sends a feed to all listeners. A
//! control tree of domain managers repairs losses and keeps the source from running ahead.
//!
//! \[TMTP\] is Yavatkar, Griffioen and Sudan, *A Reliable Dissemination Protocol for Interactive
//! Collaborative Applications*, ACM Multimedia 1995.
//!
//! ```text
//!        source ─────────── data channel: every packet once, to everyone ───────────▶
//!      ▲   │    ▲
//!  ACK │   │    │ ACK              a domain: a parent and its children
//!      │   ▼    │                    NACK, repair, beacon: domain group, hop limit = radius
//!   manager    manager ◀── ACK ──┐   ACK, JOIN, LEAVE, REPORT: to one node
//!    ▲   ▲      │ ▲              │
//!    │   │      ▼ │           manager …      at most K managers to a parent;
//!  member member  member                     any number of local members
//! ```
//!
//! - [`Source`]: the root. It sends blocks at a rate that adapts, up to a fixed one, and within a
//!   window of T_retrans. It waits for its own children only.
//! - [`Receiver`]: a member, and the manager of its subnet if it is the first there. A manager
//!   acknowledges the blocks that it holds, and answers for them to its own children.
//!   `receiver/recovery.rs` asks for missing blocks, `receiver/acks.rs` acknowledges, and
//!   `receiver/manager.rs` exists while there are children.
//! - `tree/`: how nodes find parents, serve as such and leave. Its page draws the states.
//! - `reception.rs`, `asks.rs`: the blocks that a member holds, and when it asks for others.
//!   `domain/`, `children.rs`, `intervals.rs`, `repairs.rs`, `buffer.rs`: a parent's debt to its
//!   children. `hold_up.rs`: for how long these hold up an open feed. `catch_up.rs`: blocks that no
//!   parent guarantees. `credit.rs`: how much of them a host has. `source/unicast.rs`,
//!   `receiver/unicast.rs`: everything for those whom multicast does not reach.
//! - `concast.rs`: totals and last words of receivers on their way up, so that the source hears of
//!   10,000 from K. `survey.rs`: the picture of the tree.
//! - `source/pace.rs`: the rate, which the [congestion control](crate::congestion) finds from what
//!   receivers report (`receiver/measure.rs`). `shelf.rs`: blocks at the source.
//! - `authentic/`: stamps of messages, and the handshake of joining.
//! - [`config`]: every constant. `api.rs`: the interface to hosts.
//!
//! A lost packet goes this way:
//!
//! ```text
//!          a later packet, a heartbeat or a beacon shows the gap
//!  lost ──────────────────────────────────────────────────────▶ waits a random part of the
//!   ▲                                                           domain's round trip
//!   │                                   a sibling's NACK heard: │    │ no NACK heard: NACK
//!   │                                   waits for the repair    ◀────┘
//!   │                                                           │ the parent repairs at once,
//!   │ neither heard: T_retrans after its first sending          │ within the radius, once
//!   │ the parent sends what children have not acknowledged      ▼
//!   └───────────────────────────────────────────────────────── held, acknowledged within T_ack
//! ```
//!
//! # Scope and limitations
//!
//! - **Tree.** By default a node changes its parent only when that fails, leaves or is cut off.
//!   With [`TreeConfig::improve_every`] managers also look for parents nearer to the source.
//! - **Hops.** Without the hop limit left on arrival a node takes the ring in which its search
//!   was answered for the distance.
//! - **Rate.** Repairs of managers go no faster than the source sends, but are not measured, nor are
//!   those of the source to other groups than the data channel, nor answers to FETCH, except for
//!   those whom multicast does not reach. The source's own wait for its pace with all else. Those that
//!   its children alone hear are counted among the packets that are measured. Once it sends nothing
//!   new, repairs show nothing of the paths.
//! - **Trust.** With a token or a list, `authentic/` keeps out all others. Without, everybody may
//!   come, and nobody speaks under another's number. Only in experiments with the paper
//!   ([`Authentication::Paper`]) messages are no more authentic than addresses. Repairs are as
//!   authentic as addresses all the same. The hosts' digests verify the data. Any node in a domain
//!   can ask for repairs: each block is repaired at most once in a hold-down.
//! - **Memory.** Buffers, children, reports and everything else that other nodes can make grow
//!   have bounds in [`config`].
//!
//! # Validation
//!
//! `tests/` runs sources and receivers against each other in virtual time under loss, crashes and
//! cuts. `tree/tests/` checks every edge of the tree after each event of random churn.
//! `docs/papers/tmtp.md` records the readings of the paper.

mod api;
mod authentic;
mod catch_up;
mod children;
mod concast;
pub mod config;
mod credit;
mod domain;
pub mod drops;
mod hold_up;
mod incoming;
mod intervals;
mod receipt;
mod receiver;
mod shelf;
mod source;
mod survey;
mod symbol_digests;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use api::{
    BlockCount, Brought, FEED, Purpose, ReceiverCommand, ReceiverCommandError, ReceiverEvent,
    ReceiverStats, SourceCommand, SourceCommandError, SourceEvent, SourceStats, TooLittle,
    TreeView,
};
pub use authentic::{Stamps, node_id};
pub use config::{
    Authentication, ConfigError, Draws, FetchCredit, HoldUp, List, NodeConfig, ReceiverConfig,
    RepairConfig, Shape, SourceConfig, Start, TimingConfig, TreeConfig,
};
pub use drops::{DropReason, Drops};
pub use receipt::{ReceiptKey, receipt};
pub use receiver::Receiver;
pub use source::Source;
pub use umbel_wire::tmtp::NodeId;
