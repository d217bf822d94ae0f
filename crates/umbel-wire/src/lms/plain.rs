//! Requests and DMCASTs laid out as [`Message::emit`] lays them out: read by routers with little
//! work. A request is passed on with all that routers do not change as it came.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::message::{
    CHANNEL, DMCAST, FLAGS, FOLLOWING, HOPS, NUMBER, PAYLOAD, REPLIER_FAILED, REQUEST, REQUESTOR,
    SEQUENCE, TSI, TURNING_POINT, UNICAST, Way,
};
use super::{Request, TurningPoint, limits};
use crate::Channel;
use crate::channel::{IPV6, SOURCE};
use crate::control::{Field, Frame, FrameHeader, MAGIC, MAX_BODY, TLV_HEADER_LEN, VERSION};

/// A message for routers of the two kinds of which there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain<'a> {
    /// A request.
    Request(PlainRequest<'a>),
    /// A DMCAST: see [`Message::Dmcast`](super::Message::Dmcast).
    Dmcast {
        /// The channel; it has a source.
        channel: Channel,
        /// The turning point that multicasts it.
        turning_point: TurningPoint,
        /// A whole repair message.
        repair: &'a [u8],
    },
}

impl<'a> Plain<'a> {
    /// Reads a message. Returns `None` for one of another kind, one that is laid out in another
    /// way, and any that [`Message::parse`](super::Message::parse) refuses.
    pub fn parse(frame: &'a [u8]) -> Option<Plain<'a>> {
        let (&[m0, m1, version, message_type, l0, l1, l2, l3], body) =
            frame.split_first_chunk::<{ FrameHeader::LEN }>()?;
        let len = u32::from_be_bytes([l0, l1, l2, l3]);
        if [m0, m1] != MAGIC || version != VERSION || len > MAX_BODY || len as usize != body.len() {
            return None;
        }
        let mut rest = Rest(body);
        match message_type {
            REQUEST => PlainRequest::read(frame, rest).map(Plain::Request),
            DMCAST => {
                let channel = channel(rest.field(CHANNEL)?)?;
                let turning_point = turning_point(rest.field(TURNING_POINT)?)?;
                let repair = rest.field(PAYLOAD)?;
                rest.0.is_empty().then_some(Plain::Dmcast { channel, turning_point, repair })
            }
            _ => None,
        }
    }
}

/// A request as it came, and what routers change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainRequest<'a> {
    /// The header and all fields before the requestor.
    head: &'a [u8],
    channel: Channel,
    way: Way,
}

impl<'a> PlainRequest<'a> {
    /// Lays out a request that was read in another way. `room` keeps a part of it.
    pub fn new(request: &Request, room: &'a mut Vec<u8>) -> PlainRequest<'a> {
        room.clear();
        let mut frame = Frame::begin(room, REQUEST);
        request.emit_head(&mut frame);
        PlainRequest { head: room, channel: request.channel, way: request.way() }
    }

    fn read(frame: &'a [u8], mut rest: Rest<'a>) -> Option<PlainRequest<'a>> {
        let channel = channel(rest.field(CHANNEL)?)?;
        u32::try_from(varint(rest.field(TSI)?)?).ok()?;
        let first = varint(rest.field(SEQUENCE)?)?;
        let following = match rest.field(FOLLOWING) {
            None => 0,
            Some(value) => u32::try_from(varint(value)?).ok().filter(|bits| *bits != 0)?,
        };
        if first >= u64::MAX - u64::from(u32::BITS - following.leading_zeros()) {
            return None;
        }
        u8::try_from(varint(rest.field(NUMBER)?)?).ok().filter(|number| *number != 0)?;
        let head = &frame[..frame.len() - rest.0.len()];
        let requestor = match rest.field(REQUESTOR) {
            None => None,
            Some(value) => Some(host(value)?),
        };
        let turning_point = match rest.field(TURNING_POINT) {
            None => None,
            Some(value) => Some(turning_point(value)?),
        };
        let flags = match rest.field(FLAGS) {
            None => 0,
            Some(&[flags]) if flags != 0 && flags & !(REPLIER_FAILED | UNICAST) == 0 => flags,
            Some(_) => return None,
        };
        let &[hops @ ..=limits::HOPS] = rest.field(HOPS)? else { return None };
        let way = Way { requestor, turning_point, flags, hops };
        rest.0.is_empty().then_some(PlainRequest { head, channel, way })
    }

    /// Returns the channel; it has a source.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Returns the turning point, once the request has turned around.
    pub fn turning_point(&self) -> Option<TurningPoint> {
        self.way.turning_point
    }

    /// Returns whether earlier requests were not answered.
    pub fn replier_failed(&self) -> bool {
        self.way.flags & REPLIER_FAILED != 0
    }

    /// Returns the number of routers and repliers that forwarded it; at most [`limits::HOPS`].
    pub fn hops(&self) -> u8 {
        self.way.hops
    }

