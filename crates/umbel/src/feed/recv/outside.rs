//! The receiver's other threads: the disk's, the one that looks at it, the one that writes a pipe.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver as Inbox, Sender as Outbox};
use umbel_engine::tmtp::ReceiverCommand;
use umbel_net::driver::{Input, Mailbox};
use umbel_store::feed::{FeedPrepared, FileEvent, PipeEvent, PipeReader};
use umbel_store::sink::{Preparer, SinkEvent};
use umbel_wire::repository::ItemInfo;

/// What comes from the receiver's other threads.
pub(super) enum Outer {
    File(FileEvent),
    Disk(SinkEvent),
    Prepared(Vec<(FeedPrepared, Option<String>)>),
    Pipe(PipeEvent),
    /// The output is complete, or refused something.
    Written(std::io::Result<()>),
}

/// The other threads' end.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    mailbox: Mailbox<ReceiverCommand>,
    line: Outbox<Outer>,
    written: Arc<AtomicU64>,
}

/// The engine thread's end.
pub(super) type Inside = Inbox<Outer>;

impl Outside {
    pub(super) fn new(mailbox: Mailbox<ReceiverCommand>) -> (Outside, Inside) {
        let (line, inside) = crossbeam_channel::unbounded();
        (Outside { mailbox, line, written: Arc::default() }, inside)
    }

    /// Bytes of a pipe that were written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn put(&self, event: Outer) {
        if self.line.send(event).is_ok() {
            self.mailbox.put(Input::Nudge);
        }
    }

    pub(super) fn file(&self, event: FileEvent) {
        self.put(Outer::File(event));
    }

    pub(super) fn disk(&self, event: SinkEvent) {
        self.put(Outer::Disk(event));
    }

    pub(super) fn pipe(&self, event: PipeEvent) {
        self.put(Outer::Pipe(event));
    }

    /// Writes what comes of a pipe, on a thread of its own.
    pub(super) fn write(
        &self,
        mut reader: PipeReader,
        mut output: Box<dyn Write + Send>,
    ) -> std::io::Result<()> {
        let outside = self.clone();
        let run = move || {
            let mut copy = || -> std::io::Result<()> {
                while let Some(bytes) = reader.read() {
                    output.write_all(&bytes)?;
                    outside.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    if reader.is_empty() {
                        output.flush()?;
                    }
                }
                output.flush()
            };
            let result = copy();
            outside.put(Outer::Written(result));
        };
        std::thread::Builder::new().name("umbel-output".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Looks at the disk for each item, on a thread of its own.
    pub(super) fn prepare(
        &self,
        preparer: Preparer,
        items: Vec<(ItemInfo, bool)>,
    ) -> std::io::Result<()> {
        let outside = self.clone();
        let run = move || {
            let look = |(info, wanted): (ItemInfo, bool)| {
                if !wanted {
                    return (FeedPrepared { info, prepared: None }, None);
                }
                match preparer.prepare(&info) {
                    Ok(found) => (FeedPrepared { info, prepared: Some(found) }, None),
                    Err(error) => (FeedPrepared { info, prepared: None }, Some(error.to_string())),
                }
            };
            outside.put(Outer::Prepared(items.into_iter().map(look).collect()));
        };
        std::thread::Builder::new().name("umbel-prepare".to_owned()).spawn(run)?;
        Ok(())
    }
}
