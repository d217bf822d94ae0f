//! The papers' experiments: each is a folder with its scenario, its figures and its verdicts,
//! rebuilt from its seeds.
//!
//! - [`pool`] runs many simulations on all cores, [`estimate`] sums up what they measured.
//! - [`output`] writes what came of it: a page, tables and plots.
//! - [`repository`]: "Reliably Networking a Multicast Repository".

pub mod estimate;
pub mod lms;
pub mod output;
pub mod pool;
pub mod repository;
