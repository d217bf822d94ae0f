//! Course of a world: the calendar, and the hosting of engines.

use super::hosted::allowance;
use super::{Happening, Host, Protocol, Seat, World};
use crate::{Address, Datagram, Engine, Instant, RateClass, Transmit};

/// Most happenings at the same time, and turns of an engine and its application.
const MOST_AT_ONCE: u32 = 200_000;

/// Returns whether what is sent counts for the pace of data, as hosts of engines count it.
fn counts_for_pace(transmit: &Transmit) -> bool {
    let is_session = matches!(transmit.to, Address::Session(_));
    !is_session && transmit.class != RateClass::SelfClocked
}

impl<P: Protocol> World<P> {
    /// Lets the next thing happen. Returns false if that is after `end`.
    pub(super) fn step(&mut self, end: Instant) -> bool {
        let Some(next) = self.calendar.first_entry().filter(|next| next.key().0 <= end) else {
            return false;
        };
        let ((at, _), happening) = next.remove_entry();
        self.at_once = if at > self.now { 0 } else { self.at_once + 1 };
        let stands = self.at_once >= MOST_AT_ONCE;
        assert!(!stands, "time stands still at {:?}\n{}", self.now, self.state());
        self.now = at;
        let Some(happening) = self.unless_it_stands(happening) else { return true };
        match happening {
            Happening::Wake(host) => {
                self.host(host).wake = None;
                let engine = self.engine(host);
                if engine.poll_timeout().is_some_and(|due| due <= at) {
                    engine.handle_timeout(at);
                }
                self.drain(host);
            }
            Happening::Arrival { to, by, hop_limit, payload } => {
                if self.is_up(to) {
                    let hop_limit = Some(hop_limit);
                    P::arrive(self, to, Datagram { by, hop_limit, payload: &payload });
                    self.drain(to);
                }
            }
            Happening::Passing { router, from, parcel } => self.pass_router(router, from, parcel),
            Happening::RouterWake(router) => self.wake_router(router),
            Happening::Deed(deed) => deed(self),
        }
        true
    }

    /// Returns what happens, unless it is put off since its host stands still.
    fn unless_it_stands(&mut self, happening: Happening<P>) -> Option<Happening<P>> {
        let (Happening::Wake(host) | Happening::Arrival { to: host, .. }) = happening else {
            return Some(happening);
        };
        let now = self.now;
        let Some(stands) = self.host(host).stands.as_mut().filter(|stands| now < stands.until)
        else {
            return Some(happening);
        };
        let until = stands.until;
        if matches!(happening, Happening::Wake(_)) {
            let wake = self.schedule(until, happening);
            self.host(host).wake = Some(wake);
        } else if let Some(room) = stands.room.checked_sub(1) {
            stands.room = room;
            self.schedule(until, happening);
        }
        None
    }

    /// Takes everything that a host's engine has to say.
    pub(crate) fn drain(&mut self, host: usize) {
        if !self.is_up(host) {
            return;
        }
        for _ in 0..MOST_AT_ONCE {
            while let Some(change) = self.engine(host).poll_membership() {
                self.host(host).change(change);
            }
            self.transmit(host);
            if !self.take_events(host) && !P::act(self, host) {
                self.set_wake(host);
                return P::check(self, host);
            }
        }
        panic!("host {host} never has enough at {:?}\n{}", self.now, self.state());
    }

    fn transmit(&mut self, host: usize) {
        let mut buf = std::mem::take(&mut self.buf);
        loop {
            let Host { pace, next_data, .. } = self.network.hosts[host];
            buf.reset(allowance(pace.is_some(), next_data <= self.now));
            let now = self.now;
            let Some(transmit) = self.engine(host).poll_transmit(now, &mut buf) else { break };
            for payload in buf.messages() {
                if let Some(pace) = pace.filter(|_| counts_for_pace(&transmit)) {
                    let time = pace.time_for(payload.len() as u64);
                    let place = self.host(host);
                    place.next_data = place.next_data.max(now) + time;
                }
                self.send(host, transmit, payload);
            }
        }
        self.buf = buf;
    }

    /// Hands a host's events to its application. Returns whether there were any.
    fn take_events(&mut self, host: usize) -> bool {
        let mut any = false;
        match host.checked_sub(1) {
            None => {
                while let Some(event) = self.source.engine().poll_event() {
                    P::on_source_event(self, event);
                    any = true;
                }
            }
            Some(receiver) => {
                while let Some(event) = self.receivers[receiver].engine().poll_event() {
                    P::on_receiver_event(self, receiver, event);
                    any = true;
                }
            }
        }
        any
    }

    /// Puts a host's next wake-up into the calendar.
    fn set_wake(&mut self, host: usize) {
        let now = self.now;
        let engine = self.engine(host);
        let (timeout, wants_pace) = (engine.poll_timeout(), engine.wants_pace());
        let place = self.host(host);
        let paced = wants_pace.then_some(place.next_data);
        let wake = [timeout, paced].into_iter().flatten().min().map(|at| at.max(now));
        let old = place.wake;
        if wake == old.map(|(at, _)| at) {
            return;
        }
        if let Some(old) = old {
            self.calendar.remove(&old);
        }
        let wake = wake.map(|at| self.schedule(at, Happening::Wake(host)));
        self.host(host).wake = wake;
    }

    pub(super) fn schedule(&mut self, at: Instant, happening: Happening<P>) -> (Instant, u64) {
        self.serial += 1;
        self.calendar.insert((at, self.serial), happening);
        (at, self.serial)
    }
}
