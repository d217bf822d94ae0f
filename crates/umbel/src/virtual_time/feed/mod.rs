//! `umbel send` and `umbel recv`: [`SendHost`](crate::feed::send::host::SendHost) and
//! [`RecvHost`](crate::feed::recv::host::RecvHost) in the surroundings of a scenario.

mod files;
mod pipe;
mod tests;
mod world;
