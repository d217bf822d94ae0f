//! A small HTTP server for what is in memory.
//!
//! - [`Server`] answers from a [`Site`]; hostile requests cost little and wait not long.
//!
//! It is HTTP/1.1 by hyper, on one thread.

mod range;
mod server;

pub(crate) use server::{Answer, Server, Site};
