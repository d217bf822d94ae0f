//! The program in the kernel, and what it is told: the layouts are those of `bpf/layout.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use aya::maps::{Array, HashMap, MapData, PerCpuArray};
use nix::time::{ClockId, clock_gettime};
use umbel_engine::Instant;
use umbel_engine::bucket::Limit;
use umbel_engine::lms::{Direction, DropReason, RouterConfig, RouterStats, Steer, Steering};
use umbel_engine::router::InterfaceId;
use umbel_net::classifier::{Attachment, Classifier, ClassifierError};
use umbel_wire::Channel;

use crate::daemon::config::LmsConfig;
use crate::daemon::lms::{CREDITS, Counts, HOPS};
use crate::daemon::senders::Sender;
use crate::kernel::Family;

/// The compiled programs, one for a family: see `umbel-net/bpf/build.sh`.
pub(super) static OBJECT_V4: &[u8] = aya::include_bytes_aligned!("../../../bpf/steering4.bpf.o");
pub(super) static OBJECT_V6: &[u8] = aya::include_bytes_aligned!("../../../bpf/steering6.bpf.o");
const PROGRAM: &str = "umbel_steering";

/// Greatest number of links, as in the program.
const LINKS: usize = 8192;
/// For `bpf_map_update_elem`: only if there is no such entry.
const NO_EXIST: u64 = 1;

/// Lengths of `struct settings`, `address`, `link`, `sender`, `steer`, `way` and `meter`.
const SETTINGS: usize = 120;
const ADDRESS: usize = 16;
const LINK: usize = 40;
/// Place of the interface in `struct link`, which is its last field.
const INTERFACE: usize = LINK - 4;
const SENDER: usize = 20;
const STEER: usize = 20;
const WAY: usize = 60;
const METER: usize = 24;

type Key = [u8; LINK];
type Host = [u8; SENDER];
type Way = [u8; WAY];
type Meter = [u8; METER];

/// Counters of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FastCounts {
    /// Requests turned around.
    pub turned: u64,
    /// Requests sent upstream.
    pub sent_up: u64,
    /// Requests from above sent to the replier.
    pub sent_down: u64,
    /// DMCASTs turned into multicasts.
    pub dmcasts: u64,
    /// DMCASTs with a turning point that is not the router's, or too old.
    pub forged: u64,
    /// Datagrams that one host had beyond its limit.
    pub host_flood: u64,
    /// Requests beyond the limit of a channel and an interface.
    pub request_flood: u64,
    /// DMCASTs beyond the limit of a channel.
    pub dmcast_flood: u64,
    /// DMCASTs beyond what requests asked for.
    pub unasked: u64,
    /// Datagrams that could not be changed.
    pub unsent: u64,
    /// Requests left to the daemon.
    pub left_requests: u64,
    /// DMCASTs left to the daemon.
    pub left_dmcasts: u64,
}

impl FastCounts {
    /// Returns the requests that it has steered.
    pub fn requests(&self) -> u64 {
        self.turned + self.sent_up + self.sent_down
    }

    /// Returns what the engine would have discarded for a reason.
    pub(in crate::daemon) fn drops(&self, reason: DropReason) -> u64 {
        match reason {
            DropReason::ForgedTurningPoint => self.forged,
            DropReason::Flood => self.request_flood + self.dmcast_flood,
            _ => 0,
        }
    }

    /// Adds what the daemon would have counted beside the engine.
    pub(in crate::daemon) fn add_to_datagrams(&self, counts: Counts) -> Counts {
        Counts {
            flood: counts.flood + self.host_flood,
            unasked: counts.unasked + self.unasked,
            sent: counts.sent + self.requests() + self.dmcasts - self.unasked,
            unsent: counts.unsent + self.unsent,
            ..counts
        }
    }

    /// Adds what the engine would have counted.
    pub(in crate::daemon) fn add_to(&self, stats: RouterStats) -> RouterStats {
        RouterStats {
            turned: stats.turned + self.turned,
            sent_up: stats.sent_up + self.sent_up,
            sent_down: stats.sent_down + self.sent_down,
            dmcasts: stats.dmcasts + self.dmcasts,
            ..stats
        }
    }
}

