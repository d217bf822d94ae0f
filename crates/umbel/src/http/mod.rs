//! A small HTTP server for what is in memory, and a client that fetches parts of it.
//!
//! - [`Server`] answers from a [`Site`]; hostile requests cost little and wait briefly.
//! - [`fetch`]: gets a file, or some of its bytes.
//!
//! Both are HTTP/1.1 by hyper, on one thread each.

mod client;
mod names;
pub(crate) mod range;
mod server;

pub(crate) use client::{Fetched, Wanted, fetch};
pub(crate) use names::Names;
pub(crate) use range::Part;
pub(crate) use server::{Answer, Server, Site};

/// Header of an answer that has a signature of the whole file.
const SIGNATURE: &str = "umbel-signature";
