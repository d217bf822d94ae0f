//! A relay: an ordinary client of one server, and a server itself [SMO §V-D].
//!
//! ```text
//!  server ══(S,G)══▶ helper ─▶ kernel's TCP ─▶ Library (threads) ─▶ ServeHost ══(R,H)══▶ clients
//!            ◀── ACKs ────────┘   no more is read than there is room for below
//! ```
//!
//! A level holds at most the buffer of its streams and the receive buffer of a socket. When the
//! clients of a relay are slow, its socket fills up and its window closes. The server then waits
//! for the relay, as for any slow receiver. With a bound on what waits ([`RemovalRules::wait`])
//! they are cut off instead. Each level then adds at most that to the delay of a live stream.
//!
//! A relay that the server further up cuts off connects again, and goes on where the stream is
//! then. Its own clients are cut off, too, since no connection can skip over the gap, and may
//! return.
//!
//! [`RemovalRules::wait`]: umbel_engine::smo::RemovalRules::wait

mod feed;
mod upstream;

use std::sync::Arc;

use anyhow::Context;

use self::feed::Feed;
use self::upstream::Upstream;
use super::join::{Helper, HelperOptions};
use super::serve::desk::Rules;
use super::serve::host::Input;
use super::serve::{
    Conduct, Interrupt, Place, ServeObserver, ServeOptions, ServeSummary, Start, run,
};
use crate::endpoint::Wiring;

/// Content to relay.
#[derive(Clone, Copy, Debug)]
pub enum Relayed {
    /// The server's one stream, from where it is when the relay begins.
    Stream(Start),
    /// Documents that the server offers by HTTP.
    Http {
        /// Time at which something is multicast, from the first request for it on.
        start: Start,
        /// Shorter bodies are answered alone and at once.
        smallest: u64,
    },
}

/// Relays. Returns when the stream is over, or the user ends it.
///
/// # Errors
///
/// One line that says why nothing can be relayed, and what to do.
pub fn relay(
    relayed: Relayed,
    helper: &HelperOptions,
    options: &ServeOptions,
    observer: &Arc<dyn ServeObserver>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<ServeSummary> {
    let wiring = Wiring::new()?;
    started(wiring.interrupt(|| Input::Interrupt));
    let news = wiring.mailbox().map(Input::News);
    let server = helper.target.server;
    let place = Place::open(options)?;
    // Without a helper the relay is served by unicast, like everyone.
    let helper = Helper::start(helper);
    if let Err(error) = &helper {
        observer.note(&format!("what comes from {server} comes by unicast: {error:#}"));
    }
    match relayed {
        Relayed::Stream(start) => {
            let library = Feed::start(server, news).context("cannot start")?;
            let conduct = Conduct { rules: Rules::Live(start), keep: false };
            run(library, conduct, place, options, observer, wiring)
        }
        Relayed::Http { start, smallest } => {
            let library = Upstream::new(server, news);
            let conduct = Conduct { rules: Rules::Web { start, smallest }, keep: true };
            run(library, conduct, place, options, observer, wiring)
        }
    }
}
