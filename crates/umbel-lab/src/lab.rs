//! A running lab.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{SockaddrStorage, bind};
use umbel_topology::{Impairment, NodeKind, Topology};

use crate::emulator::{DirectionStats, EmulatedLink, Emulator};
use crate::error::{LabError, SkipReason};
use crate::membership::{Follower, Routers};
use crate::mroute::MulticastRouter;
use crate::namespace::{self, Namespace, Privilege};
use crate::plan::{Branch, Index, Plan};
use crate::setup::{
    CARRIER_TIMEOUT, End, Site, configuration_socket, emulator_port, interface_index, node_batch,
    run_ip, switch_port, wait_for_carrier,
};
use crate::warden::Warden;

/// Hosts, routers, switches and links that exist until the lab is dropped.
///
/// Dropping it kills the processes that still run in it. If the owning process dies instead, even
/// by SIGKILL, the same happens within about a second.
#[derive(Debug)]
pub struct Lab {
    topology: Topology,
    plan: Arc<Plan>,
    emulator: Emulator,
    /// Ends before the routers do.
    follower: Mutex<Option<Follower>>,
    routers: Routers,
    nodes: Vec<Option<NodeState>>,
    fabric: Namespace,
    warden: Warden,
}

#[derive(Debug)]
struct NodeState {
    namespace: Namespace,
    interfaces: Vec<Interface>,
}

/// An interface of a host or router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name inside the node: `eth0`, `eth1` … in order of the node's links.
    pub name: String,
    /// Its number inside the node.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its first IPv4 address.
    pub addr4: Ipv4Addr,
    /// Its first global IPv6 address.
    pub addr6: Ipv6Addr,
    /// The node at the other end of its link.
    pub peer: String,
}

/// Counters of the frames of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStats {
    /// One end's node.
    pub a: String,
    /// The other end's node.
    pub b: String,
    /// Frames from `a` to `b` and from `b` to `a`; `None` on plain links, where no emulator counts
    /// them.
    pub directions: Option<[DirectionStats; 2]>,
}

impl Lab {
    /// Checks whether this machine can host a lab, as root or through a user namespace.
    ///
    /// # Errors
    /// If it cannot. A test prints the reason and skips.
    pub fn available() -> Result<(), SkipReason> {
        Privilege::probe()?;
        for tool in [["ip", "-V"], ["sh", "-c"]] {
            let mut command = Command::new(tool[0]);
            command.args(&tool[1..]).stdout(Stdio::null()).stderr(Stdio::null());
            if let Err(error) = command.status() {
                return Err(SkipReason(format!("cannot run `{}`: {error}", tool[0])));
            }
        }
        Ok(())
    }

    /// Builds a lab. Takes some milliseconds per node.
    ///
    /// # Errors
    /// If the topology contradicts itself, this machine cannot host a lab, or a step fails.
    pub fn up(topology: &Topology) -> Result<Lab, LabError> {
        let plan = Arc::new(Plan::new(topology)?);
        let machines =
            topology.nodes.iter().filter(|n| !matches!(n.kind, NodeKind::Switch { .. })).count();
        let namespaces = namespace::create(machines + 1)?;
        let warden = Warden::start(&namespaces)?;
        let mut rest = namespaces.into_iter();
        let mut next = || {
            rest.next().ok_or_else(|| LabError::Control("too few namespaces were made".to_owned()))
        };
        let fabric = next()?;
        let mut nodes = Vec::new();
        for spec in &topology.nodes {
            let switch = matches!(spec.kind, NodeKind::Switch { .. });
            nodes.push(if switch { None } else { Some(next()?) });
        }
        Site { topology, plan: &plan, fabric: &fabric, nodes: &nodes }.build()?;
        let emulator = start_emulator(topology, &fabric)?;
        let nodes = nodes
            .into_iter()
            .enumerate()
            .map(|(node, namespace)| {
                namespace
                    .map(|namespace| NodeState::new(topology, &plan, node, namespace))
                    .transpose()
            })
            .collect::<Result<_, _>>()?;
        let (routers, follower) = (Routers::default(), Mutex::default());
        let topology = topology.clone();
        Ok(Lab { topology, plan, emulator, follower, routers, nodes, fabric, warden })
    }

