//! Graphs from GraphML files.
//!
//! Nodes are named by their `id`; characters that are not allowed in names become `_`. Properties
//! of nodes and links are in `data` elements, found by the `attr.name` of their keys, in any case:
//!
//! | of | attribute | |
//! |---|---|---|
//! | node | `kind`, `type` | `host`, `router` (the default) or `switch` |
//! | node | `Latitude`, `Longitude` | degrees; a link between two such nodes delays 1 ms for each 200 km |
//! | node | `x`, `y` | a place on a plane, for `delay_across` |
//! | edge | `rate`, `bandwidth`, `LinkSpeedRaw` | as in topology files; a bare number is bits per second |
//! | edge | `delay`, `latency` | with its unit, as in `20ms` |
//! | edge | `loss`, `queue` | as in topology files |
//!
//! A `default` of a key counts for all that have no such data. Opposite edges of a directed graph are
//! one link with two directions; a directed edge without its opposite is a link with two equal ones.
//! A node that holds a graph is a group and no node of the network. Data of edges that is not used is
//! listed in [`Core::notes`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use roxmltree::{Document, Node};
use umbel_engine::units::Rate;
use umbel_topology::Queue;
use umbel_topology::values::{Delay, Share};

use super::plane::{Place, distance};
use super::{Core, CoreLink, Impairment, Mistake, NodeKind, NodeSpec};

/// Speed of signals in a fibre.
const KM_PER_S: f64 = 200_000.0;
const EARTH_RADIUS_KM: f64 = 6_371.0;

#[allow(clippy::disallowed_methods, reason = "topologies are read before a run")]
pub(super) fn read(file: &Path) -> Result<Core, Mistake> {
    std::fs::read_to_string(file)
        .map_err(|error| Mistake::new(error.to_string()))
        .and_then(|text| parse(&text))
        .map_err(|mistake| mistake.in_file(file))
}

fn parse(text: &str) -> Result<Core, Mistake> {
    let document = Document::parse(text).map_err(|error| {
        let line = error.pos().row as usize;
        Mistake::at_line(line, format!("this is not XML: {error}"))
    })?;
    let root = document.root_element();
    if root.tag_name().name() != "graphml" {
        return Err(Mistake::at_line(1, "this is not GraphML: the root is no `graphml` element"));
    }
    let keys = root.children().filter(|node| node.has_tag_name_anywhere("key"));
    let keys = keys.filter_map(|key| Some((key.attribute("id")?, Key::of(key)))).collect();
    let graph = root
        .children()
        .find(|node| node.has_tag_name_anywhere("graph"))
        .ok_or_else(|| at(root, "there is no `graph` element"))?;
    let core = Core::default();
    Reader { keys, places: Vec::new(), points: Vec::new(), unused: BTreeSet::new(), core }
        .read(graph)
}

/// What data with a certain key is.
struct Key<'a> {
    /// Name of the attribute, in lower case.
    name: Option<String>,
    /// Elements that it is for: `node`, `edge` or `all`.
    of: &'a str,
    default: Option<(Node<'a, 'a>, &'a str)>,
}

impl<'a> Key<'a> {
    fn of(key: Node<'a, 'a>) -> Key<'a> {
        let default = key.children().find(|child| child.has_tag_name_anywhere("default"));
        Key {
            name: key.attribute("attr.name").map(str::to_ascii_lowercase),
            of: key.attribute("for").unwrap_or("all"),
            default: default.map(|node| (node, node.text().unwrap_or_default().trim())),
        }
    }
}

/// Attributes of edges that count, in lower case.
const OF_EDGES: [&str; 7] =
    ["rate", "bandwidth", "linkspeedraw", "delay", "latency", "loss", "queue"];

struct Reader<'a> {
    keys: BTreeMap<&'a str, Key<'a>>,
    /// Latitude and longitude of each node.
    places: Vec<Option<Place>>,
    /// Position of each node on the plane.
    points: Vec<Option<Place>>,
    /// Names of data of edges that was not used.
    unused: BTreeSet<String>,
    core: Core,
}

