//! Where a feed goes: whose turn it is there, and what remains to be done when all has come.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use umbel_engine::host::Mailbox;
use umbel_engine::tmtp::Start;
use umbel_net::session::{Pin, signing};
use umbel_store::feed::seal::Opener;
use umbel_store::feed::{FeedSink, FileSink, PipeId, pipe_sink};
use umbel_store::sink::{
    Claim, DeviceTarget, DiskSink, Hidden, Purpose, RelativePath, SinkOptions,
};
use umbel_wire::Tsi;
use umbel_wire::feed::{Feed, FeedContent};

use super::store::Input;
use super::target::Store;
use super::{RecvObserver, RecvOptions, RecvSummary, Target};
use crate::endpoint::{
    Interrupted, KEPT, Listed, Release, Turn, device_lines, take_turn, unkept_lines,
};
use crate::follow::remember_sender;

/// Bytes of a pipe that may wait to be written.
const PIPE_MEMORY: usize = 32 << 20;

/// The place of a feed that is being received.
pub(super) struct Place {
    /// The directory, if the feed has files.
    disk: Option<DiskSink>,
    /// The release of which it is the directory.
    release: Option<Release>,
    /// Names of the files, where others are removed.
    listed: Listed,
    claim: Option<Claim>,
    delivery: Delivery,
    sender: Pin,
}

