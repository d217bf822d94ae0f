//! The source, driven by hand, by scripts, and in a network.

mod conditions;
mod corners;
mod delivery;
mod network;
mod repairs;
mod script;
mod seeds;
