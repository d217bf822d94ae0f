//! Encoding of the values inside control messages.
//!
//! Integers are varints (LEB128): seven bits a byte, lowest first, the top bit set on all but the
//! last. Differences that may be negative are zigzag-coded first.

use crate::ParseError;

/// Appends a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number as a zigzag varint, which is short for small magnitudes.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

/// Appends the length as a varint, then the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads values from the front of a byte string.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    /// The element being read, for errors.
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, rest: bytes }
    }

    /// Returns an error about the element being read.
    pub(crate) fn bad(&self, problem: &'static str) -> ParseError {
        ParseError::Value { what: self.what, problem }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns an error unless everything was read.
    pub(crate) fn finish(self) -> Result<(), ParseError> {
        if self.is_empty() { Ok(()) } else { Err(self.bad("bytes after its end")) }
    }

    /// Takes all remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Takes the next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ParseError::Truncated {
            what: self.what,
            need: len,
            have: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, ParseError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64, ParseError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.bad("a number above 64 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, ParseError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a varint that fits a narrower type.
    pub(crate) fn number<T: TryFrom<u64>>(&mut self) -> Result<T, ParseError> {
        T::try_from(self.varint()?).map_err(|_| self.bad("a number out of its range"))
    }

    /// Reads a length and this number of bytes as UTF-8, at most `limit`.
    pub(crate) fn string(&mut self, limit: usize) -> Result<String, ParseError> {
        let len = self.number::<usize>()?;
        if len > limit {
            return Err(self.bad("a string that is too long"));
        }
        let bytes = self.take(len)?;
        self.utf8(bytes)
    }

    /// Reads all remaining bytes as UTF-8, at most `limit`.
    pub(crate) fn rest_string(&mut self, limit: usize) -> Result<String, ParseError> {
        if self.rest.len() > limit {
            return Err(self.bad("a string that is too long"));
        }
        let bytes = self.rest();
        self.utf8(bytes)
    }

    fn utf8(&self, bytes: &[u8]) -> Result<String, ParseError> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| self.bad("a string that is not UTF-8"))?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_seven_bits_a_byte_lowest_first() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7F]),
            (128, &[0x80, 1]),
            (300, &[0xAC, 2]),
            (u64::MAX, &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, bytes);
            let mut reader = Reader::new("test", bytes);
            assert_eq!(reader.varint().unwrap(), value);
            reader.finish().unwrap();
        }
    }

    #[test]
    fn signed_numbers_come_back() {
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(Reader::new("test", &out).signed().unwrap(), value);
        }
    }

    #[test]
    fn a_varint_above_64_bits_or_without_an_end_is_refused() {
        assert!(Reader::new("test", &[0xFF; 9]).varint().is_err());
        assert!(Reader::new("test", &[0xFF; 20]).varint().is_err());
        assert!(
            Reader::new("test", &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2])
                .varint()
                .is_err()
        );
        assert!(
            Reader::new("test", &[128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0])
                .varint()
                .is_err()
        );
    }

    #[test]
    fn a_string_never_reaches_beyond_the_bytes() {
        assert!(Reader::new("test", &[5, b'a']).string(10).is_err());
        assert!(Reader::new("test", &[2, b'a', b'b']).string(1).is_err());
        assert!(Reader::new("test", &[1, 0xFF]).string(10).is_err());
        assert_eq!(Reader::new("test", &[2, b'a', b'b']).string(2).unwrap(), "ab");
    }
}
