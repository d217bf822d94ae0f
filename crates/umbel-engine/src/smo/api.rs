//! Commands and events between the source and its application, and counters.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Channel;

use super::ack_filter::AckFilterChange;
use crate::Instant;
use crate::units::Rate;

/// A connection. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildId(pub u64);

/// A stream that is multicast, numbered by the host. A number may be used again after
/// [`SourceEvent::Drained`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MasterId(pub u32);

impl MasterId {
    /// The master on the configured channel. It is there from the beginning with
    /// [`Join::AtOnce`](super::Join::AtOnce).
    pub const FIRST: MasterId = MasterId(0);
}

/// Destination of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// To all children of a master.
    Master(MasterId),
    /// To a child alone.
    Child(ChildId),
}

/// Requests of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Open a master. Its stream begins at position 0.
    Open {
        /// A number that is free.
        master: MasterId,
        /// Its channel, with a port that no other master has.
        channel: Channel,
    },
    /// Serve a child that has been sent nothing from a master, from position 0 on.
    Attach {
        /// The child.
        child: ChildId,
        /// The master.
        master: MasterId,
    },
    /// Append to a stream. A child takes data of its own until it is attached.
    Write {
        /// The stream.
        to: Stream,
        /// At most [`Source::room`](super::Source::room) bytes.
        bytes: Bytes,
    },
    /// End a stream: FIN after what was written. For a child of a master it ends after what was
    /// sent so far.
    Finish {
        /// The stream.
        to: Stream,
    },
    /// Go on with a stream after a gap. Data that was not sent is dropped, and the children of the
    /// master are removed, as no connection can skip over anything. They may come again.
    Gap {
        /// The master.
        master: MasterId,
    },
    /// Reset a connection.
    Abort {
        /// The child.
        child: ChildId,
    },
    /// Report that received bytes were processed, so that the child may send more.
    Consumed {
        /// The child.
        child: ChildId,
        /// Number of bytes.
        bytes: usize,
    },
    /// Accept connections, or refuse new ones. At the beginning they are accepted.
    Listen(bool),
}

/// Reason for which a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// There is no such connection any more.
    #[error("connection {0:?} has ended")]
    NoChild(ChildId),
    /// There is no such master.
    #[error("there is no {0:?}")]
    NoMaster(MasterId),
    /// The number or the channel is used by another master.
    #[error("{0:?} or its channel is in use")]
    InUse(MasterId),
    /// The child has been sent data already, or belongs to a master.
    #[error("connection {0:?} receives another stream already")]
    Attached(ChildId),
    /// The beginning of the master's stream is no longer held.
    #[error("the stream begins at {trail} by now")]
    TooLate {
        /// First position that is held.
        trail: u64,
    },
    /// The bytes do not fit the buffer. [`SourceEvent::Writable`] follows when there is room.
    #[error("the buffer has room for {room} bytes")]
    Full {
        /// Bytes that fit.
        room: usize,
    },
    /// The stream was finished.
    #[error("the stream has ended")]
    Ended,
}

/// Reason for which a connection ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CloseReason {
    /// The receiver reset it.
    Reset,
    /// The application aborted it.
    Aborted,
    /// It made no progress for too long ([`RemovalRules::stall`](super::RemovalRules::stall)).
    Stalled,
    /// It kept its window closed for too long.
    ClosedWindow,
    /// It did not answer keep-alive probes.
    Dead,
    /// It needs bytes that are no longer held. It may come again at the current position.
    TooLate,
    /// It held up what waited to be sent for too long
    /// ([`RemovalRules::wait`](super::RemovalRules::wait)).
    HoldsUp,
    /// Its stream goes on after a gap ([`SourceCommand::Gap`]).
    Gap,
    /// Its RTT is too long for the group.
    TooFar,
    /// Its congestion window is too small for the group.
    TooSlow,
    /// It acknowledged what was never sent to it
    /// ([`SourceConfig::skip_every`](super::SourceConfig::skip_every)).
    Optimistic,
    /// Its host had most of all connections when another host wanted one
    /// ([`SourceConfig::children`](super::SourceConfig::children)).
    Crowded,
    /// It has everything, but did not finish its side in time
    /// ([`SourceConfig::fin_wait`](super::SourceConfig::fin_wait)). It is not sent RST, which could
    /// cost its application what that has not read yet.
    Lingered,
}

