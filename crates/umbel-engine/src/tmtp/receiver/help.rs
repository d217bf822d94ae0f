//! A receiver's part in a recovery among receivers: what it keeps, and what it owes to others.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::feed::Recovery as Scheme;
use umbel_wire::lms::Message;
use umbel_wire::tmtp::{EsiSet, NackRun};

use super::Receiver;
use crate::recovery::buffer::Buffer;
use crate::recovery::lms::Helper;
use crate::recovery::reception::{Lack, Reception};
use crate::recovery::srm::{Volunteer, away};
use crate::recovery::{Debts, Filled, Unfounded};
use crate::symbols::SymbolSink;
use crate::tmtp::config::{Draws, ReceiverConfig};
use crate::tmtp::drops::DropReason;
use crate::{Address, Datagram, Instant, Transmit, TransmitBuf};

/// A block that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) block: u32,
    /// Symbols, if the block's length is known.
    pub(super) symbols: Option<EsiSet>,
    /// Number of the request for this block, from 1.
    pub(super) number: u8,
}

/// Division of the work.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a receiver has one, in a box")]
pub(super) enum Way {
    /// Routers choose.
    Lms(Helper),
    /// Whoever is first.
    Srm(Volunteer),
}

/// A receiver's help for others.
#[derive(Debug)]
pub(super) struct Help {
    /// The last blocks that came.
    kept: Buffer,
    pub(super) way: Way,
}

impl Help {
    /// Creates the help of a receiver; `None` if it recovers in a way that needs none.
    pub(super) fn new(config: &ReceiverConfig, draws: &Draws) -> Option<Box<Help>> {
        let (node, shape) = (&config.node, &config.shape);
        let random = draws.help.clone();
        let way = match node.recovery {
            Scheme::Tree | Scheme::Source => return None,
            Scheme::Lms => {
                let channel = (node.data, node.feed);
                Way::Lms(Helper::new(channel, shape.source, config.cost, random))
            }
            Scheme::Srm => Way::Srm(Volunteer::new(
                node.feed,
                shape.source,
                (shape.fec, config.repair.queue),
                random,
            )),
        };
        let most_bytes = usize::try_from(config.repair.buffer).unwrap_or(usize::MAX);
        let kept = Buffer::new(usize::from(shape.symbol_len), most_bytes);
        Some(Box::new(Help { kept, way }))
    }

    /// Begins, now that the source has taken this receiver in.
    pub(super) fn start(&mut self, now: Instant) {
        match &mut self.way {
            Way::Lms(helper) => helper.start(now),
            Way::Srm(volunteer) => volunteer.distance.start(now),
        }
    }

    /// Helps no more.
    pub(super) fn stop(&mut self) {
        match &mut self.way {
            Way::Lms(helper) => helper.stop(),
            Way::Srm(volunteer) => volunteer.distance.stop(),
        }
    }

    /// Returns where symbols of the block are kept, if there is room for it.
    pub(super) fn keeps(&mut self, block: u32, k: u8) -> Option<&mut Buffer> {
        self.kept.make_room(block, k).then_some(&mut self.kept)
    }

    /// Drops a block that was wrong.
    pub(super) fn forget(&mut self, block: u32) {
        self.kept.drop_block(block);
    }

    /// Returns the bytes that are kept.
    pub(super) fn buffered(&self) -> u64 {
        self.kept.bytes() as u64
    }

    /// Notes that a block is complete, so that all of its symbols can be sent.
    pub(super) fn on_complete(&mut self, block: u32, k: u8) {
        if self.kept.complete(block)
            && let Way::Srm(volunteer) = &mut self.way
        {
            volunteer.on_held(block, k);
        }
    }

    /// Notes a repair that others heard too.
    pub(super) fn on_repair(&mut self, now: Instant, block: u32, esi: u32) {
        match &mut self.way {
            Way::Lms(helper) => helper.dmcasts.on_heard(now, block, esi),
            Way::Srm(volunteer) => volunteer.on_repair(now, block, esi),
        }
    }

    /// Notes what another member lacks, which is so many hops away, where the source is as many as
    /// the second number.
    pub(super) fn on_nack(
        &mut self,
        now: Instant,
        runs: &[NackRun],
        (hops, of): (Option<u8>, Option<u8>),
    ) -> Result<(), DropReason> {
        let Way::Srm(volunteer) = &mut self.way else { return Ok(()) };
        let away = away(volunteer.distance.rtt().smoothed(), hops, of);
        let mut result = Ok(());
        for run in runs {
            let lack = Lack::from(run.need);
            for block in run.run.blocks() {
                result = result.and(volunteer.ask(now, &away, block, lack, &self.kept));
            }
        }
        match result {
            // Blocks that it lacks itself are answered by another member.
            Ok(()) | Err(Unfounded::NotLacking) => Ok(()),
            Err(unfounded) => Err(unfounded.into()),
        }
    }

