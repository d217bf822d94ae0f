use super::*;

const T_ACK: Duration = Duration::from_millis(50);
const MOST: u64 = 1_000_000_000;
/// Bits of a packet.
const PACKET: u64 = 10_000;

/// A source that sends all the time, and children that acknowledge every T_ack.
struct World {
    network: Network,
    now: Instant,
    children: u64,
    /// First sendings so far, and those before the present T_ack.
    sent: (u32, u32),
    /// Packets sent, and rates of the steps so far.
    rates: Vec<u64>,
}

impl World {
    fn new(children: u64) -> World {
        let most = Rate::from_bits_per_s(MOST).unwrap();
        World {
            network: Network::new(most, 0.02),
            now: Instant::EPOCH + Duration::from_secs(10),
            children,
            sent: (0, 0),
            rates: Vec::new(),
        }
    }

    fn rate(&self) -> u64 {
        self.network.rate().bits_per_s()
    }

    /// Runs for one T_ack, in which each child loses a share of the packets that depends on the
    /// rate. Acknowledgements are about the T_ack before: packets have a way to go.
    fn step(&mut self, loss: impl Fn(u64, u64) -> f64) {
        let rate = self.network.rate();
        self.rates.push(rate.bits_per_s());
        let told = self.rates.len().saturating_sub(2);
        let told = self.rates[told];
        let first = self.sent.0;
        for child in 0..self.children {
            let count = first - self.sent.1;
            let lost = (f64::from(count) * loss(child, told)).round() as u32;
            let position = Position { first, repairs: 0 };
            self.network.on_ack(self.now, NodeId(child), (count - lost, lost), position);
        }
        self.network.review(self.now, self.children as usize, T_ACK, rate);
        let packets = (rate.bits_per_s() / PACKET / 20) as u32;
        for part in 0..10 {
            let position = Position { first: first + packets / 10 * (part + 1), repairs: 0 };
            let at = self.now + T_ACK / 10 * part;
            self.network.on_sent(at, u64::from(packets / 10) * PACKET / 8, position);
        }
        self.sent = (first + packets / 10 * 10, first);
        self.now += T_ACK;
    }

    fn steps(&mut self, count: usize, loss: impl Fn(u64, u64) -> f64) {
        for _ in 0..count {
            self.step(&loss);
        }
    }

    /// Returns the mean rate of the last steps, as a share of the maximum.
    fn mean(&self, steps: usize) -> f64 {
        let rates = &self.rates[self.rates.len() - steps..];
        rates.iter().sum::<u64>() as f64 / steps as f64 / MOST as f64
    }

    fn never_slowed(&self) -> bool {
        self.rates.iter().all(|&rate| rate == MOST)
    }
}

/// Returns the loss at a rate by a bottleneck, and at random behind it.
fn lost(rate: u64, bottleneck: u64, random: f64) -> f64 {
    let passes = (bottleneck as f64 / rate as f64).min(1.0);
    1.0 - passes * (1.0 - random)
}

#[test]
fn the_rate_finds_a_bottleneck_and_follows_it() {
    for children in [1, 2, 4, 100] {
        let mut world = World::new(children);
        world.steps(12, |_, rate| lost(rate, 100_000_000, 0.0));
        assert!(world.rate() < 105_000_000, "{}", world.rate());
        for bottleneck in [100_000_000, 30_000_000, 200_000_000, 100_000_000] {
            world.steps(200, |_, rate| lost(rate, bottleneck, 0.0));
            let used = world.mean(100) * MOST as f64 / bottleneck as f64;
            assert!((0.9..1.06).contains(&used), "{children}, {bottleneck}: {used}");
        }
        world.steps(200, |_, _| 0.0);
        assert_eq!(world.rate(), MOST);
    }
}

#[test]
fn loss_at_random_costs_little_and_less_and_less() {
    for (loss, first, later) in [(0.05, 1.0, 1.0), (0.2, 0.96, 0.99), (0.3, 0.94, 0.985)] {
        let mut world = World::new(4);
        world.steps(40, |_, _| loss);
        assert!(world.mean(40) >= first, "{loss}: {}", world.mean(40));
        world.steps(2000, |_, _| loss);
        assert!(world.mean(2000) >= later, "{loss}: {}", world.mean(2000));
        assert_eq!(world.rate(), MOST);
    }
}

