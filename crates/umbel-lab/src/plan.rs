//! Turns a topology into interfaces, addresses, routes and multicast trees. Computes only.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use umbel_topology::{Cidr, Mistake, NodeKind, Topology};

/// Position of a node, link or interface in its table.
pub(crate) type Index = usize;

/// The end of a link at a host or router.
#[derive(Clone, Debug)]
pub(crate) struct PlannedInterface {
    pub(crate) name: String,
    pub(crate) node: Index,
    pub(crate) link: Index,
    pub(crate) segment: Index,
    pub(crate) mac: [u8; 6],
    pub(crate) v4: Vec<Cidr>,
    pub(crate) v6: Vec<Cidr>,
}

impl PlannedInterface {
    fn addresses(&self) -> impl Iterator<Item = &Cidr> {
        self.v4.iter().chain(&self.v6)
    }

    /// Returns the first address of the same family as `like`.
    pub(crate) fn address_like(&self, like: IpAddr) -> IpAddr {
        if like.is_ipv4() { self.v4[0].address } else { self.v6[0].address }
    }
}

/// A unicast route of one node. No prefix means the default route of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) prefix: Option<Cidr>,
    pub(crate) out: Index,
    pub(crate) gateway: Index,
}

/// One router's part of a multicast tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) router: Index,
    pub(crate) input: Index,
    pub(crate) outputs: Vec<Index>,
}

/// The network layer as it follows from the topology.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) interfaces: Vec<PlannedInterface>,
    /// The interfaces of each node, in order of its links.
    pub(crate) of_node: Vec<Vec<Index>>,
    /// The interfaces at the two ends of each link; switches have none.
    pub(crate) of_link: Vec<[Option<Index>; 2]>,
    /// The interfaces on each broadcast segment.
    segments: Vec<Vec<Index>>,
    pub(crate) is_router: Vec<bool>,
}

/// Number of the automatic prefixes, 10.1.0.0/16 to 10.254.0.0/16.
const MAX_SEGMENTS: usize = 254;

impl Plan {
    /// Validates `topology` and lays it out.
    pub(crate) fn new(topology: &Topology) -> Result<Plan, Mistake> {
        topology.validate()?;
        let segment_of_link = segments_of_links(topology)?;
        let segment_count = segment_of_link.iter().map(|s| s + 1).max().unwrap_or(0);
        if segment_count > MAX_SEGMENTS {
            return Err(Mistake::new(format!(
                "{segment_count} separate segments are more than the {MAX_SEGMENTS} that fit"
            )));
        }
        let mut plan = Plan {
            interfaces: Vec::new(),
            of_node: vec![Vec::new(); topology.nodes.len()],
            of_link: Vec::new(),
            segments: vec![Vec::new(); segment_count],
            is_router: topology.nodes.iter().map(|n| n.kind == NodeKind::Router).collect(),
        };
        for (link, spec) in topology.links.iter().enumerate() {
            let ends = [(&spec.a, &spec.a_addresses), (&spec.b, &spec.b_addresses)];
            let ends = ends.map(|(name, addresses)| {
                let node = topology.node_index(name)?;
                let switch = matches!(topology.nodes[node].kind, NodeKind::Switch { .. });
                (!switch).then(|| plan.add(node, link, segment_of_link[link], addresses))
            });
            plan.of_link.push(ends);
        }
        for (node, spec) in topology.nodes.iter().enumerate() {
            if plan.of_node[node].is_empty() && !matches!(spec.kind, NodeKind::Switch { .. }) {
                return Err(Mistake::new(format!("`{}` has no link", spec.name)));
            }
        }
        plan.choose_addresses()?;
        Ok(plan)
    }

    fn add(&mut self, node: Index, link: Index, segment: Index, addresses: &[Cidr]) -> Index {
        let index = self.interfaces.len();
        let [.., x, y, z] = (index as u32 + 1).to_be_bytes();
        let (v4, v6) = addresses.iter().partition(|cidr| cidr.address.is_ipv4());
        self.interfaces.push(PlannedInterface {
            name: format!("eth{}", self.of_node[node].len()),
            node,
            link,
            segment,
            mac: [0x02, 0x6c, 0x62, x, y, z],
            v4,
            v6,
        });
        self.of_node[node].push(index);
        self.segments[segment].push(index);
        index
    }

