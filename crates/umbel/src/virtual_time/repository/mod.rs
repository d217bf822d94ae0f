//! `umbel serve` and `umbel get`: [`ServeHost`](crate::serve::host::ServeHost) and
//! [`GetHost`](crate::get::host::GetHost) with what a scenario has around them.

mod client;
mod content;
mod server;
mod sessions;
mod tests;
