//! The multicast repository: clients ask a server for subsets of its items; a control channel
//! announces, a data channel carries [Repository].

pub mod scheduler;
