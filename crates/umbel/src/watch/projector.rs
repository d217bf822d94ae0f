//! Turns the packets of a stream into pictures, files or datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, bail};
use umbel_video::{FrameRate, Size, y4m};
use umbel_wire::stream::{RtpFormat, Stream, StreamContent};

use super::host::Input;
use super::outlet::{Outlet, Target};
use super::playout::Playout;
use super::rtp::{Relay, RtpTarget};
use super::screen::ThreadScreen;
use crate::stream::codec_stream;

/// Shows the content of streams that take each other's place.
pub(super) enum Projector {
    /// The content is discarded.
    Blind,
    /// Pictures for an output.
    Pictures { header: y4m::Header, outlet: Outlet },
    /// Packets for a player.
    Rtp { target: RtpTarget, socket: Arc<UdpSocket> },
}

impl Projector {
    /// Opens what a stream is shown with. The host hears when an output takes no more.
    ///
    /// # Errors
    ///
    /// One line that says why it cannot be shown so, and what to do.
    pub(super) fn open(
        stream: &Stream,
        target: Target,
        host: impl Fn(Input) + Send + 'static,
    ) -> anyhow::Result<Projector> {
        let name = &stream.name;
        match (&stream.content, target) {
            (StreamContent::Hls, _) => {
                bail!(
                    "`{name}` is HLS: play it in a browser or a player by `umbel gateway '{name}'`"
                )
            }
            (StreamContent::Video { .. }, Target::Rtp(_)) => bail!(
                "`{name}` has pictures and no RTP: see it by `umbel watch '{name}' -o - | ffplay -`"
            ),
            (StreamContent::Video { .. }, target) => {
                let header = header(stream)?;
                let outlet = Outlet::open(target, header, host)?;
                Ok(outlet.map_or(Projector::Blind, |outlet| Projector::Pictures { header, outlet }))
            }
            (StreamContent::Rtp(_), Target::Nowhere) => Ok(Projector::Blind),
            (StreamContent::Rtp(formats), Target::Rtp(target)) => {
                target.describe(stream, formats)?;
                let any = if target.to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
                let socket = UdpSocket::bind(any.parse::<SocketAddr>()?);
                let socket = socket.context("cannot send to the player")?;
                socket.set_nonblocking(true)?;
                Ok(Projector::Rtp { target, socket: Arc::new(socket) })
            }
            (StreamContent::Rtp(_), _) => bail!(
                "`{name}` is RTP: let a player have it by `umbel watch '{name}' --rtp \
                 127.0.0.1:5004 --sdp-out {name}.sdp`"
            ),
        }
    }

    /// Starts the thread that shows a stream.
    ///
    /// # Errors
    ///
    /// If the system cannot start it, or the content is of another kind than before.
    pub(super) fn screen(&self, stream: &Stream, delay: u32) -> anyhow::Result<ThreadScreen> {
        let screen = match self {
            Projector::Blind => return Ok(ThreadScreen::blind()),
            Projector::Pictures { header, outlet } => {
                let playout = Playout::new(*header, codec_stream(stream.tsi), delay);
                ThreadScreen::start(playout, outlet.pictures())
            }
            Projector::Rtp { target, socket } => {
                let relay = Relay::new(stream, formats(stream));
                ThreadScreen::relay(relay, socket.clone(), target.clone())
            }
        };
        screen.context("cannot start")
    }

    /// Returns whether it shows a stream with the content of another just as well.
    pub(super) fn shows(&self, now: &StreamContent, before: &StreamContent) -> bool {
        matches!(self, Projector::Blind) || now == before
    }

    /// Lets the output end.
    ///
    /// # Errors
    ///
    /// If a converter failed.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self {
            Projector::Pictures { outlet, .. } => outlet.finish(),
            Projector::Blind | Projector::Rtp { .. } => Ok(()),
        }
    }
}

fn formats(stream: &Stream) -> &[RtpFormat] {
    match &stream.content {
        StreamContent::Rtp(formats) => formats,
        _ => &[],
    }
}

/// Returns size and rate of a stream's pictures.
fn header(stream: &Stream) -> anyhow::Result<y4m::Header> {
    let StreamContent::Video { codec, width, height, rate } = stream.content else {
        bail!("`{}` has no pictures", stream.name);
    };
    if codec != umbel_video::FORMAT {
        bail!(
            "`{}` is encoded in version {codec} of the codec, and this program knows version {}: \
             use the same version of umbel on both sides",
            stream.name,
            umbel_video::FORMAT
        );
    }
    let size = Size::new(width.into(), height.into())?;
    Ok(y4m::Header { size, rate: FrameRate::new(rate.pictures, rate.seconds)? })
}