    fn choose_addresses(&mut self) -> Result<(), Mistake> {
        let mut used = BTreeSet::new();
        for address in self.interfaces.iter().flat_map(PlannedInterface::addresses) {
            if !used.insert(address.address) {
                return Err(Mistake::new(format!("{} is given twice", address.address)));
            }
        }
        for (segment, members) in self.segments.iter().enumerate() {
            let net = segment as u16 + 1;
            let mut next4 = 0..65_534_u16;
            let mut next6 = 0..65_534_u16;
            for &member in members {
                let interface = &mut self.interfaces[member];
                if interface.v4.is_empty() {
                    let make = |n: u16| {
                        let [high, low] = (n + 1).to_be_bytes();
                        IpAddr::V4(Ipv4Addr::new(10, net as u8, high, low))
                    };
                    interface.v4.push(free_address(&mut next4, &mut used, make, 16)?);
                }
                if interface.v6.is_empty() {
                    let make = |n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, net, 0, 0, 0, n + 1));
                    interface.v6.push(free_address(&mut next6, &mut used, make, 64)?);
                }
            }
        }
        Ok(())
    }

    /// Returns the unicast routes of `node` along shortest paths, counted in routers.
    pub(crate) fn routes(&self, node: Index) -> Vec<Route> {
        let mut hops: Vec<Option<(Index, Index)>> = vec![None; self.segments.len()];
        let mut seen = vec![false; self.segments.len()];
        let mut queue = VecDeque::new();
        let mut own = Vec::new();
        for &interface in &self.of_node[node] {
            let segment = self.interfaces[interface].segment;
            if !seen[segment] {
                seen[segment] = true;
                own.push((segment, interface));
                queue.push_back(segment);
            }
        }
        let mut remote = Vec::new();
        while let Some(segment) = queue.pop_front() {
            for (entry, exit) in self.crossings(segment, node) {
                let beyond = self.interfaces[exit].segment;
                if seen[beyond] {
                    continue;
                }
                seen[beyond] = true;
                let out = own.iter().find(|(s, _)| *s == segment).map(|&(_, out)| (out, entry));
                hops[beyond] = out.or(hops[segment]);
                remote.push(beyond);
                queue.push_back(beyond);
            }
        }
        self.summarise(node, &remote, &hops)
    }

    /// Returns the crossings of `segment` by routers other than `except`, each as the interfaces by
    /// which the router is entered and left.
    fn crossings(&self, segment: Index, except: Index) -> Vec<(Index, Index)> {
        let routers = self.segments[segment].iter().filter(|&&entry| {
            let node = self.interfaces[entry].node;
            self.is_router[node] && node != except
        });
        routers
            .flat_map(|&entry| {
                let exits = &self.of_node[self.interfaces[entry].node];
                exits.iter().filter(move |&&exit| exit != entry).map(move |&exit| (entry, exit))
            })
            .collect()
    }

    /// Returns a default route for a host whose remote segments all lie behind one gateway. For
    /// every other node, returns a route for each prefix.
    fn summarise(
        &self,
        node: Index,
        remote: &[Index],
        hops: &[Option<(Index, Index)>],
    ) -> Vec<Route> {
        let gateways: BTreeSet<_> = remote.iter().filter_map(|&segment| hops[segment]).collect();
        if let (false, 1, Some(&(out, gateway))) =
            (self.is_router[node], gateways.len(), gateways.first())
        {
            return vec![Route { prefix: None, out, gateway }];
        }
        let mut routes = Vec::new();
        for &segment in remote {
            let Some((out, gateway)) = hops[segment] else { continue };
            let members = self.segments[segment].iter();
            let prefixes: BTreeSet<Cidr> = members
                .flat_map(|&member| self.interfaces[member].addresses().map(network_of))
                .collect();
            routes.extend(prefixes.into_iter().map(|prefix| Route {
                prefix: Some(prefix),
                out,
                gateway,
            }));
        }
        routes
    }

    /// Returns the tree that carries a group from the interface `source` to the hosts in `wanted`,
    /// or to all hosts. It has one branch for each router on the way.
    pub(crate) fn multicast_tree(
        &self,
        source: Index,
        wanted: Option<&BTreeSet<Index>>,
    ) -> Vec<Branch> {
        let root = self.interfaces[source].segment;
        let mut segment_seen = vec![false; self.segments.len()];
        let mut router_seen = vec![false; self.of_node.len()];
        segment_seen[root] = true;
        let mut queue = VecDeque::from([root]);
        let mut branches: Vec<Branch> = Vec::new();
        while let Some(segment) = queue.pop_front() {
            for (input, exit) in self.crossings(segment, self.interfaces[source].node) {
                let router = self.interfaces[input].node;
                let known = branches.iter().position(|b| b.router == router && b.input == input);
                if router_seen[router] && known.is_none() {
                    continue;
                }
                router_seen[router] = true;
                let at = known.unwrap_or_else(|| {
                    branches.push(Branch { router, input, outputs: Vec::new() });
                    branches.len() - 1
                });
                let beyond = self.interfaces[exit].segment;
                if !segment_seen[beyond] {
                    segment_seen[beyond] = true;
                    branches[at].outputs.push(exit);
                    queue.push_back(beyond);
                }
            }
        }
        self.prune(branches, source, wanted)
    }

    fn prune(
        &self,
        mut branches: Vec<Branch>,
        source: Index,
        wanted: Option<&BTreeSet<Index>>,
    ) -> Vec<Branch> {
        let wants = |&&member: &&Index| {
            let node = self.interfaces[member].node;
            let listed = wanted.is_none_or(|wanted| wanted.contains(&node));
            listed
                && node != self.interfaces[source].node
                && (wanted.is_some() || !self.is_router[node])
        };
        let mut needed: Vec<bool> =
            self.segments.iter().map(|members| members.iter().any(|m| wants(&m))).collect();
        for branch in branches.iter_mut().rev() {
            branch.outputs.retain(|&output| needed[self.interfaces[output].segment]);
            if !branch.outputs.is_empty() {
                needed[self.interfaces[branch.input].segment] = true;
            }
        }
        branches.retain(|branch| !branch.outputs.is_empty());
        branches
    }
}

