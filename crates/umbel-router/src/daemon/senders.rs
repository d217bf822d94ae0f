//! Who sends datagrams of LMS, by which interface, and how many.
//!
//! | host | may send |
//! |---|---|
//! | known: its messages were of use | its own allowance, of which nobody takes |
//! | other | its own allowance, and what such hosts of the interface may together |
//!
//! So who fills what is for all of a link keeps nobody from being helped there who was before, and
//! one host alone does not fill it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::bucket::{HostLimiter, Limit, Limiter};
use umbel_engine::router::InterfaceId;
use umbel_engine::shares::{Origin, Places};

use crate::bounds::LMS_KNOWN;

/// Greatest number of known hosts, as in the program of the fast path.
const KNOWN: usize = LMS_KNOWN.all;
/// Most hosts of one interface that are not known and told apart.
const OTHERS: usize = 1024;
/// A known host that has sent nothing for this time is no longer known once places are short.
const IDLE: Duration = Duration::from_mins(1);
/// Least time between looking for such.
const LOOK: Duration = Duration::from_secs(1);

/// A host on an interface.
pub(super) type Sender = (InterfaceId, IpAddr);

/// Allowances of hosts.
#[derive(Debug)]
pub(super) struct Senders {
    of_host: Limit,
    of_others: Limit,
    known: BTreeMap<Sender, Known>,
    places: Places<InterfaceId, Sender>,
    /// Those of hosts that are not known, by interface.
    others: BTreeMap<InterfaceId, HostLimiter<IpAddr>>,
    look_at: Instant,
}

#[derive(Debug)]
struct Known {
    allowance: Limiter,
    used: Instant,
}

impl Senders {
    /// Creates the allowances: that of each host, and that of all of an interface that are not
    /// known.
    pub(super) fn new(of_host: Limit, of_others: Limit) -> Senders {
        Senders {
            of_host,
            of_others,
            known: BTreeMap::new(),
            places: Places::new(KNOWN, KNOWN),
            others: BTreeMap::new(),
            look_at: Instant::EPOCH,
        }
    }

    /// Returns whether a host may send one more datagram. It then counts.
    pub(super) fn admit(&mut self, now: Instant, sender: Sender) -> bool {
        if let Some(known) = self.known.get_mut(&sender) {
            known.used = now;
            return known.allowance.take(now);
        }
        let (of_host, of_others) = (self.of_host, self.of_others);
        let others = self.others.entry(sender.0);
        let others = others.or_insert_with(|| HostLimiter::new(of_host, OTHERS, of_others));
        others.take(now, sender.1)
    }

    /// Returns whether a host is known.
    pub(super) fn is_known(&self, sender: &Sender) -> bool {
        self.known.contains_key(sender)
    }

    /// Makes a host known that has sent something of use, if there is a place. Returns who lost
    /// theirs. `used` says when one has sent what did not come here.
    pub(super) fn know(
        &mut self,
        now: Instant,
        sender: Sender,
        used: impl Fn(&Sender) -> Option<Instant>,
    ) -> Vec<Sender> {
        let mut lost = Vec::new();
        if self.places.is_full() && now >= self.look_at {
            self.look_at = now + LOOK;
            let is_idle = |(sender, known): (&Sender, &Known)| {
                let last = used(sender).map_or(known.used, |used| used.max(known.used));
                (now.since(last) >= IDLE).then_some(*sender)
            };
            lost.extend(self.known.iter().filter_map(is_idle));
        }
        for idle in &lost {
            self.forget(idle);
        }
        let Ok(other) = self.places.enter(sender.0, Origin::of(sender.1), sender) else {
            return lost;
        };
        if let Some(other) = other {
            self.forget(&other);
            lost.push(other);
        }
        self.known.insert(sender, Known { allowance: Limiter::new(self.of_host), used: now });
        lost
    }

    fn forget(&mut self, sender: &Sender) {
        self.known.remove(sender);
        self.places.leave(*sender);
    }

