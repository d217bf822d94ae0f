//! Servers and clients over lossy links: every client gets exactly the bytes that it asked for.
//! `soak.rs` has the whole matrix.

use crate::support::everyone::{LITTLE, everyone_gets, everyone_gets_everything};

#[test]
fn a_client_without_loss_gets_everything_over_ipv4() {
    everyone_gets_everything(1, 0.0, &[]);
}

#[test]
fn a_client_without_loss_gets_everything_over_ipv6() {
    everyone_gets_everything(1, 0.0, &["--ipv6"]);
}

#[test]
fn a_client_that_loses_a_fifth_gets_everything_over_ipv4() {
    everyone_gets_everything(1, 0.2, &[]);
}

#[test]
fn a_client_that_loses_a_fifth_gets_everything_over_ipv6() {
    everyone_gets_everything(1, 0.2, &["--ipv6"]);
}

#[test]
fn a_client_that_loses_half_gets_everything() {
    everyone_gets(LITTLE, 1, 0.5, &[]);
}

#[test]
fn four_clients_that_lose_half_get_everything() {
    everyone_gets(LITTLE, 4, 0.5, &["--ipv6"]);
}

#[test]
fn four_clients_that_lose_a_twentieth_get_everything() {
    everyone_gets_everything(4, 0.05, &[]);
}

#[test]
fn sixteen_clients_that_lose_a_twentieth_get_everything() {
    everyone_gets_everything(16, 0.05, &["--ipv6"]);
}
