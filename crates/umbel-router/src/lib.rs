//! A multicast router.
//!
//! - [`control`]: membership, and the trees that follow from it: the querier of IGMP and MLD, and
//!   PIM for source-specific multicast. Without I/O.
//! - [`kernel`]: what the router needs of Linux: forwarding, routes, sockets.
//! - [`bounds`]: what hosts and other routers can fill, and the share of one.
//! - [`daemon`]: hosts the control plane and the router engine of LMS on the kernel.

pub mod bounds;
#[cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type,
        clippy::print_stderr,
        clippy::print_stdout,
        reason = "what it does is a function of what it is given"
    )
)]
pub mod control;
pub mod daemon;
pub mod kernel;
