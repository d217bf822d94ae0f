//! Whether multicast reaches a child.

/// Recoveries in a row in which only retransmissions were acknowledged, after which a child counts
/// as deaf.
const MAX_UNHEARD: u8 = 3;

/// Whether multicast reaches a child, as far as its acknowledgements tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing {
    /// Whether new data reaches it by multicast. A deaf child is served by unicast.
    pub(super) hears: bool,
    /// Whether that is possible at all.
    pub(super) may_hear: bool,
    /// Position up to which it may have what was multicast before it became deaf.
    pub(super) deaf_from: u64,
    /// Highest position that it acknowledged, by blocks too.
    told: u64,
    /// Whether it acknowledged what was only multicast since the last time-out.
    heard: bool,
    /// Recoveries that ended since it was heard to receive multicasts.
    unheard: u8,
}

impl Hearing {
    /// Creates that of a child that is served alone.
    pub(super) fn new(may_hear: bool) -> Hearing {
        Hearing { hears: false, may_hear, deaf_from: 0, told: 0, heard: false, unheard: 0 }
    }

    /// Notes that it has become one of a master's.
    pub(super) fn on_master(&mut self) {
        self.hears = self.may_hear;
    }

    /// Notes that its own end was sent, after which nothing of its stream is multicast to it.
    pub(super) fn on_end(&mut self) {
        (self.hears, self.may_hear) = (false, false);
    }

    /// Notes the highest position that an acknowledgement names. Returns whether no other did
    /// before, also none whose blocks were forgotten after a time-out.
    pub(super) fn on_told(&mut self, newest: u64) -> bool {
        let is_news = newest > self.told;
        self.told = self.told.max(newest);
        is_news
    }

    /// Notes that it received what was only multicast.
    pub(super) fn on_heard(&mut self) {
        (self.heard, self.unheard) = (true, 0);
    }

    /// Notes that a recovery has ended. Returns whether it is deaf.
    pub(super) fn on_recovery(&mut self) -> bool {
        self.unheard += u8::from(self.hears);
        self.unheard >= MAX_UNHEARD
    }

    /// Notes a time-out. Returns whether it is deaf: nothing of what was multicast reached it since
    /// the last one.
    pub(super) fn on_timeout(&mut self) -> bool {
        let is_deaf = self.hears && !self.heard;
        self.heard = false;
        is_deaf
    }

    /// Notes that it is deaf, after everything up to a position was multicast.
    pub(super) fn on_deaf(&mut self, from: u64) {
        (self.hears, self.unheard, self.deaf_from) = (false, 0, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_is_no_news() {
        let mut hearing = Hearing::new(true);
        assert!(hearing.on_told(30) && !hearing.on_told(30) && !hearing.on_told(20));
        assert!(hearing.on_told(31));
    }

    #[test]
    fn who_tells_nothing_new_between_two_time_outs_is_deaf() {
        let mut hearing = Hearing::new(true);
        hearing.on_master();
        hearing.on_heard();
        assert!(!hearing.on_timeout() && hearing.on_timeout());
        hearing.on_heard();
        assert!(!hearing.on_timeout());
    }
}