/// The part of an interface in a channel: where its packets go, or whether they leave by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) steering: Option<Steering>,
    /// Whether the channel goes out there.
    pub(super) is_output: bool,
    /// Longest packet of the interface in bytes.
    pub(super) mtu: u32,
}

/// The program, which steers until it is dropped.
pub(super) struct Program {
    family: Family,
    pub(super) classifier: Classifier,
    attached: BTreeMap<InterfaceId, Attachment>,
    settings: Array<MapData, [u8; SETTINGS]>,
    links: HashMap<MapData, Key, Way>,
    meters: HashMap<MapData, Key, Meter>,
    senders: HashMap<MapData, Host, Meter>,
    counts: PerCpuArray<MapData, u64>,
    /// An entry of `links`.
    branches: BTreeMap<Key, Way>,
    /// The program's clock at the epoch of the daemon's, modulo 2⁶⁴: that can lie before the
    /// machine's start.
    epoch: u64,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Program { attached, branches, .. } = self;
        f.debug_struct("Program")
            .field("attached", attached)
            .field("branches", &branches.len())
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Loads the program. It takes nothing before it has an address.
    pub(super) fn load(family: Family, now: Instant) -> Result<Program, ClassifierError> {
        // The clock of `bpf_ktime_get_ns`, read while it is `now`.
        let kernel = clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map_err(|error| ClassifierError::Refused(error.to_string()))?;
        let kernel = nanos(Duration::from(kernel));
        let object = match family {
            Family::V4 => OBJECT_V4,
            Family::V6 => OBJECT_V6,
        };
        let mut classifier = Classifier::load(object, PROGRAM, &[])?;
        Ok(Program {
            family,
            settings: classifier.take("SETTINGS")?,
            links: classifier.take("LINKS")?,
            meters: classifier.take("METERS")?,
            senders: classifier.take("SENDERS")?,
            counts: classifier.take("COUNTS")?,
            classifier,
            attached: BTreeMap::new(),
            branches: BTreeMap::new(),
            epoch: kernel.wrapping_sub(now.as_nanos()),
        })
    }

    /// Takes packets of an interface from now on.
    pub(super) fn attach(&mut self, id: InterfaceId, name: &str) -> Result<(), ClassifierError> {
        if self.attached.contains_key(&id) {
            return Ok(());
        }
        let attachment = self.classifier.attach(name)?;
        self.attached.insert(id, attachment);
        Ok(())
    }

    /// Takes packets of an interface no longer.
    pub(super) fn detach(&mut self, id: InterfaceId) {
        if let Some(attachment) = self.attached.remove(&id)
            && let Err(error) = self.classifier.detach(attachment)
        {
            // An interface that has vanished took it along.
            tracing::debug!("the program is not detached: {error}");
        }
    }

    /// Returns the number of interfaces whose packets it sees.
    pub(super) fn interfaces(&self) -> usize {
        self.attached.len()
    }

    /// Starts from scratch, for an engine with this configuration; takes nothing if there is none.
    pub(super) fn configure(&mut self, engine: Option<&RouterConfig>, config: &LmsConfig) {
        self.set_branches(std::iter::empty());
        let settings = engine.map_or([0; SETTINGS], |engine| self.layout(engine, config));
        if let Err(error) = self.settings.set(0, settings, 0) {
            tracing::warn!("the fast path cannot be configured: {error}");
        }
    }

    /// Lays out `struct settings`.
    fn layout(&self, engine: &RouterConfig, config: &LmsConfig) -> [u8; SETTINGS] {
        let address = self.address(engine.address.ip()).unwrap_or_default();
        let mut out = Layout::<SETTINGS>::default();
        out.put(&engine.secret[..16]);
        out.put(&self.epoch.to_ne_bytes());
        out.put(&nanos(engine.tag_lifetime).max(1).to_ne_bytes());
        out.put(&nanos(config.credit_lifetime).to_ne_bytes());
        for limit in [config.datagrams_of_host, engine.requests, engine.dmcasts] {
            let [cost, depth] = bucket(limit);
            out.put(&cost.to_ne_bytes());
            out.put(&depth.to_ne_bytes());
        }
        out.put(&address);
        out.put(&config.dmcasts_per_unit.to_ne_bytes());
        out.put(&CREDITS.to_ne_bytes());
        out.put(&engine.address.port().to_be_bytes());
        out.put(&[HOPS, config.repair_hops]);
        out.bytes
    }

