//! Fallback to unicast when multicast brings nothing or next to nothing, and the way back.

use std::time::Duration;

use rand_core::Rng;
use umbel_wire::repository::{ClientMessage, limits};

use crate::Instant;
use crate::chance::Generator;
use crate::repository::config::ReceiverConfig;

/// Returns the request for a burst that tests whether multicast works again. It is slow enough for
/// any path. Its packets are as long as those of data, since a link may be too narrow for these.
pub(super) fn probe(probe: u32, packet_len: u16) -> ClientMessage {
    ClientMessage::Probe {
        probe,
        channel: 0,
        packets: 8,
        packet_len: packet_len.clamp(limits::PROBE_PACKET_MIN, limits::PROBE_PACKET_MAX),
        rate_bits_per_s: 1_000_000,
    }
}

/// Way by which the client gets its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Multicast,
    /// On the session. Multicast is probed at this time.
    Unicast {
        next_probe: Instant,
    },
    /// On the session until this time, since the path carries less than the channel's rate.
    Aside {
        until: Instant,
    },
}

/// Decides between multicast and unicast. A stranger that forges packets cannot hold a client on a
/// multicast that brings nothing. Only a probe leads back, and later each time that it was in vain.
#[derive(Debug)]
pub(super) struct Fallback {
    way: Way,
    /// Time since which an announced transmission has run without a packet.
    silent_since: Option<Instant>,
    /// What has come since an announced transmission began, until it is judged.
    window: Option<Window>,
    /// The NAK whose answer has neither been announced nor come.
    asked: Option<Asked>,
    after: Option<Duration>,
    probe_every: Duration,
    /// Number of the last probe, until one of its packets has come.
    probe: Option<u32>,
    /// Time of the last return to multicast.
    returned: Option<Instant>,
    /// Number of returns in a row that brought nothing.
    in_vain: u32,
}

/// What has come of the channel since a time.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    /// Numbers of the first packet and of the newest.
    numbers: Option<(u32, u32)>,
    packets: u32,
    longest: usize,
}

/// A NAK that multicast has to answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    first: Instant,
    /// Time since which nothing at all has come on the channel.
    silent_since: Instant,
}

/// What multicast brought before a client gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Time for which it was watched.
    pub within: Duration,
    /// Number of packets that came.
    pub packets: u32,
    /// Number of packets that did not come, as far as the others show.
    pub lost: u32,
    /// Length of the longest packet that came, in bytes of UDP payload.
    pub longest: usize,
}

/// Least share of the packets that must come for multicast to be worth it. Below it, unicast takes
/// less of anybody's time. Chosen.
const LEAST_SHARE: f64 = 0.05;
/// Packets by which the share is judged.
const LEAST_JUDGED: u32 = 100;
/// Time on multicast after which a return to it was not in vain.
const STEADY: Duration = Duration::from_mins(1);
/// First time for which a client whose path is too slow stays off the channel. Paths change, and a
/// return in vain costs the path a few round trips at the channel's rate. Chosen.
const ASIDE: Duration = Duration::from_mins(1);
/// Longest wait for the answer to a NAK while the channel brings other packets, in times after which
/// silence is given up. Chosen.
const ASKED_MOST: u32 = 12;
/// Greatest number of times that the interval between probes doubles, since returns were in vain.
const DOUBLED_MOST: u32 = 6;

impl Fallback {
    pub(super) fn new(config: &ReceiverConfig) -> Fallback {
        Fallback {
            way: Way::Multicast,
            silent_since: None,
            window: None,
            asked: None,
            after: config.fallback_after,
            probe_every: config.probe_every,
            probe: None,
            returned: None,
            in_vain: 0,
        }
    }

    pub(super) fn is_multicast(&self) -> bool {
        self.way == Way::Multicast
    }

    /// Restarts with multicast.
    pub(super) fn reset(&mut self) {
        self.way = Way::Multicast;
        (self.silent_since, self.window, self.asked) = (None, None, None);
        (self.probe, self.returned) = (None, None);
        self.in_vain = 0;
    }

    /// Expects packets of a transmission from this time on.
    pub(super) fn expect(&mut self, starts: Instant) {
        self.silent_since.get_or_insert(starts);
        self.window.get_or_insert(Window::new(starts));
        self.asked = None;
    }