    /// Returns the topology that was built.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the host or router with this name.
    ///
    /// # Errors
    /// If there is none, or it is a switch.
    pub fn host(&self, name: &str) -> Result<Node<'_>, LabError> {
        let unknown = || LabError::Unknown { kind: "host or router", name: name.to_owned() };
        let index = self.topology.node_index(name).ok_or_else(unknown)?;
        let state = self.nodes[index].as_ref().ok_or_else(unknown)?;
        Ok(Node { name: &self.topology.nodes[index].name, state })
    }

    /// Returns all hosts and routers in order of definition.
    pub fn hosts_and_routers(&self) -> impl Iterator<Item = Node<'_>> {
        self.topology
            .nodes
            .iter()
            .zip(&self.nodes)
            .filter_map(|(spec, state)| Some(Node { name: &spec.name, state: state.as_ref()? }))
    }

    /// Creates a command that will run where the switches are, to look at their ports or to set
    /// them.
    pub fn switch_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.fabric.command(program)
    }

    /// Changes both directions of the link between two nodes. Frames already queued keep their
    /// delivery times.
    ///
    /// # Errors
    /// If there is no such link, it is a plain one, or a value is out of range.
    pub fn set_link(&self, a: &str, b: &str, impairment: Impairment) -> Result<(), LabError> {
        self.set_link_direction(a, b, impairment)?;
        self.set_link_direction(b, a, impairment)
    }

    /// Changes the impairment of frames from one node to its neighbour.
    ///
    /// # Errors
    /// As for [`Lab::set_link`].
    pub fn set_link_direction(
        &self,
        from: &str,
        to: &str,
        impairment: Impairment,
    ) -> Result<(), LabError> {
        let link = self.link(from, to)?;
        impairment.validate()?;
        let spec = &self.topology.links[link];
        if !spec.is_emulated() {
            return Err(LabError::NotEmulated(spec.label()));
        }
        let direction = usize::from(spec.a != from);
        self.emulator.set_impairment(link, direction, impairment);
        Ok(())
    }

    /// Returns the present impairment of frames from one node to its neighbour.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn impairment(&self, from: &str, to: &str) -> Result<Impairment, LabError> {
        let link = self.link(from, to)?;
        let direction = usize::from(self.topology.links[link].a != from);
        Ok(self.emulator.impairment(link, direction).unwrap_or_default())
    }

    /// Cuts the link or restores it. A cut emulated link drops all frames while both ends believe
    /// it to be up; at a cut plain link the ends lose their carrier, and know it on return.
    ///
    /// # Errors
    /// If there is no such link, `ip` refuses, or an end does not notice.
    pub fn set_link_up(&self, a: &str, b: &str, up: bool) -> Result<(), LabError> {
        let link = self.link(a, b)?;
        if self.topology.links[link].is_emulated() {
            self.emulator.set_up(link, up);
            return Ok(());
        }
        self.set_end_up(link, up)?;
        let deadline = Instant::now() + CARRIER_TIMEOUT;
        for interface in self.plan.of_link[link].into_iter().flatten() {
            let interface = &self.plan.interfaces[interface];
            let Some(node) = &self.nodes[interface.node] else { continue };
            configuration_socket(&node.namespace)
                .and_then(|socket| wait_for_carrier(&socket, &interface.name, up, deadline))
                .map_err(LabError::system("see the carrier change"))?;
        }
        Ok(())
    }

    /// Sets one end of a plain link up or down: the switch's, if there is one.
    fn set_end_up(&self, link: usize, up: bool) -> Result<(), LabError> {
        let state = if up { "up" } else { "down" };
        for end in End::BOTH {
            if self.plan.of_link[link][end as usize].is_none() {
                let batch = format!("link set dev {} {state}\n", switch_port(link, end));
                return run_ip(&self.fabric, "the switch port", &batch, &[]);
            }
        }
        let [Some(interface), _] = self.plan.of_link[link] else { return Ok(()) };
        let interface = &self.plan.interfaces[interface];
        let Some(node) = &self.nodes[interface.node] else { return Ok(()) };
        let batch = if up {
            node_batch(&self.topology, &self.plan, interface.node)
        } else {
            format!("link set dev {} down\n", interface.name)
        };
        run_ip(&node.namespace, &self.topology.nodes[interface.node].name, &batch, &[])
    }

    /// Returns the counters of every link's frames so far.
    pub fn link_stats(&self) -> Vec<LinkStats> {
        let links = self.topology.links.iter().enumerate();
        links
            .map(|(link, spec)| LinkStats {
                a: spec.a.clone(),
                b: spec.b.clone(),
                directions: self.emulator.stats(link),
            })
            .collect()
    }

    /// Makes the routers forward `source`'s packets for `group` to all hosts.
    ///
    /// The entries are static. Membership reports have no effect.
    ///
    /// # Errors
    /// If the source is unknown, the group is not a multicast address, or the kernel refuses.
    pub fn route_multicast(&self, source: &str, group: IpAddr) -> Result<(), LabError> {
        self.route(source, group, None)
    }

    /// Makes the routers forward `source`'s packets for `group` to the listed hosts only. A later
    /// call for the same source and group replaces the tree where it has branches.
    ///
    /// # Errors
    /// As for [`Lab::route_multicast`], and if a receiver is unknown.
    pub fn route_multicast_to(
        &self,
        source: &str,
        group: IpAddr,
        receivers: &[&str],
    ) -> Result<(), LabError> {
        let receivers = receivers
            .iter()
            .map(|name| self.node_index(name))
            .collect::<Result<BTreeSet<Index>, LabError>>()?;
        self.route(source, group, Some(&receivers))
    }

    /// Makes the routers forward any host's packets for any of `groups` to all hosts.
    ///
    /// # Errors
    /// As for [`Lab::route_multicast`].
    pub fn route_multicast_from_all(
        &self,
        groups: impl IntoIterator<Item = IpAddr>,
    ) -> Result<(), LabError> {
        for group in groups {
            for spec in self.topology.nodes.iter().filter(|n| n.kind == NodeKind::Host) {
                self.route(&spec.name, group, None)?;
            }
        }
        Ok(())
    }

    /// Makes the routers forward `source`'s packets for a group from now on only to where hosts
    /// join it, as their `IGMPv3` reports say. A branch is cut `leave_latency` after its last
    /// member has left, and at once with 0. That is less than any timer of IGMP allows without
    /// tracking hosts one by one. IPv4 only.
    ///
    /// # Errors
    /// As for [`Lab::route_multicast`], and if the group is not IPv4.
    pub fn follow_members(
        &self,
        source: &str,
        group: IpAddr,
        leave_latency: Duration,
    ) -> Result<(), LabError> {
        let IpAddr::V4(group) = group else {
            return Err(LabError::Control(format!("{group}: members of IPv4 groups are followed")));
        };
        if !group.is_multicast() {
            return Err(LabError::Control(format!("{group} is not a multicast address")));
        }
        let failed = || LabError::system("follow memberships");
        let node = self.node_index(source)?;
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        if follower.is_none() {
            for router in (0..self.nodes.len()).filter(|&node| self.plan.is_router[node]) {
                self.with_router(router, |_| Ok(())).map_err(failed())?;
            }
            let started = Follower::start(self.plan.clone(), self.routers.clone());
            *follower = Some(started.map_err(failed())?);
        }
        let Some(follower) = follower.as_ref() else { return Ok(()) };
        for &interface in &self.plan.of_node[node] {
            follower.follow(interface, group, leave_latency).map_err(failed())?;
        }
        Ok(())
    }

    /// Releases the kernel's multicast forwarding on every router, so that a daemon can take it.
    pub fn release_multicast(&self) {
        *self.follower.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.routers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn route(
        &self,
        source: &str,
        group: IpAddr,
        receivers: Option<&BTreeSet<Index>>,
    ) -> Result<(), LabError> {
        if !group.is_multicast() {
            return Err(LabError::Control(format!("{group} is not a multicast address")));
        }
        let node = self.node_index(source)?;
        for &interface in &self.plan.of_node[node] {
            let source = self.plan.interfaces[interface].address_like(group);
            for branch in self.plan.multicast_tree(interface, receivers) {
                self.add_branch(&branch, source, group)?;
            }
        }
        Ok(())
    }

    fn add_branch(&self, branch: &Branch, source: IpAddr, group: IpAddr) -> Result<(), LabError> {
        let name = &self.topology.nodes[branch.router].name;
        let failed = || LabError::system(format!("route multicast on `{name}`"));
        let position = |interface: &Index| {
            self.plan.of_node[branch.router].iter().position(|i| i == interface).unwrap_or(0)
        };
        let outputs: Vec<usize> = branch.outputs.iter().map(position).collect();
        let input = position(&branch.input);
        self.with_router(branch.router, |router| router.add(source, group, input, &outputs))
            .map_err(failed())
    }

    /// Does something with the forwarding of a router, which is taken over if it is not yet.
    fn with_router(
        &self,
        router: Index,
        act: impl FnOnce(&MulticastRouter) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(state) = &self.nodes[router] else { return Ok(()) };
        let mut routers = self.routers.lock().unwrap_or_else(PoisonError::into_inner);
        act(match routers.entry(router) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let indexes: Vec<u32> = state.interfaces.iter().map(|i| i.index).collect();
                entry.insert(MulticastRouter::open(&state.namespace, &indexes)?)
            }
        })
    }

    fn node_index(&self, name: &str) -> Result<Index, LabError> {
        let found = self.topology.node_index(name).filter(|&node| self.nodes[node].is_some());
        found.ok_or_else(|| LabError::Unknown { kind: "host or router", name: name.to_owned() })
    }

    fn link(&self, a: &str, b: &str) -> Result<Index, LabError> {
        self.topology
            .link_index(a, b)
            .ok_or_else(|| LabError::Unknown { kind: "link", name: format!("{a}–{b}") })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.warden.clear();
    }
}

