//! The engines against each other.

mod delivery;
mod failures;
mod survey;
mod world;
