//! The session description for players.

use std::net::SocketAddr;

use umbel_wire::sdp::{Attribute, Connection, Description, Media, Origin};
use umbel_wire::stream::{RtpFormat, Stream, StreamMode};

/// Ports from a layer's to that of the next: one for RTP, one for RTCP [RFC 3550 §11].
pub(crate) const PORTS: u16 = 2;

/// Returns how many streams a player gets: one for each layer, or one for all encodings.
pub(crate) fn lanes(mode: StreamMode, formats: &[RtpFormat]) -> usize {
    match mode {
        StreamMode::Cumulative => formats.len(),
        StreamMode::Independent => 1,
    }
}

/// Returns what players need to receive a stream that is sent to `to`, and with layers to the even
/// ports after it.
pub(super) fn describe(stream: &Stream, formats: &[RtpFormat], to: SocketAddr) -> Description {
    let lanes = lanes(stream.mode, formats);
    let media = formats.iter().take(lanes).zip(&stream.layers).enumerate();
    let media = media.map(|(lane, (format, layer))| {
        let mut attributes = format.attributes();
        if lanes > 1 {
            attributes.push(Attribute::new("mid", lane.to_string()));
        }
        if let Some(below) = lane.checked_sub(1).and_then(|below| formats.get(below)) {
            let (own, below) = (format.payload_type, (lane - 1, below.payload_type));
            // RFC 5583
            let depend = format!("{own} lay {}:{}", below.0, below.1);
            attributes.push(Attribute::new("depend", depend));
        }
        Media {
            kind: format.kind.clone(),
            port: to.port() + PORTS * lane as u16,
            protocol: "RTP/AVP".to_owned(),
            formats: format.payload_type.to_string(),
            bandwidth: (lanes > 1).then_some(layer.kbit_per_s),
            attributes,
            ..Media::default()
        }
    });
    let names: Vec<String> = (0..lanes).map(|lane| lane.to_string()).collect();
    let group = (lanes > 1).then(|| Attribute::new("group", format!("DDP {}", names.join(" "))));
    Description {
        origin: Origin {
            user: "-".to_owned(),
            session: stream.tsi.0.into(),
            version: stream.version,
            address: to.ip().to_string(),
        },
        name: stream.name.as_str().to_owned(),
        connection: Some(Connection { address: to.ip(), ttl: None }),
        attributes: group.into_iter().collect(),
        media: media.collect(),
        ..Description::default()
    }
}
