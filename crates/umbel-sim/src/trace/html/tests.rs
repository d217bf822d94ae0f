//! The page holds the events of the run, as text that a browser takes for nothing else.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::*;
use crate::link::LinkSpec;
use crate::network::{Network, NodeId};
use crate::trace::tests::{END, network, tell};

/// Returns the page of the run that all tracers receive.
fn page(change: impl FnOnce(HtmlTracer) -> HtmlTracer) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.html");
    let mut tracer = change(HtmlTracer::create(&path, &network()).unwrap());
    tell(&mut tracer);
    tracer.finish(END).unwrap();
    fs::read_to_string(path).unwrap()
}

/// Returns the recording in the page.
fn recording(page: &str) -> Value {
    let (_, after) = page.split_once("<script type=\"application/json\" id=\"run\">").unwrap();
    let (json, _) = after.split_once("</script>").unwrap();
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_page_knows_what_became_of_each_packet() {
    let run = recording(&page(|tracer| tracer));
    let packets = &run["packets"];
    // Two data packets in transit, two lost or dropped; a request, dropped at the router; two
    // repairs.
    assert_eq!(
        packets["at"],
        serde_json::json!([
            10e6 as u64,
            10_000_000,
            0,
            10_000_000,
            5_000_000,
            10_000_000,
            5_000_000,
            1_000_000
        ])
    );
    assert_eq!(
        packets["took"],
        serde_json::json!([10_000_000, 10_000_000, 10_000_000, 0, 10_000_000, 0, 0, 0])
    );
    assert_eq!(packets["way"], serde_json::json!([1, 2, 4, 1, 5, -2, 1, -1]));
    assert_eq!(packets["id"], serde_json::json!([1, 1, 1, 2, 3, 3, 4, 5]));
    assert_eq!(packets["fate"], serde_json::json!([0, 0, 1, 2, 0, 5, 3, 4]));
    assert_eq!(run["cut"], Value::Null);
    assert_eq!(run["hops"], 4);
}

#[test]
fn the_page_knows_what_nodes_said_and_joined() {
    let run = recording(&page(|tracer| tracer));
    assert_eq!(run["names"], serde_json::json!(["outstanding", "done"]));
    assert_eq!(run["notes"][0], serde_json::json!([1_000_000, 3, 0, [2.0, 0.1, -1.5e300]]));
    assert_eq!(run["members"][2], serde_json::json!([70_000_000, 2, 0, false]));
    assert_eq!(run["messages"][0], serde_json::json!([60_000_000, 5_000_000, 3, 0, 70_000]));
    assert_eq!(run["channels"][0], "232.0.0.7 from source");
}

#[test]
fn nothing_that_a_run_says_ends_the_script_or_the_title() {
    let page = page(|tracer| tracer.title("</title><script>&"));
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(page.matches("</title>").count(), 1);
    assert!(page.contains("<title>&lt;/title&gt;&lt;script&gt;&amp; · Umbel</title>"));
    let run = recording(&page);
    assert_eq!(run["title"], "</title><script>&");
    assert_eq!(run["nodes"][3][0], "<far & away>");
}

#[test]
fn the_page_asks_for_nothing_from_elsewhere() {
    let page = page(|tracer| tracer);
    for elsewhere in ["http:", "https:", "src=", "@import", "url(", "fetch(", "import "] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
}

#[test]
fn a_page_that_is_full_says_from_when_on() {
    let run = recording(&page(|tracer| tracer.max_packets(2)));
    assert_eq!(run["packets"]["id"], serde_json::json!([1, 1]));
    assert_eq!((&run["cut"], &run["hops"]), (&Value::from(20_000_000), &Value::from(4)));
    // Later events are not there either.
    assert_eq!(run["messages"], serde_json::json!([]));
    assert_eq!(run["notes"].as_array().unwrap().len(), 1);
}

#[test]
fn what_becomes_of_the_last_packets_is_still_recorded() {
    let run = recording(&page(|tracer| tracer.max_packets(3)));
    assert_eq!(run["packets"]["fate"], serde_json::json!([0, 0, 1]));
}

#[test]
fn a_network_that_is_too_large_is_refused() {
    let mut network = Network::new();
    (0..=HtmlTracer::MAX_NODES).for_each(|_| _ = network.host(""));
    let refused = HtmlTracer::create(Path::new("/nonexistent/run.html"), &network);
    let Err(TraceError::TooManyNodes { nodes: 2_001, limit: 2_000, .. }) = refused else {
        panic!("{refused:?}");
    };
}

#[test]
fn a_large_network_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let mut network = Network::new();
    for node in 0..300 {
        network.host("");
        for other in [node / 2, node.max(7) - 7].into_iter().filter(|other| *other < node) {
            let spec = LinkSpec::default();
            network.link(NodeId(node), NodeId(other), spec.clone(), spec).unwrap();
        }
    }
    let path = directory.path().join("run.html");
    let mut tracer = HtmlTracer::create(&path, &network).unwrap();
    tracer.finish(END).unwrap();
    assert_eq!(
        recording(&fs::read_to_string(path).unwrap())["nodes"].as_array().unwrap().len(),
        300
    );
}

/// A browser runs the page without an error, and shows the run.
#[test]
fn chromium_shows_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.html");
    fs::write(&path, page(|tracer| tracer.title("Shown"))).unwrap();
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command.arg("--virtual-time-budget=2000").arg("--enable-logging=stderr");
    command.arg(format!("--user-data-dir={}", directory.path().join("profile").display()));
    command.arg(format!("file://{}#t=0.045", path.display()));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: chromium does not start: {error}");
            return;
        }
    };
    let (dom, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!log.contains("CONSOLE"), "{log}");
    assert!(dom.contains("4 nodes · 3 links · 100 ms of simulated time · 4 packet hops"), "{dom}");
    assert!(dom.contains("45.0 <small>ms</small>"), "{dom}");
    assert!(dom.contains("nak 3 at router: hop limit"), "{dom}");
    assert!(dom.contains("&lt;far &amp; away&gt;: outstanding 2 0.1 -1.5e+300"), "{dom}");
}
