//! The real program on one host: its commands, its errors, and sessions over loopback.

mod bad_input;
mod cli;
mod demo;
mod documents;
mod events;
mod exec;
mod few_descriptors;
mod local;
mod new_protocol;
mod research;
mod shells;
mod support;
mod terminal;
mod told;
mod trees;
