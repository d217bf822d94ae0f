//! Constraints on a topology.

use std::collections::BTreeMap;

use crate::{Impairment, LinkSpec, Mistake, NodeKind, Topology};

/// Contradiction with its place, so that a reader of files finds its line.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) part: Part,
    pub(crate) message: String,
}

/// Part of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
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

    pub(crate) fn check(&self) -> Result<(), Fault> {
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
    ///
    /// # Errors
    /// Returns the field, and what is wrong with its value.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
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
        self.check_states()?;
        if self.queue.holds_nothing() {
            return Err(("queue", "queue = 0 would drop every frame".to_owned()));
        }
        Ok(())
    }

    /// Checks the shares that are lost in the good and in the bad state.
    fn check_states(&self) -> Result<(), (&'static str, String)> {
        for (name, share) in [("loss_good", self.loss_good), ("loss_bad", self.loss_bad)] {
            let Some(share) = share else { continue };
            if !(0.0..=1.0).contains(&share) {
                let message = format!("{name} = {share} is not a probability between 0 and 1");
                return Err((name, message));
            }
            if self.loss_burst.is_none() {
                let message = format!(
                    "{name} is of a link with two states: expected `loss_burst`, the mean stay in \
                     the bad one, beside it"
                );
                return Err((name, message));
            }
        }
        let loss = self.loss;
        match (self.loss_good, self.loss_bad) {
            (None, None) => return Ok(()),
            (Some(good), _) if good > loss => {
                let message =
                    format!("loss_good = {good}: expected at most the loss in all, loss = {loss}");
                return Err(("loss_good", message));
            }
            (_, Some(bad)) if bad < loss => {
                let message =
                    format!("loss_bad = {bad}: expected at least the loss in all, loss = {loss}");
                return Err(("loss_bad", message));
            }
            (Some(good), bad) if good >= bad.unwrap_or(1.0) => {
                let message = format!("loss_good = {good}: expected less than in the bad state");
                return Err(("loss_good", message));
            }
            (None, Some(0.0)) => {
                let message = "loss_bad = 0: expected more than in the good state".to_owned();
                return Err(("loss_bad", message));
            }
            _ => {}
        }
        match self.two_states() {
            Some(model) if model.change[0] > 1.0 => {
                let least = model.change[0] * self.loss_burst.unwrap_or(1.0);
                let message = format!(
                    "loss_burst = {}: with so much loss expected at least {least:.2}",
                    self.loss_burst.unwrap_or(1.0)
                );
                Err(("loss_burst", message))
            }
            _ => Ok(()),
        }
    }
}
