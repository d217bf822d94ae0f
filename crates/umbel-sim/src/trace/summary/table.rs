//! Summary for human readers.

use std::fmt;

use umbel_engine::units::ByteCount;

use super::{Drops, KindSummary, Summary, Traffic};
use crate::trace::columns::SESSION;

/// Limit on rows of a table.
const ROWS: usize = 20;

impl Summary {
    /// Returns the whole summary as one JSON object on one line.
    pub fn to_json(&self) -> String {
        // Writing numbers, texts and lists of them to a string cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:.3} s of simulated time, {} nodes, {} links",
            self.duration_ns as f64 / 1e9,
            count(self.nodes_in_network),
            count(self.links_in_network)
        )?;
        writeln!(f, "\n{}", self.kinds_table())?;
        if self.flows.iter().any(|flow| flow.flow != self.flows[0].flow) {
            writeln!(f, "{}", self.flows_table())?;
        }
        writeln!(f, "{}", self.links_table())?;
        write!(f, "{}", self.nodes_table())
    }
}

impl Summary {
    fn kinds_table(&self) -> Table {
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut total = Traffic::default();
        for KindSummary { kind, traffic } in &self.kinds {
            rows.push([vec![kind.clone()], traffic_cells(traffic)].concat());
            total.add(*traffic);
        }
        if self.kinds.len() > 1 {
            rows.push([vec!["all".to_owned()], traffic_cells(&total)].concat());
        }
        if self.sessions.messages > 0 {
            let messages = count(self.sessions.messages);
            let mut row = vec![SESSION.to_owned(), messages, bytes(self.sessions.bytes)];
            row.resize(TRAFFIC.len() + 1, NONE.to_owned());
            rows.push(row);
        }
        Table { head: [&["kind"], &TRAFFIC[..]].concat(), left: 1, rows, more: 0 }
    }

    fn flows_table(&self) -> Table {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.traffic.hop_bytes));
        let row = |flow: &&super::FlowSummary| {
            let name = format!("{} {}", flow.flow, flow.kind);
            [vec![name], traffic_cells(&flow.traffic)].concat()
        };
        let rows = flows.iter().take(ROWS).map(row).collect();
        let more = flows.len().saturating_sub(ROWS);
        Table { head: [&["flow"], &TRAFFIC[..]].concat(), left: 1, rows, more }
    }

    fn links_table(&self) -> Table {
        let mut links: Vec<_> = self.links.iter().collect();
        links.sort_by(|a, b| {
            let busy = |link: &super::LinkSummary| link.utilisation.unwrap_or_default();
            busy(b).total_cmp(&busy(a)).then(b.traffic.bytes.cmp(&a.traffic.bytes))
        });
        let row = |link: &&super::LinkSummary| {
            let Drops { lost, queue_drops, down, .. } = link.traffic.drops;
            vec![
                format!("{} → {}", link.from, link.to),
                count(link.traffic.packets),
                bytes(link.traffic.bytes),
                count(lost),
                count(queue_drops),
                count(down),
                link.utilisation.map_or(NONE.to_owned(), |used| format!("{:.1} %", used * 100.0)),
            ]
        };
        let rows = links.iter().take(ROWS).map(row).collect();
        let head = vec!["link", "packets", "bytes", "lost", "queue", "down", "used"];
        Table { head, left: 1, rows, more: links.len().saturating_sub(ROWS) }
    }

    fn nodes_table(&self) -> Table {
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_by_key(|node| {
            let traffic = &node.traffic;
            std::cmp::Reverse((traffic.sent_bytes, traffic.received_bytes))
        });
        let row = |node: &&super::NodeSummary| {
            let traffic = &node.traffic;
            vec![
                node.name.clone(),
                count(traffic.sent),
                bytes(traffic.sent_bytes),
                count(traffic.received),
                bytes(traffic.received_bytes),
                count(traffic.drops.total()),
                count(traffic.messages_sent),
                count(traffic.messages_received),
            ]
        };
        let rows = nodes.iter().take(ROWS).map(row).collect();
        let head = vec!["node", "sent", "bytes", "came", "bytes", "dropped", "said", "heard"];
        Table { head, left: 1, rows, more: nodes.len().saturating_sub(ROWS) }
    }
}

/// Columns of [`Traffic`].
const TRAFFIC: [&str; 9] =
    ["packets", "bytes", "hops", "arrived", "lost", "queue", "down", "no route", "hop limit"];
/// Text of an empty cell.
const NONE: &str = "-";

fn traffic_cells(traffic: &Traffic) -> Vec<String> {
    let Drops { lost, queue_drops, down, no_route, hop_limit } = traffic.drops;
    vec![
        count(traffic.packets),
        bytes(traffic.bytes),
        count(traffic.hops),
        count(traffic.arrived),
        count(lost),
        count(queue_drops),
        count(down),
        count(no_route),
        count(hop_limit),
    ]
}

/// Returns a number with its thousands apart; `-` for 0.
fn count(number: u64) -> String {
    if number == 0 {
        return NONE.to_owned();
    }
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a number of bytes; `-` for 0.
fn bytes(number: u64) -> String {
    if number == 0 { NONE.to_owned() } else { ByteCount(number).to_string() }
}

/// Rows below a head, each column as wide as needed.
struct Table {
    head: Vec<&'static str>,
    /// Number of columns that are texts.
    left: usize,
    rows: Vec<Vec<String>>,
    /// Number of rows that are not shown.
    more: usize,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head: Vec<String> = self.head.iter().map(|name| (*name).to_owned()).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in [&head].into_iter().chain(&self.rows) {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column < self.left {
                    write!(f, "{cell:width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        if self.more > 0 {
            writeln!(f, "… and {} more", count(self.more as u64))?;
        }
        Ok(())
    }
}
