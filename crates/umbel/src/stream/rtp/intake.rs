//! Selection among the datagrams that come to the port of a layer.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_wire::rtp::{RtpPacket, is_rtcp};

/// Silence of a layer's sender after which another one may take its place.
const SILENT: Duration = Duration::from_secs(1);

/// Reason for which a datagram is not sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is one of RTCP. Players have one medium and nothing to synchronise with it.
    Rtcp,
    /// It is neither RTP nor RTCP.
    NotRtp,
    /// It has another payload type than the session description.
    OtherType(u8),
    /// It is from another synchronization source than the one that is sending.
    OtherSource,
    /// It is longer than a packet can carry.
    TooLong(usize),
}

/// Checks the packets of one layer. Packets of one synchronization source pass, as they are.
#[derive(Debug)]
pub(crate) struct Intake {
    payload_type: u8,
    /// Most bytes of a packet.
    most: usize,
    /// Synchronization source, and time of its last packet.
    source: Option<(u32, Instant)>,
}

impl Intake {
    /// Creates the intake of a layer that no packet has come to.
    pub(crate) fn new(payload_type: u8, most: usize) -> Intake {
        Intake { payload_type, most, source: None }
    }

    /// Returns the most bytes of a packet.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Takes a datagram. Returns whether it is the first of a source that took another's place.
    ///
    /// # Errors
    ///
    /// The reason for which it is not sent on.
    pub(crate) fn take(&mut self, now: Instant, bytes: &[u8]) -> Result<bool, Refusal> {
        if is_rtcp(bytes) {
            return Err(Refusal::Rtcp);
        }
        let packet = RtpPacket::parse(bytes).map_err(|_| Refusal::NotRtp)?;
        if packet.payload_type != self.payload_type {
            return Err(Refusal::OtherType(packet.payload_type));
        }
        let other = self.source.filter(|(ssrc, _)| *ssrc != packet.ssrc);
        if other.is_some_and(|(_, heard)| now - heard < SILENT) {
            return Err(Refusal::OtherSource);
        }
        if bytes.len() > self.most {
            return Err(Refusal::TooLong(bytes.len()));
        }
        self.source = Some((packet.ssrc, now));
        Ok(other.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(ssrc: u32, len: usize) -> Vec<u8> {
        let mut packet = vec![0x80, 96, 0, 1, 0, 0, 0, 0];
        packet.extend(ssrc.to_be_bytes());
        packet.resize(len, 7);
        packet
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_is_not_the_layers_rtp_is_refused() {
        let mut intake = Intake::new(96, 1200);
        assert_eq!(intake.take(at(0), &packet(1, 1200)), Ok(false));
        let mut other_type = packet(1, 100);
        other_type[1] = 97;
        for (bytes, refusal) in [
            (&b"GET / HTTP/1.1"[..], Refusal::NotRtp),
            (&[], Refusal::NotRtp),
            (&[0x80, 200, 0, 6], Refusal::Rtcp),
            (&other_type, Refusal::OtherType(97)),
            (&packet(1, 1201), Refusal::TooLong(1201)),
        ] {
            assert_eq!(intake.take(at(1), bytes), Err(refusal));
        }
    }

    #[test]
    fn another_source_waits_until_the_first_is_silent() {
        let mut intake = Intake::new(96, 1200);
        assert_eq!(intake.take(at(0), &packet(1, 100)), Ok(false));
        assert_eq!(intake.take(at(900), &packet(1, 100)), Ok(false));
        assert_eq!(intake.take(at(1_800), &packet(2, 100)), Err(Refusal::OtherSource));
        assert_eq!(intake.take(at(1_900), &packet(2, 100)), Ok(true));
        assert_eq!(intake.take(at(1_901), &packet(2, 100)), Ok(false));
        assert_eq!(intake.take(at(1_902), &packet(1, 100)), Err(Refusal::OtherSource));
    }
}
