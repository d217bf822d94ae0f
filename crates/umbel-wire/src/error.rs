//! Errors of parsing and emitting packets and messages.

use crate::{OtiError, Scheme};

/// Error of parsing a packet or message. Each variant carries the offending values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The input ends too early.
    #[error("{what} needs {need} bytes, but there are {have}")]
    Truncated {
        /// The element that was being parsed.
        what: &'static str,
        /// Bytes that this element needs.
        need: usize,
        /// Bytes available.
        have: usize,
    },
    /// An LCT version other than 1 [RFC 5651 §5.1].
    #[error("LCT version {0}; only version 1 is known")]
    LctVersion(u8),
    /// The LCT header length is shorter than the fields that the flags announce.
    #[error("LCT header of {len} bytes, whose fields take {need}")]
    LctHeaderLen {
        /// Length according to the header length field.
        len: usize,
        /// Length of the fields that the flags announce.
        need: usize,
    },
    /// The TSI or TOI is missing where one is required.
    #[error("packet without {0}")]
    Absent(&'static str),
    /// A TSI or TOI above 32 bits.
    #[error("{0} above 32 bits")]
    IdTooWide(&'static str),
    /// A codepoint that is not the FEC Encoding ID of a supported scheme.
    #[error("codepoint {0} is no known FEC Encoding ID")]
    Codepoint(u8),
    /// A header extension with an impossible length.
    #[error("LCT header extension {het} of {words} words")]
    Extension {
        /// Header extension type.
        het: u8,
        /// Header extension length in 32-bit words.
        words: u8,
    },
    /// An encoding symbol ID beyond the scheme's range.
    #[error("encoding symbol ID {esi}; {scheme:?} has at most {limit}")]
    Esi {
        /// The scheme.
        scheme: Scheme,
        /// The packet's encoding symbol ID.
        esi: u32,
        /// The greatest valid ID.
        limit: u32,
    },
    /// Object transmission information out of range.
    #[error("bad FEC object transmission information: {0}")]
    Oti(#[from] OtiError),
    /// Bytes that do not begin a control message.
    #[error("not a control message: it begins with {0:02x?}")]
    Magic([u8; 2]),
    /// Another version of the control protocol.
    #[error(
        "the peer speaks version {theirs} of the control protocol, this program version {ours}"
    )]
    Version {
        /// The peer's version.
        theirs: u8,
        /// [`control::VERSION`](crate::control::VERSION).
        ours: u8,
    },
    /// A control message whose body is longer than allowed.
    #[error("control message with a body of {len} bytes; at most {limit} are accepted")]
    BodyLen {
        /// Length of the body according to the header.
        len: u32,
        /// The greatest length accepted.
        limit: u32,
    },
    /// Bytes beyond the length that the header announced.
    #[error("{0} bytes after the end of the control message")]
    Trailing(usize),
    /// A required field is missing.
    #[error("message type {message} without the field `{field}`")]
    Missing {
        /// Message type.
        message: u8,
        /// The field's name.
        field: &'static str,
    },
    /// A field that may occur once occurs twice.
    #[error("message type {message} with the field `{field}` twice")]
    Duplicate {
        /// Message type.
        message: u8,
        /// The field's name.
        field: &'static str,
    },
    /// A field with an invalid value.
    #[error("bad {what}: {problem}")]
    Value {
        /// The element that was being parsed.
        what: &'static str,
        /// The problem with it.
        problem: &'static str,
    },
}

/// Error of emitting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer is too short.
    #[error("the header needs {need} bytes, the buffer has {have}")]
    Buffer {
        /// Bytes that the header needs.
        need: usize,
        /// Length of the buffer in bytes.
        have: usize,
    },
    /// A source block number beyond the range of the scheme's field.
    #[error("source block number {sbn}; {scheme:?} has at most {limit}")]
    Sbn {
        /// The scheme.
        scheme: Scheme,
        /// The source block number.
        sbn: u32,
        /// The greatest valid number.
        limit: u32,
    },
    /// An encoding symbol ID beyond the scheme's range.
    #[error("encoding symbol ID {esi}; {scheme:?} has at most {limit}")]
    Esi {
        /// The scheme.
        scheme: Scheme,
        /// The encoding symbol ID.
        esi: u32,
        /// The greatest valid ID.
        limit: u32,
    },
}
