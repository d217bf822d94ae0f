//! Networks of ns-2, as far as their script only lists links.
//!
//! ```text
//! set linkBW 1.5Mb
//! for {set i 0} {$i < 3} {incr i} { set n($i) [$ns node] }
//! $ns duplex-link $n(0) $n(1) $linkBW 10ms DropTail
//! $ns duplex-link $n(1) $n(2) 10Mb 0.5ms DropTail
//! $ns queue-limit $n(0) $n(1) 20
//! ```
//!
//! Lines with `duplex-link`, `simplex-link` and `queue-limit` count, and those with `set` and one
//! value. A node is called by what stands for it: `$n(12)` is `n12`, `$src` is `src`. Scripts are
//! not run, and all other lines are skipped. One that has a link in it, in a loop or a variable, is
//! an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use umbel_engine::units::Rate;
use umbel_topology::Queue;
use umbel_topology::values::Delay;

use super::{Core, CoreLink, Impairment, Mistake, router};

/// Longest queue of a link of ns-2 that sets none, in packets.
const QUEUE: u32 = 50;

#[allow(clippy::disallowed_methods, reason = "topologies are read before a run")]
pub(super) fn read(file: &Path) -> Result<Core, Mistake> {
    std::fs::read_to_string(file)
        .map_err(|error| Mistake::new(error.to_string()))
        .and_then(|text| parse(&text))
        .map_err(|mistake| mistake.in_file(file))
}

#[derive(Default)]
struct Reader<'t> {
    variables: BTreeMap<&'t str, &'t str>,
    nodes: BTreeMap<String, usize>,
    core: Core,
}

fn parse(text: &str) -> Result<Core, Mistake> {
    let mut reader = Reader::default();
    for (line, number) in text.lines().zip(1..) {
        let command = line.split_once('#').map_or(line, |(command, _)| command);
        let words: Vec<&str> = command.split_whitespace().collect();
        reader.line(&words).map_err(|message| Mistake::at_line(number, message))?;
    }
    if reader.core.links.is_empty() {
        let message = "there are no links: expected lines like `$ns duplex-link $n(0) $n(1) 10Mb \
                       5ms DropTail`";
        return Err(Mistake::new(message));
    }
    let mut core = reader.core;
    core.edge = (0..core.nodes.len()).collect();
    core.receivers_each = 1;
    Ok(core)
}

