//! The sockets of a session directory on each interface, which come and go with its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::PollFd;
use nix::poll::PollFlags;
use umbel_net::interface::{Family, Interface, InterfaceError};
use umbel_net::udp::{Receiver, ReceiverOptions, Sender, SenderOptions};
use umbel_net::wake::{self, Waker};
use umbel_wire::{Channel, sap};

use crate::bounds::HEARD;
use crate::endpoint::interface as choice;

/// IPv6 scopes whose directories are listened to: link, site, organization, global.
const SCOPES_V6: [u8; 4] = [0x2, 0x5, 0x8, 0xE];
/// Most hosts of which the interfaces are noted by which they were heard.
const HOSTS: usize = HEARD.all;

/// Returns the groups of the directories of a family.
fn groups(family: Family) -> Vec<IpAddr> {
    match family {
        Family::V4 => {
            vec![sap::LOCAL_V4.into(), sap::ORGANIZATION_V4.into(), sap::GLOBAL_V4.into()]
        }
        Family::V6 => SCOPES_V6.map(|scope| sap::directory_v6(scope).into()).to_vec(),
    }
}

/// What is listened to: one interface, or all.
#[derive(Debug)]
pub(super) struct Ears {
    /// Name or address of the only interface.
    wanted: Option<String>,
    each: Vec<Ear>,
    looked: Option<Instant>,
    /// The interfaces by which hosts were heard.
    heard: BTreeMap<IpAddr, BTreeSet<u32>>,
}

/// The sockets on one interface.
#[derive(Debug)]
struct Ear {
    interface: Interface,
    receivers: Vec<Receiver>,
    senders: Vec<(Sender, Vec<IpAddr>)>,
}

impl Ear {
    /// Starts to listen, on IPv4 and IPv6 as far as the interface has them.
    ///
    /// # Errors
    ///
    /// If it can listen to neither.
    fn open(interface: Interface) -> anyhow::Result<Ear> {
        let mut ear = Ear { interface, receivers: Vec::new(), senders: Vec::new() };
        let mut failed = None;
        for family in [Family::V4, Family::V6] {
            if ear.interface.address(family).is_err() {
                continue;
            }
            if let Err(error) = ear.add(family) {
                tracing::debug!("no announcements by {family}: {error:#}");
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) if ear.receivers.is_empty() => {
                Err(error.context("cannot listen to announcements"))
            }
            _ => Ok(ear),
        }
    }

    fn add(&mut self, family: Family) -> anyhow::Result<()> {
        let options = ReceiverOptions { batch: 8, offload: false, ..ReceiverOptions::default() };
        let mut receiver = Receiver::open(sap::PORT, family, &self.interface, &options)?;
        for group in groups(family) {
            receiver.join(&Channel { source: None, group, port: sap::PORT })?;
        }
        let sender = Sender::open(&self.interface, &SenderOptions::new(family))?;
        self.receivers.push(receiver);
        self.receivers.push(Receiver::of_sender(&sender, &options)?);
        self.senders.push((sender, groups(family)));
        Ok(())
    }

    /// Returns whether its sockets are right for the interface as it is now.
    fn suits(&self, now: &Interface) -> bool {
        let Interface { index, v4, v6, .. } = &self.interface;
        (*index, v4, v6) == (now.index, &now.v4, &now.v6)
    }
}

impl Ears {
    /// Starts to listen on an interface, or on all.
    ///
    /// # Errors
    ///
    /// If the wanted one cannot be used, or is not there though others are.
    pub(super) fn open(wanted: Option<&str>) -> anyhow::Result<Ears> {
        let wanted = wanted.map(str::to_owned);
        let mut ears = Ears { wanted, each: Vec::new(), looked: None, heard: BTreeMap::new() };
        match ears.present() {
            Err(error) if !choice::may_come(&error) => return Err(error.into()),
            _ => {}
        }
        let mut failed = None;
        ears.look(Instant::now(), |error| {
            failed.get_or_insert(error);
        });
        match failed {
            Some(error) if ears.each.is_empty() => Err(error),
            _ => Ok(ears),
        }
    }