/// Where the files of a feed go.
enum Whither<'a> {
    Directory(&'a Path),
    Device(&'a DeviceTarget),
}

/// Result of opening the place of a feed.
pub(super) enum Opened {
    /// The feed is to be received, with these handles of the host and the engine.
    Ours(Place, Store, FeedSink),
    /// Nothing is to be received: another run has brought all of it, or the user interrupts.
    Done(RecvSummary),
}

impl Place {
    /// Opens the place, and waits until no other run brings the same feed there.
    ///
    /// # Errors
    ///
    /// If the feed cannot go there.
    pub(super) fn open(
        (feed, key): (&Feed, [u8; 32]),
        target: Target,
        options: &RecvOptions,
        opener: Option<Opener>,
        (mailbox, stop): (&Mailbox<Input>, &Interrupted),
        observer: &Arc<dyn RecvObserver>,
    ) -> anyhow::Result<Opened> {
        let delivery = Delivery { feed: feed.tsi, version: feed.version };
        let sender = signing::pin_of(&key);
        let looks = options.purpose == Purpose::Look;
        let (directory, keep) = match (feed.content, target) {
            (FeedContent::Pipe, target) => {
                let (store, sink) = pipe((feed, key), target, options, opener, mailbox)?;
                let (disk, release, claim) = (None, None, None);
                let listed = Listed::default();
                let place = Place { disk, release, listed, claim, delivery, sender };
                return Ok(Opened::Ours(place, store, sink));
            }
            (FeedContent::Files { .. }, Target::Pipe(_)) => {
                bail!("`{}` has files: name a directory for them by -o DIR", feed.name)
            }
            (FeedContent::Files { .. }, Target::Directory(directory)) => (directory, None),
            (FeedContent::Files { .. }, Target::Release(link, keep)) => (link, Some(keep)),
            (FeedContent::Files { .. }, Target::Unsaid) => (own_directory(feed)?, None),
            (FeedContent::Files { .. }, Target::Device(_)) if options.delete => {
                bail!("--delete is for directories: leave it out with --device")
            }
            (FeedContent::Files { .. }, Target::Device(device)) => {
                let to = Whither::Device(&device);
                let files = files((feed, to), options.overwrite, options, opener, mailbox)?;
                let disk = Some(files.disk().clone());
                let sink = FeedSink::Files(files);
                let store = Store::new(sink.clone(), mailbox.clone());
                // Nobody else has a device.
                let (release, claim, listed) = (None, None, Listed::default());
                let place = Place { disk, release, listed, claim, delivery, sender };
                return Ok(Opened::Ours(place, store, sink));
            }
        };
        let is_mirror = options.delete || keep.is_some();
        let source = format!("{sender} {}", feed.name);
        loop {
            let release = keep.map(|keep| Release::after(&directory, keep)).transpose()?;
            let path = release.as_ref().map_or(&directory, |release| &release.directory);
            // What an earlier run left of a release is this program's own.
            let overwrite = options.overwrite || release.is_some();
            let to = Whither::Directory(path);
            let files = files((feed, to), overwrite, options, opener.clone(), mailbox)?;
            let disk = files.disk().clone();
            let sink = FeedSink::Files(files);
            let mut store = Store::new(sink.clone(), mailbox.clone());
            let listed = store.list_for_mirror(is_mirror);
            let turn = if looks {
                None
            } else {
                Some(take_turn(disk.claimant(&source), stop, |line| observer.note(line)))
            };
            let claim = match turn {
                None => None,
                // The other run has put this directory in place.
                Some(Turn::Ours(_)) if release.as_ref().is_some_and(Release::is_over) => {
                    continue;
                }
                Some(Turn::Ours(claim)) => Some(claim),
                // What is to be removed, the other run may have left.
                Some(Turn::Left(_)) if options.delete => continue,
                Some(Turn::Left(word)) => match delivery.summary(&word) {
                    Some(summary) => return Ok(Opened::Done(summary)),
                    // What was left of an earlier feed of this name is no help.
                    None => continue,
                },
                Some(Turn::Interrupted) => {
                    let summary = RecvSummary { interrupted: true, ..RecvSummary::default() };
                    return Ok(Opened::Done(summary));
                }
            };
            if let Some(last) = release.as_ref().and_then(|release| release.last.as_ref()) {
                disk.take_over_from(last);
            }
            let disk = Some(disk);
            let place = Place { disk, release, listed, claim, delivery, sender };
            return Ok(Opened::Ours(place, store, sink));
        }
    }

    /// Does what remains at the end: tells changes, removes what the feed does not have, sets
    /// directories, and puts a release in place.
    ///
    /// # Errors
    ///
    /// If something that is to go cannot be removed, or a release cannot be put in place.
    pub(super) fn finish(
        self,
        mut summary: RecvSummary,
        options: &RecvOptions,
        observer: &Arc<dyn RecvObserver>,
    ) -> anyhow::Result<RecvSummary> {
        let Place { disk, release, listed, claim, delivery, sender } = self;
        let looks = options.purpose == Purpose::Look;
        if let Some(disk) = &disk {
            for (path, change) in disk.changes() {
                observer.changed(&path, change);
            }
            let removed = match &release {
                Some(_) if summary.is_whole() => {
                    disk.remove_others(&listed.names(), Hidden::Go).map(drop)
                }
                None if options.delete => {
                    remove(disk, &listed, looks, &mut summary, options, observer)
                }
                _ => Ok(()),
            };
            if !looks {
                disk.set_directories();
            }
            removed?;
            for line in [unkept_lines(disk.unkept()), device_lines(disk.device())].concat() {
                observer.note(&line);
            }
        }
        match &release {
            Some(release) if summary.is_whole() => release.put_in_place(options.durable)?,
            Some(_) if !summary.replaced => observer.note("the link stays as it was"),
            _ => {}
        }
        let word = delivery.word(&summary).filter(|_| options.start == Start::Everything);
        if let (Some(claim), Some(word)) = (claim, word) {
            claim.end(&word);
        }
        if summary.is_whole() && !looks {
            trust(sender, options);
        }
        Ok(summary)
    }
}

/// Remembers that a feed of this sender was received whole.
fn trust(sender: Pin, options: &RecvOptions) {
    let state = options.state_dir.clone().map_or_else(crate::state::default_dir, Ok);
    // Where nothing can be remembered, that was said when the feed was found.
    if let Err(error) = state.and_then(|state| remember_sender(&state, sender)) {
        tracing::info!("{error:#}");
    }
}

/// Removes what the feed does not have, if all of the feed is there, or tells what that would be.
fn remove(
    disk: &DiskSink,
    listed: &Listed,
    looks: bool,
    summary: &mut RecvSummary,
    options: &RecvOptions,
    observer: &Arc<dyn RecvObserver>,
) -> Result<(), umbel_store::sink::SinkError> {
    let is_whole = summary.is_whole() && summary.left_out == 0;
    if !is_whole || options.start != Start::Everything {
        if !summary.interrupted && !summary.replaced {
            observer.note(KEPT);
        }
        return Ok(());
    }
    let hidden = if options.hidden { Hidden::Go } else { Hidden::Stay };
    let others = if looks {
        disk.others(&listed.names(), hidden)
    } else {
        disk.remove_others(&listed.names(), hidden)?
    };
    for other in others {
        observer.removed(&other.path);
        summary.removed += 1;
    }
    Ok(())
}

/// What one run tells another that waits for it: that it has all of a feed. Its sender may be gone
/// by then.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    feed: Tsi,
    version: u64,
}

