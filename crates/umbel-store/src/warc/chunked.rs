//! The decoder of the chunked transfer coding [RFC 9112 §7.1].

/// Reason why stored bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkError {
    /// The first size cannot be read. The crawler joined the chunks itself and kept the header.
    NotChunked,
    /// A size or a line end after the first size is invalid.
    Broken,
}

/// Decodes chunked bytes piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dechunker {
    state: State,
    any: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Within the digits of a size: their number so far, and the value.
    Size(u8, u64),
    /// After the digits, up to the end of the line. The size is kept.
    Extension(u64),
    /// Within a chunk: the number of bytes still to come.
    Data(u64),
    /// At the end of the line after a chunk.
    DataEnd,
    /// Within a line of the trailer, and whether it is blank so far.
    Trailer(bool),
    Done,
}

impl Dechunker {
    pub(super) fn new() -> Dechunker {
        Dechunker { state: State::Size(0, 0), any: false }
    }

    /// Returns whether the first size was read.
    pub(super) fn has_begun(&self) -> bool {
        self.any
    }

    /// Returns whether the last chunk was read.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, State::Trailer(_) | State::Done)
    }

    /// Decodes more bytes. Calls `content` with the content among them.
    pub(super) fn feed(
        &mut self,
        mut input: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<(), ChunkError> {
        while let Some(&byte) = input.first() {
            if let State::Data(left) = self.state {
                let (data, rest) = input.split_at(left.min(input.len() as u64) as usize);
                content(data);
                input = rest;
                self.state = match left - data.len() as u64 {
                    0 => State::DataEnd,
                    left => State::Data(left),
                };
                continue;
            }
            self.state = self.step(byte)?;
            input = &input[1..];
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<State, ChunkError> {
        let error = if self.any { ChunkError::Broken } else { ChunkError::NotChunked };
        match (self.state, byte) {
            (State::Size(digits, size), _) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = (byte as char).to_digit(16).ok_or(error)?;
                Ok(State::Size(digits + 1, size << 4 | u64::from(digit)))
            }
            (State::Size(1.., size) | State::Extension(size), b'\n') => {
                self.any = true;
                Ok(if size == 0 { State::Trailer(true) } else { State::Data(size) })
            }
            (State::Size(1.., size), b'\r' | b' ' | b'\t' | b';') | (State::Extension(size), _) => {
                Ok(State::Extension(size))
            }
            (State::DataEnd, b'\r') => Ok(State::DataEnd),
            (State::DataEnd, b'\n') => Ok(State::Size(0, 0)),
            (State::Trailer(true), b'\n') | (State::Done, _) => Ok(State::Done),
            (State::Trailer(_), b'\n') => Ok(State::Trailer(true)),
            (State::Trailer(blank), _) => Ok(State::Trailer(blank && byte == b'\r')),
            (State::Size(..) | State::DataEnd | State::Data(_), _) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dechunk(input: &[u8], step: usize) -> Result<(Vec<u8>, bool), ChunkError> {
        let mut dechunker = Dechunker::new();
        let mut content = Vec::new();
        for piece in input.chunks(step) {
            dechunker.feed(piece, |data| content.extend_from_slice(data))?;
        }
        Ok((content, dechunker.is_complete()))
    }

    #[test]
    fn chunks_are_put_together_however_they_come() {
        let input =
            b"4\r\nWiki\r\n00000005 ; a=b\r\npedia\r\nA\nin\r\nchunks\n0\r\nX: y\r\n\r\nrest";
        for step in 1..input.len() {
            let (content, complete) = dechunk(input, step).unwrap();
            assert_eq!(content, b"Wikipediain\r\nchunks");
            assert!(complete);
        }
    }

    #[test]
    fn what_is_not_chunked_is_told_from_what_breaks_off() {
        assert_eq!(dechunk(b"<html>", 9), Err(ChunkError::NotChunked));
        assert_eq!(dechunk(b"\r\n", 9), Err(ChunkError::NotChunked));
        assert_eq!(dechunk(b"11111111111111111\r\n", 9), Err(ChunkError::NotChunked));
        assert_eq!(dechunk(b"2\r\nab\r\n<", 9), Err(ChunkError::Broken));
        assert_eq!(dechunk(b"2\r\nabc", 9), Err(ChunkError::Broken));
        assert_eq!(dechunk(b"2\r\na", 9), Ok((b"a".to_vec(), false)));
        assert_eq!(dechunk(b"ffffffffffffffff\r\na", 9), Ok((b"a".to_vec(), false)));
    }
}