/// Returns the segment of each link. Links that meet at a switch share one.
fn segments_of_links(topology: &Topology) -> Result<Vec<Index>, Mistake> {
    fn root(parents: &[Index], mut node: Index) -> Index {
        while parents[node] != node {
            node = parents[node];
        }
        node
    }
    let mut parents: Vec<Index> = (0..topology.nodes.len()).collect();
    let is_switch = |node: Index| matches!(topology.nodes[node].kind, NodeKind::Switch { .. });
    let mut ends = Vec::new();
    for link in &topology.links {
        let (Some(a), Some(b)) = (topology.node_index(&link.a), topology.node_index(&link.b))
        else {
            return Err(Mistake::new(format!("link {} ends nowhere", link.label())));
        };
        if is_switch(a) && is_switch(b) {
            let (x, y) = (root(&parents, a), root(&parents, b));
            if x == y {
                return Err(Mistake::new(format!(
                    "link {} closes a loop of switches",
                    link.label()
                )));
            }
            parents[x] = y;
        }
        ends.push((a, b));
    }
    let mut numbers: Vec<Option<Index>> = vec![None; topology.nodes.len()];
    let mut count = 0;
    let mut take = || {
        count += 1;
        count - 1
    };
    let of_link = ends.into_iter().map(|(a, b)| {
        let switch = [a, b].into_iter().find(|&end| is_switch(end));
        match switch.map(|switch| root(&parents, switch)) {
            Some(root) => *numbers[root].get_or_insert_with(&mut take),
            None => take(),
        }
    });
    Ok(of_link.collect())
}

fn free_address(
    candidates: &mut std::ops::Range<u16>,
    used: &mut BTreeSet<IpAddr>,
    make: impl Fn(u16) -> IpAddr,
    prefix: u8,
) -> Result<Cidr, Mistake> {
    let address = candidates
        .map(make)
        .find(|address| used.insert(*address))
        .ok_or_else(|| Mistake::new("a segment has more than 65,534 interfaces".to_owned()))?;
    Ok(Cidr { address, prefix })
}

