//! The source, driven by hand, by scripts, and in a network.

mod acks;
mod conditions;
mod corners;
mod crowds;
mod delivery;
mod network;
mod questions;
mod repairs;
mod rules;
mod script;
mod seeds;
