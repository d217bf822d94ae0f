//! Umbel delivers data from one source to many receivers over IP multicast, reliably.
//!
//! - [`serve`]: offer a repository to any number of clients.
//! - [`feed`]: push files or a pipe to whoever listens.
//! - [`get`]: ask a server for a subset of its items.
//! - [`directory`]: what is on the air.
//! - [`doctor`]: find out why multicast does not arrive.
//! - [`demo`]: see the main job on one machine.
//! - [`cli`]: the command line over them.

pub mod cli;
pub mod demo;
pub mod directory;
pub mod doctor;
mod endpoint;
pub mod feed;
pub mod get;
pub mod list;
pub mod serve;
pub mod state;
#[cfg(test)]
mod virtual_time;
