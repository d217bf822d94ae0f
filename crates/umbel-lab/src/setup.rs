//! Builds a plan: bridges, veth pairs, addresses, routes, offload.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use umbel_topology::{LinkSpec, NodeKind, Topology};

use crate::error::LabError;
use crate::namespace::{Namespace, Sysctl};
use crate::plan::{Index, Plan};

/// Default MTU of links, in bytes.
pub(crate) const DEFAULT_MTU: u32 = 1500;

/// First number of the interfaces at the ends of links, above the numbers that the kernel assigns.
///
/// Every end has its own number in the whole lab. If both ends of a pair carry the same number, in
/// whatever namespaces, the kernel reports their carrier only after up to a second.
const FIRST_INDEX: usize = 1000;

/// Maximum time for links to come up.
pub(crate) const CARRIER_TIMEOUT: Duration = Duration::from_secs(5);

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    A,
    B,
}

impl End {
    pub(crate) const BOTH: [End; 2] = [End::A, End::B];

    fn letter(self) -> char {
        match self {
            End::A => 'a',
            End::B => 'b',
        }
    }
}

/// Returns the name of the emulator's end of the pair whose other end is `end` of link `link`.
pub(crate) fn emulator_port(link: Index, end: End) -> String {
    format!("e{link}{}", end.letter())
}

/// Returns the name of the end of a link that is plugged into a switch.
pub(crate) fn switch_port(link: Index, end: End) -> String {
    format!("p{link}{}", end.letter())
}

/// The topology, its plan, and the namespaces in which it is built.
pub(crate) struct Site<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) plan: &'a Plan,
    /// Namespace of the switches and of the emulator's ends.
    pub(crate) fabric: &'a Namespace,
    /// One for each host and router.
    pub(crate) nodes: &'a [Option<Namespace>],
}