    /// Counts one more router.
    pub fn count_hop(&mut self) {
        self.way.hops += 1;
    }

    /// Writes the requestor, unless it is already set.
    pub fn set_requestor(&mut self, requestor: SocketAddr) {
        self.way.requestor.get_or_insert(requestor);
    }

    /// Writes the turning point.
    pub fn set_turning_point(&mut self, turning_point: TurningPoint) {
        self.way.turning_point = Some(turning_point);
    }

    /// Returns the length of the message that [`emit`](PlainRequest::emit) writes, in bytes.
    pub fn message_len(&self) -> usize {
        let of_host = |host: SocketAddr| if host.is_ipv4() { 7 } else { 19 };
        let requestor = self.way.requestor.map(of_host);
        let point = self.way.turning_point.map(|point| of_host(point.router) + 12);
        let flags = (self.way.flags != 0).then_some(1);
        let fields = [requestor, point, flags, Some(1)].into_iter().flatten();
        self.head.len() + fields.map(|len| TLV_HEADER_LEN + len).sum::<usize>()
    }

    /// Appends the request to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::resume(out, self.head);
        self.way.emit(&mut frame);
        frame.end();
    }
}

/// The TLVs that are left of a body.
#[derive(Clone, Copy)]
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Takes the next TLV if it is of a type and whole, and returns its value.
    #[inline]
    fn field(&mut self, field: Field) -> Option<&'a [u8]> {
        let (&[t0, t1, l0, l1, l2, l3], rest) = self.0.split_first_chunk::<TLV_HEADER_LEN>()?;
        if u16::from_be_bytes([t0, t1]) != field.number {
            return None;
        }
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes([l0, l1, l2, l3]) as usize)?;
        self.0 = rest;
        Some(value)
    }
}

/// Reads a number as it is written: without needless bytes.
#[inline]
fn varint(value: &[u8]) -> Option<u64> {
    if let &[small @ ..0x80] = value {
        return Some(small.into());
    }
    let (&last, lower) = value.split_last()?;
    // The tenth byte holds the highest bit alone.
    if matches!(last, 0 | 0x80..) || lower.len() > 9 || (lower.len() == 9 && last > 1) {
        return None;
    }
    lower.iter().rev().try_fold(last.into(), |number, byte| {
        (*byte >= 0x80).then_some(number << 7 | u64::from(byte & 0x7F))
    })
}

/// Reads a channel that has a source.
#[inline]
fn channel(value: &[u8]) -> Option<Channel> {
    if let &[SOURCE, a, b, c, d, e, f, g, h, p, q] = value {
        let (group, source) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
        let port = u16::from_be_bytes([p, q]);
        let is_one = group.is_multicast() && !source.is_multicast() && !source.is_unspecified();
        return (is_one && port != 0).then_some(Channel {
            source: Some(source.into()),
            group: group.into(),
            port,
        });
    }
    let (&[flags], value) = value.split_first_chunk()?;
    let (group, value) = value.split_first_chunk::<16>()?;
    let (source, value) = value.split_first_chunk::<16>()?;
    let (group, source) = (Ipv6Addr::from(*group), Ipv6Addr::from(*source));
    let port = u16::from_be_bytes(value.try_into().ok()?);
    let is_one = group.is_multicast() && !source.is_multicast() && !source.is_unspecified();
    (flags == SOURCE | IPV6 && is_one && port != 0).then_some(Channel {
        source: Some(source.into()),
        group: group.into(),
        port,
    })
}

/// Reads the address and port of a single host.
#[inline]
fn host(value: &[u8]) -> Option<SocketAddr> {
    if let &[0, a, b, c, d, p, q] = value {
        let (address, port) = (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q]));
        let is_one = !address.is_multicast() && !address.is_unspecified() && port != 0;
        return is_one.then_some((address, port).into());
    }
    let (&[flags], value) = value.split_first_chunk()?;
    let (address, port) = value.split_first_chunk::<16>()?;
    let (address, port) = (Ipv6Addr::from(*address), u16::from_be_bytes(port.try_into().ok()?));
    let is_one = !address.is_multicast() && !address.is_unspecified() && port != 0;
    (flags == IPV6 && is_one).then_some((address, port).into())
}

