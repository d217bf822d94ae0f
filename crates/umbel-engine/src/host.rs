//! The surroundings of an engine: the application that uses it, and the machine that runs both.
//!
//! ```text
//!   sessions, disks, users          Mailbox
//!             └────────────────────────┐
//!                                      ▼ input
//!   Io: commands, timer, paces   ┌─────────────┐  commands   ┌──────────┐
//!   ┌──────────────────────────▶ │    Host     │ ──────────▶ │  Engine  │
//!   │                            │ application │ ◀────────── │ protocol │
//!   │                            └─────────────┘   events    └──────────┘
//!   │                                      datagrams, membership, timeout │
//! ┌─┴─────────────────────────────────────────────────────────────────────▼┐
//! │ machine: the driver on real sockets, or a node of the simulator         │
//! └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A [`Host`] sees its machine only through [`Io`]. It reads no clock, so that the same host runs
//! on the wire and in virtual time.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Channel;

use crate::units::Rate;
use crate::{Address, Datagram, Engine, Instant, RateClass, SessionId};

/// The application around an engine.
///
/// All calls come from one thread. Events that an input causes are handled before the next input.
/// Membership changes and datagrams follow before the machine waits again.
pub trait Host<E: Engine> {
    /// Input from outside: from sessions, disks and users. It comes through one [`Mailbox`], in the
    /// order in which it was put there.
    type Input;

    /// Called once, before anything else.
    fn start(&mut self, io: &mut dyn Io<E>);

    /// Handles an event of the engine.
    fn event(&mut self, io: &mut dyn Io<E>, event: E::Event);

    /// Handles the next input. Hosts without input leave this out.
    fn input(&mut self, _io: &mut dyn Io<E>, _input: Self::Input) {}

    /// Called at the time set by [`Io::wake_at`].
    fn wake(&mut self, _io: &mut dyn Io<E>) {}

    /// Called when the machine cannot do what the engine needs.
    fn trouble(&mut self, _io: &mut dyn Io<E>, _trouble: Trouble) {}
}

/// The operations of a [`Host`] on its engine and its machine.
pub trait Io<E: Engine> {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Returns the engine.
    fn engine(&mut self) -> &mut E;

    /// Passes a command to the engine.
    ///
    /// # Errors
    ///
    /// If the engine refuses the command.
    fn command(&mut self, command: E::Command) -> Result<(), E::CommandError> {
        let now = self.now();
        self.engine().handle_command(now, command)
    }

    /// Passes a session's control message to the engine.
    fn message(&mut self, session: SessionId, message: &[u8]) {
        let now = self.now();
        let by = Address::Session(session);
        self.engine().handle_datagram(now, Datagram { by, hop_limit: None, payload: message });
    }

    /// Sets, moves or clears the host's only timer.
    fn wake_at(&mut self, at: Option<Instant>);

    /// Changes the pace of a class of packets. With `None`, they are not paced.
    fn set_pace(&mut self, class: RateClass, pace: Option<Rate>);

    /// Changes how much of a class leaves at once after a delay of the machine, as a time at its
    /// pace. Default 1 ms. An engine whose window bounds what is under way may permit more.
    ///
    /// A machine that is never late has no use for it.
    fn set_burst(&mut self, _class: RateClass, _burst: Duration) {}

    /// Opens a port. Channels are joined when the engine asks for it.
    ///
    /// # Errors
    ///
    /// If the machine cannot open it. The error is one line that says why, and how to fix it.
    fn open(&mut self, port: PortSpec) -> Result<(), PortError>;

    /// Closes the port that covers an address. Does nothing if there is none.
    fn close(&mut self, address: &Address);

    /// Ends the loop once the engine has no more output for now.
    fn stop(&mut self);

