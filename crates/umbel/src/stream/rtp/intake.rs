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
    /// It came before, as by another interface on the same network.
    Repeated,
    /// It is longer than packets can carry together.
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
    seen: Seen,
}

/// The last sequence numbers of a source.
#[derive(Debug, Default)]
struct Seen {
    newest: u16,
    /// Bit n stands for the number n before the newest.
    bits: u64,
}

impl Seen {
    /// Notes a number. Returns whether it was among the last ones.
    fn insert(&mut self, sequence: u16) -> bool {
        let ahead = sequence.wrapping_sub(self.newest);
        let behind = ahead.wrapping_neg();
        if u32::from(behind) < u64::BITS {
            let bit = 1 << behind;
            let repeated = self.bits & bit != 0;
            self.bits |= bit;
            return repeated;
        }
        // A number from long before begins anew, as that of a sender that was started again.
        let shift = if ahead < u16::MAX / 2 { u32::from(ahead) } else { u64::BITS };
        self.bits = self.bits.checked_shl(shift).unwrap_or(0) | 1;
        self.newest = sequence;
        false
    }
}

impl Intake {
    /// Creates the intake of a layer that no packet has come to.
    pub(crate) fn new(payload_type: u8, most: usize) -> Intake {
        Intake { payload_type, most, source: None, seen: Seen::default() }
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
        if other.is_some() {
            self.seen = Seen::default();
        }
        if self.seen.insert(packet.sequence) {
            return Err(Refusal::Repeated);
        }
        self.source = Some((packet.ssrc, now));
        Ok(other.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(ssrc: u32, sequence: u16, len: usize) -> Vec<u8> {
        let [high, low] = sequence.to_be_bytes();
        let mut packet = vec![0x80, 96, high, low, 0, 0, 0, 0];
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
        assert_eq!(intake.take(at(0), &packet(1, 1, 1200)), Ok(false));
        let mut other_type = packet(1, 2, 100);
        other_type[1] = 97;
        for (bytes, refusal) in [
            (&b"GET / HTTP/1.1"[..], Refusal::NotRtp),
            (&[], Refusal::NotRtp),
            (&[0x80, 200, 0, 6], Refusal::Rtcp),
            (&other_type, Refusal::OtherType(97)),
            (&packet(1, 2, 1201), Refusal::TooLong(1201)),
        ] {
            assert_eq!(intake.take(at(1), bytes), Err(refusal));
        }
    }

    #[test]
    fn another_source_waits_until_the_first_is_silent() {
        let mut intake = Intake::new(96, 1200);
        assert_eq!(intake.take(at(0), &packet(1, 1, 100)), Ok(false));
        assert_eq!(intake.take(at(900), &packet(1, 2, 100)), Ok(false));
        assert_eq!(intake.take(at(1_800), &packet(2, 3, 100)), Err(Refusal::OtherSource));
        assert_eq!(intake.take(at(1_900), &packet(2, 4, 100)), Ok(true));
        assert_eq!(intake.take(at(1_901), &packet(2, 5, 100)), Ok(false));
        assert_eq!(intake.take(at(1_902), &packet(1, 6, 100)), Err(Refusal::OtherSource));
    }

    #[test]
    fn a_packet_passes_once_however_often_it_comes() {
        let mut intake = Intake::new(96, 1200);
        let mut take = |sequence| intake.take(at(0), &packet(1, sequence, 100));
        let repeated = Err(Refusal::Repeated);
        for (sequence, expected) in [
            (0, Ok(false)),
            (0, repeated),
            (2, Ok(false)),
            (1, Ok(false)),
            (1, repeated),
            (2, repeated),
            (60, Ok(false)),
            (0, repeated),
            (65_535, Ok(false)),
            (65_535, repeated),
            (200, Ok(false)),
            (199, Ok(false)),
            (60, Ok(false)),
            (200, Ok(false)),
            (40_000, Ok(false)),
            (40_000, repeated),
        ] {
            assert_eq!(take(sequence), expected, "{sequence}");
        }
    }
}
