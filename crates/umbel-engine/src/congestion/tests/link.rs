//! A link: a queue of limited length before a capacity that changes, or a policer.

/// A link.
#[derive(Clone, Debug)]
pub(super) struct LinkSpec {
    /// Capacities in bits per second, each from a second on.
    pub(super) rates: Vec<(f64, f64)>,
    /// Bytes that the queue holds.
    pub(super) queue: f64,
    /// Bytes of a policer's bucket instead of a queue.
    pub(super) policer: Option<f64>,
    /// Queue in bytes from which on packets are marked.
    pub(super) marks: Option<f64>,
}

impl LinkSpec {
    pub(super) fn new(rate: f64, queue: f64) -> LinkSpec {
        LinkSpec { rates: vec![(0.0, rate)], queue, policer: None, marks: None }
    }

    /// Returns the bits that pass between two times.
    pub(super) fn bits(&self, from: f64, to: f64) -> f64 {
        let mut bits = 0.0;
        for (n, &(begins, rate)) in self.rates.iter().enumerate() {
            let ends = self.rates.get(n + 1).map_or(f64::INFINITY, |next| next.0);
            bits += (to.min(ends) - from.max(begins)).max(0.0) * rate;
        }
        bits
    }

    /// Returns when `bits` have passed that begin at `from`.
    fn passed(&self, from: f64, mut bits: f64) -> f64 {
        for (n, &(begins, rate)) in self.rates.iter().enumerate() {
            let ends = self.rates.get(n + 1).map_or(f64::INFINITY, |next| next.0);
            let begins = from.max(begins);
            if begins < ends {
                let room = (ends - begins) * rate;
                if bits <= room {
                    return begins + bits / rate;
                }
                bits -= room;
            }
        }
        f64::INFINITY
    }
}

/// A packet that got through.
pub(super) struct Passed {
    pub(super) leaves: f64,
    pub(super) marked: bool,
}

pub(super) struct Link {
    pub(super) spec: LinkSpec,
    /// Time at which the queue will be empty.
    empty_at: f64,
    /// Tokens of the policer, as of a time.
    tokens: (f64, f64),
    pub(super) dropped: u64,
    /// Times of drops.
    drops: Vec<f64>,
}

impl Link {
    pub(super) fn new(spec: LinkSpec) -> Link {
        Link {
            empty_at: 0.0,
            tokens: (spec.policer.unwrap_or(0.0), 0.0),
            dropped: 0,
            drops: Vec::new(),
            spec,
        }
    }

    /// Returns the time that a packet waits which comes now.
    pub(super) fn wait(&self, now: f64) -> f64 {
        (self.empty_at - now).max(0.0)
    }

    fn drop(&mut self, now: f64) -> Option<Passed> {
        self.dropped += 1;
        self.drops.push(now);
        None
    }

    /// Returns the number of packets dropped before a time.
    pub(super) fn dropped_before(&self, time: f64) -> usize {
        self.drops.partition_point(|&at| at < time)
    }

    pub(super) fn pass(&mut self, now: f64, bytes: f64) -> Option<Passed> {
        if let Some(depth) = self.spec.policer {
            let (tokens, since) = self.tokens;
            let tokens = (tokens + self.spec.bits(since, now) / 8.0).min(depth);
            self.tokens = (tokens, now);
            if tokens < bytes {
                return self.drop(now);
            }
            self.tokens.0 -= bytes;
            return Some(Passed { leaves: now, marked: false });
        }
        let queued = self.spec.bits(now, self.empty_at.max(now)) / 8.0;
        if queued + bytes > self.spec.queue {
            return self.drop(now);
        }
        let marked = self.spec.marks.is_some_and(|from| queued > from);
        self.empty_at = self.spec.passed(self.empty_at.max(now), bytes * 8.0);
        Some(Passed { leaves: self.empty_at, marked })
    }
}
