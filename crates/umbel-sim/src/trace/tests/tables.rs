//! CSV read back, and the summary.

use super::*;
use crate::trace::columns::COLUMNS;
use crate::trace::{Summary, SummaryTracer};

/// Parses a CSV file. A quoted empty cell is `Some("")`, an empty one `None`.
pub(super) fn parse_csv(text: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = vec![vec![]];
    let mut cell: Option<String> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                let cell = cell.get_or_insert_default();
                loop {
                    match characters.next().unwrap() {
                        '"' if characters.next_if_eq(&'"').is_some() => cell.push('"'),
                        '"' => break,
                        other => cell.push(other),
                    }
                }
            }
            ',' => rows.last_mut().unwrap().push(cell.take()),
            '\n' => {
                rows.last_mut().unwrap().push(cell.take());
                rows.push(vec![]);
            }
            other => cell.get_or_insert_default().push(other),
        }
    }
    assert_eq!(rows.pop(), Some(vec![]), "the last line has an end");
    rows
}

fn cell<'a>(rows: &'a [Vec<Option<String>>], row: usize, column: &str) -> Option<&'a str> {
    let column = COLUMNS.iter().position(|name| *name == column).unwrap();
    rows[row][column].as_deref()
}

#[test]
fn rows_say_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let rows = parse_csv(&String::from_utf8(written(directory.path(), "run.csv")).unwrap());
    let is = |row: usize, cells: &[(&str, Option<&str>)]| {
        for (column, expected) in cells {
            assert_eq!(cell(&rows, row, column), *expected, "{column} of row {row}");
        }
    };
    is(2, &[("event", Some("join")), ("node_name", Some("<far & away>"))]);
    is(2, &[("source", Some("0")), ("channel", Some("7")), ("packet", None), ("note", None)]);
    is(3, &[("event", Some("note")), ("note", Some("outstanding")), ("value_2", Some("0.1"))]);
    is(6, &[("time_ns", Some("20000000")), ("event", Some("sent")), ("link", Some("1"))]);
    is(6, &[("peer_name", Some("near, \"quoted\"")), ("arrives_ns", Some("30000000"))]);
    is(6, &[("kind", Some("data")), ("bytes", Some("76")), ("destination", None)]);
    is(9, &[("event", Some("lost")), ("packet", Some("1")), ("arrives_ns", None)]);
    is(11, &[("kind", Some("nak")), ("flow", Some("3")), ("hop_limit", Some("1"))]);
    is(11, &[("source", Some("3")), ("destination", Some("0")), ("channel", None)]);
    is(13, &[("event", Some("hop_limit")), ("link", None), ("peer", None)]);
    is(16, &[("event", Some("message")), ("kind", Some("session")), ("bytes", Some("70000"))]);
}

#[test]
fn numbers_read_back_as_the_same_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let rows = parse_csv(&String::from_utf8(written(directory.path(), "run.csv")).unwrap());
    let bits = |column| cell(&rows, 3, column).unwrap().parse::<f64>().unwrap().to_bits();
    let written = [2.0_f64, 0.1, -1.5e300].map(f64::to_bits);
    assert_eq!([bits("value_1"), bits("value_2"), bits("value_3")], written);
}

#[test]
fn the_documented_columns_are_those_of_the_files() {
    let documentation = include_str!("../columns.rs");
    let documented: Vec<&str> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"))
        .filter_map(|line| line.split(" | ").next())
        .flat_map(|names| names.split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    assert_eq!(documented, COLUMNS);
}

fn summary() -> Summary {
    let mut tracer = SummaryTracer::new(&network());
    tell(&mut tracer);
    tracer.summary(END)
}

#[test]
fn the_summary_counts_packets_once_and_copies_by_what_became_of_them() {
    let summary = summary();
    let [data, repair, nak] = &summary.kinds[..] else { panic!("{:?}", summary.kinds) };
    assert_eq!((data.kind.as_str(), data.traffic.packets, data.traffic.bytes), ("data", 2, 152));
    assert_eq!((data.traffic.hops, data.traffic.hop_bytes, data.traffic.arrived), (3, 228, 1));
    assert_eq!((data.traffic.drops.lost, data.traffic.drops.queue_drops), (1, 1));
    assert_eq!((repair.traffic.packets, repair.traffic.drops.total()), (2, 2));
    assert_eq!((nak.kind.as_str(), nak.traffic.hops, nak.traffic.arrived), ("nak", 1, 0));
    assert_eq!(nak.traffic.drops.hop_limit, 1);
    assert_eq!((summary.sessions.messages, summary.sessions.bytes, summary.notes), (1, 70_000, 2));
}

#[test]
fn the_summary_says_how_much_of_a_link_was_used() {
    let summary = summary();
    let link = summary.links.iter().find(|link| link.from == "<far & away>").unwrap();
    // 200 bytes in 100 ms at 1 Mbit/s.
    assert_eq!(link.utilisation, Some(0.016));
    let node = summary.nodes.iter().find(|node| node.name == "<far & away>").unwrap();
    let traffic = node.traffic;
    assert_eq!((traffic.sent, traffic.received, traffic.drops.lost, traffic.joins), (1, 0, 1, 1));
    assert_eq!(traffic.messages_sent, 1);
}

#[test]
fn the_summary_reads_well() {
    let expected = "\
0.100 s of simulated time, 4 nodes, 3 links

kind     packets    bytes  hops  arrived  lost  queue  down  no route  hop limit
data           2    152 B     3        1     1      1     -         -          -
repair         2    152 B     -        -     -      -     1         1          -
nak            1    200 B     1        -     -      -     -         -          1
all            5    504 B     4        1     1      1     1         1          1
session        1  70.0 kB     -        -     -      -     -         -          -

flow      packets  bytes  hops  arrived  lost  queue  down  no route  hop limit
0 data          2  152 B     3        1     1      1     -         -          -
3 nak           1  200 B     1        -     -      -     -         -          1
0 repair        2  152 B     -        -     -      -     1         1          -

link                     packets  bytes  lost  queue  down   used
<far & away> → router          1  200 B     -      -     -  1.6 %
source → router                1   76 B     -      1     1  0.6 %
router → near, \"quoted\"        1   76 B     -      -     -  0.6 %
router → <far & away>          1   76 B     1      -     -  0.6 %

node            sent  bytes  came  bytes  dropped  said  heard
source             4  304 B     -      -        1     -      1
<far & away>       1  200 B     -      -        1     1      -
router             -      -     2  276 B        3     -      -
near, \"quoted\"     -      -     1   76 B        -     -      -
";
    assert_eq!(summary().to_string(), expected);
}

#[test]
fn the_summary_in_json_has_the_same_numbers() {
    let json: serde_json::Value = serde_json::from_str(&summary().to_json()).unwrap();
    assert_eq!(json["kinds"][0]["kind"], "data");
    assert_eq!(json["kinds"][0]["lost"], 1);
    assert_eq!(json["links"][0]["utilisation"], 0.00608);
    assert_eq!(json["duration_ns"], 100_000_000);
}
