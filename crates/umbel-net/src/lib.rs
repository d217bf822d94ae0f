//! Real I/O: multicast sockets, pacing, sessions, and the loop that drives an engine.
//!
//! A [`driver`] runs an engine and its host on one thread, which waits for all [ports](port), the
//! next deadline and other threads in one place. Nothing here knows an engine's messages.

pub mod bounds;
pub mod buffers;
pub mod classifier;
pub mod clock;
pub mod delivery;
pub mod driver;
pub mod gather;
pub mod interface;
pub mod mailbox;
pub mod pacer;
pub mod packet;
pub mod port;
pub mod session;
mod sys;
pub mod udp;
pub mod wake;

#[cfg(test)]
#[path = "../tests/common/namespaces.rs"]
mod namespaces;
#[cfg(test)]
#[path = "../tests/common/objects.rs"]
mod objects;
