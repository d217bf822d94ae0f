//! The real programs between the hosts of a lab. One binary for all of it, so that tests that wait
//! do so side by side, and the workspace is linked once.
//!
//! `cargo test -p umbel --test lab send::` runs one module. `soak*` take minutes and are ignored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod a_dozen_receivers;
mod admit;
mod control;
mod doctor;
mod faults;
mod hls;
mod loss;
mod recovery;
mod recovery_costs;
mod router;
mod router_lms;
mod router_peers;
mod router_send;
mod rtp;
mod scale;
mod send;
mod send_bad;
mod sim;
mod smo;
mod smo_acks;
mod smo_capture;
mod smo_relay;
mod smo_repro;
mod smo_routed;
mod smo_tls;
mod soak;
mod soak_send;
mod soak_sim;
mod soak_smo;
mod soak_smo_beside;
mod soak_smo_nginx;
mod soak_stream;
mod stream;
mod stream_bad;
#[path = "../support/mod.rs"]
mod support;
mod trust;
