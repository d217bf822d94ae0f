//! Networks of known shapes, and topology files.