impl<'a> Reader<'a> {
    fn read(mut self, graph: Node<'a, 'a>) -> Result<Core, Mistake> {
        let mut ids = BTreeMap::new();
        let mut groups = BTreeSet::new();
        for node in graph.descendants().filter(|child| child.has_tag_name_anywhere("node")) {
            let id = node.attribute("id").ok_or_else(|| at(node, "a node without an `id`"))?;
            if node.children().any(|child| child.has_tag_name_anywhere("graph")) {
                groups.insert(id);
                continue;
            }
            if ids.insert(id, self.core.nodes.len()).is_some() {
                return Err(at(node, format!("two nodes have the id `{id}`")));
            }
            self.node(id, node)?;
        }
        if ids.is_empty() {
            return Err(at(graph, "the graph has no nodes"));
        }
        let hyperedge = graph.descendants().find(|child| child.has_tag_name_anywhere("hyperedge"));
        if let Some(edge) = hyperedge {
            return Err(at(edge, "a `hyperedge` is not read: make it a node of the kind `switch`"));
        }
        // Directed edges that have met no opposite yet.
        let mut alone: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for edge in graph.descendants().filter(|child| child.has_tag_name_anywhere("edge")) {
            let end = |name| {
                let id = edge
                    .attribute(name)
                    .ok_or_else(|| at(edge, format!("an edge without a `{name}`")))?;
                let known = ids.get(id).copied();
                known.ok_or_else(|| {
                    let is_group = groups.contains(id);
                    let group = format!("`{id}` is a group: an edge joins two of its nodes");
                    at(edge, if is_group { group } else { format!("no node has the id `{id}`") })
                })
            };
            let (a, b) = (end("source")?, end("target")?);
            if a == b {
                return Err(at(edge, "an edge joins a node with itself"));
            }
            let link = self.edge((a, b), edge)?;
            let place = self.core.links.len();
            if !is_directed(edge) {
                self.core.links.push(link);
            } else if let Some(there) = alone.get_mut(&(b, a)).and_then(Vec::pop) {
                self.core.links[there].back = link.treatment;
            } else {
                alone.entry((a, b)).or_default().push(place);
                self.core.links.push(link);
            }
        }
        if !self.unused.is_empty() {
            let names: Vec<&str> = self.unused.iter().map(String::as_str).collect();
            let names = names.join("`, `");
            self.core.notes.push(format!("data of edges that is not used: `{names}`"));
        }
        self.scale_lengths();
        self.core.receivers_each = 1;
        let is_host = |node: &NodeSpec| node.kind == NodeKind::Host;
        self.core.has_hosts = self.core.nodes.iter().any(is_host);
        self.core.edge = (0..self.core.nodes.len()).collect();
        Ok(self.core)
    }

    fn node(&mut self, id: &str, node: Node<'a, 'a>) -> Result<(), Mistake> {
        let data = self.data(node);
        let kind = match data.get("kind").or_else(|| data.get("type")).map(|(_, text)| *text) {
            Some("host") => NodeKind::Host,
            Some("switch") => NodeKind::Switch { snooping: true, querier: true },
            _ => NodeKind::Router,
        };
        let pair = |first: &str, second: &str| -> Result<Option<Place>, Mistake> {
            let Some(first) = value::<f64>(&data, &[first])? else { return Ok(None) };
            Ok(value::<f64>(&data, &[second])?.map(|second| (first, second)))
        };
        self.places.push(pair("latitude", "longitude")?);
        self.points.push(pair("x", "y")?);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name = id.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
        self.core.nodes.push(NodeSpec { name, kind });
        Ok(())
    }

