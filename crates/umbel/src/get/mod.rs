//! A client: the repository's engine with its session, its socket and its disk.
//!
//! ```text
//! session's thread ──messages──▶ engine's thread ◀──data packets── data channel
//!        ▲                        │        │
//!        └──messages──────────────┘        ▼ symbols
//!                                 disk sink's threads: decode, write, verify, rename
//! ```
//!
//! A session that breaks is opened again. Data that is on the disk is not asked for again.

mod device;
pub(crate) mod host;
mod machine;
mod progress;
pub(crate) mod store;
mod unicast;
mod version;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use umbel_engine::repository::{Receiver, ReceiverConfig, Token};
use umbel_net::session::{ClientError, Credentials, SessionUrl};
use umbel_net::udp::Discard;
use umbel_store::sink::{DeviceTarget, DiskSink, Hidden, Links, Purpose, SinkOptions};
use umbel_wire::repository::SymbolKey;

use self::host::{Ask, GetHost, Input};
use self::machine::{Directory, Machine};
pub use self::progress::{Observer, Snapshot};
pub use crate::endpoint::{Failure, Interrupt};
use crate::endpoint::{
    Interrupted, KEPT, Release, Turn, Wiring, device_lines, generator, random, take_turn,
    unkept_lines,
};

/// Options of a client: the items to get, and how.
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// The server.
    pub url: SessionUrl,
    /// Certificates: the client's own, and those of authorities of servers. Default: none.
    pub credentials: Credentials,
    /// Glob patterns of the items; empty for all.
    pub patterns: Vec<String>,
    /// Directory of the items; created if necessary.
    pub output: PathBuf,
    /// Block device to which the only item is written, instead of the directory. Default: none.
    pub device: Option<DeviceTarget>,
    /// Name or address of the interface on which multicast arrives. Default: that of the route to
    /// the server.
    pub interface: Option<String>,
    /// If announced transmissions bring nothing for this long, the client continues by unicast.
    /// Zero: at once; `None`: never.
    pub fallback_after: Option<Duration>,
    /// Time for which to retry when the server does not answer. `None`: forever, once it has
    /// answered before.
    pub retry_for: Option<Duration>,
    /// Whether items are synced to the disk before they count as received.
    pub durable: bool,
    /// Whether files that differ from items of their names are replaced. Default: no.
    pub overwrite: bool,
    /// Whether hidden files are written at the top of the directory. Default: no.
    pub hidden: bool,
    /// Symbolic links that are made. Default: those that stay in the directory.
    pub links: Links,
    /// Whether everything in the directory goes that the server does not offer, once all that it
    /// offers is there. Hidden files at the top stay without `hidden`. Only without patterns.
    /// Default: no.
    pub delete: bool,
    /// Whether the items are brought, and changes told, or the directory only compared with the
    /// server's list, which writes nothing. Default: they are brought.
    pub purpose: Purpose,
    /// The number of releases that are kept, if the output is a link to a directory, which goes to
    /// one with exactly these items once they are all there. Default: it is none.
    pub releases: Option<u8>,
    /// Digest of the list that was brought last. A release of this list is not put in place if it is
    /// there already. Default: none.
    pub unless: Option<String>,
    /// Data packets to discard on purpose, as a lossy link would. Default: none.
    pub discard: Option<Discard>,
}

impl GetOptions {
    /// Creates options with the defaults for all items of a server.
    pub fn new(url: SessionUrl, output: PathBuf) -> GetOptions {
        GetOptions {
            url,
            credentials: Credentials::default(),
            patterns: Vec::new(),
            output,
            device: None,
            interface: None,
            fallback_after: Some(Duration::from_secs(5)),
            retry_for: None,
            durable: true,
            overwrite: false,
            hidden: false,
            links: Links::Inside,
            delete: false,
            purpose: Purpose::Bring,
            releases: None,
            unless: None,
            discard: None,
        }
    }

    /// Checks what needs no server.
    ///
    /// # Errors
    ///
    /// One line that says which options contradict each other, or why there can be no release at
    /// the output.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.url.pin.is_none() && self.credentials.authorities.is_none() {
            return Err(ClientError::NoPin.into());
        }
        if self.delete && !self.patterns.is_empty() {
            bail!(
                "--delete needs a request for everything, or what was not asked for would go, too: \
                 leave it out, or name no items"
            );
        }
        if self.device.is_some() && (self.delete || self.releases.is_some()) {
            bail!("--delete and --atomic are for directories: leave them out with --device");
        }
        self.releases.map_or(Ok(()), |keep| Release::after(&self.output, keep).map(drop))
    }
}

