//! A laboratory on one machine. Hosts are network namespaces, joined by switches, routers and links
//! that delay, lose, reorder, duplicate, corrupt and queue.
//!
//! ```no_run
//! use umbel_lab::{Lab, Topology};
//!
//! let lab = Lab::up(&Topology::star(2).loss(0.05))?;
//! let h2 = lab.host("h2")?;
//! let status = lab.host("h1")?.command("ping").args(["-c1", &h2.addr4().to_string()]).status()?;
//! assert!(status.success());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The lab works as root, and as an ordinary user through a user namespace. It leaves nothing
//! behind. Namespaces are anonymous and vanish with their owner. A small process watches the owner
//! and kills the lab's remaining processes if the owner crashes.
//!
//! # Scope and limitations
//!
//! - Needs `ip` (iproute2) and `sh`. Nothing else on the machine is touched.
//! - An emulated link is served by a thread of the owning process. It carries some 100,000 packets
//!   a second and direction, and its timing is as good as the machine is idle.
//! - A router has at most 32 interfaces that take part in multicast, the kernel's limit.

pub mod cli;
pub mod emulator;
mod error;
mod lab;
mod membership;
mod mroute;
mod namespace;
mod plan;
mod setup;
pub mod testing;
mod warden;

pub use error::{LabError, SkipReason};
pub use lab::{Interface, Lab, LinkStats, Node};
pub use umbel_topology::{
    Cidr, Impairment, LinkSpec, Mistake, NodeKind, NodeSpec, Queue, Topology,
};
