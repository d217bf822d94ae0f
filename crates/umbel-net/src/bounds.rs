//! Bounds of what strangers can fill at a server or a host.

use umbel_engine::bounds::{Bound, Row, Share, WhenFull};

/// Sessions of a server.
pub(crate) const SESSIONS: Bound = Bound {
    what: "sessions of `serve`, with handshakes",
    all: 4_096,
    of_host: Share::Of(256),
    full: WhenFull::Greediest,
    test: "session::guard::hosts_that_take_all_sessions_give_some_up_for_others",
};

/// Handshakes under way.
pub(crate) const HANDSHAKES: Bound = Bound {
    what: "handshakes of `serve`; above half an address is checked first",
    all: 1_024,
    of_host: Share::Of(256),
    full: WhenFull::Greediest,
    test: "session::guard::a_host_that_begins_handshakes_without_end_leaves_room_for_others",
};

/// Bytes of incomplete messages.
pub(crate) const UNFINISHED: Bound = Bound {
    what: "bytes of unfinished messages to `serve`",
    all: 64 << 20,
    of_host: Share::AsMuchAsIsLeft,
    full: WhenFull::Refused,
    test: "session::limits::a_host_with_many_sessions_holds_no_more_than_it_leaves_to_others",
};

/// Addresses whose wrong tokens are remembered.
pub(crate) const GUESSERS: Bound = Bound {
    what: "addresses, and networks, whose wrong tokens `serve` remembers",
    all: if cfg!(test) { 256 } else { 4_096 },
    of_host: Share::None("a network of many addresses is remembered as one"),
    full: WhenFull::Oldest,
    test: "session::guard::ten_times_as_many_guessers_as_are_remembered_take_no_more_memory",
};

/// Connections that `smo join` delivers to.
pub(crate) const DELIVERIES: Bound = Bound {
    what: "connections of a host that `smo join` delivers to",
    all: 4096,
    of_host: Share::None("only connections of the named port count, which the kernel knows"),
    full: WhenFull::Refused,
    test: "",
};

/// The bounds of this crate.
pub fn rows() -> Vec<Row> {
    [&SESSIONS, &HANDSHAKES, &UNFINISHED, &GUESSERS, &DELIVERIES].map(Row::from).into()
}