/// News for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A connection was established.
    Connected {
        /// Its number.
        child: ChildId,
        /// Address of the receiver.
        peer: SocketAddr,
        /// Position at which it begins to receive.
        at: u64,
    },
    /// A child sent the next bytes in order. They count for its window until they are
    /// [consumed](SourceCommand::Consumed).
    Received {
        /// The child.
        child: ChildId,
        /// The bytes.
        bytes: Bytes,
    },
    /// A child has sent all that it will send.
    ReceivedEnd {
        /// The child.
        child: ChildId,
    },
    /// A quarter of a stream's buffer is free, after less was, or after a write was refused.
    Writable {
        /// The stream.
        to: Stream,
        /// Bytes that fit.
        room: usize,
    },
    /// All children of a finished master have acknowledged everything or are gone. The master is
    /// no more.
    Drained {
        /// The master.
        master: MasterId,
    },
    /// A connection ended in order: both sides have sent FIN, and have it acknowledged.
    Closed {
        /// The child.
        child: ChildId,
        /// Its account.
        report: Box<ChildReport>,
    },
    /// A connection ended before its time. It was sent RST, unless it sent one or lingered.
    Removed {
        /// The child.
        child: ChildId,
        /// The reason.
        reason: CloseReason,
        /// Its account.
        report: Box<ChildReport>,
    },
    /// First transmissions should leave at this rate, so that a window is spread over an RTT.
    Pace {
        /// The rate of all masters together.
        rate: Rate,
        /// Time at this rate whose segments may leave at once after a delay. It is half of the
        /// least RTT of a master, so that a sender that wakes late fills half of a window at least.
        burst: Duration,
    },
    /// Other acknowledgements than before can be dropped on their way. Only with
    /// [`SourceConfig::acks_per_window`](super::SourceConfig::acks_per_window).
    AckFilter(AckFilterChange),
}

/// State of a connection [RFC 9293 §3.3.2]. Connections in `SynReceived` and `TimeWait` are no
/// children yet, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Open in both directions.
    Established,
    /// The receiver has finished.
    CloseWait,
    /// The source has finished; its FIN is not acknowledged.
    FinWait1,
    /// The source has finished; its FIN is acknowledged.
    FinWait2,
    /// Both have finished; the source's FIN, which crossed the receiver's, is not acknowledged.
    Closing,
    /// Both have finished, the receiver first; the source's FIN is not acknowledged.
    LastAck,
}

/// A master at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MasterReport {
    /// The master.
    pub master: MasterId,
    /// Its channel.
    pub channel: Channel,
    /// Number of its children.
    pub children: usize,
    /// Of these, those that multicast reaches.
    pub hearing: usize,
    /// Position up to which it was multicast.
    pub position: u64,
    /// RTT of the group, 0 while none is known.
    pub rtt: Duration,
    /// Bytes that may be under way: what G permits beyond what F has released.
    pub window: u64,
    /// The child that holds up the others, if any does.
    pub slowest: Option<ChildId>,
}

/// Accounting of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildReport {
    /// The child.
    pub child: ChildId,
    /// Address of the receiver.
    pub peer: SocketAddr,
    /// When it was established.
    pub since: Instant,
    /// Bytes that it has acknowledged since then, FIN not counted.
    pub received: u64,
    /// State of the connection.
    pub state: State,
    /// The master it belongs to.
    pub master: Option<MasterId>,
    /// Whether new data reaches it by multicast.
    pub hears: bool,
    /// Position up to which it has acknowledged everything.
    pub acknowledged: u64,
    /// Bytes that were sent to it and are not acknowledged.
    pub outstanding: u64,
    /// Smoothed RTT.
    pub rtt: Option<Duration>,
    /// Congestion window in bytes.
    pub congestion_window: u64,
    /// Receive window in bytes.
    pub receive_window: u64,
    /// Bytes sent to it alone: retransmissions, and data if it is deaf.
    pub unicast_bytes: u64,
    /// Of these, retransmissions.
    pub unicast_again: Traffic,
    /// Number of times that it lost something: cuts of its congestion window.
    pub loss_events: u64,
    /// Number of its retransmission time-outs.
    pub timeouts: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
}

impl ChildReport {
    /// Returns the bytes that it has received and that were not sent to it alone at first.
    pub fn received_by_multicast(&self) -> u64 {
        self.received.saturating_sub(self.unicast_bytes - self.unicast_again.bytes)
    }
}

/// A source's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Connections established.
    pub connected: u64,
    /// Segments multicast for the first time, and their bytes of payload.
    pub multicast: Traffic,
    /// Segments multicast again.
    pub multicast_again: Traffic,
    /// Segments sent to a single child for the first time.
    pub unicast: Traffic,
    /// Segments sent to a single child that lacked them.
    pub unicast_again: Traffic,
    /// Bytes of payload that children acknowledged: what unicast would have sent at least.
    pub acknowledged_bytes: u64,
    /// Segments received from children.
    pub segments: u64,
    /// ACKs, RSTs, SYN/ACKs and probes sent.
    pub control: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Cuts of a congestion window by fast retransmit.
    pub loss_events: u64,
}

/// A number of segments, and the bytes of their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Segments.
    pub segments: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

impl Traffic {
    /// Adds a segment with this payload.
    pub(super) fn add(&mut self, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
    }
}
