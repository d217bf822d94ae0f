//! Multicast UDP: a [`Sender`] that sends batches, a [`Receiver`] that receives them.

mod receiver;
mod sender;

pub use receiver::{
    Discard, DropCounts, JoinError, OpenReceiverError, Received, Receiver, ReceiverOptions,
    Reception,
};
pub use sender::{OpenSenderError, SendCounts, SendError, SendReport, Sender, SenderOptions};

/// Largest UDP payload in bytes over IPv4 without options: 65,535 less the headers.
pub const MAX_PAYLOAD: usize = 65_507;
