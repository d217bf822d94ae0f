//! What a receiver reports of a stretch of a channel's packets, so that the source finds its rate.
//!
//! Each data packet carries a [`ChannelStamp`]: its number on the channel, and when it was sent. A
//! receiver can thus say how fast packets were sent and how fast they arrived, how much longer they
//! were under way than the quickest one, and how many are missing. The clocks of both need not
//! agree: only differences count.

use std::time::Duration;

use crate::ParseError;
use crate::codec::{Reader, put_varint};

/// Number and sending time of a data packet. Both wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStamp {
    /// Number of the packet among all that the source has sent on the channel.
    pub number: u32,
    /// Time of sending in microseconds, by the source's clock; 24 bits.
    pub sent_us: u32,
    /// Number of packets that left before it at the same time, at most 255.
    pub place: u8,
}

impl ChannelStamp {
    /// Length in a packet, in bytes.
    pub const LEN: usize = 8;

    /// Microseconds after which the time of sending begins again: some 17 s.
    pub const WRAPS_US: u32 = 1 << 24;

    /// Creates the stamp of a packet that leaves `now_us` microseconds after the source's epoch.
    pub const fn new(number: u32, now_us: u64, place: u8) -> ChannelStamp {
        ChannelStamp { number, sent_us: now_us as u32 % ChannelStamp::WRAPS_US, place }
    }

    /// Returns the microseconds from the sending of an earlier packet to that of this one.
    pub const fn us_since(self, earlier: ChannelStamp) -> u32 {
        self.sent_us.wrapping_sub(earlier.sent_us) % ChannelStamp::WRAPS_US
    }

    /// Returns the words of the stamp in a packet.
    #[inline]
    pub(crate) const fn words(self) -> [u32; 2] {
        [self.number, self.sent_us << 8 | self.place as u32]
    }

    /// Reads the words of a packet's stamp.
    #[inline]
    pub(crate) const fn from_words([number, time]: [u32; 2]) -> ChannelStamp {
        ChannelStamp { number, sent_us: time >> 8, place: time as u8 }
    }
}

/// A receiver's report on a stretch of a channel's packets: those after the last packet of the
/// report before, up to [`newest`](ReceptionReport::newest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceptionReport {
    /// Stamp of the last packet of the stretch. Its sending time lets the source compute the round
    /// trip.
    pub newest: ChannelStamp,
    /// Time from the arrival of that packet to the sending of the report. Microseconds.
    pub held: Duration,
    /// Number of packets that arrived, including those of `overrun`.
    pub received: u32,
    /// Number of packets that did not arrive.
    pub lost: u32,
    /// Number of those that were the last ones of a batch of which at least four arrived: what
    /// leaves together does not fit into a short queue.
    pub tails: u32,
    /// Number of gaps that the others make.
    pub gaps: u32,
    /// Number of packets that reached the receiver's machine and were dropped there.
    pub overrun: u32,
    /// Number of packets with the mark of a congested router [RFC 3168].
    pub marked: u32,
    /// Time between the sending of the first packet and of the last. Microseconds.
    pub sent_over: Duration,
    /// Time between the arrival of the first packet and of the last. Microseconds.
    pub arrived_over: Duration,
    /// Least time that a packet of the stretch was under way, above the least that is known.
    /// Microseconds.
    pub queue_least: Duration,
    /// The same of the last packet. Microseconds.
    pub queue: Duration,
    /// How much the time under way varies from packet to packet, without the growth of a queue.
    /// Microseconds.
    pub jitter: Duration,
    /// Rate at which packets that left together arrived, in bits per second: the capacity of the
    /// narrowest link, if nothing else uses it. `None` if no such packets were seen.
    pub train_bits_per_s: Option<u64>,
}

/// When a receiver reports, as the source tells it.
///
/// A report is due once `every` has passed and `packets` packets can be reported; and at `latest`
/// if there is one packet at all. When its path gets into trouble, a receiver does not wait for
/// that, but for a random time within `spread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportSchedule {
    /// Least time between two reports. Microseconds.
    pub every: Duration,
    /// Least number of packets that a report covers.
    pub packets: u32,
    /// Greatest time between two reports while packets arrive. Microseconds.
    pub latest: Duration,
    /// Longest random delay of an urgent report. It is longer the more receivers there are.
    /// Microseconds.
    pub spread: Duration,
}

impl ReportSchedule {
    /// The schedule of a receiver that the source has told nothing else: each few packets, so that
    /// the source can begin.
    pub const START: ReportSchedule = ReportSchedule {
        every: Duration::from_millis(1),
        packets: 4,
        latest: Duration::from_millis(100),
        spread: Duration::ZERO,
    };

    /// Appends the schedule.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.packets.into());
        for time in [self.every, self.latest, self.spread] {
            put_varint(out, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// Reads a schedule.
    ///
    /// # Errors
    ///
    /// Returns an error if bytes are missing, or a number is out of its range.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<ReportSchedule, ParseError> {
        let packets = reader.number()?;
        let (every, latest) = (time(reader)?, time(reader)?);
        Ok(ReportSchedule { packets, every, latest, spread: time(reader)? })
    }
}

impl ReceptionReport {
    /// Appends the report.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for word in self.newest.words() {
            out.extend_from_slice(&word.to_be_bytes());
        }
        for count in [self.received, self.lost, self.tails, self.gaps, self.overrun, self.marked] {
            put_varint(out, count.into());
        }
        for time in [
            self.held,
            self.sent_over,
            self.arrived_over,
            self.queue_least,
            self.queue,
            self.jitter,
        ] {
            put_varint(out, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        put_varint(out, self.train_bits_per_s.unwrap_or(0));
    }

    /// Reads a report.
    ///
    /// # Errors
    ///
    /// Returns an error if bytes are missing, or a number is out of its range.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<ReceptionReport, ParseError> {
        let newest = ChannelStamp::from_words([word(reader)?, word(reader)?]);
        let received = reader.number()?;
        let lost = reader.number()?;
        let (tails, gaps) = (reader.number()?, reader.number()?);
        let overrun = reader.number()?;
        let marked = reader.number()?;
        Ok(ReceptionReport {
            newest,
            received,
            lost,
            tails,
            gaps,
            overrun,
            marked,
            held: time(reader)?,
            sent_over: time(reader)?,
            arrived_over: time(reader)?,
            queue_least: time(reader)?,
            queue: time(reader)?,
            jitter: time(reader)?,
            train_bits_per_s: Some(reader.varint()?).filter(|&rate| rate > 0),
        })
    }
}

fn word(reader: &mut Reader<'_>) -> Result<u32, ParseError> {
    reader.array().map(u32::from_be_bytes)
}

/// Reads a time in microseconds.
fn time(reader: &mut Reader<'_>) -> Result<Duration, ParseError> {
    let us: u32 = reader.number()?;
    Ok(Duration::from_micros(us.into()))
}
