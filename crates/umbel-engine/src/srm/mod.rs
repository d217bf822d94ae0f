//! SRM, scalable reliable multicast: every member of a group gets every data unit, and members
//! repair each other's losses without a hierarchy and without acknowledgements.
//!
//! \[SRM\] is Floyd, Jacobson, Liu, McCanne and Zhang, *A Reliable Multicast Framework for
//! Light-weight Sessions and Application Level Framing*, IEEE/ACM Transactions on Networking 5(6),
//! 1997.
//!
//! All members are equal. Each may be a source, each requests its missing units, and any holder of
//! a unit may repair it. Units are named by source and sequence number ([`Unit`]).
//!
//! The states of a unit that a member is missing:
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
//! d is the distance to the source, and i begins at 0. The states of a unit that a member holds and
//! another is missing:
//!
//! ```text
//!              request heard                        own repair sent
//!   held ─────────────────────▶ waits              ───────────────────▶ held down for 3·d:
//!    ▲                          [D1·d, (D1 + D2)·d] another's heard     requests are ignored
//!    └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Here d is the distance to the requester. The timers depend on distances, so that the member
//! nearest to the loss requests or repairs first. They depend on chance, so that equals do not all
//! send at once.
//!
//! Session messages give the highest sequence number of each source, so that the loss of a last
//! unit is found. They also echo others' timestamps. The distance is half the time that a timestamp
//! was away, less the time it was held. The messages of the whole group keep to one rate
//! ([`SessionConfig::rate`]), so that a member of a large group sends few, as in RTCP
//! [RFC 3550 §6].
//!
//! - `member.rs`: the engine. `api.rs`: its commands and events.
//! - `requests.rs`, `repairs.rs`: the two diagrams. `timers.rs`, `adaptive.rs`: their timers.
//! - `session.rs`: session messages; their timing and the size of the group are the crate's
//!   `session_pacing.rs` and `census.rs`. `peers.rs`: distances.
//! - [`config`]: every constant.
//!
//! # Scope and limitations
//!
//! - **Bounds.** Units held of a source ([`Config::window`]), units kept for repairs, peers
//!   ([`Config::max_peers`]) and requests are bounded. In larger groups the distances of the
//!   longest silent members are forgotten. An estimate then stands in
//!   ([`Config::default_distance`], or by way of the source).
//! - **Amplification.** A request makes at most one repair of each unit at each holder in three
//!   distances. All of a member's requests and repairs keep to [`Config::recovery_rate`].
//! - **Echoes.** A session message echoes at most [`SessionConfig::echoes`] timestamps, those that
//!   waited longest, each once. Small groups are echoed whole, as in the paper.
//! - **Trust.** The engine trusts its group. Its host authenticates the datagrams, but any member
//!   can make up units of a source. A made-up sequence number makes members request a unit that
//!   does not exist, in ever longer intervals, until they give it up ([`Config::give_up_after`]).
//! - **Memory of sources.** A source that has gone is remembered until another takes its place
//!   ([`Config::max_sources`]). So nothing is delivered twice when it returns.
//! - **Long gaps.** A member that is
//!   [`WindowLimits::far_ahead`](crate::reliable::WindowLimits::far_ahead) units behind does not
//!   catch up.
//! # Validation
//!
//! `tests/world.rs`: members with losses, duplicates, reordering and a partition.
//! `umbel-sim/src/srm/tests.rs`: each unit once and in order under 30 % loss on every link,
//! partitions and churn. `docs/papers/srm.md` records the reading of the paper.

mod adaptive;
mod api;
pub mod config;
pub mod drops;
mod member;
mod peers;
mod repairs;
mod requests;
mod session;
#[cfg(test)]
mod tests;
mod timers;

pub use api::{Command, CommandError, Event, Footprint, Stats, Step, Unit};
pub use config::{Config, SessionConfig};
pub use drops::{DropReason, Drops};
use member::Inflow;
pub use member::Member;
pub use umbel_wire::srm::MemberId;
