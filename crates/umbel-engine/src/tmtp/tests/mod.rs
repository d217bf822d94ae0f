//! The engines against each other.

mod content;
mod delivery;
mod failures;
mod survey;
mod world;
