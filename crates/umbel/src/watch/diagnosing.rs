//! Looks for the cause when a receiver hears nothing of a stream.

use std::sync::Arc;

use umbel_net::interface::Interface;
use umbel_wire::Channel;
use umbel_wire::stream::Stream;

use super::{Experiment, WatchObserver, WatchSnapshot};
use crate::doctor;

/// An observer that also reports why nothing is heard, if this host is the cause.
#[derive(Clone)]
pub(super) struct Diagnosing {
    pub(super) observer: Arc<dyn WatchObserver>,
    /// Name or address of the interface, if the user names one.
    pub(super) wanted: Option<String>,
    /// The base layer and where it is received, once the stream is found.
    pub(super) base: Option<(Interface, Channel)>,
}

impl WatchObserver for Diagnosing {
    fn found(&self, stream: &Stream, interface: &str) {
        self.observer.found(stream, interface);
    }

    fn level(&self, level: u8, layers: u8, reason: &'static str) {
        self.observer.level(level, layers, reason);
    }

    fn experiment(&self, experiment: &Experiment) {
        self.observer.experiment(experiment);
    }

    fn second(&self, snapshot: &WatchSnapshot) {
        self.observer.second(snapshot);
    }

    fn note(&self, line: &str) {
        self.observer.note(line);
    }

    fn silent(&self, line: &str) {
        self.observer.silent(line);
        let (observer, wanted, base) =
            (self.observer.clone(), self.wanted.clone(), self.base.clone());
        // The doctor takes a second or two; the engine cannot wait that long.
        let diagnose = move || {
            let lines: Vec<String> = match base {
                Some((interface, base)) => {
                    let finding = doctor::quick(&interface, &base).into_iter();
                    finding.map(|finding| format!("why that may be: {finding}")).collect()
                }
                None => doctor::why_nothing_is_heard(wanted.as_deref()),
            };
            for line in &lines {
                observer.note(line);
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(diagnose) {
            tracing::warn!("no thread for the doctor: {error}");
        }
    }
}
