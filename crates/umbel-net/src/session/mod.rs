//! Reliable sessions between clients and a server: QUIC on one UDP port.
//!
//! ```text
//!   client                                        server
//!     │ ── handshake: TLS 1.3, ALPN umbel ─────────▶ │   the client checks the server's pin
//!     │ ◀═ one bidirectional stream: messages ═════▶ │   opened by the client, which speaks first
//!     │ ◀──── unidirectional streams: bulk data ──── │   unicast fallback, behind the messages
//! ```
//!
//! A session carries opaque control messages in both directions and in order. Each message states
//! its own length ([`frame`]). Bulk data flows from the server to the client on its own streams, so
//! that it never delays a message.
//!
//! Both ends keep their I/O on one thread. An engine's driver is an ordinary thread. It passes
//! messages on without ever blocking ([`SessionHandle::send`], [`ClientSession::send`]) and learns
//! of events through a callback.
//!
//! # Latency
//!
//! A client's first message leaves with the last flight of the handshake. It reaches the server
//! 1.5 round trips after the client started, and the answer arrives after two. Pass the message to
//! [`ClientSession::start`]'s session at once. It waits there for the handshake.
//!
//! # Security
//!
//! - TLS 1.3 only (QUIC has no other, [RFC 9001 §4.2]). No early data, which could be replayed. No
//!   session resumption, so that every session proves the server's key.
//! - A server is identified by its [`Pin`], the digest of its public key, which the printed URL
//!   carries. Names and validity times in certificates are then ignored. The holder of the URL
//!   knows the key, and nothing else is trusted. With [`Credentials::authorities`] the server must
//!   have a certificate of an authority instead, valid now and for the URL's host. With a pin as
//!   well it needs both.
//! - A server with [`ServerOptions::clients`] admits clients with a certificate of one of these
//!   authorities only. Otherwise admission is up to the first message.
//! - All data from a peer is bounded before it is kept. The limits are on sessions, handshakes
//!   under way, length and rate of messages, bytes of unfinished messages, streams and windows. A
//!   peer that exceeds a bound loses its session; no other session notices.
//!
//! # Scope and limitations
//!
//! A server reads its lists of revoked certificates again when their file has changed, a client
//! when it starts. A session that is open stays open when its certificate ends or is revoked. A
//! session does not reconnect by itself. Its owner does so when [`ClientEvent::Disconnected`] says
//! that it is worth trying. A path that loses half of all packets in both directions, so that three
//! of four exchanges fail, still carries a session. A message then takes a third of a second on
//! average, and now and then seconds.
//!
//! # Validation
//!
//! `tests/session_*.rs` run real sessions over loopback sockets, through a relay that delays,
//! drops and dies where that matters.

pub mod authority;
mod bounded;
pub mod client;
mod client_task;
mod congestion;
pub mod error;
pub mod frame;
mod guard;
pub mod identity;
mod limits;
mod nudge;
mod outbox;
pub mod pin;
mod renewed;
pub mod server;
mod server_task;
pub mod signing;
mod stream;
mod tls;
mod transport;
pub mod url;

pub use authority::{Authorities, AuthorityError, Credentials};
pub use bounded::{Contents, read_bounded};
pub use client::{BULK_WINDOW, ClientEvent, ClientSession, ConnectOptions};
pub use error::{BindError, ClientError, CloseCode, NotAdmitted, SendError};
pub use identity::{Identity, IdentityError};
pub use pin::{Pin, PinError};
pub use server::{
    BulkWriter, ServerEndpoint, ServerOptions, SessionEvent, SessionHandle, SessionServer,
};
pub use signing::Signer;
pub use tls::PROTOCOL;
pub use url::{Host, SessionUrl, UrlError};
