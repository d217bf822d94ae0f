//! Multicast UDP: a [`Sender`] that sends batches, a [`Receiver`] that receives them.

mod receiver;
mod sender;

pub use receiver::{
    Discard, DropCounts, JoinError, OpenReceiverError, Received, Receiver, ReceiverOptions,
    Reception,
};
pub(crate) use sender::{MAX_WAIT, NO_MEMORY_WAIT};
pub use sender::{
    OpenSenderError, Progress, Room, SendCounts, SendError, SendReport, Sender, SenderOptions,
};

/// Maximum UDP payload in bytes over IPv4 without options: 65,535 less the headers.
pub const MAX_PAYLOAD: usize = 65_507;
