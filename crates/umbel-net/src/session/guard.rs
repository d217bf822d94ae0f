//! Shares of addresses in what a server has: handshakes and sessions, and guesses of the token.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use umbel_engine::shares::{Origin, Shares};

use crate::bounds::GUESSERS;

/// Wrong tokens of an address that cost nothing, for those who mistype.
const FREE: u32 = 3;
/// Addresses of a network of IPv6 that may have wrong tokens, without delay for all others of it.
/// One host that tries an old token again and again must not keep its neighbours out. One that
/// takes ever new addresses must not guess for ever.
const FREE_OF_A_NETWORK: u32 = 32;
/// First and longest time for which an address gets no session after a further wrong token. The
/// time doubles with each.
const DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Time after which the wrong tokens of an address are forgotten.
const MEMORY: Duration = Duration::from_mins(10);

/// Wrong tokens of an address, or addresses of a network that have shown some.
#[derive(Clone, Copy, Debug)]
struct Guesses {
    number: u32,
    last: Instant,
    /// The end of the time without sessions.
    until: Instant,
}

impl Guesses {
    /// Counts one more of `origin`, of which some are free. Returns whether it is the first.
    fn note<K: Copy + Eq + Hash>(
        table: &mut HashMap<K, Guesses>,
        origin: K,
        free: u32,
        now: Instant,
    ) -> bool {
        if table.len() >= GUESSERS.all && !table.contains_key(&origin) {
            let oldest = table.iter().min_by_key(|(_, guesses)| guesses.last);
            if let Some(oldest) = oldest.map(|(&origin, _)| origin) {
                table.remove(&oldest);
            }
        }
        let known = table.get(&origin).filter(|guesses| now < guesses.last + MEMORY);
        let number = known.map_or(0, |guesses| guesses.number).saturating_add(1);
        let (first, longest) = DELAY;
        let delay = match number.checked_sub(free + 1) {
            Some(doubled) => first.saturating_mul(1 << doubled.min(16)).min(longest),
            None => Duration::ZERO,
        };
        table.insert(origin, Guesses { number, last: now, until: now + delay });
        number == 1
    }
}

/// Keeps count of addresses.
#[derive(Debug)]
pub(super) struct Guard {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    handshakes: Shares<u64>,
    /// Connections after their handshakes, whether or not a session has been opened on them.
    sessions: Shares<u64>,
    /// Most handshakes and sessions of an IPv4 address together.
    share: usize,
    /// Tells those who lose their place for another host.
    losers: BTreeMap<u64, Arc<Notify>>,
    /// Number of the next place.
    next: u64,
    /// Wrong tokens of single addresses.
    guesses: HashMap<IpAddr, Guesses>,
    /// Addresses with wrong tokens of networks of IPv6.
    networks: HashMap<Origin, Guesses>,
}

/// The reason why an address gets no session now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// It has as many as it may have.
    Crowded,
    /// There are as many sessions as there may be, and no other address has more.
    Full,
    /// The same of handshakes.
    Busy,
    /// It has shown wrong tokens, or many others of its network have.
    Guessed,
}

