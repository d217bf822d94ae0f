//! `umbel stream --hls`.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use serde_json::json;
use umbel_engine::units::{ByteCount, counted};

use super::output::{Output, plain};
use super::signals;
use super::stream::{air_line, tell_begun};
use super::teller::{TELL_EVERY, Teller};
use crate::stream::hls::{HlsOptions, HlsSnapshot, HlsSummary, stream_hls};
use crate::stream::{Begun, StreamObserver};

/// Streams a ladder.
///
/// # Errors
///
/// If nothing can be sent, or the ladder breaks off.
pub(super) fn run(
    options: HlsOptions,
    signals: &signals::Watch,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let teller = Arc::new(Teller::new(output));
    let summary = stream_hls(options, teller.clone(), |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.meter.clear();
    finish(&summary?, output)
}

fn finish(summary: &HlsSummary, output: &Output) -> anyhow::Result<ExitCode> {
    let ok = summary.failure.is_none();
    output.json(&json!({ "event": "done", "summary": summary, "ok": ok }));
    output.note(format!(
        "{}, {} in {:.1} s; {} in {}, {} of them repairs; {} refused",
        counted(summary.segments, "segment"),
        ByteCount(summary.bytes),
        summary.seconds,
        ByteCount(summary.sent_bytes),
        counted(summary.packets, "packet"),
        summary.repairs,
        summary.refused
    ));
    if let Some(failure) = &summary.failure {
        bail!("{}", plain(failure));
    }
    Ok(ExitCode::SUCCESS)
}

impl StreamObserver<HlsSnapshot> for Teller<HlsSnapshot> {
    fn begun(&self, begun: &Begun) {
        tell_begun(&self.output, begun, |url| format!("umbel gateway {url}"));
    }

    fn progress(&self, snapshot: &HlsSnapshot) {
        if self.output.is_json() {
            return self.tell(snapshot, |_| TELL_EVERY);
        }
        let stalled = if snapshot.stalled { " · the ladder stalls" } else { "" };
        self.meter.message(&format!(
            "{} · {}{stalled}",
            counted(snapshot.segments, "segment"),
            air_line(&snapshot.air)
        ));
    }

    fn note(&self, line: &str) {
        self.tell_note(line);
    }
}
