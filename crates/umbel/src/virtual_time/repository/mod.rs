//! `umbel serve` and `umbel get`: [`ServeHost`](crate::serve::host::ServeHost) and
//! [`GetHost`](crate::get::host::GetHost) in the surroundings of a scenario.

mod client;
mod content;
mod leaver;
mod server;
mod sessions;
mod tests;