    fn edge(&mut self, (a, b): (usize, usize), edge: Node<'a, 'a>) -> Result<CoreLink, Mistake> {
        let data = self.data(edge);
        let unused = data.keys().filter(|name| !OF_EDGES.contains(&name.as_str()));
        self.unused.extend(unused.cloned());
        let rate = value::<BitsPerSecond>(&data, &["rate", "bandwidth", "linkspeedraw"])?;
        let rate = rate.map(|rate| rate.0);
        let delay = value::<Delay>(&data, &["delay", "latency"])?.map(|delay| delay.0);
        let loss = value::<Share>(&data, &["loss"])?;
        let queue = value::<Queue>(&data, &["queue"])?;
        let far = self.places[a].zip(self.places[b]).map(|(a, b)| {
            // Rounded to the microsecond, below which the library's functions may differ.
            Duration::from_micros((kilometres(a, b) / KM_PER_S * 1e6).round() as u64)
        });
        let treatment = Impairment {
            rate,
            delay: delay.or(far).unwrap_or_default(),
            loss: loss.map_or(0.0, |loss| loss.0),
            queue: queue.unwrap_or_default(),
            ..Impairment::none()
        };
        let known = rate.is_some() || delay.or(far).is_some() || loss.is_some() || queue.is_some();
        let length = match (delay, self.points[a].zip(self.points[b])) {
            (None, Some((a, b))) => distance(a, b),
            _ => 0.0,
        };
        let treatment = known.then_some(treatment);
        Ok(CoreLink { length, treatment, back: treatment, ..CoreLink::plain(a, b) })
    }

    /// Scales lengths so that the longer side of the rectangle around all points is 1.
    fn scale_lengths(&mut self) {
        let side = |of: fn(&Place) -> f64| {
            let values = || self.points.iter().flatten().map(of);
            values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min)
        };
        let side = side(|place| place.0).max(side(|place| place.1));
        if side > 0.0 {
            for link in &mut self.core.links {
                link.length /= side;
            }
        }
    }

    /// Returns the data of a node or an edge by name, with the defaults of keys. Empty data is none.
    fn data(&self, of: Node<'a, 'a>) -> Data<'a> {
        let element = of.tag_name().name();
        let keys = self.keys.values().filter(|key| [element, "all"].contains(&key.of));
        let defaults = keys.filter_map(|key| Some((key.name.clone()?, key.default?)));
        let data = of.children().filter(|child| child.has_tag_name_anywhere("data"));
        let own = data.filter_map(|data| {
            let key = data.attribute("key")?;
            let name = match self.keys.get(key) {
                // What editors keep of the drawing has a key without a name.
                Some(key) => key.name.clone()?,
                None => key.to_ascii_lowercase(),
            };
            Some((name, (data, data.text().unwrap_or_default().trim())))
        });
        let mut all: Data<'a> = defaults.chain(own).collect();
        all.retain(|_, (_, text)| !text.is_empty());
        all
    }
}

/// Returns whether an edge has a direction.
fn is_directed(edge: Node<'_, '_>) -> bool {
    let graph = edge.ancestors().find(|node| node.has_tag_name_anywhere("graph"));
    let default = graph.and_then(|graph| graph.attribute("edgedefault")) == Some("directed");
    edge.attribute("directed").map_or(default, |text| text == "true")
}

/// A rate, also as programs write numbers: `1e+07`.
struct BitsPerSecond(Rate);

impl FromStr for BitsPerSecond {
    type Err = <Rate as FromStr>::Err;

    fn from_str(text: &str) -> Result<BitsPerSecond, Self::Err> {
        let number = text.parse::<f64>().ok().filter(|bits| (1.0..1e18).contains(bits));
        match number.and_then(|bits| Rate::from_bits_per_s(bits.round() as u64)) {
            Some(rate) => Ok(BitsPerSecond(rate)),
            None => text.parse().map(BitsPerSecond),
        }
    }
}

type Data<'a> = BTreeMap<String, (Node<'a, 'a>, &'a str)>;

/// Returns the value of the first of these names that is present.
fn value<T: FromStr<Err: fmt::Display>>(
    data: &Data<'_>,
    names: &[&str],
) -> Result<Option<T>, Mistake> {
    match names.iter().find_map(|name| Some((name, data.get(*name)?))) {
        Some((name, (node, text))) => match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(at(*node, format!("{name}: {error}"))),
        },
        None => Ok(None),
    }
}

fn at(node: Node<'_, '_>, message: impl Into<String>) -> Mistake {
    let line = node.document().text_pos_at(node.range().start).row as usize;
    Mistake::at_line(line, message)
}

