//! Real I/O: multicast sockets, pacing, sessions, and the loop that drives an engine.
//!
//! Multicast UDP is blocking: a thread waits for a socket, for its next deadline, or for another
//! thread to [wake](wake::Waker) it. Nothing here knows a protocol.

pub mod buffers;
pub mod clock;
pub mod domain;
pub mod driver;
pub mod gather;
pub mod group;
pub mod interface;
pub mod pacer;
pub mod session;
mod sys;
pub mod udp;
pub mod wake;
