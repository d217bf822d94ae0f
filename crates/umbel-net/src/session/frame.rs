//! The framing of control messages in a byte stream.

use bytes::{Bytes, BytesMut};
use umbel_wire::{ParseError, control};

/// Maximum length of a control message, its header included.
pub const MAX_MESSAGE: usize = control::FrameHeader::LEN + control::MAX_BODY as usize;

/// Maximum length of a message that is copied out of the stream's buffer. A copy that is kept for
/// long does not keep the whole buffer alive.
const COPY_BELOW: usize = 16 * 1024;

/// An error in a stream of control messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message exceeds the maximum length that this end accepts.
    #[error("a message of {len} bytes, of at most {max}")]
    TooLong {
        /// Length stated in the header, itself included.
        len: usize,
        /// Maximum length accepted.
        max: usize,
    },
    /// The data is not a message, or is one of another version.
    #[error(transparent)]
    Header(#[from] ParseError),
}

/// Cuts a byte stream into messages. It holds the received part of one message, and no more than
/// was pushed.
#[derive(Debug)]
pub struct Framer {
    buffer: BytesMut,
    max: usize,
}

impl Framer {
    /// Creates a framer for messages of up to `max` bytes, their headers included.
    pub fn new(max: usize) -> Framer {
        Framer { buffer: BytesMut::new(), max }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole message.
    ///
    /// # Errors
    ///
    /// If the stream cannot be cut. It is useless from then on.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let Some(header) = control::peek(&self.buffer)? else { return Ok(None) };
        let (len, max) = (header.frame_len(), self.max);
        if len > max {
            return Err(FrameError::TooLong { len, max });
        }
        if self.buffer.len() < len {
            return Ok(None);
        }
        let message = if len < COPY_BELOW {
            let message = Bytes::copy_from_slice(&self.buffer[..len]);
            let _ = self.buffer.split_to(len);
            message
        } else {
            self.buffer.split_to(len).freeze()
        };
        if self.buffer.is_empty() && self.buffer.capacity() > COPY_BELOW {
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }

    /// Returns the number of bytes that wait for the rest of their message.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![b'U', b'm', 1, kind];
        message.extend((body.len() as u32).to_be_bytes());
        message.extend(body);
        message
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_the_stream_is_cut(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40_000), 0..6),
            cuts in proptest::collection::vec(1usize..20_000, 1..8),
        ) {
            let sent: Vec<Vec<u8>> = bodies.iter().map(|body| message(7, body)).collect();
            let stream = sent.concat();
            let mut framer = Framer::new(1 << 20);
            let mut got = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                rest = after;
                framer.push(piece);
                while let Some(message) = framer.next_message().unwrap() {
                    got.push(message.to_vec());
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert_eq!(framer.buffered(), 0);
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_as_soon_as_it_is_told() {
        let mut framer = Framer::new(100);
        framer.push(&message(1, &[0; 92]));
        assert_eq!(framer.next_message().unwrap().unwrap().len(), 100);
        framer.push(&message(1, &[0; 93])[..8]);
        assert_eq!(framer.next_message(), Err(FrameError::TooLong { len: 101, max: 100 }));
    }

    #[test]
    fn what_is_not_a_message_is_refused() {
        let mut framer = Framer::new(usize::MAX);
        framer.push(b"GET / HTTP/1.1");
        assert!(matches!(framer.next_message(), Err(FrameError::Header(ParseError::Magic(_)))));
        let mut framer = Framer::new(usize::MAX);
        framer.push(b"Um\x02");
        let error = framer.next_message().unwrap_err();
        assert!(matches!(error, FrameError::Header(ParseError::Version { theirs: 2, .. })));
    }
}
