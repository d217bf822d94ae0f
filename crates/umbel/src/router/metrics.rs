//! A router's state in the text format of Prometheus.

use std::fmt::{Display, Write as _};

use umbel_router::daemon::Status;

/// Lines of one metric.
struct Metric<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Metric<'_> {
    fn value(&mut self, labels: &[(&str, &str)], value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{}", self.name);
        if !labels.is_empty() {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            let _ = write!(self.out, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.out, " {value}");
    }
}

fn metric<'a>(out: &'a mut String, kind: &str, name: &'static str, help: &str) -> Metric<'a> {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    Metric { out, name }
}

/// Returns the page.
pub(super) fn text(status: &Status) -> String {
    let mut out = String::new();
    metric(&mut out, "gauge", "umbel_router_seconds", "Time since the start.")
        .value(&[], status.seconds);
    metric(&mut out, "gauge", "umbel_router_channels", "Channels that are forwarded.")
        .value(&[], status.forwarded.len());
    let mut packets =
        metric(&mut out, "counter", "umbel_router_packets_total", "Packets of a channel.");
    for channel in &status.forwarded {
        let (source, group) = (channel.source.to_string(), channel.group.to_string());
        packets.value(&[("source", &source), ("group", &group)], channel.packets);
    }
    let mut bytes = metric(&mut out, "counter", "umbel_router_bytes_total", "Bytes of a channel.");
    for channel in &status.forwarded {
        let (source, group) = (channel.source.to_string(), channel.group.to_string());
        bytes.value(&[("source", &source), ("group", &group)], channel.bytes);
    }
    let mut requests = metric(
        &mut out,
        "counter",
        "umbel_router_lms_requests_total",
        "Requests that were steered, by direction.",
    );
    for lms in &status.lms {
        let family = lms.family.as_str();
        let directions = [("turned", lms.turned), ("up", lms.sent_up), ("down", lms.sent_down)];
        for (direction, count) in directions {
            requests.value(&[("family", family), ("direction", direction)], count);
        }
    }
    let mut dmcasts = metric(
        &mut out,
        "counter",
        "umbel_router_lms_dmcasts_total",
        "Directed multicasts that were emitted.",
    );
    for lms in &status.lms {
        dmcasts.value(&[("family", &lms.family)], lms.dmcasts);
    }
    let mut fast = metric(
        &mut out,
        "counter",
        "umbel_router_lms_fast_path_total",
        "Requests and DMCASTs of these that the program in the kernel took.",
    );
    for lms in &status.lms {
        let counts = &lms.fast_path.counts;
        for (kind, count) in [("request", counts.requests()), ("dmcast", counts.dmcasts)] {
            fast.value(&[("family", &lms.family), ("kind", kind)], count);
        }
    }
    let mut repliers =
        metric(&mut out, "gauge", "umbel_router_lms_repliers", "Channels with a replier.");
    for lms in &status.lms {
        repliers.value(&[("family", &lms.family)], lms.repliers.len());
    }
    let mut drops = metric(
        &mut out,
        "counter",
        "umbel_router_lms_drops_total",
        "Datagrams of LMS that were discarded, by reason.",
    );
    for lms in &status.lms {
        for (reason, count) in lms.discarded() {
            drops.value(&[("family", &lms.family), ("reason", reason)], count);
        }
    }
    out
}
