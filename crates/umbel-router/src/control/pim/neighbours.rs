//! The other routers on a link, and which of them speaks for the hosts there [RFC 7761 §4.3].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rand_core::Rng;
use umbel_engine::Instant;
use umbel_engine::bucket::{HostLimiter, Limiter, Limiters};
use umbel_engine::chance;
use umbel_wire::pim::{self, Hello, LanPruneDelay};

use super::super::config::{ControlConfig, PimConfig};
use super::super::drops::DropReason;
use super::super::status::NeighbourStatus;
use super::super::work::{Due, LinkId, Timer, Work};
use super::PimRole;

/// Time for which a Hello holds that says nothing of it [RFC 7761 §4.11].
const DEFAULT_HOLDTIME_S: u16 = 105;

/// A router on the link.
#[derive(Debug)]
struct Neighbour {
    hello: Hello,
    /// Time until which its Hello holds; `None` is forever.
    until: Option<Instant>,
    /// Whether it was named, or is the gateway of a route.
    is_vouched: bool,
    allowance: Allowance,
}

/// Allowance of a neighbour, which no other host takes from.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    messages: Limiter,
    hellos: Limiter,
}

impl Allowance {
    fn full(config: &PimConfig) -> Allowance {
        Allowance {
            messages: Limiter::new(config.messages_per_neighbour),
            hellos: Limiter::new(config.hellos_per_neighbour),
        }
    }
}

/// Changes that a Hello makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum Heard {
    /// Nothing that trees depend on.
    Known,
    /// The neighbour has other addresses, by which next hops may be found.
    Readdressed,
    /// The neighbour is new, or has restarted and forgotten all.
    New,
    /// The neighbour is gone.
    Gone,
}

/// The other routers on a link.
#[derive(Debug)]
pub(in crate::control) struct Neighbours {
    link: LinkId,
    me: IpAddr,
    role: PimRole,
    /// The last router that said Hello and is none by this role.
    refused: Option<IpAddr>,
    /// Other addresses of this router on the link, for its Hellos.
    others: Vec<IpAddr>,
    /// Number that tells neighbours that this router has restarted.
    generation: u32,
    all: BTreeMap<IpAddr, Neighbour>,
    /// Answers to neighbours for which nobody vouches.
    answers: Limiter,
    /// Allowances of hosts that are no neighbours yet, but for which somebody vouches: of each.
    vouched: Limiters<IpAddr>,
    /// Those of others: of each, and of all together.
    strangers: HostLimiter<IpAddr>,
}

impl Neighbours {
    /// Creates the state of a link on which PIM is not spoken yet.
    pub(in crate::control) fn new(link: LinkId, me: IpAddr, config: &ControlConfig) -> Neighbours {
        let (bounds, config) = (&config.bounds, &config.pim);
        Neighbours {
            link,
            me,
            role: PimRole::Passive,
            refused: None,
            others: Vec::new(),
            generation: 0,
            all: BTreeMap::new(),
            answers: Limiter::new(config.hello_answers),
            vouched: Limiters::new(config.messages_per_stranger, bounds.neighbours),
            strangers: HostLimiter::new(
                config.messages_per_stranger,
                bounds.neighbours,
                config.messages_of_strangers,
            ),
        }
    }

    /// Begins or ends to speak PIM, or does it with others. Returns the neighbours that are gone.
    pub(in crate::control) fn set_role(
        &mut self,
        now: Instant,
        role: PimRole,
        config: &PimConfig,
        work: &mut Work,
    ) -> Vec<IpAddr> {
        let was_spoken = self.is_spoken();
        self.role = role;
        if !self.is_spoken() {
            work.timers.cancel(Timer::Hello(self.link));
        } else if !was_spoken {
            self.generation = work.random.next_u32();
            let delay = config.triggered_hello_delay.mul_f64(chance::uniform(&mut work.random));
            work.timers.set(Timer::Hello(self.link), now + delay);
        }
        let gone = self.all.keys().filter(|neighbour| !self.role.admits(**neighbour));
        let gone: Vec<IpAddr> = gone.copied().collect();
        for neighbour in &gone {
            self.forget(*neighbour, work);
        }
        gone
    }

    pub(in crate::control) fn role(&self) -> &PimRole {
        &self.role
    }

