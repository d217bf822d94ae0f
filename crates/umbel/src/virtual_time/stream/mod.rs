//! Streams: a source and receivers whose cameras and screens are doubles.

mod tests;
mod world;
