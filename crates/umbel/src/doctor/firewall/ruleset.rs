//! The output of `nft -j list ruleset` [libnftables-json(5)], as far as it decides about packets.

use serde_json::Value;

/// All tables of this network namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Ruleset {
    pub(super) chains: Vec<Chain>,
    /// Named sets.
    sets: Vec<(Table, String, Value)>,
}

/// Family and name of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) family: String,
    pub(super) name: String,
}

/// A chain with its rules.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) table: Table,
    pub(super) name: String,
    /// The hook by which packets enter the chain, if it is a base chain.
    pub(super) hook: Option<String>,
    /// `filter`, `nat` or `route`; empty for a chain without a hook.
    pub(super) kind: String,
    /// The device of an ingress or egress hook.
    pub(super) device: Option<Value>,
    /// Whether packets at the end of the chain are dropped.
    pub(super) drops_by_default: bool,
    pub(super) rules: Vec<Rule>,
}

/// A rule with its statements in order.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) handle: u64,
    pub(super) statements: Vec<Value>,
}

impl Ruleset {
    /// Parses the listing. Returns `None` if it is not one.
    pub(super) fn parse(text: &str) -> Option<Ruleset> {
        let listing: Value = serde_json::from_str(text).ok()?;
        let mut ruleset = Ruleset::default();
        for object in listing.get("nftables")?.as_array()? {
            if let Some(chain) = object.get("chain") {
                ruleset.chains.extend(read_chain(chain));
            } else if let Some(rule) = object.get("rule") {
                ruleset.add_rule(rule);
            } else if let Some(set) = object.get("set")
                && let (Some(table), Some(name)) = (read_table(set), text_of(set, "name"))
            {
                let elements = set.get("elem").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
                ruleset.sets.push((table, name, elements));
            }
        }
        Some(ruleset)
    }

    fn add_rule(&mut self, rule: &Value) {
        let (Some(table), Some(name)) = (read_table(rule), text_of(rule, "chain")) else { return };
        let chain = self.chains.iter_mut().find(|chain| chain.table == table && chain.name == name);
        let statements = rule.get("expr").and_then(Value::as_array);
        if let (Some(chain), Some(statements)) = (chain, statements) {
            let handle = rule.get("handle").and_then(Value::as_u64).unwrap_or(0);
            chain.rules.push(Rule { handle, statements: statements.clone() });
        }
    }

    pub(super) fn chain(&self, table: &Table, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.table == *table && chain.name == name)
    }

    /// Returns the elements of a named set.
    pub(super) fn set(&self, table: &Table, name: &str) -> Option<&Value> {
        let found = self.sets.iter().find(|(of, set, _)| of == table && set == name);
        found.map(|(_, _, elements)| elements)
    }
}

fn read_chain(chain: &Value) -> Option<Chain> {
    Some(Chain {
        table: read_table(chain)?,
        name: text_of(chain, "name")?,
        hook: text_of(chain, "hook"),
        kind: text_of(chain, "type").unwrap_or_default(),
        device: chain.get("dev").cloned(),
        drops_by_default: text_of(chain, "policy").as_deref() == Some("drop"),
        rules: Vec::new(),
    })
}

fn read_table(object: &Value) -> Option<Table> {
    Some(Table { family: text_of(object, "family")?, name: text_of(object, "table")? })
}

fn text_of(object: &Value, key: &str) -> Option<String> {
    object.get(key)?.as_str().map(str::to_owned)
}
