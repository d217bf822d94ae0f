//! Counters of a run.

/// Counters of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events handled.
    pub events: u64,
    /// Packets that hosts and hooks sent.
    pub sent: u64,
    /// Packets that entered a link: packet-hops.
    pub hops: u64,
    /// Packets passed to applications.
    pub delivered: u64,
    /// Packets lost on links at random or by script.
    pub lost: u64,
    /// Packets dropped by full queues.
    pub queue_drops: u64,
    /// Packets lost because a link was down.
    pub down: u64,
    /// Packets without a way to their destination.
    pub no_route: u64,
    /// Packets whose hop limit was exceeded.
    pub hop_limit: u64,
    /// Hosts that were stopped because they made no progress.
    pub stuck: u64,
    /// Messages sent on sessions.
    pub messages: u64,
    /// Bytes of those messages.
    pub message_bytes: u64,
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that entered it.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Packets that were lost on it at random or by script.
    pub lost: u64,
    /// Packets that its queue dropped.
    pub queue_drops: u64,
}
