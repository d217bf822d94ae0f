//! The threads that read and encode pictures.
//!
//! ```text
//! input ──▶ reader ── two pictures at most ──▶ encoder ── packets ──▶ host
//! ```
//!
//! A picture for which the encoder has no time is left out. While the input stalls, the last
//! picture is encoded again once in a while. Receivers that join late see it, and others see that
//! the source is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use umbel_engine::host::Mailbox;
use umbel_video::{Encoder, Frame, FrameRate};

use super::host::{Input as ToHost, Picture};
use super::input::{Converter, Input};

/// Pictures that may wait for the encoder.
const WAITING: usize = 2;
/// Time without a picture after which the last one is encoded again.
const AGAIN: Duration = Duration::from_millis(250);

/// Threads of a source besides its host. They end when this is dropped.
#[derive(Default)]
pub(crate) struct Filming {
    stopped: Arc<AtomicBool>,
    pub(crate) converter: Converter,
}

impl Drop for Filming {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.converter.end();
    }
}

/// Starts both threads. They end with the input, or at the next picture after `filming` has ended.
///
/// # Errors
///
/// If the system cannot start a thread.
pub(crate) fn start(
    input: Input,
    encoder: Encoder,
    host: &Mailbox<ToHost>,
    filming: &Filming,
) -> std::io::Result<[JoinHandle<()>; 2]> {
    let (give, take) = crossbeam_channel::bounded(WAITING);
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let (told, packets) = (host.clone(), host.clone());
    let (rate, stopped) = (input.header().rate, filming.stopped.clone());
    Ok([
        spawn("umbel-input").spawn(move || read(input, &give, &told, &stopped))?,
        spawn("umbel-encoder").spawn(move || encode(encoder, rate, &take, &packets))?,
    ])
}

fn read(mut input: Input, give: &Sender<Frame>, host: &Mailbox<ToHost>, stopped: &AtomicBool) {
    let size = input.header().size;
    let failed = loop {
        let mut frame = Frame::grey(size);
        let read = input.read(&mut frame);
        if stopped.load(Ordering::Acquire) {
            return;
        }
        match read {
            Ok(true) => match give.try_send(frame) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => host.put(ToHost::LeftOut),
                Err(TrySendError::Disconnected(_)) => return,
            },
            Ok(false) => break None,
            Err(error) => break Some(format!("{error:#}")),
        }
    };
    host.put(ToHost::Ended { failed });
}

fn encode(mut encoder: Encoder, rate: FrameRate, take: &Receiver<Frame>, host: &Mailbox<ToHost>) {
    let interval = 1.0 / rate.per_s();
    let (mut last, mut begun, mut number) = (None, None, 0);
    loop {
        let fresh = match take.recv_timeout(AGAIN) {
            Ok(frame) => {
                last = Some(frame);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(frame) = &last else { continue };
        let now = Instant::now();
        let passed = now - *begun.get_or_insert(now);
        // Numbers are those of a source that shows a picture each time.
        number = (number + 1).max((passed.as_secs_f64() / interval) as u64);
        let packets = match encoder.encode(number, frame) {
            Ok(packets) => packets,
            Err(error) => return host.put(ToHost::Ended { failed: Some(error.to_string()) }),
        };
        let packets = packets.into_iter().map(|packet| (packet.layer, Bytes::from(packet.bytes)));
        let packets = packets.collect();
        host.put(ToHost::Picture(Picture { packets, fresh, encoding: now.elapsed() }));
    }
}
