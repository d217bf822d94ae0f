//! The integration tests of this crate in one binary, so that those that wait do so side by side.
//! What `tests/common` holds, fuzz targets and unit tests use, too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/checks.rs"]
mod checks;
mod corpora;
#[path = "../../../umbel-wire/tests/common/corpus.rs"]
mod corpus;
mod delivery;
mod mini_server;
#[path = "../common/namespaces.rs"]
mod namespaces;
mod node;
mod packet_port;
mod session_certificates;
mod session_exchange;
mod session_faults;
mod session_scale;
mod session_support;
mod smo;
mod udp_loopback;
mod udp_namespaces;
mod udp_pacing;
