//! `umbel smo status`.

use std::net::SocketAddr;
use std::process::ExitCode;

use serde_json::json;
use umbel_engine::units::{ByteCount, counted};

use super::super::output::{Output, plain};
use super::serve::rate;
use crate::smo::control;
use crate::smo::report::{Group, Receiver, Report};

/// Options of `umbel smo status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel smo status                                 the only server of this machine
  umbel smo status 192.0.2.2:8080                  one of several
  umbel smo status --json | jq .report.traffic
Servers answer the user who runs them, and root.")]
pub(super) struct StatusArgs {
    /// Address at which the server listens [default: the only one on this machine]
    #[arg(value_name = "ADDRESS:PORT")]
    server: Option<SocketAddr>,
    /// Receivers to list, the slowest first
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    most: usize,
}

/// Runs the command.
///
/// # Errors
///
/// If no server answers.
pub(super) fn run(args: &StatusArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let report = control::status(args.server)?;
    output.json(&json!({ "event": "status", "report": report }));
    for line in lines(&report, args.most) {
        output.result(line);
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(report: &Report, most: usize) -> Vec<String> {
    let traffic = &report.traffic;
    let mut lines = vec![
        format!(
            "{} on {}, for {:.0} s: {}, {} by multicast, {} half open; {} at {}",
            report.listen,
            report.channel,
            report.seconds,
            counted(report.receivers, "receiver"),
            report.hearing,
            report.half_open,
            counted(report.streams, "stream"),
            rate(report.rate_bits_per_s)
        ),
        format!(
            "sent {}: {} by multicast, {} by unicast, again {} to all and {} to one; saved {}",
            ByteCount(traffic.sent_bytes),
            ByteCount(traffic.multicast_bytes),
            ByteCount(traffic.unicast_bytes),
            ByteCount(traffic.multicast_again_bytes),
            ByteCount(traffic.unicast_again_bytes),
            ByteCount(traffic.saved_bytes)
        ),
    ];
    if !report.ack_filter.is_empty() {
        lines.push(format!(
            "acknowledgements: {} taken, {} dropped; filter: {}",
            traffic.acknowledgements,
            report.filtered,
            plain(&report.ack_filter)
        ));
    }
    if let Some(trouble) = &report.trouble {
        lines.push(format!("segments do not leave: {}", plain(trouble)));
    }
    if !report.drops.is_empty() {
        lines.push(format!("discarded: {}", report.drops));
    }
    lines.extend(report.by_stream.iter().take(most).map(stream));
    if report.by_stream.len() > most && most > 0 {
        lines.push(format!("… {}", counted(report.by_stream.len() - most, "more stream")));
    }
    if report.slowest.is_empty() || most == 0 {
        return lines;
    }
    let titles =
        ["receiver", "stream", "by", "rtt ms", "cwnd", "rwnd", "under way", "lost", "bound by"];
    lines.push(row(&titles.map(str::to_owned)));
    lines.extend(report.slowest.iter().take(most).map(|receiver| row(&cells(receiver))));
    if report.receivers > most {
        lines.push(format!("… {} more", report.receivers - most));
    }
    lines
}

fn stream(group: &Group) -> String {
    let slowest = match &group.slowest {
        Some(slowest) => {
            format!("the slowest is {}: {}", plain(&slowest.peer), slowest.bound.words())
        }
        None => "nobody holds it up".to_owned(),
    };
    format!(
        "stream {}: {}, {} by multicast; at {}, rtt {:.1} ms, window {}; {slowest}",
        group.port,
        counted(group.receivers, "receiver"),
        group.hearing,
        ByteCount(group.position),
        group.rtt_ms,
        ByteCount(group.window),
    )
}

fn cells(receiver: &Receiver) -> [String; 9] {
    let by = match (receiver.shared, receiver.hearing) {
        (true, true) => "multicast",
        (true, false) => "unicast",
        (false, _) => "alone",
    };
    [
        plain(&receiver.peer),
        receiver.stream.map_or("-".to_owned(), |port| port.to_string()),
        by.to_owned(),
        format!("{:.1}", receiver.rtt_ms),
        receiver.congestion_window.to_string(),
        receiver.receive_window.to_string(),
        receiver.outstanding.to_string(),
        (receiver.loss_events + receiver.timeouts).to_string(),
        receiver.bound.words().to_owned(),
    ]
}

fn row([peer, stream, by, rtt, cwnd, rwnd, outstanding, lost, bound]: &[String; 9]) -> String {
    let numbers = format!("{rtt:>8} {cwnd:>9} {rwnd:>9} {outstanding:>9} {lost:>5}");
    format!("{peer:<24} {stream:>6} {by:<9} {numbers}  {bound}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smo::report::Bound;

    #[test]
    fn the_slowest_come_first_and_the_rest_are_counted() {
        let receiver = |peer: &str, bound| Receiver {
            peer: peer.to_owned(),
            stream: Some(8080),
            hearing: true,
            shared: true,
            state: "established".to_owned(),
            acknowledged: 1,
            outstanding: 2,
            rtt_ms: 0.25,
            congestion_window: 14_600,
            receive_window: 0,
            unicast_bytes: 0,
            loss_events: 1,
            timeouts: 2,
            bound,
        };
        let slowest = vec![
            receiver("10.0.0.2:5000", Bound::Application),
            receiver("10.0.0.3:5000", Bound::Network),
        ];
        let group = Group {
            port: 8080,
            receivers: 2,
            hearing: 2,
            position: 3 << 20,
            rtt_ms: 0.25,
            window: 14_600,
            slowest: slowest.first().cloned(),
        };
        let by_stream = vec![group.clone(), Group { port: 8081, slowest: None, ..group }];
        let report = Report { receivers: 2, slowest, by_stream, ..Report::default() };
        let lines = lines(&report, 1);
        assert_eq!(lines.len(), 7, "{lines:?}");
        assert!(lines[2].starts_with("stream 8080: 2 receivers, 2 by multicast"), "{lines:?}");
        let slowest = "the slowest is 10.0.0.2:5000: its application reads slowly";
        assert!(lines[2].ends_with(slowest), "{lines:?}");
        assert_eq!(lines[3], "… 1 more stream");
        assert!(lines[5].contains("10.0.0.2:5000"), "{lines:?}");
        assert!(lines[5].ends_with("3  its application reads slowly"), "{lines:?}");
        assert_eq!(lines[6], "… 1 more");
    }
}
