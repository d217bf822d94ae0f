//! SRM, scalable reliable multicast: every member of a group gets every data unit, and members
//! repair each other's losses without a hierarchy and without acknowledgements.
//!
//! \[SRM\] is Floyd, Jacobson, Liu, McCanne and Zhang, *A Reliable Multicast Framework for
//! Light-weight Sessions and Application Level Framing*, IEEE/ACM Transactions on Networking 5(6),
//! 1997. All members are equal: each may be a source, each asks for what it lacks, and whoever
//! holds a unit may repair it. Units are named by source and sequence number ([`Unit`]).
//!
//! What a member lacks goes this way:
//!
//! ```text
//!             gap, session message, or another's request
//!   unknown ──────────────────────────────────────────────▶ waits 2ⁱ·[C1·d, (C1 + C2)·d]
//!                                                           │  ▲
//!            own request sent, or another's heard:          │  │ i + 1; requests in the first
//!            ───────────────────────────────────────────────┘──┘ half of the new time are ignored
//!                                                           │
//!   delivered in order ◀──── data or repair came ───────────┘
//! ```
//!
//! d is the distance to the source, i begins at 0. What a member holds and another lacks:
//!
//! ```text
//!              request heard                        own repair sent
//!   held ─────────────────────▶ waits              ───────────────────▶ held down for 3·d:
//!    ▲                          [D1·d, (D1 + D2)·d] another's heard     requests are ignored
//!    └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! d is the distance to the requester here. The timers depend on distances so that whoever is
//! nearest to the loss asks and answers first, and on chance so that equals do not all speak at once.
//!
//! Session messages tell the highest sequence number of each source, so that the loss of a last
//! unit is found, and echo others' timestamps: half the time that a timestamp was away, less what
//! it was held, is the distance. The messages of the whole group keep to one rate
//! ([`SessionConfig::rate`]), so that a member of a large group sends few, as with RTCP [RFC 3550 §6].
//!
//! - `member.rs`: the engine. `api.rs`: what it takes and gives.
//! - `requests.rs`, `repairs.rs`: the two diagrams. `timers.rs`, `adaptive.rs`: their timers.
//! - `session.rs`, `pacing.rs`: session messages and when they leave. `peers.rs`: distances.
//!   `census.rs`: the size of the group.
//! - [`config`]: every constant.
//!
//! # Scope and limitations
//!
//! - **Bounds.** What is held of a source ([`Config::window`]), kept for repairs, known of others
//!   ([`Config::max_peers`]) and asked for are bounded. In groups larger than that the longest
//!   silent members' distances are forgotten, and an estimate stands in ([`Config::default_distance`],
//!   or by way of the source).
//! - **Amplification.** A request makes at most one repair of each unit at each holder in three
//!   distances, and all of a member's requests and repairs keep to [`Config::recovery_rate`].
//! - **Echoes.** A session message echoes at most [`SessionConfig::echoes`] timestamps, those that
//!   waited longest, each once. Small groups are echoed whole, as in the paper.
//! - **Trust.** The engine believes its group: whoever hands it datagrams authenticates them, and
//!   [`UnitCheck`] can tell the units of a source from those that a member made up. A made-up
//!   sequence number makes members ask for what does not exist until they give it up
//!   ([`Config::give_up_after`]), in ever longer intervals.
//! - **Memory of sources.** A source that has gone is remembered, so that nothing is delivered
//!   twice when it comes back, until another takes its place ([`Config::max_sources`]).
//! - **Long gaps.** Who is [`WindowLimits::far_ahead`](crate::stream::WindowLimits::far_ahead)
//!   units behind does not catch up.
//!
//! # Validation
//!
//! `umbel-sim/src/srm/tests.rs`: each unit once and in order under 30 % loss on every link, partitions
//! and churn. `docs/papers/srm.md` says how the paper was read.

mod adaptive;
mod api;
mod census;
pub mod config;
pub mod drops;
mod member;
mod pacing;
mod peers;
mod repairs;
mod requests;
mod session;
#[cfg(test)]
mod tests;
mod timers;

pub use api::{Command, CommandError, Event, Footprint, Stats, Step, Unit, UnitCheck};
pub use config::{Config, SessionConfig};
pub use drops::{DropReason, Drops};
use member::Inflow;
pub use member::Member;
pub use umbel_wire::srm::MemberId;
