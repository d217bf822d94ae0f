//! Fuzzes the control plane of a router behind IGMP, MLD and PIM.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-router/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::router_control(bytes));
