//! Shares of what a desk has: documents that are open, and streams.
//!
//! A host that has most of them loses one when another host wants one and there is none. What
//! several hosts receive together is nobody's share, and stays.

use umbel_engine::shares::{Origin, Shares};
use umbel_engine::smo::{ChildId, MasterId, SourceCommand, Stream};
use umbel_wire::Channel;

use super::{Desk, Group, Machine, Stage};
use crate::bounds::SMO_STREAMS;
use crate::smo::serve::http::request::{Request, Status};
use crate::smo::serve::library::{Library, Reading};

/// A library that knows whose readings are open.
#[derive(Debug)]
pub(in super::super) struct Lent<L> {
    pub(super) library: L,
    pub(super) open: Shares<Reading>,
}

impl<L: Library> Library for Lent<L> {
    fn find(&mut self, reading: Reading, path: &str) {
        self.library.find(reading, path);
    }

    fn read(&mut self, reading: Reading, from: u64, len: usize) {
        self.library.read(reading, from, len);
    }

    fn close(&mut self, reading: Reading) {
        self.open.leave(reading);
        self.library.close(reading);
    }
}

/// A try to open a stream.
pub(super) enum Opening {
    Open(MasterId),
    /// Another stream gives way, and ends within a turn.
    Later,
    None,
}

impl<L: Library> Desk<L> {
    pub(super) fn origin(&self, child: ChildId) -> Option<Origin> {
        self.clients.get(&child).map(|client| Origin::of(client.peer.ip()))
    }

    /// Keeps what a group has, since several hosts want it.
    pub(super) fn keep(&mut self, key: &Request) {
        let reading = match self.groups.get(key).map(|group| &group.stage) {
            Some(Stage::Gathering { reading, .. }) => Some(*reading),
            Some(Stage::Sending(master)) => {
                self.streams_of_one.leave(*master);
                self.deliveries.reading(Stream::Master(*master))
            }
            Some(Stage::Looking) | None => None,
        };
        if let Some(reading) = reading {
            self.library.open.leave(reading);
        }
    }

    /// Ends a reading of the host that has most.
    pub(super) fn take_away(&mut self, io: &mut Machine<'_>, reading: Reading) {
        if self.looking.contains_key(&reading) {
            return self.found(io, reading, &Err(Status::Unavailable));
        }
        let gathers = |group: &Group| match group.stage {
            Stage::Gathering { reading: own, .. } => own == reading,
            Stage::Looking | Stage::Sending(_) => false,
        };
        let key = self.groups.iter().find(|(_, group)| gathers(group)).map(|(key, _)| key.clone());
        match (key, self.deliveries.stream(reading)) {
            (Some(key), _) => self.found_for_group(io, reading, &key, &Err(Status::Unavailable)),
            (None, Some(Stream::Child(child))) => {
                let _ = io.command(SourceCommand::Abort { child });
            }
            (None, Some(Stream::Master(master))) => self.cut_off(io, master),
            (None, None) => {}
        }
    }

    /// Ends the connections that receive a stream, and so the stream.
    pub(super) fn cut_off(&mut self, io: &mut Machine<'_>, master: MasterId) {
        let sending = |group: &&Group| matches!(group.stage, Stage::Sending(own) if own == master);
        if let Some(group) = self.groups.values().find(sending) {
            for &child in group.members.keys() {
                let _ = io.command(SourceCommand::Abort { child });
            }
        }
    }

    /// Opens a master on a port of the channel's group that no other stream has. `origin` is the
    /// only host that is to receive it, if it is only one.
    pub(super) fn open(&mut self, io: &mut Machine<'_>, origin: Option<Origin>) -> Opening {
        // Each has its own port, from the channel's on. Further groups are answered alone.
        let free =
            (0..SMO_STREAMS.all as u32).find(|number| !self.masters.contains(&MasterId(*number)));
        let Some(number) = free else {
            if origin.is_none()
                && let Some(lost) = self.streams_of_one.yield_one()
            {
                self.cut_off(io, lost);
                return Opening::Later;
            }
            return Opening::None;
        };
        let master = MasterId(number);
        let Some(port) = self.channel.port.checked_add(number as u16) else { return Opening::None };
        let channel = Channel { port, ..self.channel };
        if io.command(SourceCommand::Open { master, channel }).is_err() {
            return Opening::None;
        }
        self.masters.insert(master);
        if let Some(origin) = origin {
            let _ = self.streams_of_one.enter(origin, master);
        }
        Opening::Open(master)
    }
}