    /// Forgets the hosts of an interface. Returns those that were known.
    pub(super) fn forget_interface(&mut self, interface: InterfaceId) -> Vec<Sender> {
        self.others.remove(&interface);
        let gone = self.known.keys().filter(|(on, _)| *on == interface).copied();
        let gone: Vec<Sender> = gone.collect();
        for sender in &gone {
            self.forget(sender);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OF_HOST: Limit = Limit { per_s: 100, burst: 10 };
    const OF_OTHERS: Limit = Limit { per_s: 500, burst: 50 };
    const LAN: InterfaceId = InterfaceId(1);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn host(number: u32) -> Sender {
        (LAN, IpAddr::from((0x0A00_0000 + number).to_be_bytes()))
    }

    /// Returns how many of the datagrams of a host pass that sends one each millisecond while
    /// others send ten.
    fn passed(senders: &mut Senders, one: Sender, others: &[Sender]) -> [usize; 2] {
        let mut passed = [0; 2];
        for ms in 0..1_000 {
            for _ in 0..10 {
                passed[1] += others.iter().filter(|of| senders.admit(at(ms), **of)).count();
            }
            passed[0] += usize::from(ms % 20 == 0 && senders.admit(at(ms), one));
        }
        passed
    }

    #[test]
    fn a_host_that_sends_without_end_takes_its_share_and_another_is_heard() {
        let mut senders = Senders::new(OF_HOST, OF_OTHERS);
        let [of_one, of_greedy] = passed(&mut senders, host(1), &[host(2)]);
        assert_eq!(of_one, 50, "all of it");
        assert!((100..=110).contains(&of_greedy), "{of_greedy}");
    }

    #[test]
    fn many_hosts_fill_what_is_for_all_and_known_ones_are_heard() {
        let mut senders = Senders::new(OF_HOST, OF_OTHERS);
        let crowd: Vec<Sender> = (10..30).map(host).collect();
        assert!(senders.know(at(0), host(1), |_| None).is_empty());
        assert!(senders.is_known(&host(1)));
        let [of_known, of_crowd] = passed(&mut senders, host(1), &crowd);
        assert_eq!(of_known, 50);
        assert!((500..=550).contains(&of_crowd), "{of_crowd}");
        let [of_other, _] = passed(&mut Senders::new(OF_HOST, OF_OTHERS), host(2), &crowd);
        assert!(of_other < 25, "it is one of the crowd: {of_other}");
    }

    #[test]
    fn who_has_long_been_silent_gives_way_and_no_link_takes_all_places() {
        let mut senders = Senders::new(OF_HOST, OF_OTHERS);
        for number in 0..10 * KNOWN as u32 {
            assert!(senders.know(at(1), host(number), |_| None).is_empty());
        }
        assert!(!senders.is_known(&host(KNOWN as u32)), "hosts have one place each");
        let far = (InterfaceId(2), host(1).1);
        assert_eq!(senders.know(at(2), far, |_| None).len(), 1);
        assert!(senders.is_known(&far));
        // One has sent what the fast path has taken, one has sent something here.
        let last = |sender: &Sender| (*sender == host(5)).then(|| at(60_000));
        assert!(senders.admit(at(30_000), host(6)));
        let gone = senders.know(at(61_000), host(100_000), last);
        assert_eq!(gone.len(), KNOWN - 2);
        assert!([5, 6, 100_000].iter().all(|number| senders.is_known(&host(*number))));
        assert_eq!(senders.forget_interface(LAN).len(), 3);
        assert!(senders.known.is_empty());
    }

    proptest! {
        /// Whatever others send, a known host has its own allowance, and no host more than its own.
        #[test]
        fn a_known_host_has_its_allowance_whatever_others_send(
            steps in prop::collection::vec((0_u64..20, 1_u32..40, any::<bool>()), 0..500),
        ) {
            let mut senders = Senders::new(OF_HOST, OF_OTHERS);
            senders.know(at(0), host(0), |_| None);
            let mut alone = Limiter::new(OF_HOST);
            let mut each: BTreeMap<u32, Limiter> = BTreeMap::new();
            let mut ms = 0;
            for (later, number, is_known) in steps {
                ms += later;
                prop_assert_eq!(senders.admit(at(ms), host(0)), alone.take(at(ms)));
                let own = each.entry(number).or_insert_with(|| Limiter::new(OF_HOST));
                if senders.admit(at(ms), host(number)) {
                    prop_assert!(own.take(at(ms)), "{number} has more than its own");
                    if is_known && !senders.is_known(&host(number)) {
                        senders.know(at(ms), host(number), |_| None);
                        *own = Limiter::new(OF_HOST);
                    }
                }
            }
        }
    }
}
