//! One TCP stream to many ordinary TCP sockets: TCP-SMO [SMO §II].
//!
//! ```text
//!            ┌──────────┐  (S,G): each segment once  ┌──────┐   ┌─────────────────────┐
//!  serve ───▶│ S: port  │───────────────────────────▶│ join │──▶│ curl, any program:  │
//!            │ of our   │                            └──────┘   │ a socket of its     │
//!            │ own TCP  │◀── ACKs, unicast repairs ────────────▶│ kernel, as always   │
//!            └──────────┘                                       └─────────────────────┘
//! ```
//!
//! - [`serve`]: the server. Clients that multicast does not reach are served by unicast, in the
//!   same way.
//! - [`join`]: the helper at a receiver's host.
//! - [`relay`]: an ordinary client of one server, and a server itself.
//! - [`listener`]: the server as a library on tokio.
//! - [`control`]: asks a running server how it goes; [`report`] is the answer.
//! - [`address`]: channels and addresses as users write them.

pub mod address;
pub mod control;
pub mod join;
pub mod listener;
pub mod relay;
pub mod report;
pub mod serve;
