//! Packets drawn at random: most of them requests and DMCASTs that are right, or nearly.

use proptest::prelude::*;

use super::*;

/// A packet, as a proptest draws it.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) interface: usize,
    /// Last byte of the sender's address: 7 is a replier.
    from: u8,
    alert: bool,
    /// 0: the source, 1: the router, 2: another.
    to: u8,
    message: Drawing,
    /// A byte of the message that is changed, and one of the headers.
    damage: [Option<(usize, u8)>; 2],
    padding: usize,
    no_checksum: bool,
}

#[derive(Clone, Debug)]
enum Drawing {
    Request {
        channel: Channel,
        tsi: u32,
        units: UnitSet,
        number: u8,
        requestor: bool,
        /// 0: none, 1: another router's, 2: this one's.
        point: u8,
        flags: [bool; 2],
        hops: u8,
    },
    Dmcast {
        channel: Channel,
        interface: usize,
        /// Age of the tag in its lifetimes.
        age: u64,
        forged: bool,
        len: usize,
        is_repair: bool,
    },
}

fn channels() -> impl Strategy<Value = Channel> {
    let port = Channel { port: 7703, ..channel() };
    let group = Channel { group: other_group(), ..channel() };
    prop_oneof![14 => Just(channel()), 1 => Just(port), 1 => Just(group)]
}

fn requests() -> impl Strategy<Value = Drawing> {
    let units =
        (prop_oneof![0..300_u64, any::<u64>().prop_map(|n| n >> 2)], any::<u32>(), any::<bool>());
    let hops = prop_oneof![9 => 0..64_u8, 1 => Just(64)];
    let point = prop_oneof![6 => Just(0_u8), 2 => Just(1), 1 => Just(2)];
    let failed = proptest::bool::weighted(0.1);
    (
        channels(),
        any::<u32>(),
        units,
        1..=255_u8,
        any::<bool>(),
        point,
        (failed, any::<bool>()),
        hops,
    )
        .prop_map(
            |(channel, tsi, (first, following, one), number, requestor, point, flags, hops)| {
                let following = if one { 0 } else { following };
                let units = UnitSet { first, following };
                let flags = flags.into();
                Drawing::Request { channel, tsi, units, number, requestor, point, flags, hops }
            },
        )
}

fn dmcasts() -> impl Strategy<Value = Drawing> {
    let age = prop_oneof![6 => Just(0_u64), 2 => Just(1), 1 => Just(2)];
    let len = prop_oneof![9 => 0..1400_usize, 1 => 1400..1900_usize];
    let (forged, is_repair) = (proptest::bool::weighted(0.1), proptest::bool::weighted(0.9));
    (channels(), 0..4_usize, age, forged, len, is_repair).prop_map(
        |(channel, interface, age, forged, len, is_repair)| Drawing::Dmcast {
            channel,
            interface,
            age,
            forged,
            len,
            is_repair,
        },
    )
}

pub(super) fn drawn() -> impl Strategy<Value = Drawn> {
    let usual = |message: Drawing| {
        let is_request = matches!(message, Drawing::Request { .. });
        (Just(message), 0..4_usize, proptest::bool::weighted(0.95), any::<u8>()).prop_map(
            move |(message, interface, usual, to)| {
                // From above by unicast, from below on the way to the source.
                let below = is_request && (interface > 0) == usual;
                (message, interface, below, if usual { u8::from(!below) } else { to % 3 })
            },
        )
    };
    let damage = |from, to| proptest::option::weighted(0.05, (from..to, any::<u8>()));
    (
        prop_oneof![3 => requests(), 2 => dmcasts()].prop_flat_map(usual),
        prop_oneof![Just(7_u8), 2..20_u8],
        // A damaged checksum of UDP is made good by the daemon, and stays what it is in the
        // program. Addresses of IPv6 have no other one.
        (damage(0_usize, 120), damage(0, if is_v6() { 16 } else { 20 })),
        prop_oneof![20 => Just(0_usize), 1 => 1..8_usize],
        proptest::bool::weighted(0.03),
    )
        .prop_map(|((message, interface, alert, to), from, damage, padding, no_checksum)| {
            Drawn {
                interface,
                from,
                alert,
                to,
                message,
                damage: damage.into(),
                padding,
                no_checksum,
            }
        })
}

