//! The repository's server and client as programs of hosts: the engines of
//! [`umbel_engine::repository`], unchanged. Their application side takes the place of a real host's
//! disk.
//!
//! Nothing is stored. The server's symbols all share one payload, and the client counts the symbols
//! that it receives ([`symbols`]). The session between the two is that of the simulation. Its first
//! message opens it, an empty one closes it.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use umbel_engine::repository::{ReceiverConfig, SourceConfig};
//! use umbel_engine::units::Rate;
//! use umbel_sim::repository::{Catalog, Client, ClientHost, Server};
//! use umbel_sim::{Instant, LinkSpec, Network, Simulation, channel};
//! use umbel_wire::{Scheme, Toi, Tsi};
//!
//! let mut network = Network::new();
//! let (server, client) = (network.host("server"), network.host("client"));
//! network.link(server, client, LinkSpec::default(), LinkSpec::default())?;
//! let rate = Rate::from_bits_per_s(1_000_000).unwrap();
//! let config = SourceConfig::new(Tsi(1), channel(Some(server), 1), rate);
//! let catalog = Arc::new(Catalog::uniform(10, 60, 1376, Scheme::ReedSolomon));
//!
//! let mut simulation = Simulation::new(network, 1);
//! simulation.set_app(server, Server::host(config, 1, catalog.clone()), Instant::EPOCH)?;
//! let wanted = vec![Toi(3), Toi(7)];
//! let host = Client::host(ReceiverConfig::default(), 1, server, catalog, wanted);
//! simulation.set_app(client, host, Instant::EPOCH)?;
//! simulation.run_until(Instant::EPOCH + Duration::from_secs(10));
//! assert!(simulation.app::<ClientHost>(client).unwrap().host().delay().is_some());
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

mod catalog;
mod client;
#[cfg(test)]
mod control_tests;
mod server;
pub mod symbols;
#[cfg(test)]
mod tests;

pub use self::catalog::Catalog;
pub use self::client::{Client, ClientHost};
pub use self::server::{Server, ServerHost};