    /// Handles a message of LMS that came to this node alone, other than a repair.
    pub(super) fn on_message(
        &mut self,
        now: Instant,
        (from, message): (SocketAddr, &Message<'_>),
        reception: &Reception,
    ) -> Result<(), DropReason> {
        match (&mut self.way, message) {
            (Way::Lms(helper), message) => {
                helper.on_message(now, (from, message), (reception, &self.kept))
            }
            (Way::Srm(volunteer), &Message::Pong { nonce, .. }) => {
                volunteer.distance.on_pong(now, nonce)
            }
            _ => Err(DropReason::Unexpected),
        }
    }

    /// Returns the time after which a request is repeated, less the spread; for SRM the round trip
    /// to the source.
    pub(super) fn rtt(&self) -> Duration {
        match &self.way {
            Way::Lms(helper) => helper.timeout(),
            Way::Srm(volunteer) => volunteer.distance.rtt().smoothed(),
        }
    }

    /// Returns when there is something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.way {
            Way::Lms(helper) => helper.next_timeout(),
            Way::Srm(volunteer) => volunteer.next_timeout(),
        }
    }

    /// Lets timers run out.
    pub(super) fn handle_timeout(&mut self, now: Instant, reception: &Reception) {
        match &mut self.way {
            Way::Lms(helper) => helper.handle_timeout(now, (reception, &self.kept)),
            Way::Srm(volunteer) => volunteer.on_timeout(now, &self.kept),
        }
    }

    /// Returns the next message, where it goes, and whether routers are to look at it.
    pub(super) fn poll_message(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>, bool)> {
        match &mut self.way {
            Way::Lms(helper) => helper.poll_message(now),
            Way::Srm(volunteer) => volunteer.distance.poll(now).map(|(to, ping)| (to, ping, false)),
        }
    }

    /// Returns whether repairs are due.
    pub(super) fn any_due(&self) -> bool {
        match &self.way {
            Way::Lms(helper) => helper.dmcasts.any_due(),
            Way::Srm(volunteer) => volunteer.any_due(),
        }
    }

    /// Fills `buf` with repairs. Returns where they go.
    pub(super) fn fill(&mut self, now: Instant, buf: &mut TransmitBuf) -> Filled {
        match &mut self.way {
            Way::Lms(helper) => helper.dmcasts.fill(now, &mut self.kept, buf),
            Way::Srm(volunteer) => volunteer.fill(now, &mut self.kept, buf),
        }
    }

    /// Returns the repairs sent to others, and the requests sent.
    pub(super) fn counts(&self) -> (u64, u64) {
        match &self.way {
            Way::Lms(helper) => (helper.dmcasts.sent(), helper.requests_sent()),
            Way::Srm(volunteer) => (volunteer.sent(), 0),
        }
    }
}

impl<K: SymbolSink> Receiver<K> {
    /// Handles a message of LMS, of which pings are used by others as well.
    pub(super) fn on_lms(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        data_channel: bool,
    ) -> Result<(), DropReason> {
        let message = Message::parse(datagram.payload).map_err(|_| DropReason::Malformed)?;
        let message = message.message().ok_or(DropReason::Malformed)?;
        let Some(help) = &mut self.help else { return Err(DropReason::Unexpected) };
        if let Message::Repair { tsi, payload, .. } = message {
            // A turning point sends it as the source does, by the data channel.
            if !data_channel || !matches!(help.way, Way::Lms(_)) {
                return Err(DropReason::Unexpected);
            }
            return if tsi == self.config.node.feed {
                self.on_helpers_repair(now, payload)
            } else {
                Err(DropReason::OtherSession)
            };
        }
        let Address::Host(from) = datagram.by else { return Err(DropReason::Unexpected) };
        help.on_message(now, (from, &message), self.delivery.reception())
    }

    /// Sends requests for blocks, if routers choose who answers.
    pub(super) fn request_from_helpers(&mut self, now: Instant) {
        let reach = self.reach();
        let Some(Help { way: Way::Lms(helper), .. }) = self.help.as_deref_mut() else { return };
        for Wanted { block, symbols, number } in
            self.recovery.next_requests(now, &mut self.delivery, &reach)
        {
            helper.request(now, block, symbols, number);
        }
    }

    /// Builds the next message of this part.
    pub(super) fn poll_help(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let help = self.help.as_mut()?;
        let (to, bytes, alert) = help.poll_message(now)?;
        self.stats.control_sent += 1;
        buf.push_message(bytes);
        Some(Transmit { alert, ..Transmit::control(Address::Host(to)) })
    }

    /// Fills `buf` with repairs for others. Returns where they go.
    pub(super) fn fill_help(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let help = self.help.as_mut()?;
        match help.fill(now, buf) {
            Filled::Packets => {
                let to = Address::Channel(self.config.node.domain);
                Some(Transmit::data(to).within(Some(self.config.node.scope)))
            }
            Filled::PacketsTo(host) => Some(Transmit::data(Address::Host(host))),
            Filled::Pending | Filled::Nothing => None,
        }
    }
}