    /// Returns whether nothing is listened to, since no interface has an address yet.
    pub(super) fn is_deaf(&self) -> bool {
        self.each.is_empty()
    }

    /// Returns the interfaces that are listened to.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.each.iter().map(|ear| &ear.interface)
    }

    /// Returns the sockets from which questions go out, with the groups that they ask.
    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut (Sender, Vec<IpAddr>)> {
        self.each.iter_mut().flat_map(|ear| &mut ear.senders)
    }

    fn present(&self) -> Result<Vec<Interface>, InterfaceError> {
        match &self.wanted {
            Some(wanted) => Ok(vec![Interface::resolve(wanted)?]),
            None => choice::heard(),
        }
    }

    /// Looks at the interfaces if that is due, and opens and closes sockets as they have come,
    /// changed and gone. Returns whether something is listened to that was not before.
    fn look(&mut self, now: Instant, mut failed: impl FnMut(anyhow::Error)) -> bool {
        if self.looked.is_some_and(|at| now.duration_since(at) < choice::LOOK) {
            return false;
        }
        self.looked = Some(now);
        let mut present = self.present().unwrap_or_default();
        present.retain(|one| !(one.v4.is_empty() && one.v6.is_empty()));
        self.each.retain(|ear| present.iter().any(|one| ear.suits(one)));
        present.retain(|one| !self.each.iter().any(|ear| ear.suits(one)));
        let mut any = false;
        for interface in present {
            match Ear::open(interface) {
                Ok(ear) => {
                    self.each.push(ear);
                    any = true;
                }
                Err(error) => failed(error),
            }
        }
        any
    }

    /// Waits for this time at most, until there may be something to hear, the waker is called, or
    /// it is time to look at the interfaces.
    pub(super) fn wait(&self, waker: &Waker, most: Duration) -> std::io::Result<()> {
        let receivers = self.each.iter().flat_map(|ear| &ear.receivers).map(AsFd::as_fd);
        let all = receivers.chain([waker.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        wake::wait_for_any(&mut fds, Some(most.min(choice::LOOK)))
    }

    /// Takes what has come, and looks at the interfaces if that is due. Returns whether something is
    /// listened to that was not before.
    pub(super) fn take(&mut self, now: Instant, mut hear: impl FnMut(IpAddr, &[u8])) -> bool {
        let Ears { each, heard, .. } = self;
        each.retain_mut(|Ear { interface, receivers, .. }| {
            receivers.iter_mut().all(|receiver| {
                let taken = receiver.receive(Some(Duration::ZERO), None, |received| {
                    let from = received.from.ip();
                    if heard.len() < HOSTS || heard.contains_key(&from) {
                        heard.entry(from).or_default().insert(interface.index);
                    }
                    hear(from, received.payload);
                });
                // It is opened again if the interface is still there.
                taken.is_ok()
            })
        });
        self.look(now, |error| tracing::debug!("{error:#}"))
    }

    /// Returns the interface on which to receive from a host: the wanted one, that of the route to
    /// the host if it was heard there, or another one on which it was heard. Without any of these,
    /// the route decides.
    pub(super) fn towards(&self, host: IpAddr) -> Option<&Interface> {
        if self.wanted.is_some() {
            return self.interfaces().next();
        }
        let of = |index: u32| self.interfaces().find(|one| one.index == index);
        let route = Interface::for_peer(host).ok().and_then(|route| of(route.index));
        let Some(heard) = self.heard.get(&host) else { return route };
        let heard_there = |one: &&Interface| heard.contains(&one.index);
        route.filter(heard_there).or_else(|| heard.iter().find_map(|&index| of(index))).or(route)
    }
}
