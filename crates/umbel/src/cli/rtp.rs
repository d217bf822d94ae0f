//! `umbel stream --rtp`.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use umbel_engine::units::{ByteCount, counted};

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
    let teller = Arc::new(Teller::new(output));
    let summary = stream_rtp(options, teller.clone(), |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.meter.clear();
    finish(&summary?, output);
    Ok(ExitCode::SUCCESS)
}

fn finish(summary: &RtpSummary, output: &Output) {
    output.json(&json!({ "event": "done", "summary": summary, "ok": true }));
    output.note(format!(
        "{} in {:.1} s; {} in {}, {} of them repairs; {} heard",
        counted(summary.taken, "RTP packet"),
        summary.seconds,
        ByteCount(summary.bytes),
        counted(summary.packets, "packet"),
        summary.repairs,
        counted(summary.experiments, "join-experiment")
    ));
    if summary.dropped + summary.refused > 0 {
        output.note(format!(
            "{} dropped, since more came than the layers' rates allow; {} that was no RTP of this \
             stream",
            counted(summary.dropped, "packet"),
            counted(summary.refused, "packet")
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
        self.meter.message(&format!(
            "{} · {}{stalled}",
            counted(snapshot.taken, "packet"),
            air_line(&snapshot.air)
        ));
    }

    fn note(&self, line: &str) {
        self.tell_note(line);
    }
}
