//! The papers' experiments: each is a folder with its scenario, its figures and its verdicts,
//! rebuilt from its seeds.
//!
//! - [`pool`] runs many simulations on all cores, [`estimate`] sums up what they measured.
//! - [`output`] writes what came of it: a page, tables and plots; [`part`] names what of it is wanted.
//! - [`repository`]: "Reliably Networking a Multicast Repository".
//! - [`lms`]: "Light-Weight Multicast Services".
//! - [`tmtp`]: "A Reliable Dissemination Protocol for Interactive Collaborative Applications".

mod bounds;
pub mod estimate;
pub mod lms;
pub mod output;
pub mod part;
pub mod pool;
pub mod repository;
pub mod tmtp;
