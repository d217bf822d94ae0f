//! `umbel stream --rtp`.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use umbel_engine::units::ByteCount;

use super::output::Output;
use super::signals;
use super::stream::{air_line, tell_begun};
use super::teller::{TELL_EVERY, Teller};
use crate::stream::rtp::{RtpOptions, RtpSnapshot, RtpSummary, stream_rtp};
use crate::stream::{Begun, StreamObserver};

/// Streams RTP.
///
/// # Errors
///
/// If nothing can be received or sent.
pub(super) fn run(
    options: RtpOptions,
    signals: &signals::Watch,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let teller = Arc::new(Teller::live(output));
    let summary = stream_rtp(options, teller.clone(), |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.meter().clear();
    finish(&summary?, output);
    Ok(ExitCode::SUCCESS)
}

fn finish(summary: &RtpSummary, output: &Output) {
    output.json(&json!({ "event": "done", "summary": summary, "ok": true }));
    output.note(format!(
        "{} packets of RTP in {:.1} s; {} in {} packets, {} of them repairs; {} join-experiments heard",
        summary.taken,
        summary.seconds,
        ByteCount(summary.bytes),
        summary.packets,
        summary.repairs,
        summary.experiments
    ));
    if summary.dropped + summary.refused > 0 {
        output.note(format!(
            "{} packets were dropped, since more came than the layers' rates allow; {} were no RTP of \
             this stream",
            summary.dropped, summary.refused
        ));
    }
}

impl StreamObserver<RtpSnapshot> for Teller<RtpSnapshot> {
    fn begun(&self, begun: &Begun) {
        tell_begun(&self.output, begun, |url| {
            format!("umbel watch {url} --rtp 127.0.0.1:5004 --sdp-out watch.sdp")
        });
    }

    fn progress(&self, snapshot: &RtpSnapshot) {
        if self.output.is_json() {
            return self.tell(snapshot, |_| TELL_EVERY);
        }
        let stalled = if snapshot.stalled { " · a layer stalls" } else { "" };
        self.meter().message(format!(
            "{} packets · {}{stalled}",
            snapshot.taken,
            air_line(&snapshot.air)
        ));
    }

    fn note(&self, line: &str) {
        self.tell_note(line);
    }
}
