//! A client: the repository's engine with its session, its socket and its disk.
//!
//! ```text
//! session's thread ──messages──▶ engine's thread ◀──data packets── data channel
//!        ▲                        │        │
//!        └──messages──────────────┘        ▼ symbols
//!                                 disk sink's threads: decode, write, verify, rename
//! ```
//!
//! A session that breaks is opened again; what is on the disk is not asked for again.

pub(crate) mod host;
mod machine;
mod progress;
mod unicast;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use umbel_engine::repository::{Receiver, ReceiverConfig};
use umbel_net::clock::Clock;
use umbel_net::driver::Driver;
use umbel_net::mailbox;
use umbel_net::session::SessionUrl;
use umbel_net::udp::Discard;
use umbel_store::sink::{DiskSink, SinkOptions};

use self::host::{Ask, GetHost, Input};
use self::machine::{Directory, Machine};
pub use self::progress::{Observer, Snapshot};
use crate::endpoint::seed;
pub use crate::endpoint::{Failure, Interrupt};

/// What to get, and how.
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// The server.
    pub url: SessionUrl,
    /// Glob patterns of the items; empty for all.
    pub patterns: Vec<String>,
    /// Directory that the items go to; made if need be.
    pub output: PathBuf,
    /// Name or address of the interface that multicast comes by. Default: that of the route to
    /// the server.
    pub interface: Option<String>,
    /// Announced transmissions that bring nothing for this long make the client go on by
    /// unicast; zero: at once; `None`: never.
    pub fallback_after: Option<Duration>,
    /// How long a server that does not answer is tried again; `None`: for ever once it has
    /// answered before.
    pub retry_for: Option<Duration>,
    /// Whether items are synced to the disk before they count as received.
    pub durable: bool,
    /// Data packets that are thrown away on purpose, as a lossy link would. Default: none.
    pub discard: Option<Discard>,
}

impl GetOptions {
    /// The defaults for all items of a server.
    pub fn new(url: SessionUrl, output: PathBuf) -> GetOptions {
        GetOptions {
            url,
            patterns: Vec::new(),
            output,
            interface: None,
            fallback_after: Some(Duration::from_secs(5)),
            retry_for: None,
            durable: true,
            discard: None,
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Items received and verified.
    pub items: u64,
    /// Items that were there already.
    pub already_there: u64,
    /// Bytes of the items received.
    pub bytes: u64,
    /// Bytes that an earlier run left of items that were not complete.
    pub resumed_bytes: u64,
    /// From the start to the last item.
    pub seconds: f64,
    /// Data packets that came by multicast.
    pub packets: u64,
    /// Those of them whose transmission was announced to this client.
    pub heard: u64,
    /// Data packets of announced transmissions that did not come.
    pub lost: u64,
    /// Datagrams that this host's kernel dropped because the program was not fast enough.
    pub dropped_here: u64,
    /// Source blocks that came by unicast.
    pub unicast_blocks: u64,
    /// At the end, transmissions were announced in the multicast control group.
    pub control_group: bool,
    /// NAKs sent.
    pub naks: u64,
    /// Items not received.
    pub failures: Vec<Failure>,
    /// The user interrupted it.
    pub interrupted: bool,
}

impl Summary {
    /// Share of the announced packets that did not come, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.heard + self.lost).max(1) as f64
    }
}

/// Gets items, and returns when all are there or cannot be had.
///
/// `started` is given the means to interrupt it.
///
/// # Errors
///
/// One line that says why nothing can be received at all: no such server, wrong key, no item that
/// matches, output directory not writable. Single items that fail are in the [`Summary`].
pub fn get(
    options: GetOptions,
    observer: Arc<dyn Observer>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<Summary> {
    if options.url.pin.is_none() {
        bail!(
            "the URL has no `pin`, so the server cannot be told from another: copy the whole line \
             that `umbel serve` printed"
        );
    }
    let (mailbox, line) = mailbox::line::<Input>().context("cannot start")?;
    started(Interrupt::new({
        let mailbox = mailbox.clone();
        move || mailbox.put(Input::Interrupt)
    }));
    let news = mailbox.map(Input::Session);
    let mut machine = Machine::new(options.url.clone(), options.interface, options.discard, news);
    machine.dial_ahead()?;
    let sink_options = SinkOptions { durable: options.durable, ..SinkOptions::default() };
    let sink = DiskSink::open(&options.output, sink_options, move |event| {
        mailbox.put(Input::Sink(event));
    })?;
    let config = ReceiverConfig {
        token: options.url.token,
        fallback_after: options.fallback_after,
        seed: seed()?,
        ..ReceiverConfig::default()
    };
    let engine = Receiver::new(config, sink.clone());
    let ask = Ask { patterns: options.patterns, retry_for: options.retry_for };
    let store = Directory { path: options.output, sink };
    let host = GetHost::new(ask, machine.diagnosing(observer), store);
    Driver::new(engine, host, Clock::new(), line).opener(machine.opener()).run()?.finish()
}
