//! Receives a session, and each session that takes its place.
//!
//! Each has a host and its own mailbox, so that no input of an earlier session reaches it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use umbel_engine::host::Mailbox;
use umbel_net::interface::{Family, Interface};
use umbel_net::session::signing;
use umbel_wire::session::SessionKind;

use super::watch::{Watched, is_same};
use super::{Acquaintance, KnownSenders, News, SessionSelector, Silence, Sought, Station, Watch};
use crate::endpoint::{Interrupt, Wiring};

/// A command that receives sessions of one name, one after the other. Its hosts' input is an `I`.
pub(crate) struct Succession<I> {
    station: Station,
    wiring: Wiring<I>,
    /// Mailbox of the host that is running.
    current: Arc<Mutex<Mailbox<I>>>,
    /// What is known of the sender, once it is found.
    known: Option<Acquaintance>,
}

impl<I: Send + 'static> Succession<I> {
    /// Starts to listen to the directories of an interface, or of all.
    ///
    /// # Errors
    ///
    /// As [`Station::open`].
    pub(crate) fn open(interface: Option<&str>) -> anyhow::Result<Succession<I>> {
        let wiring = Wiring::new()?;
        let current = Arc::new(Mutex::new(wiring.mailbox().clone()));
        Ok(Succession { station: Station::open(interface)?, wiring, current, known: None })
    }

    /// Returns a mailbox that leads to the host that is running.
    pub(crate) fn mailbox(&self) -> Mailbox<I> {
        let current = self.current.clone();
        Mailbox::new(move |input| {
            current.lock().unwrap_or_else(PoisonError::into_inner).put(input);
        })
    }

    /// Returns an interrupt that ends the search, and puts the result of `input` into the mailbox
    /// of the host that is running.
    pub(crate) fn interrupt(&self, input: impl Fn() -> I + Send + Sync + 'static) -> Interrupt {
        let (mailbox, station) = (self.mailbox(), self.station.waker());
        Interrupt::new(move || {
            mailbox.put(input());
            station.wake();
        })
    }

    /// Waits for the session that the user names, as [`Station::find`] does; `lonely` hears that it
    /// is still awaited. Remembers its sender, and tells `note` if nothing speaks for it. From now
    /// on the selector selects what comes from that sender alone, and nothing earlier.
    ///
    /// # Errors
    ///
    /// As [`Station::find`], or if a line of the known senders is wrong and there is no pin.
    pub(crate) fn find<S: Sought>(
        &mut self,
        selector: &mut SessionSelector,
        state_dir: Option<PathBuf>,
        wait: Duration,
        (lonely, note): (impl FnOnce(&str), impl Fn(&str)),
    ) -> anyhow::Result<Option<(S, [u8; 32])>> {
        let senders = match state_dir.map_or_else(crate::state::default_dir, Ok) {
            Ok(state_dir) => KnownSenders::in_dir(S::NOUN, &state_dir),
            Err(error) => KnownSenders::nowhere(S::NOUN, error.to_string()),
        };
        let known = senders.look_up(selector, &note)?;
        let found = self.station.find::<S>(selector, wait, (lonely, &note))?;
        if let Some((session, key)) = &found {
            let source = session.clone().into().source().ip();
            known.made(selector, (signing::pin_of(key), session.version()), source, note);
            self.known = Some(known);
        }
        Ok(found)
    }

    /// Receives a session with `receive`, which returns whether another takes its place, and then
    /// that one in the same way. It may say that nothing is heard of it. `news` makes what a host
    /// hears of its session into its input.
    ///
    /// # Errors
    ///
    /// Those of `receive`, or if the system cannot start a thread.
    pub(crate) fn run<S: Sought>(
        self,
        (selector, first): (&SessionSelector, S),
        news: impl Fn(News) -> Option<I> + Copy + Send + 'static,
        note: impl Fn(&str),
        mut receive: impl FnMut(S, &Interface, Wiring<I>, Silence) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let Succession { mut station, mut wiring, current, known } = self;
        let mut selector = selector.clone();
        let mut session = first;
        loop {
            let mailbox = wiring.mailbox().clone();
            let tell = move |heard| news(heard).into_iter().for_each(|input| mailbox.put(input));
            let silence = Silence::default();
            let kind: SessionKind = session.clone().into();
            // The network may have gone since.
            station.wait_for_network(&note)?;
            let interface = station.interface_of(&kind)?;
            // A feed's tree has a place for an address.
            let family = Family::of(kind.source().ip());
            let own = matches!(kind, SessionKind::Feed(_)).then(|| interface.address(family).ok());
            let watched =
                Watched { session: kind.clone(), silence: silence.clone(), address: own.flatten() };
            let watch = Watch::start(station, selector.clone(), watched, tell)?;
            let replaced = receive(session, &interface, wiring, silence);
            let successor = watch.stop().filter(|_| matches!(replaced, Ok(true)));
            let Some((heard, successor)) = successor else { return replaced.map(drop) };
            let Some(next) = S::of(&successor).cloned() else { return replaced.map(drop) };
            let moved = is_same(&successor, &kind);
            if moved {
                note("the address of this host has changed: joining the feed again");
            } else {
                note(&format!("the source of `{}` was started again", selector.name));
            }
            (station, session) = (heard, next);
            if !moved
                && let Some((known, pin)) = known.as_ref().zip(selector.pin)
                && let Err(error) = known.follow(&mut selector, (pin, session.version()))
            {
                note(&format!("{error:#}"));
            }
            wiring = Wiring::new()?;
            *current.lock().unwrap_or_else(PoisonError::into_inner) = wiring.mailbox().clone();
        }
    }
}
