//! Segments into packets.

use crate::models::Models;
use crate::packet::{FRAME_BITS, HEADER_LEN, Header, MAX_HEAD, Segment};
use crate::range;

use super::{Importance, Packet};

/// A segment is begun only where there is room for as many bytes.
const MIN_ROOM: usize = 40;

/// Fills a layer's packets of one frame.
#[derive(Debug)]
pub(super) struct Assembler {
    frame: u64,
    header: Header,
    limit: usize,
    open: Vec<u8>,
    importance: Importance,
    full: Vec<Packet>,
    /// Bytes of the packets that are full.
    len: usize,
}

impl Assembler {
    pub(super) fn new(layer: u8, tag: u16, frame: u64, limit: usize) -> Self {
        let low = frame as u32 & ((1 << FRAME_BITS) - 1);
        let header = Header { layer, tag, frame: low };
        let importance = Importance::Repeat;
        Self { frame, header, limit, open: Vec::new(), importance, full: Vec::new(), len: 0 }
    }

    /// Bits of all that was written, with `overhead` bytes for each packet.
    pub(super) fn bits(&self, overhead: usize) -> usize {
        let packets = self.full.len() + usize::from(!self.open.is_empty());
        (self.len + self.open.len() + packets * overhead) * 8
    }

    /// Writes as many blocks as fit into one segment, and returns how many; 0 if not even one fits
    /// into a packet. `code` codes one block; `segment` describes a number of blocks.
    pub(super) fn write(
        &mut self,
        coder: &mut range::Encoder,
        importance: Importance,
        count: usize,
        segment: impl Fn(usize) -> Segment,
        mut code: impl FnMut(&mut range::Encoder, &mut Models, usize),
    ) -> usize {
        loop {
            if self.open.len() + MAX_HEAD + MIN_ROOM > self.limit {
                self.close();
            }
            let room = self.limit - self.open.len().max(HEADER_LEN) - MAX_HEAD;
            match fill(coder, count, room, &mut code) {
                0 if self.open.is_empty() => return 0,
                0 => self.close(),
                written => {
                    if self.open.is_empty() {
                        self.open.extend(self.header.emit());
                    }
                    segment(written).emit(coder.finish(), &mut self.open);
                    self.importance = self.importance.max(importance);
                    return written;
                }
            }
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let bytes = std::mem::take(&mut self.open);
            self.len += bytes.len();
            let (layer, frame, importance) = (self.header.layer, self.frame, self.importance);
            self.full.push(Packet { layer, frame, importance, bytes });
            self.importance = Importance::Repeat;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Packet> {
        self.close();
        self.full
    }
}

/// Codes blocks until the room is filled, and returns their number.
fn fill(
    coder: &mut range::Encoder,
    count: usize,
    room: usize,
    code: &mut impl FnMut(&mut range::Encoder, &mut Models, usize),
) -> usize {
    coder.reset();
    let mut models = Models::START;
    for i in 0..count {
        let mark = coder.mark();
        code(coder, &mut models, i);
        if coder.len() > room {
            coder.back_to(mark);
            return i;
        }
    }
    count
}
