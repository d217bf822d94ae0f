//! The papers' experiments: each is a folder with its scenario, its figures and its verdicts,
//! rebuilt from its seeds.
//!
//! - [`pool`] runs many simulations on all cores, [`archive`] keeps every run's outcome as a
//!   [`record`], [`estimate`] sums up their measurements.
//! - [`output`] writes the results as a page, tables and plots; [`part`] selects parts of them.
//! - `sensitivity` tries other values in the place of those that were chosen or fitted.
//! - [`repository`]: "Reliably Networking a Multicast Repository".
//! - [`lms`]: "Light-Weight Multicast Services".
//! - [`rlm`]: "Receiver-driven Layered Multicast".
//! - [`smo`]: "TCP-SMO: Extending TCP to Support Medium-Scale Multicast Applications".
//! - [`study`]: studies of a user, from scenario files with a sweep.
//! - [`tmtp`]: "A Reliable Dissemination Protocol for Interactive Collaborative Applications".

#![cfg_attr(
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

pub mod archive;
mod bounds;
mod certainty;
pub mod estimate;
#[cfg(test)]
mod frozen;
pub mod lms;
pub mod output;
pub mod part;
pub mod pool;
pub mod record;
pub mod repository;
pub mod rlm;
mod sensitivity;
pub mod smo;
pub mod study;
pub mod tmtp;
