//! Commands of the application.
//!
//! Masters and children have their buffers. A command to one often ends or wakes others, so this
//! stands apart and has no state itself.

use bytes::Bytes;
use umbel_wire::Channel;

use super::{ROOM_SHARE, Source};
use crate::Instant;
use crate::shares::Origin;
use crate::smo::api::{
    ChildId, CloseReason, MasterId, SourceCommand, SourceCommandError as Error, Stream,
};
use crate::smo::buffer::Buffer;
use crate::smo::child::Served;
use crate::smo::config::Release;
use crate::smo::master::Master;
use crate::smo::scoreboard::Kind;

impl Source {
    pub(super) fn on_command(&mut self, now: Instant, command: SourceCommand) -> Result<(), Error> {
        match command {
            SourceCommand::Open { master, channel } => self.open(master, channel),
            SourceCommand::Attach { child, master } => self.attach(now, child, master),
            SourceCommand::Write { to: Stream::Master(to), bytes } => self.write(now, to, bytes),
            SourceCommand::Write { to: Stream::Child(to), bytes } => self.write_to(now, to, bytes),
            SourceCommand::Finish { to: Stream::Master(to) } => self.finish(now, to),
            SourceCommand::Finish { to: Stream::Child(to) } => self.finish_child(now, to),
            SourceCommand::Gap { master } => self.gap(master),
            SourceCommand::Abort { child } => {
                let slot = self.slot(child)?;
                self.remove(slot, CloseReason::Aborted);
                Ok(())
            }
            SourceCommand::Consumed { child, bytes } => self.consumed(child, bytes),
            SourceCommand::Listen(listens) => {
                self.listens = listens;
                Ok(())
            }
        }
    }

    fn slot(&self, id: ChildId) -> Result<u32, Error> {
        self.ids.get(&id).copied().ok_or(Error::NoChild(id))
    }

    fn place(&self, id: MasterId) -> Result<u32, Error> {
        self.master_place(id).ok_or(Error::NoMaster(id))
    }

    fn open(&mut self, id: MasterId, channel: Channel) -> Result<(), Error> {
        let mut all = self.masters.iter().flatten();
        if all.any(|master| master.id == id || master.channel.port == channel.port) {
            return Err(Error::InUse(id));
        }
        let master = Some(Master::new(id, channel, &self.config));
        let place = self.masters.iter().position(Option::is_none).unwrap_or(self.masters.len());
        match self.masters.get_mut(place) {
            Some(free) => *free = master,
            None => self.masters.push(master),
        }
        // Another stream may have been there.
        self.tell_wanted(place as u32);
        Ok(())
    }

    fn attach(&mut self, now: Instant, id: ChildId, to: MasterId) -> Result<(), Error> {
        let (slot, place) = (self.slot(id)?, self.place(to)?);
        let child = self.at(slot);
        if !matches!(child.served, Served::Alone(None)) || child.nxt > 0 {
            return Err(Error::Attached(id));
        }
        let trail = self.master(place).map_or(0, |master| master.buffer.start());
        if trail > 0 {
            return Err(Error::TooLate { trail });
        }
        self.enter_master(now, slot, place);
        Ok(())
    }

    /// Makes a child one of a master's.
    pub(super) fn enter_master(&mut self, now: Instant, slot: u32, place: u32) {
        let Source { children, masters, .. } = self;
        let (Some(child), Some(master)) =
            (children.get_mut(slot), masters[place as usize].as_mut())
        else {
            return;
        };
        if child.una < master.buffer.start() {
            return self.remove(slot, CloseReason::TooLate);
        }
        child.hearing.on_master();
        if child.hearing.hears && master.nxt > child.una {
            // Data that was multicast before it could receive is lost to it.
            child.board.begin(Kind::Timeout, child.una, master.nxt, master.nxt);
        }
        // The standing follows when its seat is known.
        child.served = Served::Master(place, 0);
        child.membership_due = true;
        let (child, view) = self.seen(slot);
        let standing = child.standing(&view);
        let Some(master) = self.master_mut(place) else { return };
        let seat = master.enter(slot, standing);
        self.at(slot).served = Served::Master(place, seat);
        self.make_ready(slot);
        self.settle(now, slot);
        self.advance(now, place);
    }