    /// Brings what the program knows of branches in step.
    pub(super) fn set_branches(
        &mut self,
        branches: impl Iterator<Item = ((Channel, InterfaceId), Branch)>,
    ) {
        let wanted: BTreeMap<Key, Way> = branches
            .filter_map(|((channel, interface), branch)| {
                Some((self.key(&channel, interface)?, self.way(&branch)?))
            })
            .take(LINKS)
            .collect();
        let before = std::mem::take(&mut self.branches);
        for key in before.keys().filter(|key| !wanted.contains_key(*key)) {
            let _ = self.links.remove(key);
            let _ = self.meters.remove(key);
        }
        let channels =
            |all: &BTreeMap<Key, Way>| -> BTreeSet<Key> { all.keys().map(channel_key).collect() };
        let (old, new) = (channels(&before), channels(&wanted));
        for key in old.difference(&new) {
            let _ = self.meters.remove(key);
        }
        for key in new.difference(&old) {
            self.permit(key);
        }
        for (key, way) in wanted {
            if !before.contains_key(&key) {
                self.permit(&key);
            }
            if before.get(&key) != Some(&way)
                && let Err(error) = self.links.insert(key, way, 0)
            {
                // The daemon does what it does not know.
                tracing::debug!("the fast path has no room: {error}");
                let _ = self.links.remove(&key);
                continue;
            }
            self.branches.insert(key, way);
        }
    }

    /// Begins to count what is used up of a limit, and DMCASTs that are permitted.
    fn permit(&mut self, key: &Key) {
        // Existing entries stay.
        let _ = self.meters.insert(key, [0; METER], NO_EXIST);
    }

    /// Takes messages of a host from now on.
    pub(super) fn know_host(&mut self, host: &Sender) {
        let Some(host) = self.host(host) else { return };
        if let Err(error) = self.senders.insert(host, [0; METER], 0) {
            tracing::debug!("the fast path has no room for a host: {error}");
        }
    }

    /// Takes messages of a host no longer.
    pub(super) fn forget_host(&mut self, host: &Sender) {
        if let Some(host) = self.host(host) {
            let _ = self.senders.remove(&host);
        }
    }

    /// Returns the time at which it took the last message of a host, or soon after.
    pub(super) fn last_used(&self, host: &Sender) -> Option<Instant> {
        let meter = self.senders.get(&self.host(host)?, 0).ok()?;
        let full_at = *meter.last_chunk::<8>()?;
        Some(Instant::from_nanos(u64::from_ne_bytes(full_at)))
    }

    /// Takes a DMCAST that a request asks for which the program has steered. Returns whether there
    /// was one.
    pub(super) fn take_credit(&mut self, now: Instant, branch: (Channel, InterfaceId)) -> bool {
        let Some(key) = self.key(&branch.0, branch.1) else { return false };
        let Ok(mut meter) = self.meters.get(&key, 0) else { return false };
        let (credit, expires) = read_credit(&meter);
        if credit == 0 || expires <= now.as_nanos() {
            return false;
        }
        // The program may give or take one meanwhile, which is then forgotten.
        meter[4..8].copy_from_slice(&(credit - 1).to_ne_bytes());
        self.meters.insert(key, meter, 0).is_ok()
    }