fn start_emulator(topology: &Topology, fabric: &Namespace) -> Result<Emulator, LabError> {
    let failed = || LabError::system("start the link emulator");
    let mut links = Vec::new();
    for (link, spec) in topology.links.iter().enumerate() {
        if !spec.is_emulated() {
            continue;
        }
        let control = configuration_socket(fabric).map_err(failed())?;
        let port = |end| -> io::Result<(OwnedFd, u32)> {
            let index = interface_index(&control, &emulator_port(link, end))?;
            Ok((fabric.socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?, index))
        };
        let ports = [port(End::A).map_err(failed())?, port(End::B).map_err(failed())?];
        links.push(EmulatedLink {
            link,
            ports,
            impairments: [spec.a_to_b, spec.b_to_a],
            mtu: spec.mtu.unwrap_or(crate::setup::DEFAULT_MTU),
        });
    }
    Emulator::start(links, topology.seed).map_err(failed())
}

impl NodeState {
    fn new(
        topology: &Topology,
        plan: &Plan,
        node: Index,
        namespace: Namespace,
    ) -> Result<NodeState, LabError> {
        let name = &topology.nodes[node].name;
        let failed = || LabError::system(format!("look at the interfaces of `{name}`"));
        let control = configuration_socket(&namespace).map_err(failed())?;
        let mut interfaces = Vec::new();
        for &index in &plan.of_node[node] {
            let planned = &plan.interfaces[index];
            let link = &topology.links[planned.link];
            let (IpAddr::V4(addr4), IpAddr::V6(addr6)) =
                (planned.v4[0].address, planned.v6[0].address)
            else {
                continue;
            };
            interfaces.push(Interface {
                name: planned.name.clone(),
                index: interface_index(&control, &planned.name).map_err(failed())?,
                mac: planned.mac,
                addr4,
                addr6,
                peer: if link.a == *name { link.b.clone() } else { link.a.clone() },
            });
        }
        Ok(NodeState { namespace, interfaces })
    }
}