/// Returns the length of the great circle between two places in degrees.
fn kilometres((lat_a, lon_a): Place, (lat_b, lon_b): Place) -> f64 {
    let half = |a: f64, b: f64| ((b - a).to_radians() / 2.0).sin();
    let (lat, lon) = (half(lat_a, lat_b), half(lon_a, lon_b));
    let across = lat * lat + lat_a.to_radians().cos() * lat_b.to_radians().cos() * lon * lon;
    2.0 * EARTH_RADIUS_KM * across.sqrt().min(1.0).asin()
}

trait Named {
    /// Returns whether this is an element of that name, in any namespace.
    fn has_tag_name_anywhere(&self, name: &str) -> bool;
}

impl Named for Node<'_, '_> {
    fn has_tag_name_anywhere(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(keys: &str, body: &str) -> Result<Core, Mistake> {
        parse(&format!(
            "<?xml version=\"1.0\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n\
             {keys}\n<graph edgedefault=\"undirected\">\n{body}\n</graph></graphml>"
        ))
    }

    const KEYS: &str = "<key id=\"d0\" for=\"node\" attr.name=\"Latitude\"/>\
        <key id=\"d1\" for=\"node\" attr.name=\"Longitude\"/>\
        <key id=\"d2\" for=\"edge\" attr.name=\"LinkSpeedRaw\"/>\
        <key id=\"d3\" for=\"edge\" attr.name=\"delay\"/>\
        <key id=\"d4\" for=\"node\" attr.name=\"kind\"/>\
        <key id=\"d5\" for=\"node\" attr.name=\"x\"/><key id=\"d6\" for=\"node\" attr.name=\"y\"/>";

    #[test]
    fn places_on_earth_give_delays_and_speeds_give_rates() {
        // The distance from Vienna to Paris is about 1,034 km.
        let core = graph(
            KEYS,
            "<node id=\"0\"><data key=\"d0\">48.208</data><data key=\"d1\">16.373</data></node>\n\
             <node id=\"St. P\"><data key=\"d0\">48.857</data><data key=\"d1\">2.352</data></node>\n\
             <node id=\"2\"/>\n\
             <edge source=\"0\" target=\"St. P\"><data key=\"d2\">10000000.0</data></edge>\n\
             <edge source=\"St. P\" target=\"2\"/>",
        )
        .unwrap();
        let names: Vec<_> = core.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["0", "St._P", "2"]);
        let first = core.links[0].treatment.unwrap();
        assert_eq!(first.rate, Rate::from_bits_per_s(10_000_000));
        let ms = first.delay.as_secs_f64() * 1e3;
        assert!((5.1..5.25).contains(&ms), "{ms}");
        assert_eq!(core.links[1].treatment, None);
        assert!(!core.has_hosts);
    }

    #[test]
    fn places_on_a_plane_give_lengths_unless_the_edge_has_a_delay() {
        let core = graph(
            KEYS,
            "<node id=\"a\"><data key=\"d5\">10</data><data key=\"d6\">0</data></node>\n\
             <node id=\"b\"><data key=\"d5\">50</data><data key=\"d6\">30</data></node>\n\
             <node id=\"h\"><data key=\"d4\">host</data></node>\n\
             <edge source=\"a\" target=\"b\"/>\n\
             <edge source=\"a\" target=\"b\"><data key=\"d3\">7ms</data></edge>",
        )
        .unwrap();
        assert!((core.links[0].length - 1.25).abs() < 1e-12);
        assert!(core.links[1].length.abs() < 1e-12);
        assert_eq!(core.links[1].treatment.unwrap().delay, Duration::from_millis(7));
        assert!(core.has_hosts);
    }