impl<'t> Reader<'t> {
    fn line(&mut self, words: &[&'t str]) -> Result<(), String> {
        match words {
            ["set", name, value] if !value.starts_with('[') => {
                self.variables.insert(name, value);
                Ok(())
            }
            [_, "duplex-link" | "duplex-link-of-interfaces", rest @ ..] => self.link(rest, true),
            [_, "simplex-link", rest @ ..] => self.link(rest, false),
            [_, "queue-limit", a, b, limit] => self.queue_limit(a, b, limit),
            _ => match words.iter().find_map(|word| hidden_link(word)) {
                Some(command) => Err(format!(
                    "a `{command}` in a loop or another command is not read: expected a line for \
                     each link like `$ns duplex-link $n(0) $n(1) 10Mb 5ms DropTail`"
                )),
                None => Ok(()),
            },
        }
    }

    fn link(&mut self, words: &[&'t str], is_duplex: bool) -> Result<(), String> {
        let [a, b, rate, delay, ..] = words else {
            return Err("expected two nodes, a rate and a delay".to_owned());
        };
        if !is_duplex {
            return Err("links of one direction are not read: expected duplex-link".to_owned());
        }
        let (a, b) = (self.node(a)?, self.node(b)?);
        if a == b {
            return Err("a link joins a node with itself".to_owned());
        }
        let treatment = Impairment {
            rate: Some(bandwidth(self.value(rate))?),
            delay: time(self.value(delay))?,
            queue: Queue::Packets(QUEUE),
            ..Impairment::none()
        };
        self.core.links.push(CoreLink { ends: (a, b), length: 0.0, treatment: Some(treatment) });
        Ok(())
    }

    /// Returns what a word stands for.
    fn value(&self, word: &'t str) -> &'t str {
        let variable = word.strip_prefix('$').and_then(|name| self.variables.get(name));
        variable.copied().unwrap_or(word)
    }

    /// Returns the node that a word stands for; a new one if it is not known.
    fn node(&mut self, word: &str) -> Result<usize, String> {
        let name: String = word
            .strip_prefix('$')
            .ok_or_else(|| format!("`{word}` is no node: expected one like $n(0)"))?
            .chars()
            .filter(|c| !matches!(c, '(' | ')'))
            .collect();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(format!("`{word}` is no node: expected one like $n(0), outside of loops"));
        }
        let next = self.core.nodes.len();
        let node = *self.nodes.entry(name.clone()).or_insert(next);
        if node == next {
            self.core.nodes.push(router(name));
        }
        Ok(node)
    }

    /// Bounds the queue of a link. Both directions have the same, that of the last line.
    fn queue_limit(&mut self, a: &str, b: &str, limit: &'t str) -> Result<(), String> {
        let (a, b) = (self.node(a)?, self.node(b)?);
        let written = self.value(limit);
        let packets = written.parse().ok().filter(|packets| *packets > 0);
        let packets = packets
            .ok_or_else(|| format!("`{written}` is no queue: expected packets, as in 20"))?;
        for link in &mut self.core.links {
            if (link.ends == (a, b) || link.ends == (b, a))
                && let Some(treatment) = &mut link.treatment
            {
                treatment.queue = Queue::Packets(packets);
            }
        }
        Ok(())
    }
}

/// Commands that make a link, or limit its queue.
const OF_LINKS: [&str; 4] =
    ["duplex-link", "duplex-link-of-interfaces", "simplex-link", "queue-limit"];

/// Returns the command of a word that belongs to a link, whatever joins the word to its neighbours.
fn hidden_link(word: &str) -> Option<&'static str> {
    let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    parts.find_map(|part| OF_LINKS.into_iter().find(|command| *command == part))
}

/// Reads a rate as ns-2 writes it, like `1.5Mb`, `64kb` or `1000000`.
fn bandwidth(text: &str) -> Result<Rate, String> {
    let short = text.strip_suffix("bps").or_else(|| text.strip_suffix('b')).unwrap_or(text);
    short.parse().map_err(|_| format!("`{text}` is no rate: expected one like 1.5Mb"))
}

/// Reads a time as ns-2 writes it, like `10ms`; a bare number is seconds.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    match seconds {
        Some(delay) if delay <= Duration::from_hours(1) => Ok(delay),
        _ => text
            .parse::<Delay>()
            .map(|delay| delay.0)
            .map_err(|_| format!("`{text}` is no delay: expected one like 10ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_script_are_read() {
        let core = parse(
            "# a dumbbell\nset ns [new Simulator]\nset linkBW 10Mb\n\
             for {set i 0} {$i < 4} {incr i} { set n($i) [$ns node] }\n\
             $ns duplex-link $n(0) $n(1) 1.5Mb 40ms DropTail  # the bottleneck\n\
             $ns duplex-link $n(0) $src $linkBW 0.02 DropTail\n\
             $ns queue-limit $n(1) $n(0) 20\n\
             $ns duplex-link-op $n(0) $n(1) orient left\n",
        )
        .unwrap();
        let names: Vec<_> = core.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n0", "n1", "src"]);
        let [first, second] = [0, 1].map(|link| core.links[link].treatment.unwrap());
        assert_eq!(
            (first.rate, first.delay),
            (Rate::from_bits_per_s(1_500_000), Duration::from_millis(40))
        );
        assert_eq!((first.queue, second.queue), (Queue::Packets(20), Queue::Packets(QUEUE)));
        assert_eq!(
            (second.rate, second.delay),
            (Rate::from_bits_per_s(10_000_000), Duration::from_millis(20))
        );
    }

    #[test]
    fn what_is_not_read_is_told_with_its_line() {
        for (text, expected) in [
            (
                "",
                "there are no links: expected lines like `$ns duplex-link $n(0) $n(1) 10Mb 5ms DropTail`",
            ),
            (
                "\n$ns duplex-link $n(0) $n(1) fast 5ms DropTail",
                "line 2: `fast` is no rate: expected one like 1.5Mb",
            ),
            (
                "$ns duplex-link $n(0) $n(1) 5Mb soon DropTail",
                "line 1: `soon` is no delay: expected one like 10ms",
            ),
            ("$ns duplex-link $n(0) $n(1)", "line 1: expected two nodes, a rate and a delay"),
            (
                "$ns duplex-link a $n(1) 1Mb 1ms DropTail",
                "line 1: `a` is no node: expected one like $n(0)",
            ),
            (
                "$ns duplex-link $n($i) $n(1) 1Mb 1ms DropTail",
                "line 1: `$n($i)` is no node: expected one like $n(0), outside of loops",
            ),
            (
                "$ns duplex-link $n(1) $n(1) 1Mb 1ms DropTail",
                "line 1: a link joins a node with itself",
            ),
            (
                "$ns simplex-link $n(1) $n(2) 1Mb 1ms DropTail",
                "line 1: links of one direction are not read: expected duplex-link",
            ),
            (
                "$ns duplex-link $n(0) $n(1) 1Mb 1ms DropTail\n\
                 for {set i 0} {$i < 4} {incr i} {$ns duplex-link $n($i) $n(9) 1Mb 1ms DropTail}",
                "line 2: a `duplex-link` in a loop or another command is not read: expected a line \
                 for each link like `$ns duplex-link $n(0) $n(1) 10Mb 5ms DropTail`",
            ),
            (
                "set first [$ns simplex-link $n(1) $n(2) 1Mb 1ms DropTail]",
                "line 1: a `simplex-link` in a loop or another command is not read: expected a line \
                 for each link like `$ns duplex-link $n(0) $n(1) 10Mb 5ms DropTail`",
            ),
            (
                "$ns queue-limit $n(1) $n(2) none",
                "line 1: `none` is no queue: expected packets, as in 20",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
    }
}