#[test]
fn a_bottleneck_is_found_although_much_is_lost_at_random() {
    let mut world = World::new(4);
    world.steps(400, |_, rate| lost(rate, 200_000_000, 0.2));
    let used = world.mean(200) * 5.0;
    assert!((0.85..1.15).contains(&used), "{used}");
}

#[test]
fn what_fewer_than_most_children_lose_changes_nothing() {
    let mut world = World::new(8);
    world.steps(400, |child, rate| if child < 4 { lost(rate, 100_000_000, 0.0) } else { 0.0 });
    assert!(world.never_slowed());
}

#[test]
fn one_child_that_lies_brings_about_nothing_among_others() {
    // It complains, and says in trials that all is well, or says the contrary.
    for honest in [1, 2, 3, 7] {
        for contrary in [false, true] {
            let lie = |rate: u64| f64::from(u8::from((rate == MOST) != contrary));
            let mut world = World::new(honest + 1);
            world.steps(1000, |child, rate| if child == 0 { lie(rate) } else { 0.0 });
            assert!(world.never_slowed());
            let mut world = World::new(honest + 1);
            world.steps(1000, |child, rate| if child == 0 { lie(rate) } else { 0.2 });
            assert!(world.mean(1000) > 0.98, "{honest}: {}", world.mean(1000));
        }
    }
    let mut world = World::new(4);
    world.steps(200, |child, rate| if child == 0 { 0.0 } else { lost(rate, 100_000_000, 0.0) });
    assert!((0.09..0.107).contains(&world.mean(100)), "{}", world.mean(100));
}

#[test]
fn whatever_children_say_there_is_a_least_rate() {
    let mut world = World::new(1);
    for step in 0..3000 {
        // All is lost, but nothing in trials: the worst that one child can say.
        let loss = if world.network.trial.is_some() { 0.0 } else { 1.0 };
        world.step(|_, _| loss);
        assert!(world.rate() >= MOST / 50, "step {step}");
    }
    assert!(world.rate() < MOST / 25);
    world.steps(400, |_, _| 0.0);
    assert_eq!(world.rate(), MOST);
}

#[test]
fn a_trial_waits_for_what_was_sent_in_it_and_for_those_who_are_late() {
    let mut network = World::new(2).network;
    let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
    let first = |first| Position { first, repairs: 0 };
    let present = network.rate();
    let mut tell = |ms, ids: &[u64], loss, position| {
        for &id in ids {
            network.on_ack(at(ms), NodeId(id), (100 - loss, loss), first(position));
        }
        network.on_sent(at(ms), 6_250_000, first(position + 50));
        network.review(at(ms), 2, T_ACK, present);
        network.rate().bits_per_s() / 1_000_000
    };
    assert_eq!(tell(0, &[1, 2], 50, 100), 1000);
    assert_eq!(tell(50, &[1, 2], 50, 200), 475);
    // Until 300 the packets are those that were under way.
    assert_eq!(tell(100, &[1, 2], 50, 250), 475);
    assert_eq!(tell(150, &[1, 2], 50, 350), 475);
    // One is no majority of two.
    assert_eq!(tell(200, &[1], 50, 450), 475);
    assert_eq!(tell(500, &[1], 50, 550), 475);
    assert_eq!(tell(550, &[2], 50, 650), 1000);
}

#[test]
fn a_source_that_uses_little_of_its_rate_does_not_raise_it() {
    let mut world = World::new(3);
    world.steps(12, |_, rate| lost(rate, 100_000_000, 0.0));
    let rate = world.rate();
    let Network { children, .. } = &world.network;
    let position = children.values().next().unwrap().position;
    for step in 0..100 {
        world.now += T_ACK;
        let position = Position { first: position.first + 100 * step, repairs: 0 };
        world.network.on_sent(world.now, 100 * PACKET / 8, position);
        for child in 0..3 {
            world.network.on_ack(world.now, NodeId(child), (100, 0), position);
        }
        let present = world.network.rate();
        world.network.review(world.now, 3, T_ACK, present);
    }
    assert!(world.rate() <= rate.max(world.rates[11]) * 104 / 100, "{} {rate}", world.rate());
}
