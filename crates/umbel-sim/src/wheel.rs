//! The event queue: a hierarchical timing wheel.
//!
//! Level 0 has a slot for each of the next nanoseconds, and every further level has slots that are
//! [`SLOTS`] times as long. An event waits in the level of the highest digit, in base [`SLOTS`], in
//! which its time differs from the present. It moves down when the present reaches its slot. Slots
//! are lists, first in, first out. An event that moves down was scheduled before any that is put
//! there directly. So events of one time leave in the order in which they came.
//!
//! Pushing and popping take constant time, with at most one move per level. Lists are made of
//! chunks, so that moving a long one down reads memory in order. `benches/queue.rs` compares the
//! wheel with a binary heap.

/// Number of slots of a level.
const SLOTS: usize = 64;
const DIGIT_BITS: u32 = SLOTS.trailing_zeros();
/// Number of levels, enough for 64 bits of time.
const LEVELS: usize = 64_usize.div_ceil(DIGIT_BITS as usize);
/// Number of entries of a chunk.
const CHUNK: u32 = 32;
const NONE: u32 = u32::MAX;

/// Events in the order of their times, and of their arrival among equal times.
#[derive(Debug)]
pub struct Wheel<T> {
    /// Time before which there are no events.
    now: u64,
    len: usize,
    /// Bit mask of the levels that hold events.
    levels: u16,
    /// Bit masks of the slots of each level that hold events.
    used: [u64; LEVELS],
    slots: Box<[[List; SLOTS]; LEVELS]>,
    chunks: Chunks<T>,
}

/// Positions of the first and the last entry. All entries between are in the same chunk or in those
/// that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    at: u64,
    event: T,
}

/// Memory of all lists.
#[derive(Debug)]
struct Chunks<T> {
    entries: Vec<Entry<T>>,
    /// For each chunk the one that follows it, in its list or among the unused ones.
    next: Vec<u32>,
    unused: u32,
}

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Wheel<T> {
        Wheel::new()
    }
}

impl<T: Copy> Wheel<T> {
    /// Creates an empty queue at time 0.
    pub fn new() -> Wheel<T> {
        Wheel {
            now: 0,
            len: 0,
            levels: 0,
            used: [0; LEVELS],
            slots: Box::new([[EMPTY; SLOTS]; LEVELS]),
            chunks: Chunks { entries: Vec::new(), next: Vec::new(), unused: NONE },
        }
    }

    /// Returns the number of events that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. A time before that of the last popped event counts as that time.
    pub fn push(&mut self, at: u64, event: T) {
        self.len += 1;
        self.file(Entry { at: at.max(self.now), event });
    }

    /// Removes and returns the next event if it is not later than `end`.
    pub fn pop_until(&mut self, end: u64) -> Option<(u64, T)> {
        while self.levels != 0 {
            let level = self.levels.trailing_zeros() as usize;
            let slot = self.used[level].trailing_zeros() as usize;
            let shift = level as u32 * DIGIT_BITS;
            // Begin of the slot: all higher digits are those of the present.
            let start = ((self.now >> shift) & !(SLOTS as u64 - 1) | slot as u64) << shift;
            if start > end {
                return None;
            }
            let list = &mut self.slots[level][slot];
            // The events of a slot of level 0 have one time; so has an event that is alone.
            if level == 0 || list.first == list.last {
                let Entry { at, event } = self.chunks.entries[list.first as usize];
                if at > end {
                    return None;
                }
                self.chunks.drop_first(list);
                if *list == EMPTY {
                    self.mark_empty(level, slot);
                }
                self.now = at;
                self.len -= 1;
                return Some((at, event));
            }
            let mut list = std::mem::replace(list, EMPTY);
            self.mark_empty(level, slot);
            // Advancing to the earliest event rather than to the beginning of the slot spares most
            // events the levels between.
            let earliest = self.chunks.earliest(list);
            self.now = if earliest <= end { earliest } else { start };
            while list != EMPTY {
                let entry = self.chunks.entries[list.first as usize];
                self.chunks.drop_first(&mut list);
                self.file(entry);
            }
        }
        None
    }

    /// Puts an entry at the end of the list to which it belongs at present.
    #[inline]
    fn file(&mut self, entry: Entry<T>) {
        // `| 1` changes no digit above 0, and spares the case of no difference.
        let difference = (entry.at ^ self.now) | 1;
        let level = (difference.ilog2() / DIGIT_BITS) as usize;
        let slot = (entry.at >> (level as u32 * DIGIT_BITS)) as usize % SLOTS;
        self.used[level] |= 1 << slot;
        self.levels |= 1 << level;
        self.chunks.append(&mut self.slots[level][slot], entry);
    }