    /// Returns what it has counted.
    pub(super) fn counts(&self) -> FastCounts {
        let count = |index: u32| -> u64 {
            let of_all = self.counts.get(&index, 0);
            of_all.map(|of_all| of_all.iter().sum()).unwrap_or_default()
        };
        // In the order of `enum counter`.
        FastCounts {
            turned: count(0),
            sent_up: count(1),
            sent_down: count(2),
            dmcasts: count(3),
            forged: count(4),
            host_flood: count(5),
            request_flood: count(6),
            dmcast_flood: count(7),
            unasked: count(8),
            unsent: count(9),
            left_requests: count(10),
            left_dmcasts: count(11),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns what an event costs and what the bucket holds in nanoseconds, as
/// [`Limiter`](umbel_engine::bucket::Limiter) has it.
fn bucket(limit: Limit) -> [u64; 2] {
    let cost = nanos(Duration::from_secs(1) / limit.per_s.max(1));
    [cost, cost.saturating_mul(limit.burst.max(1).into())]
}

/// Bytes that are filled from the front.
struct Layout<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Layout<N> {
    fn default() -> Self {
        Layout { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> Layout<N> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

fn channel_key(key: &Key) -> Key {
    let mut channel = *key;
    channel[INTERFACE..].fill(0);
    channel
}

/// The layout of the program's data depends on its family.
impl Program {
    /// Lays out `struct address`; none for one of the other family, or one that a packet can only
    /// be sent to on its link.
    fn address(&self, address: IpAddr) -> Option<[u8; ADDRESS]> {
        match (self.family, address) {
            (Family::V4, IpAddr::V4(address)) => {
                let mut out = [0; ADDRESS];
                out[..4].copy_from_slice(&address.octets());
                Some(out)
            }
            (Family::V6, IpAddr::V6(address)) => {
                (!address.is_unicast_link_local()).then(|| address.octets())
            }
            _ => None,
        }
    }

    /// Lays out `struct link`; none for a channel of the other family or without a source.
    fn key(&self, channel: &Channel, InterfaceId(interface): InterfaceId) -> Option<Key> {
        let mut out = Layout::<LINK>::default();
        out.put(&self.address(channel.group)?);
        out.put(&self.address(channel.source?)?);
        out.put(&channel.port.to_be_bytes());
        out.put(&[0; 2]);
        out.put(&interface.to_ne_bytes());
        Some(out.bytes)
    }

    /// Lays out `struct sender`; none for a host of the other family.
    fn host(&self, (InterfaceId(interface), address): &Sender) -> Option<Host> {
        let mut out = Layout::<SENDER>::default();
        out.put(&self.address(*address)?);
        out.put(&interface.to_ne_bytes());
        Some(out.bytes)
    }

    /// Lays out `struct way`; none if the daemon does all.
    fn way(&self, branch: &Branch) -> Option<Way> {
        if branch.steering.is_none() && !branch.is_output {
            return None;
        }
        let of_replier = branch.steering.and_then(|steering| steering.of_replier);
        let of_replier = of_replier
            .and_then(|(replier, steer)| Some((self.address(replier)?, self.steer(&steer))));
        let (replier, of_replier) = of_replier.unwrap_or_default();
        let of_others = branch.steering.map(|steering| self.steer(&steering.of_others));
        let mut out = Layout::<WAY>::default();
        out.put(&replier);
        out.put(&of_replier);
        out.put(&of_others.unwrap_or_default());
        out.put(&u16::from(branch.is_output).to_ne_bytes());
        out.put(&u16::try_from(branch.mtu).unwrap_or(u16::MAX).to_ne_bytes());
        Some(out.bytes)
    }

    /// Lays out `struct steer`, which leaves it to the daemon if the program cannot send there.
    fn steer(&self, steer: &Steer) -> [u8; STEER] {
        let Some(address) = self.address(steer.to.ip()) else { return [0; STEER] };
        let how: u16 = match steer.direction {
            Direction::Up => 1,
            Direction::Turn => 2,
            Direction::Down => 3,
        };
        let stamps: u16 = if steer.stamps { 16 } else { 0 };
        let mut out = Layout::<STEER>::default();
        out.put(&address);
        out.put(&steer.to.port().to_be_bytes());
        out.put(&(how | stamps).to_ne_bytes());
        out.bytes
    }
}

/// Reads `struct meter`.
fn read_credit(meter: &Meter) -> (u32, u64) {
    let [_, _, _, _, a, b, c, d, expires @ ..] = meter;
    let mut until = [0; 8];
    until.copy_from_slice(&expires[..8]);
    (u32::from_ne_bytes([*a, *b, *c, *d]), u64::from_ne_bytes(until))
}