#[inline]
fn turning_point(value: &[u8]) -> Option<TurningPoint> {
    let (value, tag) = value.split_last_chunk::<8>()?;
    let (value, interface) = value.split_last_chunk::<4>()?;
    Some(TurningPoint {
        router: host(value)?,
        interface: u32::from_be_bytes(*interface),
        tag: u64::from_be_bytes(*tag),
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::lms::{Message, UnitSet};
    use crate::{Parsed, Tsi};

    fn address(v6: bool, first: u8) -> IpAddr {
        let last = first / 2 + 1;
        if v6 {
            [u16::from(first) << 8, 0, 0, 0, 0, 0, 0, last.into()].into()
        } else {
            [first, 0, 0, last].into()
        }
    }

    fn channels() -> impl Strategy<Value = Channel> {
        (any::<bool>(), 1..200_u8, 1..=u16::MAX).prop_map(|(v6, source, port)| {
            let group = address(v6, if v6 { 0xFF } else { 232 });
            Channel { source: Some(address(v6, source)), group, port }
        })
    }

    fn points() -> impl Strategy<Value = TurningPoint> {
        let router = (any::<bool>(), 1..200_u8, 1..=u16::MAX);
        (router, any::<u32>(), any::<u64>()).prop_map(|((v6, router, port), interface, tag)| {
            TurningPoint { router: SocketAddr::new(address(v6, router), port), interface, tag }
        })
    }

    fn numbers() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    fn requests() -> impl Strategy<Value = Request> {
        let units = (numbers(), numbers(), any::<bool>());
        let flags = (any::<bool>(), any::<bool>());
        let requestor = proptest::option::of((any::<bool>(), 1..200_u8));
        let point = proptest::option::of(points());
        let hops = 0..=limits::HOPS;
        (channels(), numbers(), units, 1..=255_u8, requestor, point, flags, hops).prop_map(
            |(channel, tsi, (first, following, one), number, requestor, point, flags, hops)| {
                let following = if one { 0 } else { following as u32 };
                Request {
                    channel,
                    tsi: Tsi(tsi as u32),
                    units: UnitSet { first: first.min(u64::MAX - 40), following },
                    number,
                    requestor: requestor.map(|(v6, host)| (address(v6, host), 7).into()),
                    turning_point: point,
                    replier_failed: flags.0,
                    unicast_reply: flags.1,
                    hops,
                }
            },
        )
    }

    fn dmcasts() -> impl Strategy<Value = Vec<u8>> {
        let repair = proptest::collection::vec(any::<u8>(), 0..40);
        (channels(), points(), repair).prop_map(|(channel, turning_point, repair)| {
            written(&Message::Dmcast { channel, turning_point, repair: &repair })
        })
    }

    fn written(message: &Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    }

    /// Asserts that a message is not read at all, or as [`Message::parse`] reads it.
    fn check(frame: &[u8]) {
        let parsed = Message::parse(frame);
        match Plain::parse(frame) {
            None => {}
            Some(Plain::Dmcast { channel, turning_point, repair }) => {
                let message = Message::Dmcast { channel, turning_point, repair };
                assert_eq!(parsed, Ok(Parsed::Message { message, skipped: 0 }));
            }
            Some(Plain::Request(plain)) => {
                let Ok(Parsed::Message { message: Message::Request(request), skipped: 0 }) = parsed
                else {
                    panic!("{parsed:?}")
                };
                let mut room = Vec::new();
                assert_eq!(plain, PlainRequest::new(&request, &mut room).with_len_of(frame));
                let mut again = Vec::new();
                plain.emit(&mut again);
                assert_eq!(again, frame);
                assert_eq!(plain.message_len(), frame.len());
            }
        }
    }

    impl PlainRequest<'_> {
        /// Takes over the length in the header, which is that of the whole message.
        fn with_len_of<'a>(&self, frame: &'a [u8]) -> PlainRequest<'a> {
            let head = &frame[..self.head.len()];
            assert_eq!(head[FrameHeader::LEN..], self.head[FrameHeader::LEN..]);
            PlainRequest { head, channel: self.channel, way: self.way }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_changed_as_the_whole_message(
            request in requests(), point in points(), dmcast in dmcasts(),
        ) {
            let frame = written(&Message::Request(request));
            let Some(Plain::Request(mut plain)) = Plain::parse(&frame) else {
                panic!("{request:?}")
            };
            check(&frame);
            let is_read = matches!(Plain::parse(&dmcast), Some(Plain::Dmcast { .. }));
            prop_assert!(is_read);
            check(&dmcast);
            let from = SocketAddr::from(([10, 0, 0, 9], 5000));
            plain.set_requestor(from);
            plain.set_turning_point(point);
            let mut changed = Vec::new();
            plain.emit(&mut changed);
            let requestor = Some(request.requestor.unwrap_or(from));
            let expected = Request { requestor, turning_point: Some(point), ..request };
            prop_assert_eq!(changed, written(&Message::Request(expected)));
        }

        #[test]
        fn what_is_damaged_is_read_as_the_whole_message_or_not_at_all(
            request in requests(), dmcast in dmcasts(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        ) {
            for mut frame in [written(&Message::Request(request)), dmcast] {
                for (at, byte) in &damage {
                    let at = at.index(frame.len());
                    frame[at] = *byte;
                }
                check(&frame);
                frame.pop();
                check(&frame);
            }
        }

        #[test]
        fn numbers_are_read_as_they_are_written(number in numbers()) {
            let mut out = Vec::new();
            crate::codec::put_varint(&mut out, number);
            prop_assert_eq!(varint(&out), Some(number));
            let last = out.len() - 1;
            out[last] |= 0x80;
            out.push(0);
            prop_assert_eq!(varint(&out), None, "a needless byte");
        }
    }
}
