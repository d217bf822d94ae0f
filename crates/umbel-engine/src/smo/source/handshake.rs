//! How connections are opened [RFC 9293 §3.5], and what segments of no connection are answered.
//!
//! The half-open connections and those in TIME-WAIT have their own tables. What is decided here
//! concerns them, the configuration, the first master and the children, so this stands apart and
//! has no state itself.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tcp::{Flags, Head, Membership, Options, Segment, Seq};

use super::half_open::Opened;
use super::{MIN_MSS, Source, SourceEvent};
use crate::Instant;
use crate::shares::Origin;
use crate::smo::api::{ChildId, CloseReason, MasterId};
use crate::smo::child::{Child, Opening};
use crate::smo::config::Join;
use crate::smo::drops::DropReason;

/// MSS of a client that names none [RFC 9293 §3.7.1].
const DEFAULT_MSS: (u16, u16) = (536, 1220);

impl Source {
    /// Handles a segment of no established connection.
    pub(super) fn on_stray(&mut self, now: Instant, peer: SocketAddr, segment: &Segment<'_>) {
        let head = &segment.head;
        if self.half_open.get(&peer).is_some() {
            return self.on_half_open(now, peer, segment);
        }
        if let Some(&ended) = self.time_wait.get(&peer) {
            // A SYN above what was received opens the connection anew [RFC 9293 §3.10.7.4].
            let is_new = head.flags.has(Flags::SYN)
                && !head.flags.has(Flags::ACK)
                && ended.ack.is_before(head.seq);
            if !is_new {
                // RST is ignored [RFC 1337 §3].
                if !head.flags.has(Flags::RST) && self.strays.take(now) {
                    let answer = self.bare(peer, ended.seq, Some(ended.ack), Flags::ACK);
                    self.push_control(peer, answer);
                }
                return;
            }
            self.time_wait.remove(&peer);
        }
        if head.flags.has(Flags::RST) {
            self.drops.count(DropReason::NoConnection);
        } else if head.flags.has(Flags::SYN) && !head.flags.has(Flags::ACK) {
            self.on_syn(now, peer, segment);
        } else {
            self.drops.count(DropReason::NoConnection);
            self.refuse(now, peer, segment);
        }
    }

    /// Answers a segment of no connection with RST [RFC 9293 §3.10.7.1].
    fn refuse(&mut self, now: Instant, peer: SocketAddr, segment: &Segment<'_>) {
        if !self.strays.take(now) {
            return self.drops.count(DropReason::HeldDown);
        }
        let reset = if segment.head.flags.has(Flags::ACK) {
            self.reset(peer, segment.head.ack, None)
        } else {
            self.reset(peer, Seq(0), Some(segment.end()))
        };
        self.push_control(peer, reset);
    }

    /// Returns the position at which a new connection begins. `None` if it is refused.
    fn beginning(&self, peer: SocketAddr) -> Option<u64> {
        if !self.listens || !self.places.has_place(Origin::of(peer.ip())) {
            return None;
        }
        match self.config.join {
            Join::Asked => Some(0),
            Join::AtOnce => {
                let master = self.master(self.master_place(MasterId::FIRST)?)?;
                let is_over = master.buffer.is_finished() && master.nxt >= master.buffer.end();
                // Data that is still to be written is worth waiting for, and so is an empty stream.
                (!is_over || master.nxt == 0).then_some(master.nxt)
            }
        }
    }

    fn on_syn(&mut self, now: Instant, peer: SocketAddr, segment: &Segment<'_>) {
        let Some(at) = self.beginning(peer) else {
            self.drops.count(DropReason::OverLimit);
            return self.refuse(now, peer, segment);
        };
        if self.has_backlog() {
            return self.drops.count(DropReason::Backlog);
        }
        let options = &segment.head.options;
        let default = if peer.is_ipv6() { DEFAULT_MSS.1 } else { DEFAULT_MSS.0 };
        let opened = Opened {
            at,
            irs: segment.head.seq,
            mss: options.mss.unwrap_or(default).max(MIN_MSS),
            shift: options.window_scale,
            has_sack: options.sack_permitted,
            since: now,
        };
        if self.half_open.insert(peer, opened) {
            self.drops.count(DropReason::Flood);
        }
        self.send_syn_ack(peer, &opened);
    }

    fn send_syn_ack(&mut self, peer: SocketAddr, opened: &Opened) {
        let first = self.config.join == Join::AtOnce && opened.mss >= self.config.mss;
        let port = if first { self.config.channel.port } else { 0 };
        let options = Options {
            mss: Some(self.config.mss),
            window_scale: opened.shift.map(|_| 0),
            sack_permitted: opened.has_sack,
            membership: Some(Membership::Port(port)),
            ..Options::default()
        };
        let seq = self.base.plus(opened.at as u32).minus(1);
        let flags = Flags::SYN | Flags::ACK;
        let head = self.bare(peer, seq, Some(opened.irs.plus(1)), flags);
        self.push_control(peer, Head { options, ..head });
    }

