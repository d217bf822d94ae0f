//! An engine's timers: one for each purpose, in a table.
//!
//! A timer has a name that reads "When to …", and at most one time. The engine's wake-up is the
//! earliest of them ([`Timers::next`]). Due timers are returned in the order of time
//! ([`Timers::pop_due`]). Hence every timer that is waited for is handled, and every timer that is
//! handled is waited for.
//!
//! An engine keeps its table, and sets in it what its parts wait for after each input. Where the
//! parts change in many ways, it makes the table when it is asked (TMTP).
//!
//! A table is an array indexed by the name: no heap, 8 bytes a timer. Timers that exist once for
//! each unit or block are kept in order by the owner of these units ([`Deadlines`]). The table has
//! the first of them.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use crate::Instant;

/// Name of a timer. Implemented by [`timers!`].
pub(crate) trait Name: Copy + fmt::Debug + 'static {
    /// Every name, in the order of their indices.
    const ALL: &'static [Self];

    /// Returns its place in [`ALL`](Name::ALL).
    fn index(self) -> usize;
}

/// Timers that exist once for each of many things, in the order in which they run out.
#[derive(Clone, Debug)]
pub(crate) struct Deadlines<T>(BTreeSet<(Instant, T)>);

impl<T> Default for Deadlines<T> {
    /// Creates a table in which no timer is set.
    fn default() -> Deadlines<T> {
        Deadlines(BTreeSet::new())
    }
}

impl<T: Ord + Copy> Deadlines<T> {
    /// Sets a timer. A caller that moves it cancels it first.
    pub(crate) fn set(&mut self, at: Instant, timer: T) {
        self.0.insert((at, timer));
    }

    /// Cancels a timer. Does nothing if it is not set.
    pub(crate) fn cancel(&mut self, at: Instant, timer: T) {
        self.0.remove(&(at, timer));
    }

    /// Returns when the first one runs out.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    /// Returns the first one that has run out, and cancels it.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}

/// Time of a timer that is not set. An engine has ended long before.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// The times of an engine's `N` timers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timers<T, const N: usize> {
    at: [Instant; N],
    names: PhantomData<T>,
}

impl<T, const N: usize> Default for Timers<T, N> {
    /// Creates a table in which no timer is set.
    fn default() -> Timers<T, N> {
        Timers { at: [NEVER; N], names: PhantomData }
    }
}

impl<T: Name, const N: usize> Timers<T, N> {
    /// Sets or moves a timer.
    pub(crate) fn set(&mut self, timer: T, at: Instant) {
        self.at[timer.index()] = at;
    }

    /// Sets, moves or cancels a timer.
    pub(crate) fn put(&mut self, timer: T, at: Option<Instant>) {
        self.at[timer.index()] = at.unwrap_or(NEVER);
    }

    /// Sets a timer, unless it runs out earlier.
    pub(crate) fn put_first(&mut self, timer: T, at: Option<Instant>) {
        let known = &mut self.at[timer.index()];
        *known = at.unwrap_or(NEVER).min(*known);
    }

    /// Cancels a timer. Does nothing if it is not set.
    pub(crate) fn cancel(&mut self, timer: T) {
        self.at[timer.index()] = NEVER;
    }

    /// Cancels all timers.
    pub(crate) fn clear(&mut self) {
        self.at = [NEVER; N];
    }

    /// Returns the time at which a timer runs out, if it is set.
    pub(crate) fn at(&self, timer: T) -> Option<Instant> {
        Some(self.at[timer.index()]).filter(|&at| at < NEVER)
    }

    /// Returns whether a timer is set.
    pub(crate) fn is_set(&self, timer: T) -> bool {
        self.at(timer).is_some()
    }

    /// Returns the time at which the first timer runs out, if any is set.
    pub(crate) fn next(&self) -> Option<Instant> {
        let next = self.at.iter().fold(NEVER, |next, &at| if at < next { at } else { next });
        Some(next).filter(|&at| at < NEVER)
    }

    /// Cancels the timer that ran out first, and returns it. Of several that ran out together, the
    /// one declared first comes first.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let next = self.next().filter(|&next| next <= now)?;
        let timer = *T::ALL.iter().find(|timer| self.at[timer.index()] == next)?;
        self.cancel(timer);
        Some(timer)
    }
}

impl<T: Name, const N: usize> fmt::Debug for Timers<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = T::ALL.iter().filter_map(|&timer| Some((timer, self.at(timer)?)));
        f.debug_map().entries(set).finish()
    }
}

/// Defines the names of an engine's timers, and the table of their times.
macro_rules! timers {
    (
        $(#[$doc:meta])*
        $vis:vis enum $Timer:ident, $Timers:ident {
            $($(#[$timer_doc:meta])+ $timer:ident,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Timer {
            $($(#[$timer_doc])+ $timer,)+
        }

        impl $crate::timers::Name for $Timer {
            const ALL: &'static [$Timer] = &[$($Timer::$timer),+];

            fn index(self) -> usize {
                self as usize
            }
        }

        /// The times of these timers.
        $vis type $Timers =
            $crate::timers::Timers<$Timer, { [$($Timer::$timer),+].len() }>;
    };
}

pub(crate) use timers;

#[cfg(test)]
mod tests {
    use super::*;

    timers! {
        /// Timers of the test.
        enum Timer, Table {
            /// When to rise.
            Rise,
            /// When to shine.
            Shine,
            /// When to rest.
            Rest,
        }
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn timers_run_out_in_the_order_of_time_and_then_of_names() {
        let mut timers = Table::default();
        assert_eq!((timers.next(), timers.pop_due(at(9))), (None, None));
        timers.set(Timer::Rest, at(5));
        timers.set(Timer::Shine, at(7));
        timers.set(Timer::Rise, at(5));
        assert_eq!((timers.next(), timers.pop_due(at(4))), (Some(at(5)), None));
        let due: Vec<Timer> = std::iter::from_fn(|| timers.pop_due(at(7))).collect();
        assert_eq!(due, [Timer::Rise, Timer::Rest, Timer::Shine]);
        assert_eq!(timers, Table::default());
    }

    #[test]
    fn a_timer_has_one_time() {
        let mut timers = Table::default();
        timers.set(Timer::Rise, at(5));
        timers.set(Timer::Rise, at(3));
        assert_eq!((timers.at(Timer::Rise), timers.next()), (Some(at(3)), Some(at(3))));
        timers.cancel(Timer::Rise);
        assert!(!timers.is_set(Timer::Rise));
        timers.put(Timer::Rest, Some(at(1)));
        assert_eq!(format!("{timers:?}"), "{Rest: Instant(1)}");
        timers.put(Timer::Rest, None);
        timers.set(Timer::Shine, at(2));
        timers.clear();
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_table_takes_8_bytes_a_timer() {
        assert_eq!(size_of::<Table>(), 24);
    }

    #[test]
    fn deadlines_run_out_in_order_and_cancelled_ones_do_not() {
        let mut deadlines = Deadlines::default();
        for (ns, unit) in [(3, 'c'), (1, 'a'), (2, 'b'), (1, 'z')] {
            deadlines.set(at(ns), unit);
        }
        deadlines.cancel(at(1), 'z');
        deadlines.cancel(at(9), 'c');
        assert_eq!(deadlines.pop_due(at(0)), None);
        assert_eq!((deadlines.pop_due(at(2)), deadlines.pop_due(at(2))), (Some('a'), Some('b')));
        assert_eq!((deadlines.pop_due(at(2)), deadlines.next()), (None, Some(at(3))));
    }
}
