//! The source, driven by hand, by scripts, and in a network.

mod conditions;
mod delivery;
mod network;
