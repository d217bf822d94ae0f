//! Serial arithmetic of sequence numbers.

use std::fmt;

/// A sequence number. Sequence numbers wrap at 2^32, so that they have no order. Two of them have a
/// distance [RFC 9293 §3.4].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns the number `n` after this one.
    #[must_use]
    pub const fn plus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }

    /// Returns the number `n` before this one.
    #[must_use]
    pub const fn minus(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }

    /// Returns the distance from `earlier` to this number, negative if `earlier` is later. It is
    /// right for numbers that are less than 2^31 apart.
    pub const fn since(self, earlier: Seq) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// Returns whether this number is before `other`.
    pub const fn is_before(self, other: Seq) -> bool {
        self.since(other) < 0
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_the_wrap() {
        let last = Seq(u32::MAX);
        assert_eq!(last.plus(3), Seq(2));
        assert_eq!(Seq(2).minus(3), last);
        assert_eq!((Seq(2).since(last), last.since(Seq(2))), (3, -3));
        assert!(last.is_before(Seq(0)) && !Seq(0).is_before(last) && !last.is_before(last));
    }
}
