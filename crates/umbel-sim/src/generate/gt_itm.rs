//! Graphs of GT-ITM, in the form that its `sgb2alt` writes (`.alt`).
//!
//! ```text
//! GRAPH (#nodes #edges id uu vv ww xx yy zz):
//! 3 4 transtub(…) …
//!
//! VERTICES (index name u v w x y z):
//! 0 T:0.0(4,7) …
//! 1 S:0.0/0.0(3,1) …
//! 2 S:0.0/0.1(5,2) …
//!
//! EDGES (from-node to-node length a b):
//! 0 1 12 …
//! ```
//!
//! Routers are called by their numbers, `t…` if they are transit routers, `s…` if they are in stub
//! domains, `r…` else. Receivers are put at stub routers, or at all if there are none. The longest
//! link has length 1.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Core, CoreLink, Mistake, router};

#[allow(clippy::disallowed_methods, reason = "topologies are read before a run")]
pub(super) fn read(file: &Path) -> Result<Core, Mistake> {
    std::fs::read_to_string(file)
        .map_err(|error| Mistake::new(error.to_string()))
        .and_then(|text| parse(&text))
        .map_err(|mistake| mistake.in_file(file))
}

/// Part of a file that is being read.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Before,
    Graph,
    Vertices,
    Edges,
}

fn parse(text: &str) -> Result<Core, Mistake> {
    let mut core = Core { receivers_each: 1, ..Core::default() };
    let mut joined = BTreeSet::new();
    let mut part = Part::Before;
    for (line, number) in text.lines().zip(1..) {
        let fail = |message: String| Err(Mistake::at_line(number, message));
        let words: Vec<&str> = line.split_whitespace().collect();
        part = match (words.first().copied(), part) {
            (None, part) => part,
            (Some("GRAPH"), _) => Part::Graph,
            (Some("VERTICES"), _) => Part::Vertices,
            (Some("EDGES"), _) => Part::Edges,
            (Some(_), Part::Before) => {
                return fail(
                    "this is no graph of GT-ITM: expected a line that begins with GRAPH, \
                             as sgb2alt writes it"
                        .to_owned(),
                );
            }
            (Some(_), Part::Graph) => Part::Graph,
            (Some(index), Part::Vertices) => {
                if index.parse() != Ok(core.nodes.len()) {
                    let message = format!("expected router {}, not `{index}`", core.nodes.len());
                    return fail(message);
                }
                let prefix = match words.get(1) {
                    Some(name) if name.starts_with('T') => 't',
                    Some(name) if name.starts_with('S') => 's',
                    _ => 'r',
                };
                core.nodes.push(router(format!("{prefix}{index}")));
                Part::Vertices
            }
            (Some(_), Part::Edges) => {
                let value =
                    |n: usize| words.get(n).and_then(|word: &&str| word.parse::<f64>().ok());
                let end = |n: usize| {
                    let index = words.get(n).and_then(|word| word.parse::<usize>().ok());
                    index.filter(|index| *index < core.nodes.len())
                };
                let (Some(a), Some(b)) = (end(0), end(1)) else {
                    let count = core.nodes.len();
                    return fail(format!("expected two of the {count} routers, by their numbers"));
                };
                let Some(length) = value(2).filter(|length| *length >= 0.0) else {
                    return fail("expected the length of the edge, a number".to_owned());
                };
                if a == b {
                    return fail("an edge joins a router with itself".to_owned());
                }
                // Some versions write each edge in both directions.
                if joined.insert((a.min(b), a.max(b))) {
                    core.links.push(CoreLink { length, ..CoreLink::plain(a, b) });
                }
                Part::Edges
            }
        };
    }
    if core.nodes.is_empty() {
        return Err(Mistake::new("the graph has no routers: expected lines below VERTICES"));
    }
    let longest = core.links.iter().map(|link| link.length).fold(0.0, f64::max);
    if longest > 0.0 {
        core.links.iter_mut().for_each(|link| link.length /= longest);
    }
    let stubs = |prefix| {
        let of = move |core: &Core, node: &usize| core.nodes[*node].name.starts_with(prefix);
        (0..core.nodes.len()).filter(|node| of(&core, node)).collect::<Vec<_>>()
    };
    core.edge = match stubs('s') {
        none if none.is_empty() => (0..core.nodes.len()).collect(),
        stubs => stubs,
    };
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "GRAPH (#nodes #edges id uu vv ww xx yy zz):\n\
        3 4 transtub(0,1) 10 \n\n\
        VERTICES (index name u v w x y z):\n\
        0 T:0.0(4,7) 4 7 0\n1 S:0.0/0.0(3,1) 3 1\n2 S:0.0/0.1 5 2\n\n\
        EDGES (from-node to-node length a b):\n0 1 10 1 0\n1 2 40 1 0\n2 1 40 1 0\n";

    #[test]
    fn a_graph_has_its_routers_and_lengths() {
        let core = parse(FILE).unwrap();
        let names: Vec<_> = core.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!((names, core.edge), (vec!["t0", "s1", "s2"], vec![1, 2]));
        let links: Vec<_> = core.links.iter().map(|link| (link.ends, link.length)).collect();
        assert_eq!(links, [((0, 1), 0.25), ((1, 2), 1.0)]);
        let flat = parse(&FILE.replace("T:0.0(4,7)", "0").replace("S:", "")).unwrap();
        assert_eq!((flat.nodes[0].name.as_str(), flat.edge.len()), ("r0", 3));
    }

    #[test]
    fn another_dialect_is_told_with_its_line() {
        for (text, expected) in [
            (
                "* GraphBase graph (util_types ZZZIIZ,3V,4A)",
                "line 1: this is no graph of GT-ITM: expected a line that begins with GRAPH, as sgb2alt writes it",
            ),
            ("GRAPH\n", "the graph has no routers: expected lines below VERTICES"),
            ("GRAPH\nVERTICES\n1 a\n", "line 3: expected router 0, not `1`"),
            (
                "GRAPH\nVERTICES\n0 a\nEDGES\n0 1 5",
                "line 5: expected two of the 1 routers, by their numbers",
            ),
            (
                "GRAPH\nVERTICES\n0 a\n1 b\nEDGES\n0 1 far",
                "line 6: expected the length of the edge, a number",
            ),
            ("GRAPH\nVERTICES\n0 a\nEDGES\n0 0 1", "line 5: an edge joins a router with itself"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
    }
}
