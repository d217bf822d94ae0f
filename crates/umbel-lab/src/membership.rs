//! Routers that forward a group only to where hosts have joined it.
//!
//! One thread hears the IGMPv3 reports on all routers, and keeps the forwarding cache of each in
//! step. Hosts are tracked one by one [RFC 3376 §A.2], so that nobody needs to be asked whether
//! others remain. A branch is cut when its last member has left, or a given time later. The thread
//! knows at once everything that routers would exchange by a routing protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use umbel_wire::membership::{Message, Record, RecordType};
use umbel_wire::{igmp, ip};

use crate::mroute::{MulticastRouter, Reports};
use crate::plan::{Index, Plan};

/// Longest report.
const REPORT_LEN: usize = 2048;

/// The routers whose forwarding is open, by node.
pub(crate) type Routers = Arc<Mutex<BTreeMap<Index, MulticastRouter>>>;

/// A channel whose forwarding follows its members.
#[derive(Debug)]
struct Followed {
    /// The source's interface.
    source: Index,
    address: Ipv4Addr,
    leave_latency: Duration,
    /// Nodes that get the channel now.
    served: BTreeSet<Index>,
    /// Nodes that have left, with the times at which they get the channel no longer.
    leaving: BTreeMap<Index, Instant>,
}

/// A host's wish for a group: its filter mode and sources.
#[derive(Clone, Debug, Default)]
struct Wish {
    sources: BTreeSet<IpAddr>,
    /// It wants any source, except those.
    any: bool,
}

impl Wish {
    fn hear(&mut self, record: &Record) {
        let sources = record.sources.iter().copied();
        match record.kind {
            RecordType::IsInclude | RecordType::ToInclude => {
                *self = Wish { sources: sources.collect(), any: false };
            }
            RecordType::IsExclude | RecordType::ToExclude => {
                *self = Wish { sources: sources.collect(), any: true };
            }
            RecordType::Allow if self.any => self.sources.retain(|s| !record.sources.contains(s)),
            RecordType::Block if self.any => self.sources.extend(sources),
            RecordType::Allow => self.sources.extend(sources),
            RecordType::Block => self.sources.retain(|s| !record.sources.contains(s)),
        }
    }

    fn wants(&self, source: IpAddr) -> bool {
        self.sources.contains(&source) != self.any
    }
}

/// Wishes of all hosts, and the branches that are forwarded.
#[derive(Debug)]
struct State {
    plan: Arc<Plan>,
    routers: Routers,
    /// By node and group.
    wishes: BTreeMap<(Index, IpAddr), Wish>,
    followed: BTreeMap<(Ipv4Addr, Ipv4Addr), Followed>,
}

/// The thread that follows memberships. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    state: Arc<Mutex<State>>,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Follower {
    /// Starts to hear reports on these routers.
    pub(crate) fn start(plan: Arc<Plan>, routers: Routers) -> io::Result<Follower> {
        let reports: Vec<Reports> =
            lock(&routers).values().map(MulticastRouter::hear_reports).collect::<Result<_, _>>()?;
        let (stopped, stop) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (wishes, followed) = (BTreeMap::new(), BTreeMap::new());
        let state = Arc::new(Mutex::new(State { plan, routers, wishes, followed }));
        let shared = state.clone();
        let thread = std::thread::Builder::new()
            .name("umbel-igmp".to_owned())
            .spawn(move || run(&shared, &reports, &stopped))?;
        Ok(Follower { state, stop: Some(stop), thread: Some(thread) })
    }

    /// Follows the members of a channel from now on.
    pub(crate) fn follow(
        &self,
        source: Index,
        group: Ipv4Addr,
        leave_latency: Duration,
    ) -> io::Result<()> {
        let mut state = lock(&self.state);
        let IpAddr::V4(address) = state.plan.interfaces[source].address_like(group.into()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (served, leaving) = (BTreeSet::new(), BTreeMap::new());
        let followed = Followed { source, address, leave_latency, served, leaving };
        state.followed.insert((address, group), followed);
        state.install((address, group))?;
        state.update(Instant::now())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(state: &Mutex<State>, reports: &[Reports], stopped: &OwnedFd) {
    let mut fds = vec![PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
    fds.extend(reports.iter().map(|from| PollFd::new(from.socket.as_fd(), PollFlags::POLLIN)));
    let mut buffer = [0; REPORT_LEN];
    loop {
        let next = lock(state).next_leave();
        let wait = next.map(|at| at.saturating_duration_since(Instant::now()));
        // Rounded up, so that the time has come afterwards.
        let wait = wait.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait.as_millis() as i32 + 1).unwrap_or(PollTimeout::MAX)
        });
        if poll(&mut fds, wait).is_err() {
            continue;
        }
        if fds[0].any().unwrap_or(true) {
            return;
        }
        let mut state = lock(state);
        for (from, fd) in reports.iter().zip(&fds[1..]) {
            if !fd.any().unwrap_or(true) {
                continue;
            }
            let socket = from.socket.as_raw_fd();
            while let Ok(len) = recv(socket, &mut buffer, MsgFlags::MSG_DONTWAIT) {
                if let Some((reporter, records)) = report(&buffer[..len]) {
                    state.hear(reporter, &records);
                }
            }
        }
        // The kernel takes entries that are well-formed, and these are.
        let _ = state.update(Instant::now());
    }
}

