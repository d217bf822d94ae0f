//! Reports of a running transfer: a meter and notes for people, events for programs.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use umbel_engine::units::{counted, rate_text};
use umbel_store::sink::{Change, Purpose};

use super::meter::Meter;
use super::output::{Output, plain};

/// Interval of progress events for programs that read JSON.
pub(super) const TELL_EVERY: Duration = Duration::from_millis(200);

/// Reports on a transfer, whose progress is an `S`.
pub(super) struct Teller<S> {
    pub(super) output: Output,
    pub(super) meter: Meter,
    /// Whether each change is told.
    itemizes: bool,
    /// Time and content of the last progress event.
    told: Mutex<Option<(Instant, S)>>,
    log: Mutex<Log<S>>,
}

/// Log state of a transfer.
struct Log<S> {
    last: Option<S>,
    /// State from which the rate is measured, with its time.
    from: Option<(Instant, S)>,
}

/// Progress of a transfer since its last log entry.
pub(super) struct Since<S> {
    /// The state before this one; the default at first.
    pub(super) last: S,
    /// Once a second, the time since the state that rates are measured from, and that state.
    pub(super) second: Option<(Duration, S)>,
}

/// Interval at which the log has rates.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Formats a rate, given the bytes in a number of seconds.
pub(super) fn rate(bytes: u64, seconds: f64) -> String {
    rate_text((bytes as f64 * 8.0 / seconds.max(1e-3)) as u64)
}

/// Returns the line about datagrams that this host dropped, if there are any.
pub(super) fn dropped_line(datagrams: u64) -> Option<String> {
    let what = counted(datagrams, "datagram");
    (datagrams > 0).then(|| {
        format!(
            "dropped by this host, which was too slow or has too small buffers: {what}; see `umbel \
             doctor`"
        )
    })
}

/// Returns the line about what was removed, if there is anything.
pub(super) fn removed_line(removed: u64) -> Option<String> {
    (removed > 0).then(|| format!("removed, as the source does not have it: {removed}"))
}

/// Options that say what is told of changes, and whether anything is brought at all.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ChangeArgs {
    /// Tell each change in a line: new, replaced (what --overwrite allows), attributes or removed,
    /// and a path in the directory
    #[arg(long)]
    itemize: bool,
    /// Receive nothing, and tell what would change as --itemize does
    #[arg(long, conflicts_with = "verify")]
    dry_run: bool,
    /// Receive nothing, and compare what is there with the source's list: tells what is not the
    /// same, and exits with 1 if anything is
    #[arg(long)]
    verify: bool,
}

impl ChangeArgs {
    pub(super) fn purpose(self) -> Purpose {
        match self {
            ChangeArgs { dry_run: true, .. } | ChangeArgs { verify: true, .. } => Purpose::Look,
            ChangeArgs { itemize: true, .. } => Purpose::BringAndTell,
            ChangeArgs { .. } => Purpose::Bring,
        }
    }

    pub(super) fn itemizes(self) -> bool {
        self.purpose() != Purpose::Bring
    }

    /// Returns whether so many differences are a failure.
    pub(super) fn finds_fault(self, differing: u64) -> bool {
        self.verify && differing > 0
    }

    /// Says what a look has found.
    ///
    /// # Errors
    ///
    /// If it was to verify, and something differs.
    pub(super) fn finish_look(self, found: Looked, output: &Output) -> anyhow::Result<()> {
        let Looked { same, differing } = found;
        let same = counted(same, "item");
        match (self.verify, differing) {
            (true, 0) => output.note(format!("nothing differs from the source: {same}")),
            (true, _) => anyhow::bail!("differs from the source: {differing}; the same: {same}"),
            (false, _) => output.note(format!("to be changed: {differing}; already there: {same}")),
        }
        Ok(())
    }
}

/// What a look has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// Items that are as the source has them.
    pub(super) same: u64,
    /// Items that are not, and what would be removed.
    pub(super) differing: u64,
}

/// Returns the part of a summary about items that needed not be received.
pub(super) fn there(already: u64) -> String {
    if already > 0 { format!("; {already} already there") } else { String::new() }
}

impl<S: Clone + Default + Serialize> Teller<S> {
    pub(super) fn new(output: &Output) -> Teller<S> {
        Teller {
            output: output.clone(),
            meter: Meter::new(output),
            itemizes: false,
            told: Mutex::new(None),
            log: Mutex::new(Log { last: None, from: None }),
        }
    }

    /// Has each change told, if so.
    pub(super) fn itemizing(self, itemizes: bool) -> Teller<S> {
        Teller { itemizes, ..self }
    }

    /// Sends programs a progress event, unless the last one is less than `interval` ago. The
    /// interval may depend on the last event.
    pub(super) fn tell(&self, snapshot: &S, interval: impl FnOnce(&S) -> Duration) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref().is_none_or(|(at, before)| at.elapsed() >= interval(before)) {
            *told = Some((Instant::now(), snapshot.clone()));
            self.output.json(&json!({ "event": "progress", "progress": snapshot }));
        }
    }

    /// Records a state for the log. Returns the progress since the previous one.
    pub(super) fn since(&self, snapshot: &S) -> Since<S> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (at, from) = log.from.get_or_insert_with(|| (now, S::default())).clone();
        let second = (now - at >= LOG_EVERY).then(|| {
            log.from = Some((now, snapshot.clone()));
            (now - at, from)
        });
        Since { last: log.last.replace(snapshot.clone()).unwrap_or_default(), second }
    }

    pub(super) fn tell_item(&self, name: &str, path: &Path, bytes: u64) {
        tracing::debug!("{}: {}, verified", plain(name), counted(bytes, "byte"));
        let path = path.display().to_string();
        self.output.json(&json!({ "event": "item", "name": name, "path": path, "bytes": bytes }));
    }

    pub(super) fn tell_already_there(&self, name: &str) {
        tracing::debug!("{}: was there", plain(name));
        self.output.json(&json!({ "event": "already-there", "name": name }));
    }

    pub(super) fn tell_changed(&self, path: &str, change: Change) {
        let word = match change {
            Change::New => "new",
            Change::Replaced => "replaced",
            Change::Attributes => "attributes",
        };
        self.output.json(&json!({ "event": "change", "change": word, "path": path }));
        self.output.result(format!("{word:<10}  {}", plain(path)));
    }

    pub(super) fn tell_removed(&self, path: &Path) {
        let path = path.display().to_string();
        tracing::debug!("{}: removed", plain(&path));
        self.output.json(&json!({ "event": "removed", "path": path }));
        if self.itemizes {
            self.output.result(format!("removed     {}", plain(&path)));
        }
    }

    pub(super) fn tell_failed(&self, name: &str, reason: &str) {
        self.output.json(&json!({ "event": "failed", "name": name, "reason": reason }));
        self.output.note(format!("{}: {}", plain(name), plain(reason)));
    }

    pub(super) fn tell_note(&self, line: &str) {
        self.output.json(&json!({ "event": "note", "message": line }));
        self.output.note(plain(line));
    }
}