fn network_of(cidr: &Cidr) -> Cidr {
    let address = match cidr.address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(cidr.prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(cidr.prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    };
    Cidr { address, prefix: cidr.prefix }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(topology: &Topology) -> Plan {
        Plan::new(topology).unwrap()
    }

    #[test]
    fn links_that_meet_at_switches_share_a_prefix() {
        let topology =
            Topology::star(2).switch("sw2").host("h3").link("sw", "sw2").link("h3", "sw2");
        let plan = plan(&topology);
        assert!(plan.interfaces.iter().all(|interface| interface.segment == 0));
        let last = &plan.interfaces[2];
        assert_eq!(last.v4[0].address.to_string(), "10.1.0.3");
        assert_eq!(last.v6[0].address.to_string(), "fd00:0:0:1::3");
        assert!(plan.routes(1).is_empty());
    }

    #[test]
    fn a_loop_of_switches_and_a_lonely_host_are_refused() {
        let looped = Topology::new()
            .switch("a")
            .switch("b")
            .switch("c")
            .link("a", "b")
            .link("b", "c")
            .link("c", "a");
        assert!(Plan::new(&looped).unwrap_err().to_string().contains("loop"));
        assert!(Plan::new(&Topology::new().host("x")).unwrap_err().to_string().contains("no link"));
    }

    #[test]
    fn explicit_addresses_are_kept_and_never_given_again() {
        let topology = Topology::star(2)
            .with_link(|link| link.a_addresses = vec!["10.1.0.1/16".parse().unwrap()]);
        let plan = plan(&topology);
        assert_eq!(plan.interfaces[1].v4[0].address.to_string(), "10.1.0.1");
        assert_eq!(plan.interfaces[0].v4[0].address.to_string(), "10.1.0.2");
        assert_eq!(plan.interfaces[1].v6.len(), 1);
    }

    #[test]
    fn hosts_get_a_default_route_and_routers_a_route_for_each_prefix() {
        let topology = Topology::line(2);
        let plan = plan(&topology);
        let h1 = topology.node_index("h1").unwrap();
        let r1 = topology.node_index("r1").unwrap();
        let routes = plan.routes(h1);
        assert_eq!(routes.len(), 1);
        assert_eq!(routes[0].prefix, None);
        assert_eq!(plan.interfaces[routes[0].gateway].node, r1);
        let routes = plan.routes(r1);
        let prefixes: Vec<String> =
            routes.iter().map(|r| r.prefix.unwrap().address.to_string()).collect();
        assert_eq!(prefixes, ["10.3.0.0", "fd00:0:0:3::"]);
    }

    #[test]
    fn a_multicast_tree_reaches_the_wanted_hosts_only_and_each_once() {
        let topology = Topology::tree(2, 2);
        let plan = plan(&topology);
        let src = topology.node_index("src").unwrap();
        let source = plan.of_node[src][0];
        let all = plan.multicast_tree(source, None);
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|branch| branch.outputs.len() == 2));
        let wanted = BTreeSet::from([topology.node_index("h1").unwrap()]);
        let some = plan.multicast_tree(source, Some(&wanted));
        assert_eq!(some.len(), 2);
        assert!(some.iter().all(|branch| branch.outputs.len() == 1));
    }

    #[test]
    fn a_ring_of_routers_carries_no_copy_twice() {
        let topology = Topology::new()
            .host("s")
            .host("h")
            .router("r1")
            .router("r2")
            .router("r3")
            .link("s", "r1")
            .link("r1", "r2")
            .link("r1", "r3")
            .link("r2", "r3")
            .link("r3", "h");
        let plan = plan(&topology);
        let tree = plan.multicast_tree(plan.of_node[0][0], None);
        let routers: Vec<&str> =
            tree.iter().map(|b| topology.nodes[b.router].name.as_str()).collect();
        assert_eq!(routers, ["r1", "r3"]);
    }

    #[test]
    fn the_examples_can_be_laid_out() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab");
        for entry in std::fs::read_dir(folder).unwrap() {
            plan(&Topology::from_file(&entry.unwrap().path()).unwrap());
        }
    }
}
