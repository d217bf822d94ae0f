//! Frames between the ends of a simulated session.

use bytes::{BufMut, Bytes, BytesMut};

/// A frame of a session.
#[derive(Debug)]
pub(super) enum Frame {
    Open,
    Message(Bytes),
    /// Bytes of a bulk stream, or its end.
    Bulk(u64, Option<Bytes>),
    Close(String),
}

impl Frame {
    /// Encodes the frame for the client's session of this number.
    pub(super) fn emit(&self, session: u64) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64(session);
        match self {
            Frame::Open => bytes.put_u8(0),
            Frame::Message(message) => {
                bytes.put_u8(1);
                bytes.put_slice(message);
            }
            Frame::Bulk(stream, Some(piece)) => {
                bytes.put_u8(2);
                bytes.put_u64(*stream);
                bytes.put_slice(piece);
            }
            Frame::Bulk(stream, None) => {
                bytes.put_u8(3);
                bytes.put_u64(*stream);
            }
            Frame::Close(reason) => {
                bytes.put_u8(4);
                bytes.put_slice(reason.as_bytes());
            }
        }
        bytes.freeze()
    }

    pub(super) fn parse(bytes: &Bytes) -> (u64, Frame) {
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let frame = match bytes[8] {
            0 => Frame::Open,
            1 => Frame::Message(bytes.slice(9..)),
            2 => Frame::Bulk(number(9), Some(bytes.slice(17..))),
            3 => Frame::Bulk(number(9), None),
            _ => Frame::Close(String::from_utf8_lossy(&bytes[9..]).into_owned()),
        };
        (number(0), frame)
    }
}