    /// Returns whether PIM is spoken on this link.
    pub(in crate::control) fn is_spoken(&self) -> bool {
        self.role != PimRole::Passive
    }

    /// Returns whether a router may be a neighbour, and notes one that may not.
    pub(in crate::control) fn accepts(&mut self, router: IpAddr) -> bool {
        let accepts = self.role.admits(router);
        if !accepts {
            self.refused = Some(router);
        }
        accepts
    }

    /// Returns the last router that said Hello and may not be a neighbour.
    pub(in crate::control) fn refused(&self) -> Option<IpAddr> {
        self.refused.filter(|router| !self.role.admits(*router))
    }

    /// Takes over the other addresses of this router, and tells them soon if they have changed.
    pub(in crate::control) fn set_others(
        &mut self,
        now: Instant,
        others: Vec<IpAddr>,
        config: &PimConfig,
        work: &mut Work,
    ) {
        if others == self.others {
            return;
        }
        self.others = others;
        if self.is_spoken() {
            work.timers.lower(Timer::Hello(self.link), now + config.triggered_hello_delay);
        }
    }

    pub(in crate::control) fn is_mine(&self, address: IpAddr) -> bool {
        address == self.me || self.others.contains(&address)
    }

    pub(in crate::control) fn len(&self) -> usize {
        self.all.len()
    }

    pub(in crate::control) fn contains(&self, neighbour: IpAddr) -> bool {
        self.all.contains_key(&neighbour)
    }

    /// Returns whether a host on the link may send one more message. Strangers share what they may,
    /// and take nothing from neighbours and those for which somebody vouches.
    pub(in crate::control) fn admits(
        &mut self,
        now: Instant,
        from: IpAddr,
        is_vouched: bool,
    ) -> bool {
        match self.all.get_mut(&from) {
            Some(neighbour) => neighbour.allowance.messages.take(now),
            None if is_vouched => self.vouched.take(now, from),
            None => self.strangers.take(now, from),
        }
    }

    /// Returns whether a router was named, so that others give way to it.
    pub(in crate::control) fn is_named(&self, router: IpAddr) -> bool {
        matches!(&self.role, PimRole::Named(named) if named.contains(&router))
    }

    /// Returns whether a host that may send one more message may send one more Hello.
    pub(in crate::control) fn admits_hello(&mut self, now: Instant, from: IpAddr) -> bool {
        self.all.get_mut(&from).is_none_or(|neighbour| neighbour.allowance.hellos.take(now))
    }

    /// Returns the neighbour with this address, which need not be the one that it says Hello with:
    /// NBR of [RFC 7761 §4.1.6].
    pub(in crate::control) fn find(&self, address: IpAddr) -> Option<IpAddr> {
        if self.all.contains_key(&address) {
            return Some(address);
        }
        let has =
            |(_, neighbour): &(&IpAddr, &Neighbour)| neighbour.hello.addresses.contains(&address);
        self.all.iter().find(has).map(|(from, _)| *from)
    }

    /// Returns the neighbour, if there is just one.
    pub(in crate::control) fn only(&self) -> Option<IpAddr> {
        let mut all = self.all.keys();
        all.next().copied().filter(|_| all.next().is_none())
    }

    /// Sends Hello, and again after the interval.
    pub(in crate::control) fn on_hello_time(
        &mut self,
        now: Instant,
        config: &PimConfig,
        work: &mut Work,
    ) {
        work.due.push_back(Due::Hello(self.link));
        work.timers.set(Timer::Hello(self.link), now + config.hello_interval);
    }

    /// Returns this router's Hello.
    pub(in crate::control) fn hello(&self, holdtime_s: u16, config: &PimConfig) -> Hello {
        Hello {
            holdtime_s: Some(holdtime_s),
            lan_prune_delay: Some(LanPruneDelay {
                tracking: false,
                propagation: config.propagation_delay,
                override_interval: config.override_interval,
            }),
            dr_priority: Some(config.dr_priority),
            generation: Some(self.generation),
            addresses: self.others.clone(),
        }
    }

