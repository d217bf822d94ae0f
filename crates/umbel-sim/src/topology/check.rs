//! Constraints on a topology.

use std::collections::BTreeMap;

use super::{Impairment, LinkSpec, Mistake, NodeKind, Topology};

/// Contradiction with its place, so that a reader of files finds its line.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) part: Part,
    pub(super) message: String,
}

/// Part of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Name of a node.
    Node(usize),
    /// Property of a link, by its name in files.
    Link { index: usize, key: &'static str },
    /// Property of one direction of a link: `a_to_b` or `b_to_a`.
    Direction { index: usize, direction: &'static str, key: &'static str },
}

impl Topology {
    /// Checks that names are unique and known and that every value is in its range.
    ///
    /// # Errors
    /// Returns the first contradiction, in one line.
    pub fn validate(&self) -> Result<(), Mistake> {
        self.check().map_err(|fault| Mistake::new(fault.message))
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        let mut names = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let fail = |message| Err(Fault { part: Part::Node(index), message });
            let name = node.name.as_str();
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if name.is_empty() || name.len() > 32 || !name.chars().all(allowed) {
                return fail(format!(
                    "`{name}` is not a name: use 1 to 32 letters, digits, `-`, `_` or `.`"
                ));
            }
            if names.insert(name, index).is_some() {
                return fail(format!("two nodes are called `{name}`"));
            }
        }
        let mut links = self.links.iter().enumerate();
        links.try_for_each(|(index, link)| self.check_link(&names, index, link))
    }

    fn check_link(
        &self,
        names: &BTreeMap<&str, usize>,
        index: usize,
        link: &LinkSpec,
    ) -> Result<(), Fault> {
        let fail = |key, message: String| {
            let message = format!("link {}: {message}", link.label());
            Err(Fault { part: Part::Link { index, key }, message })
        };
        let ends = [("a", &link.a, &link.a_addresses), ("b", &link.b, &link.b_addresses)];
        for (key, end, addresses) in ends {
            let Some(&node) = names.get(end.as_str()) else {
                return fail(key, format!("no host, router or switch is called `{end}`"));
            };
            if matches!(self.nodes[node].kind, NodeKind::Switch { .. }) && !addresses.is_empty() {
                let key = if key == "a" { "a_addresses" } else { "b_addresses" };
                return fail(key, format!("`{end}` is a switch and takes no addresses"));
            }
        }
        if link.a == link.b {
            return fail("b", "a link joins two different nodes".to_owned());
        }
        if let Some(mtu) = link.mtu
            && !(1280..=65_535).contains(&mtu)
        {
            return fail("mtu", format!("mtu = {mtu} is not between 1280 and 65535"));
        }
        for (direction, impairment) in [("a_to_b", &link.a_to_b), ("b_to_a", &link.b_to_a)] {
            if let Err((key, message)) = impairment.check() {
                let message = format!("link {}: {message}", link.label());
                return Err(Fault { part: Part::Direction { index, direction, key }, message });
            }
        }
        if link.emulated == Some(false) && link.is_emulated() {
            return fail(
                "emulated",
                "it is impaired, so `emulated = false` cannot hold".to_owned(),
            );
        }
        if link.offload == Some(true) && link.is_emulated() {
            let message = "an emulated link judges packets singly, so `offload` is off";
            return fail("offload", message.to_owned());
        }
        Ok(())
    }
}

impl Impairment {
    /// Checks the ranges.
    ///
    /// # Errors
    /// Returns one line with the field and the value.
    pub fn validate(&self) -> Result<(), Mistake> {
        self.check().map_err(|(_, message)| Mistake::new(message))
    }

    /// Checks as [`Impairment::validate`] does, and names the field.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        for (name, value) in [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("corrupt_silently", self.corrupt_silently),
        ] {
            if !(0.0..=1.0).contains(&value) {
                let message = format!("{name} = {value} is not a probability between 0 and 1");
                return Err((name, message));
            }
        }
        if let Some(burst) = self.loss_burst
            && (!burst.is_finite() || burst < 1.0)
        {
            let message = format!("loss_burst = {burst} is not a mean run length of at least 1");
            return Err(("loss_burst", message));
        }
        if self.queue.holds_nothing() {
            return Err(("queue", "queue = 0 would drop every frame".to_owned()));
        }
        Ok(())
    }
}
