//! The commands after completions: those of one name one after the other, others beside them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Instant;

use super::hook::{Came, Ended, Hook};
use super::taken::Entry;
use super::wait_until;
use crate::endpoint::Interrupted;

/// Most completions of one name whose command has not ended. The next version is received when it
/// has, since it would replace what the command works on.
const MOST: usize = 1;

/// A completion, and what is remembered of it.
#[derive(Clone, Debug)]
pub(super) struct Completion {
    pub(super) came: Came,
    pub(super) entry: Entry,
}

/// Hears how the command of a completion ended, if there is one. Not called for what an interruption
/// cut short.
pub(super) type Settle = Arc<dyn Fn(&Completion, Option<&Ended>) + Send + Sync>;

pub(super) struct Hooks {
    hook: Option<Hook>,
    stop: Interrupted,
    settle: Settle,
    lines: BTreeMap<String, Line>,
}

/// The completions of one name.
struct Line {
    sender: Sender<Completion>,
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Hooks {
    pub(super) fn new(hook: Option<Hook>, stop: Interrupted, settle: Settle) -> Hooks {
        Hooks { hook, stop, settle, lines: BTreeMap::new() }
    }

    /// Returns whether the next version of this name has to wait for a command.
    pub(super) fn is_full(&self, name: &str) -> bool {
        let waiting = self.lines.get(name).map(|line| line.waiting.load(Ordering::Acquire));
        waiting.is_some_and(|waiting| waiting >= MOST)
    }

    /// Has the command run for a completion, after those before it of its name.
    pub(super) fn push(&mut self, completion: Completion) {
        let Some(hook) = &self.hook else { return (self.settle)(&completion, None) };
        let name = completion.came.name.clone();
        if !self.lines.contains_key(&name) {
            match start(hook.clone(), self.stop.clone(), self.settle.clone()) {
                Ok(line) => {
                    self.lines.insert(name.clone(), line);
                }
                Err(error) => {
                    let failure = Some(format!("no thread for the command of --exec: {error}"));
                    let ended = Ended { exit_code: None, seconds: 0.0, failure };
                    return (self.settle)(&completion, Some(&ended));
                }
            }
        }
        if let Some(line) = self.lines.get(&name) {
            line.waiting.fetch_add(1, Ordering::AcqRel);
            // Its thread ends only when this end of the line is gone.
            let _ = line.sender.send(completion);
        }
    }

    /// Ends the thread of a name, of which no completion waits.
    pub(super) fn forget(&mut self, name: &str) {
        self.lines.remove(name);
    }

    /// Waits until the commands have ended, which are interrupted by now.
    pub(super) fn finish(self, deadline: Instant) {
        let threads: Vec<_> = self.lines.into_values().map(|line| line.thread).collect();
        wait_until(deadline, || threads.iter().all(JoinHandle::is_finished));
    }
}

fn start(hook: Hook, stop: Interrupted, settle: Settle) -> std::io::Result<Line> {
    let (sender, completions) = mpsc::channel::<Completion>();
    let waiting = Arc::new(AtomicUsize::new(0));
    let counted = waiting.clone();
    let run = move || {
        for completion in completions {
            if stop.is_set() {
                return;
            }
            let ended = hook.run(&completion.came, &|| stop.is_set());
            if stop.is_set() {
                return;
            }
            settle(&completion, Some(&ended));
            counted.fetch_sub(1, Ordering::AcqRel);
        }
    };
    let thread = std::thread::Builder::new().name("umbel-exec".to_owned()).spawn(run)?;
    Ok(Line { sender, waiting, thread })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    fn completion(name: &str, version: u64) -> Completion {
        let came = Came { name: name.to_owned(), digest: version.to_string(), ..Came::default() };
        let entry = Entry { sender: String::new(), version, digest: String::new() };
        Completion { came, entry }
    }

    fn hooks(command: &str, timeout: Duration) -> (Hooks, Arc<Mutex<Vec<String>>>, Interrupted) {
        let (stop, said) = (Interrupted::default(), Arc::new(Mutex::new(Vec::new())));
        let hear = said.clone();
        let settle: Settle = Arc::new(move |completion: &Completion, ended: Option<&Ended>| {
            let failed = ended.is_some_and(|ended| ended.failure.is_some());
            let Completion { came, entry } = completion;
            hear.lock().unwrap().push(format!("{} {} {failed}", came.name, entry.version));
        });
        let hook = Hook { command: command.to_owned(), timeout };
        (Hooks::new(Some(hook), stop.clone(), settle), said, stop)
    }

    fn wait_for(said: &Mutex<Vec<String>>, count: usize) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_mins(10);
        wait_until(deadline, || said.lock().unwrap().len() >= count);
        said.lock().unwrap().clone()
    }

    #[test]
    fn one_that_hangs_holds_up_its_own_name_alone_and_not_for_ever() {
        let command = "[ $UMBEL_NAME$UMBEL_DIGEST != a1 ] || sleep 1000";
        let (mut hooks, said, _) = hooks(command, Duration::from_secs(10));
        for (name, version) in [("a", 1), ("a", 2), ("b", 1)] {
            hooks.push(completion(name, version));
        }
        let said = wait_for(&said, 3);
        let of_a: Vec<_> = said.iter().filter(|line| line.starts_with('a')).collect();
        assert_eq!(of_a, ["a 1 true", "a 2 false"]);
        assert!(said.contains(&"b 1 false".to_owned()));
    }

    #[test]
    fn what_an_interruption_cuts_short_is_not_settled() {
        let (mut hooks, said, stop) = hooks("sleep 1000", Duration::from_mins(5));
        for version in 0..MOST as u64 {
            assert!(!hooks.is_full("a"));
            hooks.push(completion("a", version));
        }
        assert!(hooks.is_full("a") && !hooks.is_full("b"));
        stop.with(crate::endpoint::Interrupt::new(|| ())).interrupt();
        hooks.finish(Instant::now() + Duration::from_mins(10));
        assert!(said.lock().unwrap().is_empty());
    }

    #[test]
    fn without_a_command_a_completion_is_settled_at_once() {
        let (hooks, said, stop) = hooks("", Duration::ZERO);
        let mut hooks = Hooks::new(None, stop, hooks.settle.clone());
        hooks.push(completion("a", 1));
        assert_eq!(*said.lock().unwrap(), ["a 1 false"]);
    }
}
