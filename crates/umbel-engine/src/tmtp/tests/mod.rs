//! The engines against each other.

mod delivery;
mod survey;
mod world;
