//! Breaks one thing after the other in a lab: `umbel doctor` must name it, and the command that it
//! suggests must fix it. `tests/all/lab/doctor.rs` has faults that need nothing but a host.
//!
//! - `host.rs`: problems of the host itself.
//! - `path.rs`: problems of the path from a server.

mod host;
mod path;