    /// Writes values into the trace, if there is one.
    fn note(&mut self, _name: &'static str, _values: [f64; 3]) {}
}

/// An endpoint that a host asks its machine to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// Receives channels that share the port and the address family of this one.
    Channel {
        /// One of the channels.
        channel: Channel,
        /// Rate that receive buffers are sized for, if it is known.
        rate: Option<Rate>,
    },
    /// Sends to and receives from a group whose members all send.
    Group {
        /// The group: a channel of any source.
        channel: Channel,
    },
    /// A session with the server. Its news arrive at the host as input.
    Session {
        /// The session's number.
        session: SessionId,
    },
}

/// The reason why a port cannot be opened, as one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PortError(pub String);

/// A failure of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Datagrams came faster than this machine received them, and the kernel dropped about
    /// `datagrams` of them.
    Overrun {
        /// Estimated number of datagrams.
        datagrams: u64,
    },
    /// A channel cannot be joined, or can no longer be received.
    NotJoined {
        /// The channel.
        channel: Channel,
        /// One line for the user.
        reason: String,
    },
    /// Datagrams were not sent. They count as lost on the way.
    NotSent {
        /// One line for the user.
        reason: String,
    },
}

/// News of a session. Hosts receive them among their input.
#[derive(Debug)]
pub enum SessionNews {
    /// The session is open.
    Opened {
        /// The session.
        session: SessionId,
        /// Address of the peer.
        remote: IpAddr,
        /// Round-trip time of the handshake.
        rtt: Duration,
    },
    /// A control message arrived.
    Message {
        /// The session.
        session: SessionId,
        /// The whole message.
        message: Bytes,
    },
    /// Bytes of a bulk stream arrived.
    Bulk {
        /// The session.
        session: SessionId,
        /// Number that distinguishes the streams of the session.
        stream: u64,
        /// The next bytes of the stream; `None` at its end.
        piece: Option<Piece>,
    },
    /// The session has ended, or could not be opened.
    Closed {
        /// The session.
        session: SessionId,
        /// One line for the user.
        reason: String,
        /// Whether another attempt may succeed.
        retryable: bool,
    },
}

impl SessionNews {
    /// Returns the session that the news are about.
    pub fn session(&self) -> SessionId {
        match *self {
            SessionNews::Opened { session, .. }
            | SessionNews::Message { session, .. }
            | SessionNews::Bulk { session, .. }
            | SessionNews::Closed { session, .. } => session,
        }
    }
}

/// Bytes of a bulk stream. The sender may send more once the piece is dropped.
pub struct Piece {
    /// The bytes.
    pub bytes: Bytes,
    /// Lets the sender continue when it is dropped.
    _credit: Option<Box<dyn Send>>,
}

impl Piece {
    /// Creates a piece that holds `credit` until it is dropped.
    pub fn new(bytes: Bytes, credit: impl Send + 'static) -> Piece {
        Piece { bytes, _credit: Some(Box::new(credit)) }
    }
}

impl From<Bytes> for Piece {
    /// Creates a piece that does not delay its sender.
    fn from(bytes: Bytes) -> Piece {
        Piece { bytes, _credit: None }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

/// Passes input to a host, from any thread. Clones lead to the same host.
pub struct Mailbox<I>(Arc<dyn Fn(I) + Send + Sync>);

impl<I> Mailbox<I> {
    /// Creates a mailbox that passes input to `put`, which must not block.
    pub fn new(put: impl Fn(I) + Send + Sync + 'static) -> Mailbox<I> {
        Mailbox(Arc::new(put))
    }

    /// Appends input to the queue. It is lost if the host's loop has ended.
    pub fn put(&self, input: I) {
        (self.0)(input);
    }

    /// Returns a mailbox that takes another kind of input and converts it with `map`.
    pub fn map<J: 'static>(&self, map: impl Fn(J) -> I + Send + Sync + 'static) -> Mailbox<J>
    where
        I: 'static,
    {
        let mailbox = self.clone();
        Mailbox::new(move |input| mailbox.put(map(input)))
    }
}

impl<I> Clone for Mailbox<I> {
    fn clone(&self) -> Mailbox<I> {
        Mailbox(self.0.clone())
    }
}

impl<I> fmt::Debug for Mailbox<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}