    fn write(&mut self, now: Instant, to: MasterId, bytes: Bytes) -> Result<(), Error> {
        let place = self.place(to)?;
        let makes_room = self.config.release == Release::Buffer;
        let Some(master) = self.masters[place as usize].as_mut() else {
            return Err(Error::NoMaster(to));
        };
        if master.buffer.is_finished() {
            return Err(Error::Ended);
        }
        if makes_room {
            master.make_room(bytes.len());
        }
        let room = master.buffer.room();
        if bytes.len() > room {
            master.was_full = true;
            return Err(Error::Full { room });
        }
        master.buffer.write(now, bytes);
        let start = master.buffer.start();
        let is_full = self.room(Stream::Master(to)) < self.config.buffer / ROOM_SHARE;
        if let Some(master) = self.master_mut(place) {
            master.was_full = is_full;
        }
        if self.config.real_time.is_none() {
            self.remove_behind(place, start);
        }
        Ok(())
    }

    fn write_to(&mut self, now: Instant, to: ChildId, bytes: Bytes) -> Result<(), Error> {
        let slot = self.slot(to)?;
        let capacity = self.config.buffer;
        let origin = Origin::of(self.children.of(slot).peer.ip());
        let may_hold = self.may_hold(origin);
        let child = self.children.at(slot);
        let Served::Alone(buffer) = &mut child.served else { return Err(Error::Attached(to)) };
        let buffer = buffer.get_or_insert_with(|| Box::new(Buffer::new(capacity, 0)));
        if buffer.is_finished() {
            return Err(Error::Ended);
        }
        let room = if buffer.held() < may_hold { buffer.room() } else { 0 };
        if bytes.len() > room {
            child.was_full = true;
            return Err(Error::Full { room });
        }
        self.alone.note(origin, bytes.len());
        buffer.write(now, bytes);
        let room = buffer.room();
        child.was_full = room < capacity / ROOM_SHARE;
        self.settle(now, slot);
        Ok(())
    }

    fn finish(&mut self, now: Instant, to: MasterId) -> Result<(), Error> {
        let place = self.place(to)?;
        let Some(master) = self.masters[place as usize].as_mut() else {
            return Err(Error::NoMaster(to));
        };
        if master.buffer.is_finished() {
            return Err(Error::Ended);
        }
        master.buffer.finish();
        self.check_drained(place);
        self.advance(now, place);
        Ok(())
    }

    fn gap(&mut self, id: MasterId) -> Result<(), Error> {
        let place = self.place(id)?;
        let Some(master) = self.master(place) else { return Err(Error::NoMaster(id)) };
        if master.buffer.is_finished() {
            return Err(Error::Ended);
        }
        for slot in master.children() {
            self.remove(slot, CloseReason::Gap);
        }
        if let Some(master) = self.master_mut(place) {
            master.skip_all();
        }
        self.tell_room(place, id);
        Ok(())
    }

    fn finish_child(&mut self, now: Instant, to: ChildId) -> Result<(), Error> {
        let slot = self.slot(to)?;
        let capacity = self.config.buffer;
        let (child, view) = self.seen(slot);
        match &mut child.served {
            Served::Alone(buffer) => {
                let buffer = buffer.get_or_insert_with(|| Box::new(Buffer::new(capacity, 0)));
                if buffer.is_finished() {
                    return Err(Error::Ended);
                }
                buffer.finish();
            }
            Served::Master(..) => {
                let fin_sent = view.end.is_some_and(|end| view.ackable >= end);
                if fin_sent || child.own_end.is_some() {
                    return Err(Error::Ended);
                }
                if child.hearing.hears {
                    child.nxt = view.sent;
                }
                child.own_end = Some(view.ackable);
                child.hearing.on_end();
                child.skips.forget();
            }
            Served::Done => return Err(Error::Ended),
        }
        self.settle(now, slot);
        Ok(())
    }

    fn consumed(&mut self, id: ChildId, bytes: usize) -> Result<(), Error> {
        let slot = self.slot(id)?;
        let (buffer, mss) = (self.config.receive_buffer, self.config.mss);
        let child = self.at(slot);
        if child.inbox.consume(bytes, buffer, mss) {
            child.ack_due = true;
            self.make_ready(slot);
        }
        Ok(())
    }
}
