//! Questions to the kernel's routing, by netlink.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Longest part of an answer in bytes; the kernel makes parts of at most 32 KiB.
const PART: usize = 64 << 10;

/// A socket for questions. The kernel answers before a call returns, so that nothing waits.
#[derive(Debug)]
pub(super) struct Questions {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The number of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// One.
    One,
    /// All objects of a kind.
    All,
}

impl Questions {
    pub(super) fn open() -> io::Result<Questions> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Questions { socket, sequence: 0, buffer: Vec::with_capacity(PART) })
    }

    /// Asks the kernel. An error is its own, such as `ENETUNREACH`.
    pub(super) fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        answers: Answers,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = match answers {
            Answers::One => NLM_F_REQUEST,
            Answers::All => NLM_F_REQUEST | NLM_F_DUMP,
        };
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut found = Vec::new();
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0)?;
            let mut rest = &self.buffer[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                // Every message is padded to a multiple of 4 bytes.
                let length = (message.header.length as usize).next_multiple_of(4).max(16);
                rest = rest.get(length..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        found.push(answer);
                        if answers == Answers::One {
                            return Ok(found);
                        }
                    }
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::Done(_) => return Ok(found),
                    _ => {}
                }
            }
        }
    }
}
