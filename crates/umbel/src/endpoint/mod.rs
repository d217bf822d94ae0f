//! The parts that the commands with an engine share.
//!
//! - [`interface`], [`channel`]: choose the interface, group and rate unless the user does;
//!   [`ports`]: where multicast arrives; `packet.rs`: the length of data packets.
//! - `claim.rs`: one run at a time for a source and a directory; `release.rs`: a link that goes from
//!   one release to the next. `device.rs`: what is said of a block device.
//! - [`items`](Failure): files or items under way, and their results.
//! - [`Wiring`]: connects engine, host and driver, and [`Interrupt`], which ends them.
//!
//! Each command opens ports, and creates its engine and its host. It hands both to its [`Wiring`],
//! and ports and paces to the driver that it returns. The host sees nothing but
//! [`Io`](umbel_engine::host::Io) and its own trait for the rest of its surroundings. So the tests
//! run the same hosts in virtual time (`virtual_time`).

pub(crate) mod channel;
mod claim;
mod device;
pub(crate) mod interface;
mod items;
pub(crate) mod pace;
mod packet;
pub(crate) mod ports;
mod random;
mod release;
mod wiring;

use std::fmt;
use std::sync::Arc;

pub(crate) use claim::{Interrupted, Turn, take_turn};
pub(crate) use device::{READING_BACK, device_lines};
pub use items::Failure;
pub(crate) use items::{Asked, Items, Listed, unkept_lines};
pub(crate) use packet::packet_len;
pub(crate) use random::{generator, random};
pub(crate) use release::{MOST_KEPT, Release};
pub(crate) use wiring::Wiring;

/// Says that what the source does not have was not removed.
pub(crate) const KEPT: &str =
    "not everything came, or the source could not read all of it: nothing was removed";

/// Ends a running command, from any thread.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() + Send + Sync>);

impl Interrupt {
    pub(crate) fn new(interrupt: impl Fn() + Send + Sync + 'static) -> Interrupt {
        Interrupt(Arc::new(interrupt))
    }

    /// Ends the command. Data of incomplete files stays on the disk, and is not asked for again
    /// next time.
    pub fn interrupt(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}
