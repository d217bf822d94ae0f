//! One test of each command between the hosts of a lab. `tests/second` has the rest.

mod doctor;
mod documents;
mod feeds;
mod repository;
mod routers;
mod rtp;
mod smo;
mod streams;
