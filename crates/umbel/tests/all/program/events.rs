//! The page of what `--json` prints: it has every event, and every field of the reports in them, as
//! the sources describe them. `UMBEL_BLESS=1` writes the fields.

use std::fmt::Write as _;
use std::fs;

use crate::support::documents::{Page, root};

const PAGE: &str = "docs/reference/events.md";
/// Where the fields begin, which are written from the sources.
const FIELDS: &str = "\n## Fields of the reports\n";

/// Reports in events: their name on the page, the source, and the type.
const REPORTS: [(&str, &str, &str); 28] = [
    ("`progress` of `get`", "get/progress.rs", "Snapshot"),
    ("`summary` of `get`", "get/mod.rs", "Summary"),
    ("a failure", "endpoint/items.rs", "Failure"),
    ("`report` of `serve`", "serve/status.rs", "Report"),
    ("a client in it, and of `aside`", "serve/status.rs", "ClientReport"),
    ("its `limit`", "endpoint/pace.rs", "LimitReport"),
    ("`progress` of `send`", "feed/send/mod.rs", "SendSnapshot"),
    ("`receiver` of `send`", "feed/send/mod.rs", "ReceiverLine"),
    ("`summary` of `send`", "feed/send/mod.rs", "SendSummary"),
    ("`progress` of `recv`", "feed/recv/progress.rs", "RecvSnapshot"),
    ("`summary` of `recv`", "feed/recv/mod.rs", "RecvSummary"),
    ("`progress` of `stream`", "stream/mod.rs", "StreamSnapshot"),
    ("`summary` of `stream`", "stream/mod.rs", "StreamSummary"),
    ("`progress` of `stream --hls`", "stream/hls/mod.rs", "HlsSnapshot"),
    ("`summary` of `stream --hls`", "stream/hls/mod.rs", "HlsSummary"),
    ("`progress` of `stream --rtp`", "stream/rtp/mod.rs", "RtpSnapshot"),
    ("`summary` of `stream --rtp`", "stream/rtp/mod.rs", "RtpSummary"),
    ("`second` of `watch`", "watch/mod.rs", "WatchSnapshot"),
    ("`summary` of `watch`", "watch/mod.rs", "WatchSummary"),
    ("`second` of `gateway`", "gateway/mod.rs", "GatewaySnapshot"),
    ("`summary` of `gateway`", "gateway/mod.rs", "GatewaySummary"),
    ("`progress` of `smo serve`, and `report` of `smo status`", "smo/report.rs", "Report"),
    ("`traffic` in it", "smo/report.rs", "Traffic"),
    ("a receiver in it", "smo/report.rs", "Receiver"),
    ("`account` of `smo serve`", "smo/report.rs", "Account"),
    ("`progress` of `smo join`", "smo/join/mod.rs", "JoinSnapshot"),
    ("`summary` of `smo join`", "smo/join/mod.rs", "JoinSummary"),
    ("a finding of `doctor`", "doctor/mod.rs", "Finding"),
];

/// Returns the public fields of a type, each with its documentation.
fn fields(source: &str, name: &str) -> Vec<(String, String)> {
    let head = format!("pub struct {name} {{\n");
    let (_, body) = source.split_once(&head).unwrap_or_else(|| panic!("{name} is not there"));
    let (body, _) = body.split_once("\n}\n").unwrap();
    let (mut fields, mut about) = (Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            about += text;
        } else if let Some((field, _)) = line.strip_prefix("pub ").and_then(|l| l.split_once(':')) {
            fields.push((field.to_owned(), std::mem::take(&mut about).trim().to_owned()));
        }
    }
    fields
}

fn reports() -> String {
    let mut text = FIELDS.to_owned();
    for (title, file, name) in REPORTS {
        let source = fs::read_to_string(root().join("crates/umbel/src").join(file)).unwrap();
        let _ = write!(text, "\n**{title}**\n\n| field | |\n|---|---|\n");
        for (field, about) in fields(&source, name) {
            // Links of the sources' documentation lead nowhere here.
            let about = about.replace(['[', ']'], "").replace('|', "\\|");
            let _ = writeln!(text, "| `{field}` | {about} |");
        }
    }
    text
}

#[test]
fn the_page_of_events_has_the_fields_of_all_reports() {
    let page = Page::read(PAGE).text;
    let (head, _) = page.split_once(FIELDS).expect("the page has the fields of the reports");
    let expected = format!("{head}{}", reports());
    if std::env::var_os("UMBEL_BLESS").is_some() {
        fs::write(root().join(PAGE), expected).unwrap();
    } else {
        assert!(page == expected, "UMBEL_BLESS=1 writes {PAGE} from the sources");
    }
}

#[test]
fn the_page_of_events_has_every_event() {
    let page = Page::read(PAGE).text;
    let mut sources =
        vec![root().join("crates/umbel/src/cli"), root().join("crates/umbel-cli/src")];
    let mut events = 0;
    while let Some(path) = sources.pop() {
        if path.is_dir() {
            sources.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for (_, rest) in
            source.match_indices("\"event\": \"").map(|(at, text)| (at, &source[at + text.len()..]))
        {
            let event = rest.split('"').next().unwrap();
            assert!(page.contains(&format!("| `{event}` |")), "{event} of {}", path.display());
            events += 1;
        }
    }
    assert!(events > 30, "{events}");
}