/// A host or router of a running lab.
#[derive(Clone, Copy, Debug)]
pub struct Node<'lab> {
    name: &'lab str,
    state: &'lab NodeState,
}

impl<'lab> Node<'lab> {
    /// Returns the node's name.
    pub fn name(&self) -> &'lab str {
        self.name
    }

    /// Creates a command that will run in this node, with `UMBEL_LAB_HOST` set to the node's name.
    ///
    /// The caller waits for it as for any child. Dropping the lab kills it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.state.namespace.command(program);
        command.env("UMBEL_LAB_HOST", self.name);
        command
    }

    /// Returns the IPv4 address of its first interface.
    pub fn addr4(&self) -> Ipv4Addr {
        self.state.interfaces[0].addr4
    }

    /// Returns the global IPv6 address of its first interface.
    pub fn addr6(&self) -> Ipv6Addr {
        self.state.interfaces[0].addr6
    }

    /// Returns the name of its first interface.
    pub fn interface(&self) -> &'lab str {
        &self.state.interfaces[0].name
    }

    /// Returns all its interfaces in order of the node's links.
    pub fn interfaces(&self) -> &'lab [Interface] {
        &self.state.interfaces
    }

    /// Opens a socket of this node, usable by the calling process wherever that runs.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
        self.state.namespace.socket(domain, kind, protocol)
    }

    /// Opens a UDP socket of this node, bound to `address`, usable by the calling process.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn udp_socket(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        let domain = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let socket = self.socket(domain, libc::SOCK_DGRAM, 0)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        Ok(UdpSocket::from(socket))
    }

    /// Returns the descriptors of its network namespace and of the user namespace above, if any.
    pub(crate) fn namespace_fds(&self) -> (i32, Option<i32>) {
        (self.state.namespace.net_fd(), self.state.namespace.user_fd())
    }
}