impl Guard {
    /// Creates a guard of so many handshakes and sessions. An IPv4 address has at most `share` of
    /// both together, and when all are taken, the address with most gives one up.
    pub(super) fn new(handshakes: usize, sessions: usize, share: usize) -> Arc<Guard> {
        let (guesses, networks) = (HashMap::new(), HashMap::new());
        let [handshakes, sessions] = [handshakes, sessions].map(|most| Shares::new(most, share));
        let (losers, next) = (BTreeMap::new(), 0);
        let state = State { handshakes, sessions, share, losers, next, guesses, networks };
        Arc::new(Guard { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a handshake of this address, until the result is dropped.
    pub(super) fn enter(self: &Arc<Guard>, remote: IpAddr, now: Instant) -> Result<Place, Denied> {
        let (host, origin) = (remote.to_canonical(), Origin::of(remote));
        let mut state = self.state();
        let guessed = [state.guesses.get(&host), state.networks.get(&origin)];
        if guessed.into_iter().flatten().any(|guesses| now < guesses.until) {
            return Err(Denied::Guessed);
        }
        if state.of(origin) >= origin.places(state.share) {
            return Err(Denied::Crowded);
        }
        if !state.sessions.has_place(origin) {
            return Err(Denied::Full);
        }
        let number = state.next;
        let loser = state.handshakes.enter(origin, number).map_err(|_| Denied::Busy)?;
        state.dismiss(loser);
        state.next += 1;
        let lost = Arc::new(Notify::new());
        state.losers.insert(number, lost.clone());
        Ok(Place { guard: self.clone(), origin, number, lost })
    }

    /// Returns the number of handshakes under way.
    pub(super) fn handshakes(&self) -> usize {
        self.state().handshakes.len()
    }

    /// Returns whether half of an address's places are taken. A client that wants another must show
    /// that the address is its own, so that nobody takes another's places.
    pub(super) fn is_busy(&self, remote: IpAddr) -> bool {
        let (origin, state) = (Origin::of(remote), self.state());
        state.of(origin) >= origin.places(state.share).div_ceil(2)
    }

    /// Notes a wrong token of this address. Returns whether it is the first.
    pub(super) fn note_guess(&self, remote: IpAddr, now: Instant) -> bool {
        let (host, network) = (remote.to_canonical(), Origin::of(remote));
        let mut state = self.state();
        let first = Guesses::note(&mut state.guesses, host, FREE, now);
        if first && network.is_network() {
            Guesses::note(&mut state.networks, network, FREE_OF_A_NETWORK, now);
        }
        first
    }
}

impl State {
    fn of(&self, origin: Origin) -> usize {
        self.handshakes.of(origin) + self.sessions.of(origin)
    }

    fn dismiss(&mut self, loser: Option<u64>) {
        if let Some(lost) = loser.and_then(|loser| self.losers.get(&loser)) {
            lost.notify_one();
        }
    }
}

/// A place of a handshake, and then of a session.
#[derive(Debug)]
pub(super) struct Place {
    guard: Arc<Guard>,
    origin: Origin,
    number: u64,
    lost: Arc<Notify>,
}

impl Place {
    /// Notes that the handshake is over, and takes a place among the sessions.
    pub(super) fn settle(&self) -> Result<(), Denied> {
        let mut state = self.guard.state();
        state.handshakes.leave(self.number);
        let loser = state.sessions.enter(self.origin, self.number).map_err(|_| Denied::Full)?;
        state.dismiss(loser);
        Ok(())
    }

    /// Waits until another host has got this place. It is told once.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.guard.state();
        state.handshakes.leave(self.number);
        state.sessions.leave(self.number);
        state.losers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_gets_its_places_and_no_more_and_others_get_theirs() {
        let (guard, now) = (Guard::new(99, 99, 3), Instant::now());
        let enter = |text: &str| guard.enter(address(text), now);
        let mut places: Vec<Place> = (0..30).filter_map(|_| enter("192.0.2.1").ok()).collect();
        assert_eq!(places.len(), 3);
        assert!(guard.is_busy(address("192.0.2.1")) && !guard.is_busy(address("192.0.2.2")));
        assert_eq!(enter("::ffff:192.0.2.1").unwrap_err(), Denied::Crowded, "the same host");
        assert!(enter("192.0.2.2").is_ok());
        places.pop();
        assert!(enter("192.0.2.1").is_ok());
        // A host has all addresses of its network.
        let hosts = (0..30).filter_map(|host| enter(&format!("2001:db8::{host}")).ok());
        assert_eq!(hosts.collect::<Vec<_>>().len(), 12);
        assert!(enter("2001:db8:0:1::").is_ok());
        drop(places);
        let state = guard.state();
        assert!(state.handshakes.is_empty() && state.losers.is_empty(), "nothing is kept of them");
    }

    /// Returns whether a place was lost for another host.
    fn is_lost(place: &Place) -> bool {
        use std::pin::pin;
        use std::task::{Context, Waker};
        let waiting = pin!(place.lost());
        waiting.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn hosts_that_take_all_sessions_give_some_up_for_others() {
        let (guard, now) = (Guard::new(8, 40, 20), Instant::now());
        let enter = |text: &str| {
            let place = guard.enter(address(text), now)?;
            place.settle().map(|()| place)
        };
        let [greedy, other, modest] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
        let fill = |text| (0..200).filter_map(|_| enter(text).ok()).collect::<Vec<Place>>();
        let crowd = [fill(greedy), fill(other)];
        assert_eq!([crowd[0].len(), crowd[1].len()], [20, 20]);
        assert_eq!(enter(greedy).unwrap_err(), Denied::Crowded);
        // Each has as many as the others in the end, and who came first goes first.
        let modest = (0..200).map_while(|_| enter(modest).ok()).collect::<Vec<Place>>();
        assert!((12..=13).contains(&modest.len()), "{}", modest.len());
        for places in &crowd {
            let lost = places.iter().filter(|place| is_lost(place)).count();
            assert!((6..=7).contains(&lost), "{lost}");
        }
        assert!(!modest.iter().any(is_lost));
        assert_eq!(enter("192.0.2.3").unwrap_err(), Denied::Full);
    }

    #[test]
    fn a_host_that_begins_handshakes_without_end_leaves_room_for_others() {
        let (guard, now) = (Guard::new(8, 999, 99), Instant::now());
        let enter = |text: &str| guard.enter(address(text), now);
        let begun: Vec<Place> = (0..80).filter_map(|_| enter("192.0.2.1").ok()).collect();
        assert_eq!((begun.len(), guard.handshakes()), (8, 8));
        assert_eq!(enter("192.0.2.1").unwrap_err(), Denied::Busy);
        let other = enter("192.0.2.2").unwrap();
        assert!(is_lost(&begun[0]) && !is_lost(&begun[1]) && !is_lost(&other));
        assert_eq!(other.settle(), Ok(()));
        assert_eq!(guard.handshakes(), 7);
    }

    #[test]
    fn wrong_tokens_delay_their_address_longer_and_longer() {
        let (guard, start) = (Guard::new(99, 99, 9), Instant::now());
        let (guesser, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let mut now = start;
        let mut sessions = 0;
        while now < start + Duration::from_mins(10) {
            if guard.enter(guesser, now).is_ok() {
                sessions += 1;
                assert_eq!(guard.note_guess(guesser, now), sessions == 1);
            }
            assert!(guard.enter(other, now).is_ok());
            now += Duration::from_millis(100);
        }
        // Three at once, six while the delay grows, and then one a minute.
        assert!((12..=20).contains(&sessions), "{sessions}");
        assert_eq!(guard.enter(guesser, now).unwrap_err(), Denied::Guessed);
        let later = now + MEMORY + DELAY.1;
        assert!(guard.enter(guesser, later).is_ok());
        assert!(guard.note_guess(guesser, later), "it is forgotten");
    }

    #[test]
    fn who_tries_an_old_token_without_end_does_not_keep_its_network_out() {
        let (guard, start) = (Guard::new(99, 99, 9), Instant::now());
        let (guesser, neighbour) = (address("2001:db8::1"), address("2001:db8::2"));
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            if guard.enter(guesser, now).is_ok() {
                guard.note_guess(guesser, now);
            }
            assert!(guard.enter(neighbour, now).is_ok());
        }
    }

    #[test]
    fn ever_new_addresses_of_a_network_guess_ever_more_slowly() {
        let (guard, start) = (Guard::new(99, 99, 9), Instant::now());
        let mut addresses = 0;
        for millis in (0..600_000).step_by(100) {
            let now = start + Duration::from_millis(millis);
            let address = address(&format!("2001:db8::{addresses}"));
            if guard.enter(address, now).is_ok() {
                guard.note_guess(address, now);
                addresses += 1;
            }
            assert!(guard.enter("2001:db8:0:1::".parse().unwrap(), now).is_ok());
        }
        // 32 at once, six while the delay grows, and then one a minute.
        assert!((40..=50).contains(&addresses), "{addresses}");
    }

    #[test]
    fn ten_times_as_many_guessers_as_are_remembered_take_no_more_memory() {
        let (guard, now) = (Guard::new(99, 99, 9), Instant::now());
        for host in 0..10 * GUESSERS.all as u32 {
            guard.note_guess(IpAddr::from((u128::from(host) << 64).to_be_bytes()), now);
        }
        assert_eq!(guard.state().guesses.len(), GUESSERS.all);
        assert_eq!(guard.state().networks.len(), GUESSERS.all);
    }
}
