//! The integration tests of this crate in one binary. What `tests/common` holds, fuzz targets use,
//! too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod any_bytes;
#[path = "../common/checks.rs"]
mod checks;
mod codec;
mod corpora;
#[path = "../../../umbel-wire/tests/common/corpus.rs"]
mod corpus;