impl Delivery {
    fn word(self, summary: &RecvSummary) -> Option<String> {
        let items = summary.items + summary.already_there;
        summary
            .is_whole()
            .then(|| format!("{} {} {items} {}", self.feed.0, self.version, summary.left_out))
    }

    fn summary(self, word: &str) -> Option<RecvSummary> {
        let numbers: Vec<u64> = word.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [feed, version, already_there, left_out] = numbers[..] else { return None };
        let same = (feed, version) == (self.feed.0.into(), self.version);
        same.then(|| RecvSummary { already_there, left_out, ..RecvSummary::default() })
    }
}

/// Opens the output for a pipe: the host's handle and the engine's.
fn pipe(
    (feed, key): (&Feed, [u8; 32]),
    target: Target,
    options: &RecvOptions,
    opener: Option<Opener>,
    mailbox: &Mailbox<Input>,
) -> anyhow::Result<(Store, FeedSink)> {
    if options.purpose == Purpose::Look || options.delete {
        bail!("`{}` is a pipe, and only what has files can be compared with its source", feed.name);
    }
    if let Target::Device(device) = target {
        bail!(
            "`{}` is a pipe, which cannot go on after a break: `umbel recv {} -o - > {}` writes it",
            feed.name,
            feed.name,
            device.path.display()
        );
    }
    let Target::Pipe(output) = target else {
        bail!(
            "`{}` is a pipe: say where it leads, as in `umbel recv {} -o - | tar x`",
            feed.name,
            feed.name
        )
    };
    let told = mailbox.clone();
    let seal = feed.head().zip(opener);
    let pipe = PipeId { feed: feed.tsi, version: feed.version };
    let cut = super::super::cut_of(feed)?;
    let (sink, reader) = pipe_sink((pipe, key), cut, PIPE_MEMORY, seal, move |event| {
        told.put(Input::Pipe(event));
    })?;
    let sink = FeedSink::Pipe(sink);
    let store = Store::new(sink.clone(), mailbox.clone());
    store.write(reader, output).context("cannot start")?;
    Ok((store, sink))
}

/// Opens a directory, or a device, for the files of a feed.
fn files(
    (feed, to): (&Feed, Whither<'_>),
    overwrite: bool,
    options: &RecvOptions,
    opener: Option<Opener>,
    mailbox: &Mailbox<Input>,
) -> anyhow::Result<FileSink> {
    let FeedContent::Files { manifest_len, digest, .. } = feed.content else {
        bail!("`{}` has no files", feed.name)
    };
    let &RecvOptions { durable, hidden, links, purpose, .. } = options;
    let options =
        SinkOptions { durable, overwrite, hidden, links, purpose, ..SinkOptions::default() };
    let told = mailbox.clone();
    let told = move |event| told.put(Input::Disk(event));
    let disk = match to {
        Whither::Directory(directory) => DiskSink::open(directory, options, told)?,
        Whither::Device(device) => DiskSink::open_device(device, options, told)?,
    };
    let told = mailbox.clone();
    let cut = super::super::cut_of(feed)?;
    Ok(FileSink::new(cut, (manifest_len, digest), opener, disk, move |event| {
        told.put(Input::File(event));
    })?)
}

/// Returns the directory for a feed whose user named none: its own, in the working directory.
fn own_directory(feed: &Feed) -> anyhow::Result<PathBuf> {
    let path = RelativePath::of_item(feed.name.as_str()).ok().filter(|path| !path.is_hidden());
    let path = path.with_context(|| {
        format!("`{}` is no name for a directory: name one by -o DIR", feed.name)
    })?;
    Ok(Path::new(".").join(path.joined()))
}