    fn mark_empty(&mut self, level: usize, slot: usize) {
        self.used[level] &= !(1 << slot);
        if self.used[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

impl<T: Copy> Chunks<T> {
    #[inline]
    fn append(&mut self, list: &mut List, entry: Entry<T>) {
        if *list == EMPTY {
            let first = self.take_unused(entry) * CHUNK;
            *list = List { first, last: first };
        } else if (list.last + 1).is_multiple_of(CHUNK) {
            let chunk = self.take_unused(entry);
            self.next[(list.last / CHUNK) as usize] = chunk;
            list.last = chunk * CHUNK;
        } else {
            list.last += 1;
        }
        self.entries[list.last as usize] = entry;
    }

    /// Removes the first entry of a list that is not empty.
    #[inline]
    fn drop_first(&mut self, list: &mut List) {
        let (chunk, alone) = (list.first / CHUNK, list.first == list.last);
        list.first += 1;
        if alone || list.first.is_multiple_of(CHUNK) {
            let next = std::mem::replace(&mut self.next[chunk as usize], self.unused);
            self.unused = chunk;
            *list = if alone { EMPTY } else { List { first: next * CHUNK, ..*list } };
        }
    }

    /// Returns the earliest time in a list that is not empty.
    fn earliest(&self, list: List) -> u64 {
        let (mut first, mut earliest) = (list.first, u64::MAX);
        loop {
            let chunk = first / CHUNK;
            let is_last = chunk == list.last / CHUNK;
            let end = if is_last { list.last } else { chunk * CHUNK + CHUNK - 1 };
            let entries = &self.entries[first as usize..=end as usize];
            earliest = entries.iter().fold(earliest, |earliest, entry| earliest.min(entry.at));
            if is_last {
                return earliest;
            }
            first = self.next[chunk as usize] * CHUNK;
        }
    }

    /// Returns an unused chunk, or a new one full of `entry`.
    fn take_unused(&mut self, entry: Entry<T>) -> u32 {
        if self.unused == NONE {
            self.next.push(NONE);
            self.entries.resize(self.next.len() * CHUNK as usize, entry);
            return self.next.len() as u32 - 1;
        }
        let chunk = self.unused;
        self.unused = self.next[chunk as usize];
        chunk
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_of_one_time_leave_in_the_order_in_which_they_came() {
        let mut wheel = Wheel::new();
        // Scheduled far ahead, nearby, at the present, and too late.
        wheel.push(5_000, 'a');
        wheel.push(4_999, 'x');
        assert_eq!(wheel.pop_until(u64::MAX), Some((4_999, 'x')));
        wheel.push(5_000, 'b');
        assert_eq!(wheel.pop_until(u64::MAX), Some((5_000, 'a')));
        wheel.push(5_000, 'c');
        wheel.push(1, 'd');
        for event in ['b', 'c', 'd'] {
            assert_eq!(wheel.pop_until(5_000), Some((5_000, event)));
        }
        assert!(wheel.is_empty());
    }

    #[test]
    fn an_event_after_the_end_stays_and_earlier_ones_can_still_come() {
        let mut wheel = Wheel::new();
        wheel.push(1 << 40, 1);
        wheel.push((1 << 40) + 1, 2);
        assert_eq!(wheel.pop_until((1 << 40) - 1), None);
        wheel.push(1_000, 0);
        assert_eq!(wheel.pop_until(1 << 40), Some((1_000, 0)));
        assert_eq!(wheel.pop_until(1 << 40), Some((1 << 40, 1)));
        assert_eq!(wheel.pop_until(1 << 40), None);
        assert_eq!(wheel.len(), 1);
    }

    #[test]
    fn the_last_moment_is_reached() {
        let mut wheel = Wheel::new();
        wheel.push(u64::MAX, 2);
        wheel.push(u64::MAX - 1, 1);
        wheel.push(u64::MAX, 3);
        let popped: Vec<_> = std::iter::from_fn(|| wheel.pop_until(u64::MAX)).collect();
        assert_eq!(popped, [(u64::MAX - 1, 1), (u64::MAX, 2), (u64::MAX, 3)]);
    }

    /// Push at this distance ahead (in nanoseconds), or pop up to this distance ahead.
    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Pop(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let far = (0_u32..45, 0_u64..64).prop_map(|(bits, small)| (1_u64 << bits) - 1 + small);
        let step = prop_oneof![
            3 => far.clone().prop_map(Step::Push),
            2 => (0_u64..3).prop_map(Step::Push),
            4 => far.prop_map(Step::Pop),
        ];
        proptest::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn does_what_a_sorted_set_does(steps in steps()) {
            let mut wheel = Wheel::new();
            let mut reference = BTreeSet::new();
            let mut now = 0;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(ahead) => {
                        wheel.push(now + ahead, number);
                        reference.insert((now + ahead, number));
                    }
                    Step::Pop(ahead) => {
                        let end = now + ahead;
                        let expected = reference.first().copied().filter(|&(at, _)| at <= end);
                        prop_assert_eq!(wheel.pop_until(end), expected);
                        // Without an event, the next one may be anywhere from here on.
                        now = expected.map_or(end, |(at, _)| at);
                        if let Some(event) = expected {
                            reference.remove(&event);
                        }
                    }
                }
                prop_assert_eq!(wheel.len(), reference.len());
            }
        }
    }
}