/// Trees of all channels, which have the same interfaces.
struct Any(InterfaceId);
impl Routes for Any {
    fn upstream(&mut self, _: &Channel) -> Option<Upstream> {
        Some(Upstream::Root)
    }
    fn is_downstream(&mut self, _: &Channel, _: InterfaceId) -> bool {
        true
    }
    fn downstream(&mut self, _: &Channel, to: &mut Vec<InterfaceId>) {
        to.push(self.0);
    }
    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.push(self.0);
    }
    fn is_attached(&mut self, _: IpAddr) -> bool {
        false
    }
}

/// Makes turning points as the router does.
pub(super) struct Stamps {
    pub(super) engine: RouterConfig,
    pub(super) interfaces: Vec<InterfaceId>,
}

impl Stamps {
    /// Returns the turning point that the router would have written some lifetimes ago.
    pub(super) fn point(
        &self,
        now: Instant,
        interface: usize,
        channel: Channel,
        age: u64,
    ) -> TurningPoint {
        let lifetimes = LIFETIME * u32::try_from(age).unwrap();
        let age = (now - Instant::EPOCH).checked_sub(lifetimes).unwrap();
        let then = Instant::EPOCH + age;
        let mut router = Router::new(self.engine.clone());
        let arrived_on = self.interfaces[interface];
        let mut payload = Vec::new();
        Message::Request(request(channel)).emit(&mut payload);
        let from = host(interface, 9);
        let to = Address::Host(to_source());
        let datagram = PassingDatagram { arrived_on, from, to, payload: &payload };
        router.handle_datagram(then, &mut Any(arrived_on), datagram);
        let sent = router.poll_transmit(then).unwrap();
        turning_point_of(&sent.payload).unwrap()
    }
}

pub(super) fn turning_point_of(payload: &[u8]) -> Option<TurningPoint> {
    match Message::parse(payload).ok()?.message()? {
        Message::Request(request) => request.turning_point,
        _ => None,
    }
}

pub(super) fn request(channel: Channel) -> Request {
    Request {
        channel,
        tsi: Tsi(5),
        units: UnitSet::one(300),
        number: 1,
        requestor: None,
        turning_point: None,
        replier_failed: false,
        unicast_reply: false,
        hops: 0,
    }
}

pub(super) fn repair(len: usize) -> Vec<u8> {
    let payload = vec![9; len];
    let mut repair = Vec::new();
    let (tsi, sequence) = (Tsi(5), 300);
    Message::Repair { tsi, sequence, number: 1, unicast: false, payload: &payload }
        .emit(&mut repair);
    repair
}

pub(super) fn dmcast(channel: Channel, turning_point: TurningPoint, repair: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    Message::Dmcast { channel, turning_point, repair }.emit(&mut payload);
    payload
}

impl Drawn {
    pub(super) fn packet(&self, now: Instant, stamps: &Stamps) -> Vec<u8> {
        let mut payload = Vec::new();
        match self.message {
            Drawing::Request { channel, tsi, units, number, requestor, point, flags, hops } => {
                let turning_point = match point {
                    0 => None,
                    1 => Some(TurningPoint { router: host(0, 2), interface: 3, tag: 4 }),
                    _ => Some(stamps.point(now, 1, channel, 0)),
                };
                let [replier_failed, unicast_reply] = flags;
                Message::Request(Request {
                    channel,
                    tsi: Tsi(tsi),
                    units,
                    number,
                    requestor: requestor.then(|| host(3, 30)),
                    turning_point,
                    replier_failed,
                    unicast_reply,
                    hops,
                })
                .emit(&mut payload);
            }
            Drawing::Dmcast { channel, interface, age, forged, len, is_repair } => {
                let mut point = stamps.point(now, interface, channel, age);
                point.tag ^= u64::from(forged);
                let repair = if is_repair { repair(len) } else { vec![1; len] };
                payload = dmcast(channel, point, &repair);
            }
        }
        if let Some((at, bits)) = self.damage[0]
            && let Some(byte) = payload.get_mut(at)
        {
            *byte ^= bits;
        }
        let to = [to_source(), me(), host(2, 40)][usize::from(self.to)];
        let alert = self.alert.then_some(0);
        let mut packet = packet(host(self.interface, self.from), to, alert, &payload);
        let udp = usize::from(packet[0] & 0x0F) * 4;
        if self.no_checksum {
            packet[udp + 6..udp + 8].fill(0);
        }
        if let Some((at, bits)) = self.damage[1] {
            // In IPv6 there is a header of options after the addresses.
            let at = match at {
                8.. if is_v6() && self.alert => at + 32,
                _ if is_v6() => at % 8,
                _ => at,
            };
            packet[at] ^= bits;
        }
        packet.extend(vec![0; self.padding]);
        packet
    }
}
