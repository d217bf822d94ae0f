//! "Reliably Networking a Multicast Repository", Wang Lam and Hector Garcia-Molina: [Repository §n]
//! in the code. `docs/papers/repository.md` says how it was read.
//!
//! - [`point`]: one simulation, Table 1 with some values changed, run by the engines themselves.
//! - [`choices`]: what the paper leaves open.

pub mod choices;
pub mod point;
