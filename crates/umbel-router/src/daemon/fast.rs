//! The fast path of LMS: a program in the kernel for each family (`bpf/steering.h`). It steers
//! plain requests and turns DMCASTs into multicasts where they arrive.
//!
//! ```text
//!              engine, trees ── where requests go now ──▶ LINKS ┐
//!                                                               ▼
//!   packets of an interface ────────────────────────────▶ the program ──▶ replier, source, branch
//!                                                               │ what it does not take
//!                                                               ▼
//!                                                   the kernel's IP, and so the daemon
//! ```
//!
//! The daemon does what the program does not take, and no switch is needed. These are messages of
//! other kinds, the first ones of a host, requests that report a failed replier, DMCASTs without a
//! request there, packets with unusual headers. Both send the same packets and count the same
//! drops.

mod program;

use umbel_engine::Instant;
use umbel_engine::lms::{Router, RouterConfig};
use umbel_engine::router::{InterfaceId, Routes, Upstream};
use umbel_net::classifier::ClassifierError;
use umbel_wire::Channel;

pub use self::program::FastCounts;
use self::program::{Branch, Program};
use super::config::{FastPathMode, LmsConfig};
use super::lms::Turn;
use super::senders::Sender;
use super::status::FastPathStatus;
use crate::kernel::Family;

/// Least time between changes of what the program knows.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(20);

/// The program, and what it is to be told.
#[derive(Debug)]
pub(super) struct FastPath {
    /// The program, or why there is none.
    program: Result<Program, String>,
    /// Time at which it is told what has changed.
    tell_at: Option<Instant>,
    told_at: Instant,
    /// [`Router::changes`] when it was told.
    told: u64,
}

impl FastPath {
    /// Creates one without a program.
    pub(super) fn none() -> FastPath {
        let program = Err("off".to_owned());
        FastPath { program, tell_at: None, told_at: Instant::EPOCH, told: 0 }
    }

    /// Loads the program if that is wanted and possible.
    ///
    /// # Errors
    ///
    /// If it is required and not possible.
    pub(super) fn start(
        &mut self,
        family: Family,
        mode: FastPathMode,
        now: Instant,
    ) -> Result<(), ClassifierError> {
        self.program = match mode {
            FastPathMode::Off => Err("off".to_owned()),
            FastPathMode::Required => Ok(Program::load(family, now)?),
            FastPathMode::Auto => {
                Program::load(family, now).map_err(|error| format!("not there: {error}"))
            }
        };
        Ok(())
    }

    /// Returns what has become of it, and what it has counted.
    pub(super) fn status(&self) -> FastPathStatus {
        match &self.program {
            Ok(program) => FastPathStatus {
                state: "on".to_owned(),
                interfaces: program.interfaces(),
                counts: program.counts(),
            },
            Err(state) => FastPathStatus { state: state.clone(), ..FastPathStatus::default() },
        }
    }

    /// Takes packets of an interface from now on.
    pub(super) fn attach(&mut self, id: InterfaceId, name: &str) {
        if let Ok(program) = &mut self.program
            && let Err(error) = program.attach(id, name)
        {
            tracing::warn!("no fast path on {name}: {error}");
        }
    }

    /// Takes packets of an interface no longer.
    pub(super) fn detach(&mut self, id: InterfaceId) {
        if let Ok(program) = &mut self.program {
            program.detach(id);
        }
    }

    /// Starts from scratch, for an engine with this configuration.
    pub(super) fn configure(&mut self, engine: Option<&RouterConfig>, config: &LmsConfig) {
        self.told = 0;
        if let Ok(program) = &mut self.program {
            program.configure(engine, config);
        }
    }

    /// Takes a DMCAST that a request asks for which the program has steered. Returns whether there
    /// was one.
    pub(super) fn take_credit(&mut self, now: Instant, branch: (Channel, InterfaceId)) -> bool {
        self.program.as_mut().is_ok_and(|program| program.take_credit(now, branch))
    }

    /// Takes messages of a host from now on, of which the daemon has taken one.
    pub(super) fn know_host(&mut self, host: &Sender) {
        if let Ok(program) = &mut self.program {
            program.know_host(host);
        }
    }

    /// Leaves messages of a host to the daemon.
    pub(super) fn forget_host(&mut self, host: &Sender) {
        if let Ok(program) = &mut self.program {
            program.forget_host(host);
        }
    }

    /// Returns the time at which the program took the last message of a host, or soon after.
    pub(super) fn last_used(&self, host: &Sender) -> Option<Instant> {
        self.program.as_ref().ok()?.last_used(host)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.tell_at
    }

    /// Notes that trees or interfaces have changed.
    pub(super) fn touch(&mut self, now: Instant) {
        if self.program.is_ok() {
            self.tell_at.get_or_insert(now.max(self.told_at + SETTLE));
        }
    }

    /// Updates the program with what has changed, if it is time to. `mtu` is that of an interface.
    pub(super) fn tell<R: Routes>(
        &mut self,
        engine: &Router,
        turn: &mut Turn<'_, R>,
        mtu: &dyn Fn(InterfaceId) -> u32,
    ) {
        if engine.changes() != self.told {
            self.touch(turn.now);
        }
        let Ok(program) = &mut self.program else { return };
        if self.tell_at.take_if(|at| *at <= turn.now).is_none() {
            return;
        }
        (self.told, self.told_at) = (engine.changes(), turn.now);
        let mut branches = Vec::new();
        let mut outputs = Vec::new();
        for channel in engine.channels() {
            let Some(Upstream::Interface(input)) = turn.routes.upstream(channel) else { continue };
            // Requests to this host itself are for other sockets.
            if channel.source.is_none_or(|source| (turn.own)(source)) {
                continue;
            }
            outputs.clear();
            turn.routes.downstream(channel, &mut outputs);
            for interface in outputs.iter().copied().chain([input]) {
                let branch = Branch {
                    steering: engine.steering(turn.routes, channel, interface),
                    is_output: outputs.contains(&interface),
                    mtu: mtu(interface),
                };
                branches.push(((*channel, interface), branch));
            }
        }
        program.set_branches(branches.into_iter());
    }
}

#[cfg(test)]
mod tests;