/// Result of a request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Items received and verified.
    pub items: u64,
    /// Items that were already present.
    pub already_there: u64,
    /// Bytes of the items received.
    pub bytes: u64,
    /// Bytes of incomplete items that an earlier run had received.
    pub resumed_bytes: u64,
    /// Seconds from the start to the last item.
    pub seconds: f64,
    /// Data packets that came by multicast.
    pub packets: u64,
    /// Data packets whose transmission was announced to this client.
    pub heard: u64,
    /// Data packets of announced transmissions that were lost.
    pub lost: u64,
    /// Datagrams that this host's kernel dropped because the program was too slow.
    pub dropped_here: u64,
    /// Source blocks that came by unicast.
    pub unicast_blocks: u64,
    /// Source blocks whose content was not that of their digest, and that came again.
    pub damaged_blocks: u64,
    /// Whether at the end transmissions were announced in the multicast control group.
    pub control_group: bool,
    /// Whether the multicast channels were sealed, so that only admitted clients could read them.
    pub sealed: bool,
    /// NAKs sent.
    pub naks: u64,
    /// Items that the server had offered, and that it does not have any more.
    pub vanished: Vec<String>,
    /// Files, links and directories that were removed, since the server does not offer them.
    pub removed: u64,
    /// Items that are not as the server has them, if the directory was only compared.
    pub differing: u64,
    /// Files of the server that it can neither read nor name, if everything was asked for.
    pub left_out: u64,
    /// Number of times that the server was asked: more than once if files changed meanwhile.
    pub rounds: u32,
    /// Digest of the list of what was asked for: names and contents.
    pub digest: String,
    /// Items not received.
    pub failures: Vec<Failure>,
    /// Whether the user interrupted it.
    pub interrupted: bool,
}

impl Summary {
    /// Returns whether everything that the server offered is there.
    pub fn is_whole(&self) -> bool {
        self.failures.is_empty() && self.vanished.is_empty() && !self.interrupted
    }

    /// Returns the share of the announced packets that were lost, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.heard + self.lost).max(1) as f64
    }
}

