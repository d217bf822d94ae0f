//! The queue of blocks to be read, and the threads that read them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::entry::{Entry, Task};
use super::pool::Pool;
use crate::{Content, Fault};

/// Maximum number of buffers that wait for reuse.
const SPARE_BUFFERS: usize = 32;
/// Time between attempts to read when the system lacks descriptors or memory.
const SHORTAGE: Duration = Duration::from_millis(200);

/// State shared by the sending thread and the workers.
pub(super) struct Shared {
    pub(super) content: Content,
    /// Whether the sender waits for a symbol and none was published since.
    pub(super) sleeping: AtomicBool,
    line: Mutex<Line>,
    /// Notified when the queue becomes longer or there is more room.
    moved: Condvar,
    memory: usize,
    pool: Arc<Pool>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// Whether it was told that the system lacks something.
    short: AtomicBool,
}

#[derive(Default)]
struct Line {
    /// Blocks in the order in which they will be requested.
    waiting: VecDeque<Arc<Entry>>,
    /// Blocks with a requested symbol.
    urgent: VecDeque<Arc<Entry>>,
    /// Bytes of memory in use.
    used: usize,
    stopped: bool,
}

impl Line {
    /// Returns the next block to work on, once there is room for it.
    fn next(&mut self, memory: usize) -> Option<(Arc<Entry>, Task)> {
        while let Some(entry) = self.urgent.pop_front() {
            if let Some(task) = entry.take() {
                self.used += task.cost;
                return Some((entry, task));
            }
        }
        while let Some(entry) = self.waiting.front() {
            if self.used > 0 && self.used + entry.cost() > memory {
                return None;
            }
            let entry = self.waiting.pop_front()?;
            if let Some(task) = entry.take() {
                self.used += task.cost;
                return Some((entry, task));
            }
        }
        None
    }
}

impl Shared {
    pub(super) fn new(
        content: Content,
        memory: usize,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Shared {
        Shared {
            content,
            sleeping: AtomicBool::new(false),
            line: Mutex::new(Line::default()),
            moved: Condvar::new(),
            memory,
            pool: Arc::new(Pool::new(SPARE_BUFFERS)),
            wake,
            short: AtomicBool::new(false),
        }
    }

    /// Executes tasks until told to stop.
    pub(super) fn run(&self) {
        while let Some((entry, task)) = self.next() {
            let store = (&self.content, &self.pool);
            let freed = entry.run(&task, store, |why| self.wait(why), || self.publish());
            // Buffers of the block go back to the pool before another one needs them.
            drop(task);
            if entry.requeue() {
                self.enqueue(entry);
            }
            self.give_back(freed);
        }
    }

    fn next(&self) -> Option<(Arc<Entry>, Task)> {
        let mut line = self.line.lock();
        loop {
            if line.stopped {
                return None;
            }
            if let Some(next) = line.next(self.memory) {
                return Some(next);
            }
            self.moved.wait(&mut line);
        }
    }

    /// Waits for the system to have what it lacks now. Returns whether to try again.
    fn wait(&self, why: &Fault) -> bool {
        if !self.short.swap(true, Ordering::Relaxed) {
            tracing::warn!("waits to read files: {why}");
        }
        std::thread::sleep(SHORTAGE);
        !self.line.lock().stopped
    }

    /// Appends a block to the queue.
    pub(super) fn enqueue(&self, entry: Arc<Entry>) {
        self.line.lock().waiting.push_back(entry);
        self.moved.notify_one();
    }

    /// Queues a block before all those that are only prefetched.
    pub(super) fn hurry(&self, entry: Arc<Entry>) {
        let mut line = self.line.lock();
        if !line.urgent.iter().any(|other| Arc::ptr_eq(other, &entry)) {
            line.urgent.push_back(entry);
            drop(line);
            self.moved.notify_one();
        }
    }

    /// Records that bytes are no longer in use.
    pub(super) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.line.lock().used -= bytes;
            self.moved.notify_one();
        }
    }

    pub(super) fn memory_in_use(&self) -> usize {
        self.line.lock().used
    }

    pub(super) fn stop(&self) {
        let mut line = self.line.lock();
        line.stopped = true;
        line.waiting.clear();
        line.urgent.clear();
        drop(line);
        self.moved.notify_all();
    }

    /// Wakes the sender if it waits. The symbol was published under the entry's lock, and the
    /// sender began to wait under the same lock.
    fn publish(&self) {
        if self.sleeping.swap(false, Ordering::Relaxed) {
            (self.wake)();
        }
    }
}