    /// Expects the answer to a NAK, on the channel or announced.
    pub(super) fn expect_answer(&mut self, now: Instant) {
        self.asked.get_or_insert(Asked { first: now, silent_since: now });
    }

    /// Returns the time until which an answer is listened for, if one is expected.
    pub(super) fn listens_until(&self) -> Option<Instant> {
        self.asked.zip(self.after).map(|(asked, after)| asked.given_up_at(after))
    }

    /// Counts a packet of the channel, whatever it is about.
    #[inline]
    pub(super) fn count(&mut self, now: Instant, number: u32, len: usize) {
        if let Some(asked) = &mut self.asked {
            asked.silent_since = now;
        }
        if let Some(window) = &mut self.window {
            window.count(number, len);
        }
    }

    /// Notes that a symbol of a wanted item came by multicast.
    pub(super) fn hear(&mut self) {
        (self.silent_since, self.asked) = (None, None);
    }

    /// Draws the number of a probe, which only the server and those who hear its packets know.
    pub(super) fn number_probe(&mut self, random: &mut Generator) -> u32 {
        let probe = random.next_u32();
        self.probe = Some(probe);
        probe
    }

    /// Notes that a packet of a probe came. Returns to multicast if it is the one that was asked
    /// for: no other packet shows that multicast works. Returns whether it does.
    pub(super) fn hear_probe(&mut self, now: Instant, probe: u32) -> bool {
        let back = !self.is_multicast() && self.probe.take_if(|asked| *asked == probe).is_some();
        if back {
            self.way = Way::Multicast;
            (self.silent_since, self.returned) = (None, Some(now));
        }
        back
    }

    /// Returns the time at which [`judge`](Fallback::judge) is due.
    #[inline]
    pub(super) fn next_judgement(&self) -> Option<Instant> {
        let window = self.window.map(|window| window.since);
        let after = self.after.filter(|_| self.is_multicast())?;
        let asked = self.listens_until();
        let since = [self.silent_since, window].into_iter().flatten().min();
        [since.map(|since| since + after), asked].into_iter().flatten().min()
    }

    /// Judges what multicast has brought, if that is due. Gives it up if that is nothing that is
    /// wanted, or nearly nothing. Returns what it brought then.
    pub(super) fn judge(&mut self, now: Instant) -> Option<Brought> {
        let after = self.after?;
        let brought = self.window.map_or(Brought::nothing(after), |window| window.brought(now));
        let asked = self.asked.filter(|asked| asked.given_up_at(after) <= now);
        let announced = self.silent_since.filter(|since| *since + after <= now);
        if let Some(silent_since) = announced.or(asked.map(|asked| asked.silent_since)) {
            self.give_up(now);
            return Some(Brought::nothing(now.since(silent_since)));
        }
        let window = self.window.as_mut().filter(|window| window.since + after <= now)?;
        if brought.packets + brought.lost < LEAST_JUDGED {
            window.since = now;
            return None;
        }
        self.window = None;
        brought.is_too_little().then(|| {
            self.give_up(now);
            brought
        })
    }

    /// Switches to unicast.
    fn give_up(&mut self, now: Instant) {
        (self.silent_since, self.window, self.asked) = (None, None, None);
        let in_vain = self.returned.take().is_some_and(|returned| now.since(returned) < STEADY);
        self.in_vain = if in_vain { self.in_vain + 1 } else { 0 };
        self.probe_later(now);
    }

    /// Returns the time of the next probe of multicast.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        match self.way {
            Way::Unicast { next_probe: at } | Way::Aside { until: at } => Some(at),
            Way::Multicast => None,
        }
    }

    /// Stays on unicast until the next probe.
    pub(super) fn probe_later(&mut self, now: Instant) {
        self.way = Way::Unicast { next_probe: now + self.wait(self.probe_every) };
    }

    /// Takes the items on the session for a while, since the path is too slow for the channel.
    pub(super) fn step_aside(&mut self, now: Instant) {
        self.give_up(now);
        self.way = Way::Aside { until: now + self.wait(ASIDE) };
    }

    /// Returns to multicast if it was left only because the path was too slow. Returns whether it
    /// was.
    pub(super) fn end_aside(&mut self, now: Instant) -> bool {
        let back = matches!(self.way, Way::Aside { .. });
        if back {
            self.way = Way::Multicast;
            self.returned = Some(now);
        }
        back
    }

    /// Returns a wait that doubles with each return that was in vain.
    fn wait(&self, first: Duration) -> Duration {
        first * (1 << self.in_vain.min(DOUBLED_MOST))
    }
}

