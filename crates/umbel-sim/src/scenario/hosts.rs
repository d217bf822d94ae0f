//! Hosts that a name in a scenario means, and the hosts that can be reached.

use std::collections::{BTreeSet, VecDeque};

use toml::Spanned;
use umbel_topology::{Mistake, NodeKind, Topology};

use super::cut::listed;
use super::file::Text;
use super::protocol::Section;

/// Hosts of a topology, seen from the server.
pub(super) struct Hosts<'a> {
    text: &'a Text<'a>,
    topology: &'a Topology,
    /// Nodes that the server reaches.
    reached: Vec<bool>,
    server: usize,
    /// The protocol's words for the server and its clients.
    words: [&'static str; 2],
    /// Hosts that have cross traffic.
    busy: BTreeSet<usize>,
}

impl<'a> Hosts<'a> {
    /// Creates the view from the host that is named `server`. `words` are what the protocol calls
    /// it and its clients.
    pub(super) fn new(
        section: &Section<'a>,
        server: &Spanned<String>,
        words: [&'static str; 2],
    ) -> Result<Hosts<'a>, Mistake> {
        let Section { text, topology, traffic, .. } = *section;
        let name = server.get_ref();
        let index = topology
            .node_index(name)
            .ok_or_else(|| text.mistake(server.span(), unknown_host(topology, name)))?;
        if topology.nodes[index].kind != NodeKind::Host {
            return Err(text.mistake(server.span(), not_a_host(topology, index)));
        }
        let ends = traffic.iter().flat_map(|traffic| [traffic.from, traffic.to]);
        let busy: BTreeSet<usize> = ends.map(|node| node.0 as usize).collect();
        if busy.contains(&index) {
            return Err(text.mistake(server.span(), has_traffic(name)));
        }
        let reached = reached_from(topology, index);
        Ok(Hosts { text, topology, reached, server: index, words, busy })
    }

    /// Returns the server's position.
    pub(super) fn server(&self) -> usize {
        self.server
    }

    /// Returns the hosts that match any of these patterns, in the order of the topology, without
    /// the server.
    pub(super) fn matching(&self, patterns: &[Spanned<String>]) -> Result<Vec<usize>, Mistake> {
        let mut found = vec![false; self.topology.nodes.len()];
        let [server, client] = self.words;
        for pattern in patterns {
            let text = pattern.get_ref().as_str();
            let fail = |message: String| Err(self.text.mistake(pattern.span(), message));
            if !text.contains('*') {
                match self.topology.node_index(text) {
                    None => return fail(unknown_host(self.topology, text)),
                    Some(node) if self.topology.nodes[node].kind != NodeKind::Host => {
                        return fail(not_a_host(self.topology, node));
                    }
                    Some(node) if node == self.server => {
                        return fail(format!("`{text}` is the {server} and cannot be a {client}"));
                    }
                    Some(node) if self.busy.contains(&node) => return fail(has_traffic(text)),
                    Some(node) if !self.reached[node] => return fail(self.unreached(node)),
                    Some(node) => found[node] = true,
                }
                continue;
            }
            let matches: Vec<usize> =
                self.clients().filter(|&node| matches(text, self.name(node))).collect();
            if matches.is_empty() {
                let all = listed(self.clients().map(|node| self.name(node)));
                return fail(format!("no {client}'s host matches `{text}`: there are {all}"));
            }
            for node in matches {
                if !self.reached[node] {
                    return fail(self.unreached(node));
                }
                found[node] = true;
            }
        }
        Ok((0..found.len()).filter(|&node| found[node]).collect())
    }

    /// Returns all hosts but the server and those with cross traffic.
    fn clients(&self) -> impl Iterator<Item = usize> {
        let hosts = |node: &usize| {
            let is_host = self.topology.nodes[*node].kind == NodeKind::Host;
            is_host && *node != self.server && !self.busy.contains(node)
        };
        (0..self.topology.nodes.len()).filter(hosts)
    }

    /// Returns the name of a node.
    pub(super) fn name(&self, node: usize) -> &str {
        &self.topology.nodes[node].name
    }

    fn unreached(&self, node: usize) -> String {
        let (host, server) = (self.name(node), self.name(self.server));
        format!(
            "`{host}` cannot be reached from `{server}`: expected links, routers and switches \
             between them"
        )
    }
}

fn has_traffic(name: &str) -> String {
    format!("`{name}` has cross traffic, and runs nothing else")
}

fn unknown_host(topology: &Topology, name: &str) -> String {
    let hosts = topology.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    format!("no host is called `{name}`: there are {}", listed(hosts.map(|node| &*node.name)))
}

fn not_a_host(topology: &Topology, node: usize) -> String {
    let kind = match topology.nodes[node].kind {
        NodeKind::Host => "host",
        NodeKind::Router => "router",
        NodeKind::Switch { .. } => "switch",
    };
    format!("`{}` is a {kind}: expected a host", topology.nodes[node].name)
}

/// Returns which nodes can be reached over routers and switches.
fn reached_from(topology: &Topology, from: usize) -> Vec<bool> {
    let names = topology.names();
    let mut neighbours = vec![Vec::new(); topology.nodes.len()];
    for link in &topology.links {
        let (a, b) = (names[link.a.as_str()], names[link.b.as_str()]);
        neighbours[a].push(b);
        neighbours[b].push(a);
    }
    let mut reached = vec![false; topology.nodes.len()];
    reached[from] = true;
    let mut open = VecDeque::from([from]);
    while let Some(node) = open.pop_front() {
        if node != from && topology.nodes[node].kind == NodeKind::Host {
            continue;
        }
        for &next in &neighbours[node] {
            if !std::mem::replace(&mut reached[next], true) {
                open.push_back(next);
            }
        }
    }
    reached
}

/// Returns whether a name matches a pattern, in which `*` stands for any number of characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("h1", "h1", true),
            ("h1", "h12", false),
            ("h*", "h12", true),
            ("h*", "x1", false),
            ("*2", "h12", true),
            ("h*2", "h12", true),
            ("h*2", "h2", true),
            ("h1*1", "h1", false),
            ("*", "", true),
            ("a*b*c", "a_b_b_c", true),
            ("a*b*c", "a_c_b", false),
            ("*.jpg", "images/x.jpg", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