    /// Sends a SYN/ACK again. If the bytes from its position on are not held any more, it names
    /// where the stream is now. The client has most likely not seen the first; if it has, it would
    /// have been cut off as too late, and still is.
    fn repeat_syn_ack(&mut self, peer: SocketAddr) {
        let Some(&known) = self.half_open.get(&peer) else { return };
        let master = self.master_place(MasterId::FIRST).and_then(|place| self.master(place));
        let is_gone = self.config.join == Join::AtOnce
            && master.is_some_and(|master| known.at < master.buffer.start());
        let at = self.beginning(peer).filter(|_| is_gone).unwrap_or(known.at);
        self.half_open.move_to(&peer, at);
        self.send_syn_ack(peer, &Opened { at, ..known });
    }

    /// Sends SYN/ACKs again, and gives connections up.
    pub(super) fn on_handshake_timers(&mut self, now: Instant) {
        while let Some(peer) = self.half_open.pop_due(now, self.config.syn_ack_transmissions) {
            self.repeat_syn_ack(peer);
        }
    }

    /// Handles a segment in SYN-RECEIVED [RFC 9293 §3.10.7.4].
    fn on_half_open(&mut self, now: Instant, peer: SocketAddr, segment: &Segment<'_>) {
        let Some(&opened) = self.half_open.get(&peer) else { return };
        let head = &segment.head;
        let expected = opened.irs.plus(1);
        if head.flags.has(Flags::RST) {
            if head.seq == expected {
                self.half_open.remove(&peer);
            } else {
                self.drops.count(DropReason::Challenged);
            }
            return;
        }
        if head.flags.has(Flags::SYN) && !head.flags.has(Flags::ACK) {
            if head.seq == opened.irs {
                if self.has_backlog() {
                    return self.drops.count(DropReason::Backlog);
                }
                // The SYN/ACK was lost. Its timer goes on.
                self.repeat_syn_ack(peer);
            } else {
                // A client that has started anew resets what it is asked about, and sends its SYN
                // once more. One that has not, in whose name a stranger speaks, is not parted from
                // its connection [RFC 5961 §4].
                self.drops.count(DropReason::Challenged);
                if self.strays.take(now) {
                    let seq = self.base.plus(opened.at as u32);
                    let question = self.bare(peer, seq, Some(expected), Flags::ACK);
                    self.push_control(peer, question);
                }
            }
            return;
        }
        let offset = head.seq.since(expected);
        let in_window = (0..=i32::from(self.config.receive_buffer)).contains(&offset);
        if !in_window || !head.flags.has(Flags::ACK) {
            let reason = if in_window { DropReason::NoAck } else { DropReason::OutOfWindow };
            return self.drops.count(reason);
        }
        if head.ack != self.base.plus(opened.at as u32) {
            self.drops.count(DropReason::FarAhead);
            return self.refuse(now, peer, segment);
        }
        if !self.places.has_place(Origin::of(peer.ip())) {
            self.half_open.remove(&peer);
            self.drops.count(DropReason::OverLimit);
            return self.refuse(now, peer, segment);
        }
        let Some((opened, left_once)) = self.half_open.remove(&peer) else { return };
        // Karn: a SYN/ACK that was sent again has no RTT.
        let rtt = left_once.then(|| now.since(opened.since));
        self.establish(now, peer, &opened, rtt, segment);
    }

    fn establish(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        opened: &Opened,
        rtt: Option<Duration>,
        segment: &Segment<'_>,
    ) {
        let id = ChildId(self.next_id);
        self.next_id += 1;
        if let Ok(Some(lost)) = self.places.enter(Origin::of(peer.ip()), id)
            && let Some(&slot) = self.ids.get(&lost)
        {
            self.remove(slot, CloseReason::Crowded);
        }
        let opening = Opening {
            id,
            peer,
            at: opened.at,
            irs: opened.irs,
            mss: opened.mss,
            shift: opened.shift.unwrap_or(0),
            has_sack: opened.has_sack,
            rtt,
            skip: self.draw_skip(0),
        };
        let child = Child::new(now, &self.config, opening, &segment.head);
        let slot = self.children.insert(child);
        self.peers.insert(peer, slot);
        self.ids.insert(id, slot);
        self.stats.connected += 1;
        self.events.push_back(SourceEvent::Connected { child: id, peer, at: opened.at });
        if self.config.join == Join::AtOnce {
            match self.master_place(MasterId::FIRST) {
                Some(place) => self.enter_master(now, slot, place),
                // The stream ended meanwhile.
                None => self.remove(slot, CloseReason::TooLate),
            }
        }
        if self.children.get(slot).is_some() {
            self.on_segment(now, slot, segment);
        }
    }
}