impl Asked {
    /// Returns the time at which multicast is given up for want of an answer: `after` nothing came
    /// at all, or at last whatever comes, since anybody can forge that.
    fn given_up_at(self, after: Duration) -> Instant {
        (self.silent_since + after).min(self.first + after * ASKED_MOST)
    }
}

impl Window {
    fn new(since: Instant) -> Window {
        Window { since, numbers: None, packets: 0, longest: 0 }
    }

    fn count(&mut self, number: u32, len: usize) {
        let (first, newest) = self.numbers.unwrap_or((number, number));
        let ahead = number.wrapping_sub(newest).cast_signed();
        let newest = if ahead > 0 { number } else { newest };
        self.numbers = Some((first, newest));
        self.packets = self.packets.saturating_add(1);
        self.longest = self.longest.max(len);
    }

    fn brought(&self, now: Instant) -> Brought {
        let passed = self.numbers.map_or(0, |(first, newest)| newest.wrapping_sub(first));
        Brought {
            within: now.since(self.since),
            packets: self.packets,
            lost: passed.saturating_add(1).saturating_sub(self.packets),
            longest: self.longest,
        }
    }
}

impl Brought {
    fn nothing(within: Duration) -> Brought {
        Brought { within, packets: 0, lost: 0, longest: 0 }
    }

    fn is_too_little(&self) -> bool {
        let all = f64::from(self.packets) + f64::from(self.lost);
        f64::from(self.packets) < all * LEAST_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn fallback() -> Fallback {
        let mut fallback = Fallback::new(&ReceiverConfig::default());
        fallback.expect(at(0));
        fallback
    }

    /// Lets each `n`-th packet of a thousand come within 5 s, and returns the judgement.
    fn with_each(n: u32) -> (Fallback, Option<Brought>) {
        let mut fallback = fallback();
        for number in (u32::MAX - 500..=u32::MAX).chain(0..500).filter(|number| number % n == 0) {
            fallback.count(at(0), number, 600);
            fallback.hear();
        }
        let due = fallback.next_judgement().unwrap();
        let brought = fallback.judge(due);
        (fallback, brought)
    }

    #[test]
    fn a_channel_of_which_nearly_nothing_comes_is_given_up_and_one_that_loses_much_is_not() {
        let (fallback, brought) = with_each(50);
        let brought = brought.unwrap();
        assert!(!fallback.is_multicast());
        assert!((19..=21).contains(&brought.packets) && brought.lost > 900, "{brought:?}");
        assert_eq!(brought.longest, 600);
        let (fallback, brought) = with_each(10);
        assert!(fallback.is_multicast() && brought.is_none());
    }

    #[test]
    fn silence_is_given_up_and_what_comes_ends_it() {
        let mut silent = fallback();
        let brought = silent.judge(silent.next_judgement().unwrap()).unwrap();
        assert_eq!((brought.packets, brought.lost), (0, 0));
        let mut heard = fallback();
        heard.count(at(0), 1, 100);
        heard.hear();
        assert_eq!(heard.judge(heard.next_judgement().unwrap()), None, "one packet of one");
        assert!(heard.is_multicast());
    }

    #[test]
    fn who_asked_and_hears_nothing_more_gives_up_and_who_hears_others_waits_for_a_minute() {
        let mut silent = Fallback::new(&ReceiverConfig::default());
        silent.expect_answer(at(0));
        assert_eq!(silent.next_judgement(), Some(at(5_000)));
        assert!(silent.judge(at(5_000)).is_some() && !silent.is_multicast());
        let mut busy = Fallback::new(&ReceiverConfig::default());
        busy.expect_answer(at(0));
        for second in 1..60 {
            busy.count(at(second * 1_000), second as u32, 600);
            assert_eq!(busy.judge(at(second * 1_000)), None, "{second}");
        }
        assert!(busy.judge(at(60_000)).is_some(), "what comes may be forged");
        let mut answered = Fallback::new(&ReceiverConfig::default());
        answered.expect_answer(at(0));
        answered.hear();
        assert_eq!(answered.next_judgement(), None);
    }
}
