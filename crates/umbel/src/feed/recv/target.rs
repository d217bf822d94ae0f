//! Stores a feed on a real machine: in a directory or a pipe.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use umbel_engine::host::Mailbox;
use umbel_engine::symbols::BlockId;
use umbel_engine::units::counted;
use umbel_store::feed::{FeedPrepared, FeedSink, FileSink, PipeOutcome, PipeReader};
use umbel_store::sink::{Held, NamedFile, Preparer, SinkError};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Digest, Toi};

use crate::endpoint::Listed;

use super::store::{FeedStore, Found, Input, Looked};

/// Result of looking files up on another thread.
type Prepared = Arc<Mutex<Vec<FeedPrepared>>>;

/// A directory or a pipe.
pub(super) struct Store {
    sink: FeedSink,
    mailbox: Mailbox<Input>,
    prepared: Prepared,
    written: Arc<AtomicU64>,
    /// Names of the items, where others are removed.
    listed: Option<Listed>,
}

impl Store {
    pub(super) fn new(sink: FeedSink, mailbox: Mailbox<Input>) -> Store {
        let (prepared, written) = (Arc::default(), Arc::default());
        Store { sink, mailbox, prepared, written, listed: None }
    }

    /// Returns where the names of the items are listed, if others are to be removed.
    pub(super) fn list_for_mirror(&mut self, is_mirror: bool) -> Listed {
        self.listed = is_mirror.then(Listed::default);
        self.listed.clone().unwrap_or_default()
    }

    /// Writes the content of a pipe, on its own thread.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(super) fn write(
        &self,
        reader: PipeReader,
        output: Box<dyn Write + Send>,
    ) -> std::io::Result<()> {
        let (mailbox, written) = (self.mailbox.clone(), self.written.clone());
        let run = move || {
            mailbox.put(Input::Written(copy(reader, output, &written)));
        };
        std::thread::Builder::new().name("umbel-output".to_owned()).spawn(run)?;
        Ok(())
    }

    fn files(&self) -> Option<&FileSink> {
        match &self.sink {
            FeedSink::Files(files) => Some(files),
            FeedSink::Pipe(_) => None,
        }
    }
}

fn copy(
    mut reader: PipeReader,
    mut output: Box<dyn Write + Send>,
    written: &AtomicU64,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write the output: {error}");
    while let Some(bytes) = reader.read() {
        output.write_all(&bytes).map_err(failed)?;
        written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if reader.is_empty() {
            output.flush().map_err(failed)?;
        }
    }
    output.flush().map_err(failed)?;
    outcome(reader.outcome())
}

/// Returns why what was written is not all, if it is not.
pub(crate) fn outcome(outcome: Option<PipeOutcome>) -> Result<(), String> {
    match outcome {
        Some(PipeOutcome::Whole) => Ok(()),
        Some(PipeOutcome::Failed(reason)) => Err(reason),
        Some(PipeOutcome::Cut) | None => Err("the pipe was cut short".to_owned()),
    }
}

impl FeedStore for Store {
    type Sink = FeedSink;

    fn look_up(&mut self, items: Vec<(ItemInfo, bool)>) -> Result<(), String> {
        if let Some(listed) = &self.listed {
            listed.names().extend(items.iter().map(|(info, _)| info.name.clone()));
        }
        let Some(files) = self.files() else { return Ok(()) };
        let (preparer, prepared) = (files.disk().preparer(), self.prepared.clone());
        let digests = digests_for_device(files, &items)?;
        let mailbox = self.mailbox.clone();
        let run = move || {
            let look = |(info, wanted)| look_up(&preparer, info, wanted, digests.as_deref());
            let (found, looked): (Vec<_>, Vec<_>) = items.into_iter().map(look).unzip();
            *prepared.lock().unwrap_or_else(PoisonError::into_inner) = found;
            mailbox.put(Input::LookedUp(looked));
        };
        let thread = std::thread::Builder::new().name("umbel-prepare".to_owned()).spawn(run);
        thread.map(drop).map_err(|error| format!("no thread to look at the disk: {error}"))
    }

    fn begin(&mut self) -> Result<Vec<BlockRun>, String> {
        let Some(files) = self.files() else { return Ok(Vec::new()) };
        let prepared =
            std::mem::take(&mut *self.prepared.lock().unwrap_or_else(PoisonError::into_inner));
        files.begin(prepared).map_err(|error| error.to_string())
    }

    fn blocks_of(&self, toi: Toi) -> Option<BlockRun> {
        self.files()?.item_blocks(toi)
    }

    fn block_of(&self, id: BlockId) -> Option<u32> {
        self.files()?.block_of(id)
    }

    fn files_in(&self, run: BlockRun) -> Option<BTreeSet<Toi>> {
        self.files()?.items_in(run)
    }

    fn check_blocks(&mut self, toi: Toi) {
        if let Some(files) = self.files() {
            files.check_blocks(toi);
        }
    }

    fn cancel(&mut self, toi: Toi) {
        if let Some(files) = self.files() {
            files.disk().cancel(toi);
        }
    }

    fn name_files(&mut self) -> Vec<NamedFile> {
        self.files().map(|files| files.disk().name_files()).unwrap_or_default()
    }

    fn begin_pipe(&mut self, first: u32) {
        if let FeedSink::Pipe(pipe) = &self.sink {
            pipe.begin(first);
        }
    }

    fn pipe_has_end(&self) -> bool {
        matches!(&self.sink, FeedSink::Pipe(pipe) if pipe.has_end())
    }

    fn abort_pipe(&mut self) {
        if let FeedSink::Pipe(pipe) = &self.sink {
            pipe.abort();
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// Returns the digests of the blocks of the only item, if it is for a device, with which what is there
/// is compared.
///
/// # Errors
///
/// One line that says so if it is not the only one.
fn digests_for_device(
    files: &FileSink,
    items: &[(ItemInfo, bool)],
) -> Result<Option<Vec<Digest>>, String> {
    if !files.disk().preparer().is_device() {
        return Ok(None);
    }
    let [(info, _)] = items else {
        return Err(format!(
            "a device takes one file, and the feed has {}: send one alone, or take all with -o DIR",
            counted(items.len(), "item")
        ));
    };
    let digests = files.digests_of(std::slice::from_ref(info), info.toi);
    Ok(Some(digests.unwrap_or_default()))
}

fn look_up(
    preparer: &Preparer,
    info: ItemInfo,
    wanted: bool,
    digests: Option<&[Digest]>,
) -> (FeedPrepared, Looked) {
    let prepare = || match digests {
        None => preparer.prepare(&info),
        Some(digests) => preparer.prepare_on_device(&info, digests),
    };
    let prepared = wanted.then(prepare).transpose();
    let found = match &prepared {
        Ok(None) => Found::Unwanted,
        Ok(Some(prepared)) => match prepared.held() {
            Held::AlreadyThere => Found::Whole,
            Held::Directory => Found::Directory,
            Held::Link(path) => Found::Link(path.clone()),
            Held::OtherName => Found::OtherName,
            Held::LeftOut => Found::LeftOut,
            Held::Parts(parts) => Found::Parts(parts.restored_bytes()),
        },
        Err(SinkError::Differs { .. }) => Found::Differs,
        Err(error) => Found::Refused(error.to_string()),
    };
    let looked = Looked { info: info.clone(), found };
    (FeedPrepared { info, prepared: prepared.ok().flatten() }, looked)
}