/// Gets items. Returns when all are complete or have failed permanently.
///
/// Calls `started` with the means to interrupt it.
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
    options.check()?;
    let wiring = Wiring::new()?;
    let stop = Interrupted::default();
    started(stop.with(wiring.interrupt(|| Input::Interrupt)));
    let mailbox = wiring.mailbox().clone();
    let news = mailbox.map(Input::Session);
    let GetOptions { durable, hidden, links, delete, purpose, releases, .. } = options;
    let atomic = releases.is_some();
    let looks = purpose == Purpose::Look;
    // What an earlier run left of a release is this program's own.
    let overwrite = options.overwrite || atomic;
    let sink_options =
        SinkOptions { durable, overwrite, hidden, links, purpose, ..SinkOptions::default() };
    let server = SessionUrl { token: None, ..options.url.clone() }.to_string();
    let (release, path, sink, turn) = loop {
        let release = releases.map(|keep| Release::after(&options.output, keep)).transpose()?;
        let path = release.as_ref().map_or(&options.output, |release| &release.directory).clone();
        let mailbox = mailbox.clone();
        let on_event = move |event| mailbox.put(Input::Sink(event));
        let sink = match &options.device {
            Some(device) => DiskSink::open_device(device, sink_options, on_event)?,
            None => DiskSink::open(&path, sink_options, on_event)?,
        };
        // Nobody else has the device.
        if looks || options.device.is_some() {
            break (release, path, sink, None);
        }
        match take_turn(sink.claimant(&server), &stop, |line| observer.note(line)) {
            Turn::Interrupted => return Ok(Summary { interrupted: true, ..Summary::default() }),
            // The other run has put this directory in place, or discarded it.
            _ if release.as_ref().is_some_and(Release::is_over) => {}
            turn => break (release, path, sink, Some(turn)),
        }
    };
    if let Some(last) = release.as_ref().and_then(|release| release.last.as_ref()) {
        sink.take_over_from(last);
    }
    if !atomic && !looks && options.device.is_none() {
        let mut command = options.patterns.clone();
        command.insert(0, server);
        sink.resume(&command.join("\n"));
    }
    let server = (options.url.clone(), options.credentials);
    let mut machine = Machine::new(server, options.interface, options.discard, news);
    machine.dial_ahead()?;
    let config = ReceiverConfig {
        token: options.url.token.clone().map(Token::from),
        fallback_after: options.fallback_after,
        symbol_key: SymbolKey(random()?),
        ..ReceiverConfig::default()
    };
    let engine = Receiver::new(config, generator()?, sink.clone());
    let ask = Ask { patterns: options.patterns, retry_for: options.retry_for };
    let compared = mailbox.map(Input::Compared);
    let store = Directory::new(path, sink.clone(), release.is_some() || delete || looks)
        .comparing(compared);
    let listed = store.listed();
    let told = observer.clone();
    let host = GetHost::new(ask, machine.diagnosing(observer), store);
    let mut summary = wiring.driver(engine, host).opener(machine.opener()).run()?.finish();
    if summary.as_ref().is_ok_and(|summary| !summary.interrupted) {
        sink.complete();
    }
    let has_all = |summary: &Summary| summary.failures.is_empty() && !summary.interrupted;
    let release = release.map(|release| (release, summary.as_ref().is_ok_and(has_all)));
    if let Some((_, true)) = &release {
        sink.remove_others(&listed.names(), Hidden::Go)?;
    }
    for (path, change) in sink.changes() {
        told.changed(&path, change);
    }
    let mut not_removed = Ok(());
    if let Ok(summary) = &mut summary
        && delete
    {
        let is_whole = summary.is_whole() && summary.left_out == 0;
        let hidden = if hidden { Hidden::Go } else { Hidden::Stay };
        let remove = || {
            if looks {
                return Ok(sink.others(&listed.names(), hidden));
            }
            sink.remove_others(&listed.names(), hidden)
        };
        if is_whole {
            match remove() {
                Ok(removed) => {
                    for other in removed {
                        told.removed(&other.path);
                        summary.removed += 1;
                    }
                }
                Err(error) => not_removed = Err(error),
            }
        } else if !summary.interrupted {
            told.note(KEPT);
        }
    }
    if !looks {
        sink.set_directories();
    }
    not_removed?;
    for line in unkept_lines(sink.unkept()).into_iter().chain(device_lines(sink.device())) {
        told.note(&line);
    }
    let is_old =
        |summary: &Summary| summary.is_whole() && options.unless.as_ref() == Some(&summary.digest);
    match &release {
        Some((release, true))
            if summary.as_ref().is_ok_and(is_old) && release.is_there_already() =>
        {
            release.discard();
        }
        Some((release, true)) => release.put_in_place(durable)?,
        Some((_, false)) => told.note("the link stays as it was; the same command goes on"),
        None => {}
    }
    // What another run waits for is there now.
    drop((sink, turn));
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_refused_before_anything_is_asked() {
        let place = tempfile::tempdir().unwrap();
        let pin = umbel_net::session::Pin::from_digest([1; 32]);
        let url: SessionUrl = format!("umbel://192.0.2.2:7700/?pin={pin}").parse().unwrap();
        let refused = |change: &dyn Fn(&mut GetOptions)| {
            let mut options = GetOptions::new(url.clone(), place.path().join("out"));
            change(&mut options);
            options.check().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let device = DeviceTarget { path: "/dev/null".into(), force: false };
        assert_eq!(refused(&|options| options.delete = true), "");
        assert_eq!(refused(&|options| options.releases = Some(1)), "");
        let said = refused(&|options| {
            (options.delete, options.patterns) = (true, vec!["a".to_owned()]);
        });
        assert!(said.contains("name no items"), "{said}");
        for releases in [None, Some(1)] {
            let said = refused(&|options| {
                (options.delete, options.releases) = (releases.is_none(), releases);
                options.device = Some(device.clone());
            });
            assert!(said.contains("--device"), "{said}");
        }
        // A directory of the user's is no link.
        std::fs::create_dir(place.path().join("out")).unwrap();
        let said = refused(&|options| options.releases = Some(1));
        assert!(said.contains("is no link"), "{said}");
        assert!(refused(&|options| options.url.pin = None).contains("pin"));
    }
}
