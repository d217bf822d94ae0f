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
//! value. Two simplex links in opposite directions are one link. A node is called by what stands for
//! it: `$n(12)` is `n12`, `$src` is `src`. Scripts are not run, and all other lines are skipped. One
//! that has a link in it, in a loop or a variable, is an error; so is a command that would change the
//! network in a way that is not read, such as a LAN or a loss model.

use std::borrow::Cow;
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
    /// Links of one direction that wait for their opposites: ends, line, and place in the core.
    simplex: Vec<((usize, usize), usize, usize)>,
}

fn parse(text: &str) -> Result<Core, Mistake> {
    let mut reader = Reader::default();
    for (line, number) in text.lines().zip(1..) {
        let command = line.split_once('#').map_or(line, |(command, _)| command);
        // With braces, a semicolon may belong to the body of a loop.
        let commands: Vec<&str> =
            if is_reference_only(command) { command.split(';').collect() } else { vec![command] };
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            reader.line(&words, number).map_err(|message| Mistake::at_line(number, message))?;
        }
    }
    if let Some((_, number, _)) = reader.simplex.first() {
        let message = "a link of one direction without its opposite is not read: expected another \
                       simplex-link between the same nodes, or a duplex-link";
        return Err(Mistake::at_line(*number, message));
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
    fn line(&mut self, words: &[&'t str], number: usize) -> Result<(), String> {
        match words {
            ["set", name, value] if !value.starts_with('[') => {
                self.variables.insert(name, value);
                Ok(())
            }
            [_, "duplex-link" | "duplex-link-of-interfaces", rest @ ..] => self.link(rest, None),
            [_, "simplex-link", rest @ ..] => self.link(rest, Some(number)),
            [_, "queue-limit", a, b, limit] => self.queue_limit(a, b, limit),
            _ => match words.iter().find_map(|word| hidden_link(word)) {
                Some(command) if !OF_LINKS.contains(&command) => Err(format!(
                    "`{command}` changes the network and is not read: put links for a LAN, and \
                     losses into `link` or `access` of the scenario"
                )),
                Some(command) => Err(format!(
                    "a `{command}` in a loop or another command is not read: expected a line for \
                     each link like `$ns duplex-link $n(0) $n(1) 10Mb 5ms DropTail`"
                )),
                None => Ok(()),
            },
        }
    }

    /// Adds a link. One of one direction is on line `simplex`.
    fn link(&mut self, words: &[&'t str], simplex: Option<usize>) -> Result<(), String> {
        let [a, b, rate, delay, ..] = words else {
            return Err("expected two nodes, a rate and a delay".to_owned());
        };
        let (a, b) = (self.node(a)?, self.node(b)?);
        if a == b {
            return Err("a link joins a node with itself".to_owned());
        }
        let treatment = Impairment {
            rate: Some(bandwidth(&self.value(rate))?),
            delay: time(&self.value(delay))?,
            queue: Queue::Packets(QUEUE),
            ..Impairment::none()
        };
        if let Some(line) = simplex {
            let opposite = self.simplex.iter().position(|(ends, ..)| *ends == (b, a));
            if let Some(opposite) = opposite {
                let (_, _, place) = self.simplex.remove(opposite);
                self.core.links[place].back = Some(treatment);
                return Ok(());
            }
            self.simplex.push(((a, b), line, self.core.links.len()));
        }
        let treatment = Some(treatment);
        self.core.links.push(CoreLink { treatment, back: treatment, ..CoreLink::plain(a, b) });
        Ok(())
    }

    /// Returns what a word stands for, such as `$bw` or `${bw}Mb`.
    fn value(&self, word: &'t str) -> Cow<'t, str> {
        let named = word.strip_prefix('$').map(|rest| match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}').unwrap_or((rest, "")),
            None => (rest, ""),
        });
        match named.and_then(|(name, rest)| Some((self.variables.get(name)?, rest))) {
            Some((value, "")) => Cow::Borrowed(value),
            Some((value, rest)) => Cow::Owned(format!("{value}{rest}")),
            None => Cow::Borrowed(word),
        }
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

    /// Bounds the queue from `a` to `b`, as the command does.
    fn queue_limit(&mut self, a: &str, b: &str, limit: &'t str) -> Result<(), String> {
        let (a, b) = (self.node(a)?, self.node(b)?);
        let written = self.value(limit);
        let packets = written.parse().ok().filter(|packets| *packets > 0);
        let packets = packets
            .ok_or_else(|| format!("`{written}` is no queue: expected packets, as in 20"))?;
        for link in &mut self.core.links {
            let treatment = match link.ends {
                ends if ends == (a, b) => &mut link.treatment,
                ends if ends == (b, a) => &mut link.back,
                _ => continue,
            };
            if let Some(treatment) = treatment {
                treatment.queue = Queue::Packets(packets);
            }
        }
        Ok(())
    }
}

/// Commands that make a link, or limit its queue.
const OF_LINKS: [&str; 4] =
    ["duplex-link", "duplex-link-of-interfaces", "simplex-link", "queue-limit"];

/// Commands that make links or lose packets in ways that are not read.
const NOT_READ: [&str; 12] = [
    "newLan",
    "make-lan",
    "newMedia",
    "lossmodel",
    "link-lossmodel",
    "insert-linkloss",
    "rtmodel",
    "rtmodel-at",
    "duplex-intserv-link",
    "simplex-intserv-link",
    "duplex-rsvp-link",
    "multi-link",
];

/// Returns whether all braces belong to references like `${bw}`.
fn is_reference_only(command: &str) -> bool {
    command.matches(['{', '}']).count() == 2 * command.matches("${").count()
}

/// Returns the command of a word that belongs to a link, whatever joins the word to its neighbours.
fn hidden_link(word: &str) -> Option<&'static str> {
    let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let commands = || OF_LINKS.into_iter().chain(NOT_READ);
    parts.find_map(|part| commands().find(|command| *command == part))
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
        let back = core.links[0].back.unwrap();
        assert_eq!(
            (first.rate, first.delay),
            (Rate::from_bits_per_s(1_500_000), Duration::from_millis(40))
        );
        assert_eq!((first.queue, second.queue), (Queue::Packets(QUEUE), Queue::Packets(QUEUE)));
        assert_eq!(back.queue, Queue::Packets(20));
        assert_eq!(
            (second.rate, second.delay),
            (Rate::from_bits_per_s(10_000_000), Duration::from_millis(20))
        );
    }

    #[test]
    fn two_simplex_links_are_one_and_variables_may_be_within_words() {
        let core = parse(
            "set bw 10; set d 5ms;\n\
             $ns simplex-link $a $b ${bw}Mb $d DropTail; # there\n\
             $ns duplex-link $b $c $bw 1ms DropTail;\n\
             $ns simplex-link $b $a 1Mb 7ms DropTail\n",
        )
        .unwrap();
        assert_eq!(core.links.len(), 2);
        let (there, back) = (core.links[0].treatment.unwrap(), core.links[0].back.unwrap());
        assert_eq!(there.rate, Rate::from_bits_per_s(10_000_000));
        assert_eq!(back.rate, Rate::from_bits_per_s(1_000_000));
        assert_eq!((there.delay.as_millis(), back.delay.as_millis()), (5, 7));
        assert_eq!(core.links[1].back, core.links[1].treatment);
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
                "line 1: a link of one direction without its opposite is not read: expected another \
                 simplex-link between the same nodes, or a duplex-link",
            ),
            (
                "$ns duplex-link $n(1) $n(2) 1Mb 1ms DropTail\n\
                 set lan [$ns newLan \"$n(2) $n(4)\" 0.5Mb 40ms LL Queue/DropTail Channel]",
                "line 2: `newLan` changes the network and is not read: put links for a LAN, and \
                 losses into `link` or `access` of the scenario",
            ),
            (
                "\n$ns lossmodel $em $n(0) $n(2)",
                "line 2: `lossmodel` changes the network and is not read: put links for a LAN, and \
                 losses into `link` or `access` of the scenario",
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
