//! The source's part in a recovery without a tree: it answers what no receiver answers.

use std::collections::VecDeque;
use std::net::SocketAddr;

use umbel_wire::Channel;
use umbel_wire::feed::Recovery as Scheme;
use umbel_wire::lms::{Message, Request};
use umbel_wire::small_block::SmallBlockPacket;
use umbel_wire::tmtp::Nack;

use super::Source;
use crate::bounds::{PONGS, UNSTEERED};
use crate::bucket::HostLimiter;
use crate::lms::replier::RepairTo;
use crate::recovery::lms::{Dmcasts, Requestor, lacks_of};
use crate::recovery::srm::{Volunteer, away};
use crate::recovery::{Debts, Filled, Unfounded};
use crate::shares::Origin;
use crate::symbols::SymbolSource;
use crate::tmtp::config::{Draws, SourceConfig};
use crate::tmtp::drops::DropReason;
use crate::{Address, Datagram, Instant, Transmit, TransmitBuf};

/// Most hosts whose requests and pings are counted apart.
const HOSTS: usize = 4_096;

/// Receivers that the source answers besides its children.
#[derive(Debug)]
pub(super) enum Way {
    /// Nobody.
    None,
    /// Turning points.
    Lms(Dmcasts),
    /// The group, if nobody nearer does.
    Srm(Volunteer),
}

/// The source's part.
#[derive(Debug)]
pub(super) struct Help {
    way: Way,
    pongs: VecDeque<(SocketAddr, u64)>,
    /// Allowances of each host, and then of all.
    pong_limits: HostLimiter<Origin>,
    unsteered: HostLimiter<Origin>,
}

impl Help {
    pub(super) fn new(config: &SourceConfig, draws: &Draws) -> Help {
        let (node, shape) = (&config.node, &config.shape);
        let way = match node.recovery {
            Scheme::Tree | Scheme::Source => Way::None,
            Scheme::Lms => {
                // Routers know the channel by its source, even in a group of any source.
                let channel = Channel { source: Some(shape.source.ip()), ..node.data };
                let secret = blake3::derive_key("umbel lms cookies", &draws.cookies);
                Way::Lms(Dmcasts::new(channel, node.feed, secret))
            }
            Scheme::Srm => {
                let repairs = (shape.fec, config.repair.queue);
                Way::Srm(Volunteer::new(node.feed, shape.source, repairs, draws.help.clone()))
            }
        };
        Help {
            way,
            pongs: VecDeque::new(),
            pong_limits: PONGS.limiter(HOSTS),
            unsteered: UNSTEERED.limiter(HOSTS),
        }
    }

    /// Returns the number of repairs sent: to subtrees, and to the group.
    pub(super) fn sent(&self) -> (u64, u64) {
        match &self.way {
            Way::None => (0, 0),
            Way::Lms(dmcasts) => (dmcasts.sent(), 0),
            Way::Srm(volunteer) => (0, volunteer.sent()),
        }
    }

    /// Returns when there is something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.way {
            Way::Srm(volunteer) => volunteer.next_timeout(),
            Way::None | Way::Lms(_) => None,
        }
    }

    /// Returns whether repairs are due.
    pub(super) fn any_due(&self) -> bool {
        match &self.way {
            Way::None => false,
            Way::Lms(dmcasts) => dmcasts.any_due(),
            Way::Srm(volunteer) => volunteer.any_due(),
        }
    }
}

impl<S: SymbolSource> Source<S> {
    /// Handles a message of LMS. Pings are used by others as well.
    pub(super) fn on_lms(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
    ) -> Result<(), DropReason> {
        let Address::Host(from) = datagram.by else { return Err(DropReason::Unexpected) };
        let message = Message::parse(datagram.payload).map_err(|_| DropReason::Malformed)?;
        match message.message().ok_or(DropReason::Malformed)? {
            Message::Ping { tsi, nonce } if tsi == self.config.node.feed && !self.has_tree() => {
                if !self.help.pong_limits.take(now, Origin::of(from.ip())) {
                    return Err(DropReason::OverLimit);
                }
                self.help.pongs.push_back((from, nonce));
                Ok(())
            }
            Message::Request(request) => self.on_request(now, from, &request),
            Message::Pong { tsi, nonce } if tsi == self.config.node.feed => {
                self.on_router(now, from, nonce)
            }
            // The last router also offers its repliers to the source, which needs none.
            Message::Advertisement { .. } if matches!(self.help.way, Way::Lms(_)) => Ok(()),
            _ => Err(DropReason::Unexpected),
        }
    }