    /// Takes in a neighbour's Hello.
    pub(in crate::control) fn on_hello(
        &mut self,
        now: Instant,
        (from, is_vouched): (IpAddr, bool),
        hello: Hello,
        config: &ControlConfig,
        work: &mut Work,
    ) -> Heard {
        let holdtime_s = hello.holdtime_s.unwrap_or(DEFAULT_HOLDTIME_S);
        if holdtime_s == 0 {
            return if self.forget(from, work) { Heard::Gone } else { Heard::Known };
        }
        let before = self.all.get(&from);
        let allowance =
            before.map_or_else(|| Allowance::full(&config.pim), |before| before.allowance);
        if before.is_none() && self.all.len() >= config.bounds.neighbours {
            work.drop(DropReason::NeighboursOverLimit);
            let stranger = self.all.iter().find(|(_, other)| !other.is_vouched);
            let Some(stranger) = stranger.map(|(from, _)| *from).filter(|_| is_vouched) else {
                return Heard::Known;
            };
            self.forget(stranger, work);
        }
        let before = self.all.get(&from);
        // One without a number is taken to have run on.
        let is_new = before.is_none_or(|before| before.hello.generation != hello.generation);
        let is_moved = before.is_some_and(|before| before.hello.addresses != hello.addresses);
        let until =
            (holdtime_s != pim::FOREVER).then(|| now + Duration::from_secs(u64::from(holdtime_s)));
        work.timers.put(Timer::Neighbour(self.link, from), until);
        self.all.insert(from, Neighbour { hello, until, is_vouched, allowance });
        if !is_new {
            return if is_moved { Heard::Readdressed } else { Heard::Known };
        }
        // It believes no join before it has heard of this router [RFC 7761 §4.3.1]. Strangers that
        // are answered take nothing from others.
        if is_vouched || self.answers.take(now) {
            self.on_hello_time(now, &config.pim, work);
        }
        Heard::New
    }

    /// Forgets a neighbour. Returns whether there was one.
    pub(in crate::control) fn forget(&mut self, neighbour: IpAddr, work: &mut Work) -> bool {
        work.timers.cancel(Timer::Neighbour(self.link, neighbour));
        self.all.remove(&neighbour).is_some()
    }

    /// Returns the designated router, which joins and forwards for the hosts of the link
    /// [RFC 7761 §4.3.2].
    pub(in crate::control) fn designated(&self, config: &PimConfig) -> IpAddr {
        let priorities: Option<Vec<(u32, IpAddr)>> = self
            .all
            .iter()
            .map(|(from, neighbour)| Some((neighbour.hello.dr_priority?, *from)))
            .collect();
        match priorities {
            Some(all) => all.into_iter().fold((config.dr_priority, self.me), std::cmp::max).1,
            // One that knows no priorities makes the address decide.
            None => self.all.keys().copied().fold(self.me, std::cmp::max),
        }
    }

    /// Returns the time within which other routers may override a prune, and the delay of the link.
    /// Each is the greatest that any router announces, if all announce one [RFC 7761 §4.3.3].
    fn delays(&self, config: &PimConfig) -> (Duration, Duration) {
        let mut greatest = (config.override_interval, config.propagation_delay);
        for neighbour in self.all.values() {
            let Some(delay) = neighbour.hello.lan_prune_delay else {
                return (config.override_interval, config.propagation_delay);
            };
            greatest.0 = greatest.0.max(delay.override_interval);
            greatest.1 = greatest.1.max(delay.propagation);
        }
        greatest
    }

    /// Returns a random time within which to override another router's prune.
    pub(in crate::control) fn override_delay(
        &self,
        config: &PimConfig,
        work: &mut Work,
    ) -> Duration {
        self.delays(config).0.mul_f64(chance::uniform(&mut work.random))
    }

    /// Returns how long a prune waits for others to override it: not at all if there are no others.
    pub(in crate::control) fn prune_delay(&self, config: &PimConfig) -> Duration {
        let (override_interval, propagation) = self.delays(config);
        if self.all.len() > 1 { override_interval + propagation } else { Duration::ZERO }
    }

    /// Returns who is there.
    pub(in crate::control) fn status(&self, now: Instant) -> Vec<NeighbourStatus> {
        let status = |(&address, neighbour): (&IpAddr, &Neighbour)| NeighbourStatus {
            address,
            dr_priority: neighbour.hello.dr_priority,
            generation: neighbour.hello.generation,
            expires_in_s: neighbour.until.map(|until| until.since(now).as_secs()),
        };
        self.all.iter().map(status).collect()
    }
}
