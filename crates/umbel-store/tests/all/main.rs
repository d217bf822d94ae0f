//! The integration tests of this crate in one binary. What `tests/common` holds, fuzz targets use,
//! too.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod catalog;
#[path = "../common/checks.rs"]
mod checks;
#[path = "../../../umbel-wire/tests/common/corpus.rs"]
mod corpus;
mod directory;
mod feed;
mod hls_playlist;
mod manifest;
mod measure;
mod overhead;
mod pipe_block;
mod reader;
mod rules;
mod sink_changes;
mod sink_directories;
mod sink_holes;
mod sink_items;
mod sink_links;
mod sink_many;
mod sink_meetings;
mod sink_others;
mod sink_planted;
mod sink_refusals;
mod sink_resume;
mod sink_support;
mod support;
mod warc;
mod warc_wget;
