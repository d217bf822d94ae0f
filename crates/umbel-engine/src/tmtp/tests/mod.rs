//! The engines against each other.

mod delivery;
mod world;
