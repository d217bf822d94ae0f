//! Worlds of paths, packet by packet.

mod link;
mod paths;
mod receivers;
mod sharing;
mod spec;
mod tcp;
mod world;