    /// Handles a request that no receiver could answer, or that no router has steered to one.
    fn on_request(
        &mut self,
        now: Instant,
        from: SocketAddr,
        request: &Request,
    ) -> Result<(), DropReason> {
        let Way::Lms(dmcasts) = &mut self.help.way else { return Err(DropReason::Unexpected) };
        let ours = self.config.node.data.destination();
        if request.channel.destination() != ours || request.tsi != self.config.node.feed {
            return Err(DropReason::OtherSession);
        }
        if let Some(point) = request.turning_point {
            if !dmcasts.points.admit(now, (point.router, from), request)? {
                return Ok(());
            }
        } else {
            if self.pace.is_behind(from) {
                return Err(Unfounded::Behind.into());
            }
            if !self.help.unsteered.take(now, Origin::of(from.ip())) {
                return Err(DropReason::OverLimit);
            }
        }
        let mut result = Ok(());
        for (block, lack) in lacks_of(request.units) {
            let owed = match request.turning_point {
                _ if block >= self.next.0 => Err(Unfounded::NeverSent),
                Some(place) => {
                    let asker = Requestor { to: RepairTo::Subtree(place), number: request.number };
                    dmcasts.ask(now, &asker, block, lack, &self.shelf)
                }
                // It is nobody's subtree, so everyone hears the repair.
                None => self.domain.ask(now, &None, block, lack, &self.shelf),
            };
            result = result.and(owed);
        }
        Ok(result?)
    }

    /// Handles the answer of a router, for which requests wait.
    fn on_router(
        &mut self,
        now: Instant,
        router: SocketAddr,
        cookie: u64,
    ) -> Result<(), DropReason> {
        let Way::Lms(dmcasts) = &mut self.help.way else { return Err(DropReason::Unexpected) };
        let waited = dmcasts.points.on_pong(now, router, cookie).ok_or(DropReason::NotAsked)?;
        let results = waited.iter().map(|request| self.on_request(now, router, request));
        results.fold(Ok(()), Result::and)
    }

    /// Handles a NACK that the whole group heard.
    pub(super) fn on_nack_in_group(
        &mut self,
        now: Instant,
        nack: &Nack,
        hops_left: Option<u8>,
    ) -> Result<(), DropReason> {
        let Way::Srm(volunteer) = &mut self.help.way else { return Err(DropReason::Unexpected) };
        let hops = hops_left.map(|left| nack.hop_limit.saturating_sub(left).saturating_add(1));
        let away = away(self.domain.timing().rtt, hops, self.tree.farthest());
        let mut result = Ok(());
        for run in &nack.runs {
            for block in run.run.blocks() {
                let owed = volunteer.ask(now, &away, block, run.need.into(), &self.shelf);
                result = result.and(owed);
            }
        }
        Ok(result?)
    }

    /// Handles a repair that another node sent to the group.
    pub(super) fn on_repair_in_group(
        &mut self,
        now: Instant,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let Way::Srm(volunteer) = &mut self.help.way else { return Err(DropReason::Duplicate) };
        let packet = SmallBlockPacket::parse(payload).map_err(|_| DropReason::Malformed)?;
        volunteer.on_repair(now, packet.header.sbn, packet.header.esi.into());
        Ok(())
    }

    /// Lets timers run out.
    pub(super) fn tend_help(&mut self, now: Instant) {
        if let Way::Srm(volunteer) = &mut self.help.way {
            volunteer.on_timeout(now, &self.shelf);
        }
    }

    /// Builds the next answer to a ping, or question of a router.
    pub(super) fn poll_pong(&mut self, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Way::Lms(dmcasts) = &mut self.help.way
            && let Some((to, ping)) = dmcasts.points.poll_ping()
        {
            buf.push_message(ping);
            self.stats.control_sent += 1;
            return Some(Transmit::control(Address::Host(to)));
        }
        let (to, nonce) = self.help.pongs.pop_front()?;
        let pong = Message::Pong { tsi: self.config.node.feed, nonce };
        buf.write_message(|out| pong.emit(out));
        self.stats.control_sent += 1;
        Some(Transmit::control(Address::Host(to)))
    }

    /// Fills `buf` with repairs that are not for everyone on the data channel.
    pub(super) fn poll_help(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if self.waits.help {
            return None;
        }
        let filled = match &mut self.help.way {
            Way::None => return None,
            Way::Lms(dmcasts) => dmcasts.fill(now, &mut self.shelf, buf),
            Way::Srm(volunteer) => volunteer.fill(now, &mut self.shelf, buf),
        };
        match filled {
            Filled::Packets => {
                let to = Address::Channel(self.config.node.domain);
                Some(Transmit::data(to).within(Some(self.config.node.scope)))
            }
            Filled::PacketsTo(host) => Some(Transmit::data(Address::Host(host))),
            Filled::Pending => {
                self.waits.help = true;
                None
            }
            Filled::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_asks_without_end_leaves_others_their_allowance() {
        for bound in [PONGS, UNSTEERED] {
            let mut limiter = bound.limiter(HOSTS);
            let host = |number| Origin::of([192, 0, 2, number].into());
            let mut asks = |number, times: u32| {
                let now = Instant::EPOCH;
                (0..times).filter(|_| limiter.take(now, host(number))).count()
            };
            let share = bound.of_host().burst;
            assert_eq!(asks(1, 10 * bound.all.burst), share as usize);
            assert_eq!(asks(2, share), share as usize);
        }
    }
}
