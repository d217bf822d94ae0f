//! The server of TCP-SMO with clients on lossy links.

mod tests;
mod world;