    #[test]
    fn defaults_of_keys_count_and_what_is_not_used_is_listed() {
        let keys = "<key id=\"e0\" for=\"edge\" attr.name=\"delay\"><default>5ms</default></key>\
            <key id=\"e1\" for=\"edge\" attr.name=\"rate\"><default> 1e+07 </default></key>\
            <key id=\"e2\" for=\"edge\" attr.name=\"capacity\"/>\
            <key id=\"e3\" for=\"edge\"/>\
            <key id=\"n0\" for=\"node\" attr.name=\"kind\"><default>host</default></key>";
        let core = graph(
            keys,
            "<node id=\"a\"/><node id=\"b\"><data key=\"n0\">router</data></node>\
             <edge source=\"a\" target=\"b\"><data key=\"e2\">10</data><data key=\"e3\"/></edge>\
             <edge source=\"b\" target=\"a\"><data key=\"e0\">20ms</data><data key=\"e1\"/></edge>",
        )
        .unwrap();
        let [first, second] = [0, 1].map(|link| core.links[link].treatment.unwrap());
        let rate = Rate::from_bits_per_s(10_000_000);
        assert_eq!((first.delay.as_millis(), first.rate), (5, rate));
        assert_eq!((second.delay.as_millis(), second.rate), (20, None));
        assert_eq!((core.nodes[0].kind, core.nodes[1].kind), (NodeKind::Host, NodeKind::Router));
        assert_eq!(core.notes, ["data of edges that is not used: `capacity`"]);
    }

    #[test]
    fn opposite_edges_of_a_directed_graph_are_one_link_and_groups_are_no_nodes() {
        let edge = |a: &str, b: &str, delay: &str| {
            format!("<edge source=\"{a}\" target=\"{b}\"><data key=\"delay\">{delay}</data></edge>")
        };
        let core = parse(&format!(
            "<graphml><graph edgedefault=\"directed\"><node id=\"a\"/>\
             <node id=\"g\"><graph edgedefault=\"directed\"><node id=\"g::b\"/><node id=\"g::c\"/>\
             {}</graph></node>{}{}{}{}</graph></graphml>",
            edge("g::b", "g::c", "1ms"),
            edge("a", "g::b", "2ms"),
            edge("g::b", "a", "3ms"),
            edge("a", "g::b", "4ms"),
            edge("a", "g::c", "5ms"),
        ))
        .unwrap();
        assert_eq!(core.nodes.len(), 3);
        let ms = |treatment: Impairment| treatment.delay.as_millis();
        let delays: Vec<_> = core
            .links
            .iter()
            .map(|link| (link.ends, ms(link.treatment.unwrap()), ms(link.back.unwrap())))
            .collect();
        let expected = [((1, 2), 1, 1), ((0, 1), 2, 3), ((0, 1), 4, 4), ((0, 2), 5, 5)];
        assert_eq!(delays, expected);
    }

    #[test]
    fn every_mistake_has_its_line() {
        for (body, expected) in [
            ("<node/>", "line 5: a node without an `id`"),
            ("<node id=\"a\"/>\n<node id=\"a\"/>", "line 6: two nodes have the id `a`"),
            ("", "line 4: the graph has no nodes"),
            (
                "<node id=\"a\"/>\n<edge source=\"a\" target=\"b\"/>",
                "line 6: no node has the id `b`",
            ),
            ("<node id=\"a\"/>\n<edge source=\"a\"/>", "line 6: an edge without a `target`"),
            (
                "<node id=\"a\"/>\n<edge source=\"a\" target=\"a\"/>",
                "line 6: an edge joins a node with itself",
            ),
            (
                "<node id=\"a\"/><node id=\"b\"/>\n<edge source=\"a\" target=\"b\">\n\
                 <data key=\"d3\">20</data></edge>",
                "line 7: delay: `20` is not a time: write it like 20ms, 250us, 1.5s or 2h",
            ),
            (
                "<node id=\"a\">\n<data key=\"d5\">left</data></node>",
                "line 6: x: invalid float literal",
            ),
        ] {
            assert_eq!(graph(KEYS, body).unwrap_err().to_string(), expected, "{body}");
        }
        assert_eq!(
            parse("<graphml>\n<graph>\n</graphml>").unwrap_err().to_string(),
            "line 3: this is not XML: expected 'graph' tag, not 'graphml' at 3:1"
        );
        assert_eq!(
            parse("<gexf/>").unwrap_err().to_string(),
            "line 1: this is not GraphML: the root is no `graphml` element"
        );
        let missing = read(Path::new("/none.graphml")).unwrap_err();
        assert_eq!(missing.to_string(), "/none.graphml: No such file or directory (os error 2)");
    }
}
