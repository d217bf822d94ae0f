//! What the commands that run an engine share: serve, get, send, recv, and the doctor's scout.
//!
//! - [`channel`]: which interface, group and rate are taken unless the user says; `packet.rs`: how
//!   long data packets are.
//! - [`items`](Failure): files or items under way, and what came of them.
//! - [`Interrupt`]: how a user ends a command that runs.
//!
//! Each command opens ports, makes its engine and its host, and hands all of them to a
//! [`Driver`](umbel_net::driver::Driver). Its host sees nothing but
//! [`Io`](umbel_engine::host::Io) and a trait of its own for what else lies around it, so that the
//! tests run the same hosts in virtual time (`virtual_time`).

pub(crate) mod channel;
mod items;
mod packet;
mod random;

use std::fmt;
use std::sync::Arc;

pub use items::Failure;
pub(crate) use items::{Asked, Items};
pub(crate) use packet::packet_len;
pub(crate) use random::{random, seed};

/// Ends a command that runs, from any thread.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() + Send + Sync>);

impl Interrupt {
    pub(crate) fn new(interrupt: impl Fn() + Send + Sync + 'static) -> Interrupt {
        Interrupt(Arc::new(interrupt))
    }

    /// Ends it. What is held of files that are not whole stays on the disk, and is not asked for
    /// again next time.
    pub fn interrupt(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}
