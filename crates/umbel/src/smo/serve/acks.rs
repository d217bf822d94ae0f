//! Acknowledgements that the engine does not want, dropped before they reach it.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use umbel_engine::smo::AckFilterChange;
use umbel_net::interface::Interface;
use umbel_net::packet::ack_filter::AckFilter;

use super::ServeOptions;

/// Acknowledgements that are wanted of a receiver's window: where that bounds the stream, it is 3
/// to 4 % slower.
const PER_WINDOW: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// Drops acknowledgements, or says why it does not.
#[derive(Debug)]
pub(crate) enum Acks {
    /// They are dropped.
    Filtered(Box<AckFilter>),
    /// All reach the engine, for this reason.
    All(String),
}

impl Acks {
    /// Begins, if that is wanted and possible.
    pub(super) fn open(options: &ServeOptions, server: SocketAddr, interface: &Interface) -> Acks {
        if !options.ack_filter {
            return Acks::All("off".to_owned());
        }
        match AckFilter::open(server, interface) {
            Ok(filter) => Acks::Filtered(Box::new(filter)),
            Err(error) => {
                tracing::info!("all acknowledgements are taken: {error}");
                Acks::All(error.to_string())
            }
        }
    }

    /// Returns the number of acknowledgements of a window that are wanted. `None` if all are.
    pub(crate) fn per_window(&self) -> Option<NonZeroU32> {
        matches!(self, Acks::Filtered(_)).then_some(PER_WINDOW)
    }

    /// Takes a change of what is wanted.
    pub(crate) fn apply(&mut self, change: AckFilterChange) {
        if let Acks::Filtered(filter) = self {
            filter.apply(change);
        }
    }

    /// Returns the number of those that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        match self {
            Acks::Filtered(filter) => filter.dropped(),
            Acks::All(_) => 0,
        }
    }

    /// Returns where they are dropped, or why they are not.
    pub(super) fn way(&self) -> String {
        match self {
            Acks::Filtered(filter) => filter.mode().to_string(),
            Acks::All(reason) => reason.clone(),
        }
    }
}
