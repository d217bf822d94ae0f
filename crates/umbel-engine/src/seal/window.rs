//! A replay window [RFC 6479]: which numbers were seen, of those that may still come.

/// Remembers the numbers seen of the last `(words - 1) * 64`.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    highest: u64,
    words: Box<[u64]>,
}

impl Window {
    /// Creates a window of this number of words, at least 2.
    pub(crate) fn new(words: usize) -> Window {
        Window { highest: 0, words: vec![0; words.max(2)].into() }
    }

    fn place(&self, number: u64) -> (usize, u64) {
        ((number / 64 % self.words.len() as u64) as usize, 1 << (number % 64))
    }

    /// Returns whether a number was not seen and is not too old to know.
    pub(crate) fn is_fresh(&self, number: impl Into<u64>) -> bool {
        let number = number.into();
        let (word, bit) = self.place(number);
        let reach = (self.words.len() as u64 - 1) * 64;
        match self.highest.checked_sub(number) {
            None => true,
            Some(behind) => behind < reach && self.words[word] & bit == 0,
        }
    }

    /// Notes that a fresh number was seen.
    pub(crate) fn note(&mut self, number: impl Into<u64>) {
        let number = number.into();
        let len = self.words.len() as u64;
        let first = self.highest / 64;
        let skipped = (number / 64).saturating_sub(first);
        for word in 1..=skipped.min(len) {
            self.words[((first + word) % len) as usize] = 0;
        }
        self.highest = self.highest.max(number);
        let (word, bit) = self.place(number);
        self.words[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_number_is_fresh_once_and_none_is_lost_within_the_window(
            words in 2_usize..6,
            steps in prop::collection::vec((0_u64..40, 0_u64..300), 1..400),
            from in prop_oneof![Just(0), Just(u64::from(u32::MAX) - 9_000), Just(1 << 47)],
        ) {
            let mut window = Window::new(words);
            let reach = (words as u64 - 1) * 64;
            let (mut seen, mut top) = (BTreeSet::new(), from);
            for (forward, back) in steps {
                top += forward;
                let number = top.saturating_sub(back);
                let highest = seen.last().copied().unwrap_or(0_u64);
                let fresh = window.is_fresh(number);
                prop_assert!(!(fresh && seen.contains(&number)), "{} twice", number);
                let within = number > highest || highest - number < reach;
                prop_assert_eq!(fresh, within && !seen.contains(&number), "{}", number);
                if fresh {
                    window.note(number);
                    seen.insert(number);
                }
            }
        }
    }
}
