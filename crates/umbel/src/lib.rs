//! Umbel delivers data from one source to many receivers over IP multicast, reliably.
//!
//! - [`serve`]: offers a repository to any number of clients.
//! - [`feed`]: pushes files or a pipe to all receivers.
//! - [`stream`], [`watch`]: live video in layers, as many as each path carries.
//! - [`gateway`]: serves a ladder of HLS, received by multicast, to players on this machine.
//! - [`smo`]: one TCP stream to many ordinary TCP clients.
//! - [`router`]: routes source-specific multicast, with LMS.
//! - [`get`]: asks a server for a subset of its items.
//! - [`follow`]: takes each new version of feeds and repositories.
//! - [`directory`]: lists the sessions on the air.
//! - [`doctor`]: finds out why multicast does not arrive.
//! - [`demo`]: shows the main job on one machine.
//! - [`bounds`]: what strangers can fill, and the share of one.
//! - [`cli`]: the command line over them.

pub mod bounds;
#[doc(hidden)]
pub mod checks;
pub mod cli;
pub mod demo;
pub mod directory;
pub mod doctor;
mod endpoint;
pub mod feed;
pub mod follow;
pub mod gateway;
pub mod get;
mod http;
pub mod list;
pub mod router;
pub mod serve;
pub mod smo;
pub mod state;
mod status_socket;
pub mod stream;
#[cfg(test)]
mod virtual_time;
pub mod watch;
