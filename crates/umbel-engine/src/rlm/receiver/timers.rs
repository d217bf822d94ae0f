//! A receiver's timers.

use crate::timers::timers;

timers! {
    /// Timers of a receiver.
    pub(super) enum Timer, Timers {
        /// When to leave the layer that stayed until the new one came.
        Switch,
        /// When to let the controller judge an experiment or begin one.
        Level,
        /// When to count missing packets of a layer as lost.
        Loss,
        /// When to give up an object of which nothing came for long.
        Object,
        /// When to tell the other receivers of this one.
        Session,
    }
}
