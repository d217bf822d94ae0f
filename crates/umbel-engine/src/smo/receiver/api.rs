//! Commands and events between a receiver and its application, and counters.

use bytes::Bytes;

/// Requests of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Subscribe to the channel, and open the connection.
    Connect,
    /// Send bytes to the source: the back channel [SMO §IV-B].
    Send(Bytes),
    /// Send FIN after what was written.
    Finish,
    /// Reset the connection.
    Abort,
    /// Start or stop the helper. It runs at the beginning, if there is a channel.
    Help(bool),
    /// Report that this number of received bytes was processed, so that the source may send more.
    Consumed(usize),
}

/// Reason for which a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverCommandError {
    /// The connection was opened already.
    #[error("the connection was opened already")]
    Opened,
    /// There is no connection.
    #[error("there is no connection")]
    NotConnected,
    /// The application has finished.
    #[error("nothing can be sent after the end")]
    Finished,
    /// The bytes do not fit the buffer.
    #[error("the buffer has room for {room} bytes")]
    Full {
        /// Bytes that fit.
        room: usize,
    },
}

/// News for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The connection is established.
    Connected,
    /// The next bytes in order. They count for the window until they are
    /// [consumed](ReceiverCommand::Consumed).
    Received(Bytes),
    /// Bytes did not come in time, and are skipped. Only in real-time mode.
    Skipped(u64),
    /// The source has sent all that it will send.
    ReceivedEnd,
    /// Both sides have finished.
    Closed,
    /// The connection broke.
    Broken(BreakReason),
}

/// Reason for which a connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BreakReason {
    /// The source refused it.
    Refused,
    /// The source reset it.
    Reset,
    /// The source did not answer.
    TimedOut,
    /// The application aborted it.
    Aborted,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Segments delivered by the helper.
    pub multicast: u64,
    /// Segments received by unicast.
    pub unicast: u64,
    /// Segments sent without payload.
    pub acks: u64,
    /// Bytes in order that the application was handed.
    pub received_bytes: u64,
    /// Bytes that were skipped in real-time mode.
    pub skipped_bytes: u64,
    /// Segments sent again.
    pub sent_again: u64,
}