impl Site<'_> {
    /// Builds everything but the emulator.
    pub(crate) fn build(&self) -> Result<(), LabError> {
        self.write_sysctls()?;
        run_ip(self.fabric, "the switches and links", &self.fabric_batch(), &self.inheritable())?;
        self.enable_queriers()?;
        self.switch_offload_off()?;
        for (node, namespace) in self.nodes.iter().enumerate() {
            if let Some(namespace) = namespace {
                let name = &self.topology.nodes[node].name;
                run_ip(namespace, name, &node_batch(self.topology, self.plan, node), &[])?;
                self.hasten_neighbours(node, namespace)?;
            }
        }
        self.wait_for_carriers().map_err(LabError::system("bring the links up"))
    }

    /// Waits until every interface has its carrier and every switch forwards. Frames sent before
    /// that are lost.
    fn wait_for_carriers(&self) -> io::Result<()> {
        let deadline = Instant::now() + CARRIER_TIMEOUT;
        let fabric = configuration_socket(self.fabric)?;
        for (node, namespace) in self.nodes.iter().enumerate() {
            let Some(namespace) = namespace else { continue };
            let socket = configuration_socket(namespace)?;
            for &interface in &self.plan.of_node[node] {
                wait_for_carrier(&socket, &self.plan.interfaces[interface].name, true, deadline)?;
            }
        }
        for (link, ends) in self.plan.of_link.iter().enumerate() {
            for end in End::BOTH {
                if ends[end as usize].is_none() {
                    wait_for_carrier(&fabric, &switch_port(link, end), true, deadline)?;
                }
                if self.topology.links[link].is_emulated() {
                    wait_for_carrier(&fabric, &emulator_port(link, end), true, deadline)?;
                }
            }
        }
        for (node, namespace) in self.nodes.iter().enumerate() {
            if let Some(namespace) = namespace {
                self.wait_for_neighbour_groups(node, namespace, deadline)?;
            }
        }
        // The kernel announces a carrier to the switch under the lock that this request takes.
        ethtool(&fabric, "lo", ETHTOOL_GTXCSUM)
    }

    /// Waits until the node listens to the groups in which others ask for its IPv6 addresses. The
    /// kernel joins them with a delay, and an unheard question is asked again only after a second.
    fn wait_for_neighbour_groups(
        &self,
        node: Index,
        namespace: &Namespace,
        deadline: Instant,
    ) -> io::Result<()> {
        let mut table = namespace.open_table(c"/proc/net/igmp6")?;
        loop {
            let mut text = String::new();
            table.rewind()?;
            table.read_to_string(&mut text)?;
            let joined: BTreeSet<(&str, &str)> = text
                .lines()
                .filter_map(|line| {
                    let mut words = line.split_whitespace().skip(1);
                    Some((words.next()?, words.next()?))
                })
                .collect();
            let mut interfaces = self.plan.of_node[node].iter().map(|&i| &self.plan.interfaces[i]);
            let complete = interfaces.all(|interface| {
                interface.v6.iter().all(|cidr| {
                    let group = solicited_node_group(cidr.address);
                    joined.contains(&(interface.name.as_str(), group.as_str()))
                })
            });
            if complete {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn inheritable(&self) -> Vec<Namespace> {
        self.nodes.iter().flatten().cloned().collect()
    }

    fn write_sysctls(&self) -> Result<(), LabError> {
        let quiet = [Sysctl::optional("net/ipv6/conf/default/disable_ipv6", "1")];
        self.fabric.write_sysctls(&quiet).map_err(LabError::system("set up the switches"))?;
        for (node, namespace) in self.nodes.iter().enumerate() {
            let Some(namespace) = namespace else { continue };
            let spec = &self.topology.nodes[node];
            namespace
                .write_sysctls(&node_sysctls(spec.kind == NodeKind::Router))
                .map_err(LabError::system(format!("set kernel parameters of `{}`", spec.name)))?;
        }
        Ok(())
    }

    /// Lets a node ask for its neighbours' addresses more often than once a second and three times
    /// in all. Otherwise a link with loss shows mainly those seconds, and one that loses half of
    /// its frames is cut off time and again.
    fn hasten_neighbours(&self, node: Index, namespace: &Namespace) -> Result<(), LabError> {
        let mut values = Vec::new();
        for &interface in &self.plan.of_node[node] {
            let name = &self.plan.interfaces[interface].name;
            for family in ["ipv4", "ipv6"] {
                let value = |key| format!("net/{family}/neigh/{name}/{key}");
                values.push(Sysctl::optional(value("retrans_time_ms"), "50"));
                values.push(Sysctl::optional(value("mcast_solicit"), "20"));
                values.push(Sysctl::optional(value("ucast_solicit"), "20"));
            }
        }
        let name = &self.topology.nodes[node].name;
        namespace
            .write_sysctls(&values)
            .map_err(LabError::system(format!("set kernel parameters of `{name}`")))
    }

    /// Returns the commands that make switches and links, to be run in the fabric.
    fn fabric_batch(&self) -> String {
        let mut batch = "link set dev lo up\n".to_owned();
        for (node, spec) in self.topology.nodes.iter().enumerate() {
            if let NodeKind::Switch { snooping, querier } = spec.kind {
                // Snooping takes effect one response interval after the querier began: 1 s, not 10.
                line(
                    &mut batch,
                    format_args!(
                        "link add name br{node} type bridge stp_state 0 forward_delay 0 \
                         mcast_snooping {} mcast_query_response_interval 100 \
                         mcast_startup_query_interval 100",
                        u8::from(snooping)
                    ),
                );
                if querier {
                    line(
                        &mut batch,
                        format_args!("link set dev br{node} type bridge mcast_querier 1"),
                    );
                }
                line(&mut batch, format_args!("link set dev br{node} mtu 65535 up"));
            }
        }
        for (link, spec) in self.topology.links.iter().enumerate() {
            self.add_link(&mut batch, link, spec);
        }
        batch
    }

    fn add_link(&self, batch: &mut String, link: Index, spec: &LinkSpec) {
        let [a, b] = End::BOTH.map(|end| self.end_arguments(link, spec, end));
        if spec.is_emulated() {
            for (end, arguments) in [(End::A, a), (End::B, b)] {
                let port = emulator_port(link, end);
                let mtu = spec.mtu.unwrap_or(DEFAULT_MTU);
                let index = FIRST_INDEX + 4 * link + 2 + end as usize;
                line(
                    batch,
                    format_args!(
                        "link add name {port} index {index} mtu {mtu} type veth \
                         peer name {arguments}"
                    ),
                );
                line(batch, format_args!("link set dev {port} up"));
            }
        } else {
            line(batch, format_args!("link add name {a} type veth peer name {b}"));
        }
        for end in End::BOTH {
            self.plug_in(batch, link, spec, end);
        }
    }

    /// Returns the name, MTU, address and namespace of one end, as `ip link add` takes them.
    fn end_arguments(&self, link: Index, spec: &LinkSpec, end: End) -> String {
        let mtu = spec.mtu.unwrap_or(DEFAULT_MTU);
        let index = FIRST_INDEX + 4 * link + end as usize;
        let Some(interface) = self.plan.of_link[link][end as usize] else {
            return format!("{} index {index} mtu {mtu}", switch_port(link, end));
        };
        let interface = &self.plan.interfaces[interface];
        let place = self.nodes[interface.node].as_ref().map_or(-1, Namespace::net_fd);
        let [m0, m1, m2, m3, m4, m5] = interface.mac;
        format!(
            "{} index {index} mtu {mtu} address {m0:02x}:{m1:02x}:{m2:02x}:{m3:02x}:{m4:02x}:{m5:02x} \
             netns /proc/self/fd/{place}",
            interface.name
        )
    }

    fn plug_in(&self, batch: &mut String, link: Index, spec: &LinkSpec, end: End) {
        let name = if end == End::A { &spec.a } else { &spec.b };
        let other = if end == End::A { &spec.b } else { &spec.a };
        let Some(node) = self.topology.node_index(name) else { return };
        let NodeKind::Switch { snooping, .. } = self.topology.nodes[node].kind else { return };
        let port = switch_port(link, end);
        line(batch, format_args!("link set dev {port} master br{node} up"));
        let beyond = self.topology.node_index(other).map(|n| self.topology.nodes[n].kind);
        if snooping && beyond == Some(NodeKind::Router) {
            // A static router sends no queries that would let the switch find it.
            line(batch, format_args!("link set dev {port} type bridge_slave mcast_router 2"));
        }
        if !self.topology.has_offload(spec) {
            line(batch, format_args!("link set dev {port} gso_max_segs 1"));
        }
    }

    /// Enables IPv6 on each bridge with a querier. MLD queries need a link-local address on the
    /// bridge itself.
    fn enable_queriers(&self) -> Result<(), LabError> {
        let values: Vec<Sysctl> = self
            .topology
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, spec)| matches!(spec.kind, NodeKind::Switch { querier: true, .. }))
            .map(|(node, _)| Sysctl::optional(format!("net/ipv6/conf/br{node}/disable_ipv6"), "0"))
            .collect();
        self.fabric.write_sysctls(&values).map_err(LabError::system("set up the switches"))
    }

    /// Turns offload off wherever packets must cross a link one by one and with their checksums.
    fn switch_offload_off(&self) -> Result<(), LabError> {
        let failed = || LabError::system("turn segmentation offload off");
        let fabric =
            configuration_socket(self.fabric).map_err(LabError::system("open a socket"))?;
        for (link, spec) in self.topology.links.iter().enumerate() {
            for end in End::BOTH.into_iter().filter(|_| !self.topology.has_offload(spec)) {
                if let Some(interface) = self.plan.of_link[link][end as usize] {
                    let interface = &self.plan.interfaces[interface];
                    let Some(namespace) = &self.nodes[interface.node] else { continue };
                    let socket = configuration_socket(namespace).map_err(failed())?;
                    disable_offload(&socket, &interface.name).map_err(failed())?;
                } else {
                    disable_offload(&fabric, &switch_port(link, end)).map_err(failed())?;
                }
                if spec.is_emulated() {
                    disable_offload(&fabric, &emulator_port(link, end)).map_err(failed())?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the group [RFC 4291 §2.7.1] of an IPv6 address, as `/proc/net/igmp6` writes it.
fn solicited_node_group(address: IpAddr) -> String {
    let low = match address {
        IpAddr::V6(v6) => v6.to_bits() & 0xff_ffff,
        IpAddr::V4(_) => 0,
    };
    format!("ff0200000000000000000001ff{low:06x}")
}

/// Opens a socket that configures a namespace's interfaces.
pub(crate) fn configuration_socket(namespace: &Namespace) -> io::Result<OwnedFd> {
    namespace.socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

fn node_sysctls(router: bool) -> Vec<Sysctl> {
    let mut values = Vec::new();
    for scope in ["all", "default"] {
        let v4 = |name| format!("net/ipv4/conf/{scope}/{name}");
        let v6 = |name| format!("net/ipv6/conf/{scope}/{name}");
        values.push(Sysctl::required(v4("rp_filter"), "0"));
        // Addresses are unique by construction, so there is no second's wait before they can be
        // used.
        values.push(Sysctl::optional(v6("accept_dad"), "0"));
        values.push(Sysctl::optional(v6("accept_ra"), "0"));
        values.push(Sysctl::optional(v6("router_solicitations"), "0"));
        if router {
            values.push(Sysctl::required(v4("forwarding"), "1"));
            values.push(Sysctl::optional(v4("send_redirects"), "0"));
            values.push(Sysctl::optional(v6("forwarding"), "1"));
        }
    }
    // Lets `ping` work without privileges.
    values.push(Sysctl::optional("net/ipv4/ping_group_range", "0 2147483647"));
    values
}

/// Returns the commands that set the addresses and routes of a host or router. They can run again
/// after an interface was down.
pub(crate) fn node_batch(topology: &Topology, plan: &Plan, node: Index) -> String {
    let mut batch = "link set dev lo up\n".to_owned();
    for &index in &plan.of_node[node] {
        let interface = &plan.interfaces[index];
        let name = &interface.name;
        if !topology.has_offload(&topology.links[interface.link]) {
            line(&mut batch, format_args!("link set dev {name} gso_max_segs 1"));
        }
        for cidr in &interface.v4 {
            let (address, prefix) = (cidr.address, cidr.prefix);
            line(&mut batch, format_args!("address replace {address}/{prefix} brd + dev {name}"));
        }
        line(&mut batch, format_args!("link set dev {name} up"));
        for cidr in &interface.v6 {
            let (address, prefix) = (cidr.address, cidr.prefix);
            line(&mut batch, format_args!("address replace {address}/{prefix} dev {name} nodad"));
        }
    }
    let routes = plan.routes(node);
    for route in &routes {
        let out = &plan.interfaces[route.out];
        let gateway = &plan.interfaces[route.gateway];
        match route.prefix {
            Some(prefix) => {
                let via = gateway.address_like(prefix.address);
                let (address, bits) = (prefix.address, prefix.prefix);
                line(
                    &mut batch,
                    format_args!("route replace {address}/{bits} via {via} dev {}", out.name),
                );
            }
            None => {
                for via in [gateway.v4[0].address, gateway.v6[0].address] {
                    line(
                        &mut batch,
                        format_args!("route replace default via {via} dev {}", out.name),
                    );
                }
            }
        }
    }
    if routes.iter().all(|route| route.prefix.is_some()) {
        // Without a default route IPv4 would not know where to send to a group.
        line(&mut batch, format_args!("route replace 224.0.0.0/4 dev eth0"));
    }
    batch
}

fn line(batch: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(batch, "{arguments}");
}

/// Runs a batch of `ip` commands in `namespace`, with the namespaces `inherited` open for it.
pub(crate) fn run_ip(
    namespace: &Namespace,
    node: &str,
    batch: &str,
    inherited: &[Namespace],
) -> Result<(), LabError> {
    let failed = || LabError::system("run `ip` (package iproute2)");
    let mut child = namespace
        .command_with_fds("ip", inherited.to_vec())
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed())?;
    if let Some(mut input) = child.stdin.take() {
        // A refusal closes the pipe early. The complaint on stderr says more than the error here.
        let _ = input.write_all(batch.as_bytes());
    }
    let output = child.wait_with_output().map_err(failed())?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let number = complaint.lines().find_map(|l| l.strip_prefix("Command failed -:"));
    let command = number.and_then(|n| batch.lines().nth(n.trim().parse::<usize>().ok()? - 1));
    Err(LabError::Ip {
        node: node.to_owned(),
        message: format!(
            "{} (`{}`)",
            complaint.lines().next().unwrap_or("no message").trim(),
            command.unwrap_or("?").trim()
        ),
    })
}

/// `ETHTOOL_STXCSUM`, `_SSG`, `_STSO`, `_SGSO`, `_SGRO` of `linux/ethtool.h`. UDP segmentation is
/// turned off with the checksum, or is refused by `gso_max_segs 1` on kernels that keep it.
const OFFLOAD_COMMANDS: [u32; 5] = [0x17, 0x19, 0x1f, 0x24, 0x2c];
const ETHTOOL_GTXCSUM: u32 = 0x16;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Creates a request about the interface called `name`.
///
/// # Errors
/// Returns `InvalidInput` if the name is longer than 15 bytes.
#[allow(unsafe_code)]
fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn disable_offload(socket: &OwnedFd, name: &str) -> io::Result<()> {
    OFFLOAD_COMMANDS.into_iter().try_for_each(|command| ethtool(socket, name, command))
}

/// Sets the feature of `command` to 0, or reads it. Ignores features that the interface does not
/// have.
#[allow(unsafe_code)]
fn ethtool(socket: &OwnedFd, name: &str, command: u32) -> io::Result<()> {
    let mut value = EthtoolValue { command, data: 0 };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: `request` names an interface and points to `value`; both outlive the call. The
    // commands used here read and write no more than an `EthtoolValue`.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until an interface says that it has a carrier, or that it has none. The kernel tells up to
/// a second after the fact.
#[allow(unsafe_code)]
pub(crate) fn wait_for_carrier(
    socket: &OwnedFd,
    name: &str,
    expected: bool,
    deadline: Instant,
) -> io::Result<()> {
    loop {
        let mut request = interface_request(name)?;
        // SAFETY: `request` names an interface and outlives the call, which fills in the flags.
        let flags = unsafe {
            let pointer = &raw mut request;
            Errno::result(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, pointer))?;
            i32::from(request.ifr_ifru.ifru_flags)
        };
        if (flags & libc::IFF_RUNNING != 0) == expected {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of the interface called `name` in the namespace of `socket`.
#[allow(unsafe_code)]
pub(crate) fn interface_index(socket: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = interface_request(name)?;
    // SAFETY: `request` names an interface and outlives the call, which fills in the number.
    unsafe {
        Errno::result(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX as _, &raw mut request))?;
        Ok(request.ifr_ifru.ifru_ifindex as u32)
    }
}
