//! Why a packet or a message cannot be parsed or emitted.

use crate::{OtiError, Scheme};

/// Why bytes are not a packet or message of ours. Each variant carries the offending values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end too early.
    #[error("{what} needs {need} bytes, but there are {have}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// Another version of LCT [RFC 5651 §5.1].
    #[error("LCT version {0}; only version 1 is known")]
    LctVersion(u8),
    /// The LCT header says that it is shorter than its own fields.
    #[error("LCT header of {len} bytes, whose fields take {need}")]
    LctHeaderLen {
        /// Length by the header length field.
        len: usize,
        /// Length of the fields that the flags announce.
        need: usize,
    },
    /// No TSI or no TOI where one is needed.
    #[error("packet without {0}")]
    Absent(&'static str),
    /// A TSI or TOI above 32 bits.
    #[error("{0} above 32 bits")]
    IdTooWide(&'static str),
    /// A codepoint that is no FEC Encoding ID that we speak.
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
    /// An encoding symbol ID that the scheme does not have.
    #[error("encoding symbol ID {esi}; {scheme:?} has at most {limit}")]
    Esi {
        /// The scheme.
        scheme: Scheme,
        /// The packet's encoding symbol ID.
        esi: u32,
        /// The greatest one.
        limit: u32,
    },
    /// Object transmission information out of range.
    #[error("bad FEC object transmission information: {0}")]
    Oti(#[from] OtiError),
    /// Not a control message at all.
    #[error("not a control message: it begins with {0:02x?}")]
    Magic([u8; 2]),
    /// The peer speaks another version of the control protocol.
    #[error(
        "the peer speaks version {theirs} of the control protocol, this program version {ours}"
    )]
    Version {
        /// What the peer speaks.
        theirs: u8,
        /// [`control::VERSION`](crate::control::VERSION).
        ours: u8,
    },
    /// A control message that is longer than allowed.
    #[error("control message with a body of {len} bytes; at most {limit} are accepted")]
    BodyLen {
        /// Length of the body by its header.
        len: u32,
        /// What is accepted.
        limit: u32,
    },
    /// More bytes than the header announced.
    #[error("{0} bytes after the end of the control message")]
    Trailing(usize),
    /// A field that the message must have.
    #[error("message type {message} without the field `{field}`")]
    Missing {
        /// Message type.
        message: u8,
        /// The field's name.
        field: &'static str,
    },
    /// A field twice where it stands once.
    #[error("message type {message} with the field `{field}` twice")]
    Duplicate {
        /// Message type.
        message: u8,
        /// The field's name.
        field: &'static str,
    },
    /// A field whose value is not allowed.
    #[error("bad {what}: {problem}")]
    Value {
        /// What was being read.
        what: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Why a packet cannot be emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer is too short.
    #[error("the header needs {need} bytes, the buffer has {have}")]
    Buffer {
        /// Bytes that the header needs.
        need: usize,
        /// Bytes of the buffer.
        have: usize,
    },
    /// A source block number beyond the scheme's field.
    #[error("source block number {sbn}; {scheme:?} has at most {limit}")]
    Sbn {
        /// The scheme.
        scheme: Scheme,
        /// The source block number.
        sbn: u32,
        /// The greatest one.
        limit: u32,
    },
    /// An encoding symbol ID that the scheme does not have.
    #[error("encoding symbol ID {esi}; {scheme:?} has at most {limit}")]
    Esi {
        /// The scheme.
        scheme: Scheme,
        /// The encoding symbol ID.
        esi: u32,
        /// The greatest one.
        limit: u32,
    },
}
