//! What a node of an open feed has signed, and whether it may say that.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tmtp::{Body, Message, Role, SignedStamp};

use super::keys::End;
use super::{Authentic, Opened, identity, needs_pair};
use crate::tmtp::config::NodeConfig;
use crate::tmtp::drops::DropReason;
use crate::tmtp::incoming;
use crate::{Address, Instant};

/// Time without a message after which another node may have a pair at an address, in an open feed.
pub(super) const DISUSE: Duration = Duration::from_secs(10);

impl Authentic {
    /// Lets in what a node of an open feed has signed, if it is of use here.
    pub(super) fn open_signed(
        &mut self,
        now: Instant,
        by: Address,
        (bytes, stamp): (&[u8], SignedStamp),
        (node, is_of_use): (&NodeConfig, impl FnOnce(&Message) -> bool),
    ) -> Result<Opened, DropReason> {
        if !self.is_open() {
            return Err(DropReason::NotAuthentic);
        }
        let message = incoming::message(bytes, node)?;
        let (from, to, multicast) = self.ends(by)?;
        if identity::id_of(self.feed, &stamp.keys) != message.sender
            || needs_pair(&message.body, multicast)
            || self.is_out_of_place(&message, from, multicast)
        {
            return Err(DropReason::NotAuthentic);
        }
        // What is cheap comes first.
        self.numbers.check(now, &message, stamp.number)?;
        if !is_of_use(&message) {
            return Ok(Opened::Unneeded);
        }
        if !self.checks.take(now) {
            self.deaf = true;
            return Err(DropReason::OverLimit);
        }
        if !identity::is_right(&stamp, (from, to), bytes) {
            return Err(DropReason::NotAuthentic);
        }
        self.numbers.take(now, &message, stamp.number);
        self.let_in(now, from, message, Some(&stamp.keys))
    }

    /// Returns whether a node says what only another may say: who speaks from the source's address
    /// or as a source is the source, and a parent dismisses its own child.
    fn is_out_of_place(&self, message: &Message, from: SocketAddr, multicast: bool) -> bool {
        if let Body::Dismiss { .. } = &message.body {
            let pair = self.peers.get(&from).and_then(|peer| peer.holds.as_ref());
            return pair.is_none_or(|pair| pair.id != message.sender);
        }
        // The source itself tells of others that use its feed.
        if self.own.0 == self.source.0 || message.sender == self.source.0 {
            return false;
        }
        let as_source = match &message.body {
            Body::Heartbeat(_) => true,
            Body::Beacon(beacon) => beacon.role == Role::Source,
            Body::Willing(willing) => willing.role == Role::Source,
            _ => false,
        };
        as_source || !multicast && from == self.source.1
    }

    /// Checks that a pair may be made with a child, in an open feed.
    pub(super) fn check_room(&mut self, now: Instant, child: End) -> Result<(), DropReason> {
        if !self.is_open() {
            return Ok(());
        }
        let peer = self.peers.get(&child.1);
        let taken = peer.is_some_and(|peer| peer.is_in_use_by_another(now, child.0));
        if taken || !self.joins.may_leave(now, child.1.ip()) {
            return Err(DropReason::OverLimit);
        }
        Ok(())
    }
}