/// Returns who reports what in an IPv4 packet, if it is a report that names sources.
fn report(packet: &[u8]) -> Option<(Ipv4Addr, Vec<Record>)> {
    let segment = ip::Segment::find(packet).filter(|segment| segment.protocol == ip::IGMP)?;
    let reporter = packet.get(12..16)?.first_chunk::<4>()?;
    match igmp::parse(packet.get(segment.place)?) {
        Ok(Some(Message::Report(report))) => Some((Ipv4Addr::from(*reporter), report.records)),
        _ => None,
    }
}

impl State {
    fn hear(&mut self, reporter: Ipv4Addr, records: &[Record]) {
        let reporter = IpAddr::from(reporter);
        let interfaces = &self.plan.interfaces;
        let from = interfaces.iter().find(|interface| interface.address_like(reporter) == reporter);
        let Some(node) = from.map(|interface| interface.node) else { return };
        for record in records {
            self.wishes.entry((node, record.group)).or_default().hear(record);
        }
    }

    fn next_leave(&self) -> Option<Instant> {
        self.followed.values().flat_map(|followed| followed.leaving.values()).min().copied()
    }

    /// Brings what is forwarded in step with what is wanted.
    fn update(&mut self, now: Instant) -> io::Result<()> {
        let mut changed = Vec::new();
        for (&(address, group), followed) in &mut self.followed {
            let before = followed.served.clone();
            let wanted: BTreeSet<Index> = self
                .wishes
                .iter()
                .filter(|((_, of), wish)| *of == group && wish.wants(address.into()))
                .map(|((node, _), _)| *node)
                .collect();
            followed.leaving.retain(|node, _| !wanted.contains(node));
            for &node in followed.served.difference(&wanted) {
                followed.leaving.entry(node).or_insert(now + followed.leave_latency);
            }
            followed.served.extend(wanted);
            let leaving = &mut followed.leaving;
            followed.served.retain(|node| leaving.get(node).is_none_or(|at| *at > now));
            leaving.retain(|_, at| *at > now);
            if followed.served != before {
                changed.push((address, group));
            }
        }
        changed.into_iter().try_for_each(|channel| self.install(channel))
    }

    /// Writes a channel's entries. Routers that are on its way to nobody have one without outputs,
    /// so that packets do not wait there for a decision.
    fn install(&self, channel: (Ipv4Addr, Ipv4Addr)) -> io::Result<()> {
        let Some(followed) = self.followed.get(&channel) else { return Ok(()) };
        let group = IpAddr::from(channel.1);
        let tree = self.plan.multicast_tree(followed.source, Some(&followed.served));
        let routers = lock(&self.routers);
        for all in self.plan.multicast_tree(followed.source, None) {
            let Some(router) = routers.get(&all.router) else { continue };
            let of_node = &self.plan.of_node[all.router];
            let position = |interface: &Index| of_node.iter().position(|i| i == interface);
            let branch = tree.iter().find(|branch| branch.router == all.router);
            let outputs: Vec<usize> =
                branch.iter().flat_map(|b| &b.outputs).filter_map(position).collect();
            let input = position(&branch.map_or(all.input, |branch| branch.input)).unwrap_or(0);
            router.add(followed.address.into(), group, input, &outputs)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_wants_follows_from_its_records() {
        let [a, b] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let mut wish = Wish::default();
        let mut hear = |kind, sources: &[IpAddr]| {
            let group = [232, 1, 1, 1].into();
            wish.hear(&Record { kind, group, sources: sources.to_vec() });
            (wish.wants(a), wish.wants(b))
        };
        assert_eq!(hear(RecordType::Allow, &[a]), (true, false));
        assert_eq!(hear(RecordType::Allow, &[b]), (true, true));
        assert_eq!(hear(RecordType::Block, &[a]), (false, true));
        assert_eq!(hear(RecordType::ToExclude, &[]), (true, true));
        assert_eq!(hear(RecordType::Block, &[b]), (true, false));
        assert_eq!(hear(RecordType::Allow, &[b]), (true, true));
        assert_eq!(hear(RecordType::ToInclude, &[]), (false, false));
        assert_eq!(hear(RecordType::IsInclude, &[b]), (false, true));
        assert_eq!(hear(RecordType::IsExclude, &[a]), (false, true));
    }
}
