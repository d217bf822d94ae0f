//! `umbel send` and `umbel recv`: [`SendHost`](crate::feed::send::host::SendHost) and
//! [`RecvHost`](crate::feed::recv::host::RecvHost) with what a scenario has around them.

mod files;
mod pipe;
mod tests;
mod world;
