//! The integration tests of this crate in one binary. What `tests/common` holds, fuzz targets and
//! tests of other crates use, too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/checks.rs"]
mod checks;
mod corpora;
#[path = "../common/corpus.rs"]
mod corpus;
mod frames;
mod refusals;
mod round_trip;
mod routers;
mod sap;
#[path = "../common/seeds.rs"]
mod seeds;
mod srm;
mod strategies;
mod tmtp;
mod tshark;
