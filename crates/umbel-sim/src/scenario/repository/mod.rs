//! Section `[repository]`.

mod programs;
mod workload;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::MTU_RESERVE;
use umbel_engine::congestion::{self, PaceTo};
use umbel_engine::repository::config::{NakConfig, PaperReading, SegmentConfig, StartConfig};
use umbel_engine::repository::policy::Policy;
use umbel_engine::repository::scheduler::SchedulerKind;
use umbel_engine::repository::{ReceiverConfig, SourceConfig};
use umbel_engine::units::{ByteCount, Rate};
use umbel_fec::{Cut, FecError};
use umbel_topology::Mistake;
use umbel_topology::values::{Share, Time, Written};
use umbel_wire::alc::DataHeader;
use umbel_wire::{Oti, Scheme, Tsi};

pub use self::workload::Arrival;
use super::cut::listed;
use super::file::Text;
use super::hosts::{Hosts, matches};
use super::pace::{PaceKeys, RateEntry};
use super::protocol::{Protocol, Section};
use crate::generate::SOURCE;
use crate::network::NodeId;

/// Server of items and its clients.
#[derive(Clone, Debug)]
pub struct Repository {
    /// Host of the server.
    pub server: NodeId,
    /// Parameters of the server.
    pub config: SourceConfig,
    /// Items that the server offers.
    pub items: Vec<Item>,
    /// Clients, with the items that they want and their times.
    pub clients: Vec<ClientGroup>,
}

/// Item to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Name by which clients request the item.
    pub name: String,
    /// Length of the item, and its division into symbols.
    pub oti: Oti,
}

/// Clients that behave alike.
#[derive(Clone, Debug)]
pub struct ClientGroup {
    /// Name of the group in results.
    pub name: String,
    /// Hosts of the clients, in the order in which they arrive.
    pub hosts: Vec<NodeId>,
    /// Whether the clients arrive in random order instead.
    pub shuffled: bool,
    /// Arrival time of the first client.
    pub start: Duration,
    /// Arrival times of the other clients.
    pub arrivals: Arrivals,
    /// Positions of the items that the clients may want.
    pub items: Vec<u32>,
    /// Number of these items that each client wants, chosen at random; `None` is all.
    pub want: Option<usize>,
    /// Exponent s of Zipf's law, by which the k-th of these items is wanted in proportion to
    /// 1/k^s; `None` is equal demand.
    pub zipf: Option<f64>,
    /// Time after its arrival when each client leaves, done or not.
    pub leave_after: Option<Duration>,
    /// Parameters of each client, except its seed.
    pub config: ReceiverConfig,
}

/// Intervals between arrivals of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// All clients at once.
    Together,
    /// Regular intervals.
    Regular(Duration),
    /// Exponentially distributed intervals with this mean.
    Poisson(Duration),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepositoryEntry {
    server: Option<Spanned<String>>,
    rate: Written<RateEntry>,
    max_rate: Option<Written<Rate>>,
    min_rate: Option<Written<Rate>>,
    pace_to: Option<Written<PaceTo>>,
    share: Option<Written<congestion::Share>>,
    items: Option<Spanned<usize>>,
    item_size: Option<Spanned<Written<ByteCount>>>,
    item_packets: Option<Spanned<u32>>,
    #[serde(default)]
    item: Vec<Spanned<ItemEntry>>,
    mtu: Option<Spanned<u16>>,
    code: Option<CodeEntry>,
    block: Option<Spanned<u16>>,
    policy: Option<Written<Policy>>,
    scheduler: Option<Written<SchedulerKind>>,
    lookahead: Option<Written<Time>>,
    segment: Option<Written<Time>>,
    #[serde(default)]
    whole_items: bool,
    join_lead: Option<Written<Time>>,
    gather_quiet: Option<Written<Time>>,
    gather_fraction: Option<Spanned<f64>>,
    gather_max: Option<Written<Time>>,
    cut_short: Option<bool>,
    nak_spread_per_client: Option<Written<Time>>,
    nak_spread: Option<Spanned<[Written<Time>; 2]>>,
    nak_margin: Option<Written<Time>>,
    gather_fully: Option<bool>,
    wait_for_naks: Option<bool>,
    join_repairs: Option<bool>,
    open_repairs: Option<bool>,
    expand_repairs: Option<bool>,
    reschedule_whole: Option<bool>,
    loss_cap: Option<Spanned<Written<Share>>>,
    #[serde(default)]
    clients: Vec<Spanned<ClientEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemEntry {
    name: String,
    size: Written<ByteCount>,
}

#[derive(Clone, Copy, Deserialize)]
enum CodeEntry {
    #[serde(rename = "rs")]
    ReedSolomon,
    #[serde(rename = "raptorq")]
    RaptorQ,
    #[serde(rename = "none")]
    NoCode,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientEntry {
    name: Option<String>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    shuffled: bool,
    start: Option<Spanned<Written<Time>>>,
    every: Option<Spanned<Written<Time>>>,
    arrivals: Option<Spanned<ArrivalsEntry>>,
    items: Option<Vec<Spanned<String>>>,
    want: Option<Spanned<usize>>,
    zipf: Option<Spanned<f64>>,
    leave_after: Option<Written<Time>>,
    linger: Option<Written<Time>>,
    nak_delay_min: Option<Written<Time>>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum ArrivalsEntry {
    Together,
    Regular,
    Poisson,
}

const MIN_MTU: u16 = 576;
/// Limit on items, above the number that a machine with 8 GB can simulate.
const MOST_ITEMS: usize = 5_000_000;
/// Limit on the items that all clients of a group want together, chosen at random.
const MOST_WANTS: usize = 100_000_000;
/// Greatest exponent of the items' popularity, with which nearly all want the first ones.
const MOST_ZIPF: f64 = 10.0;
/// Number of the data channel's group, and of its session.
const GROUP: u32 = 1;

fn time(entry: Option<Written<Time>>, default: Duration) -> Duration {
    entry.map_or(default, |time| time.0.0)
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let entry: RepositoryEntry = section.read()?;
    Ok(Arc::new(entry.read(section)?))
}

impl RepositoryEntry {
    fn read(mut self, section: &Section<'_>) -> Result<Repository, Mistake> {
        let Section { text, topology, end, .. } = *section;
        let span = section.span();
        let server = self.server.take();
        if server.is_none() && topology.node_index(SOURCE).is_none() {
            let message = format!("`server` is missing: there is no host `{SOURCE}` to be it");
            return Err(text.mistake(span, message));
        }
        let server = server.unwrap_or_else(|| Spanned::new(span.clone(), SOURCE.to_owned()));
        let hosts = Hosts::new(section, &server, ["server", "client"])?;
        let server = NodeId(hosts.server() as u32);
        let clients = std::mem::take(&mut self.clients);
        let mtu = self.mtu.as_ref().map_or(1500, |mtu| *mtu.get_ref());
        if let Some(mtu) = self.mtu.as_ref().filter(|mtu| *mtu.get_ref() < MIN_MTU) {
            let message =
                format!("mtu = {} is too small: expected at least {MIN_MTU}", mtu.get_ref());
            return Err(text.mistake(mtu.span(), message));
        }
        let config = self.config(text, &span, server, mtu)?;
        let cut = self.cut(&config);
        if let Some(block) = &self.block {
            oti(cut, 0).map_err(|message| text.mistake(block.span(), message))?;
        }
        let items = self.items(text, &span, cut)?;
        let mut reader =
            Clients { text, hosts: &hosts, items: &items, end, taken: BTreeSet::new() };
        let clients = if clients.is_empty() {
            // Every client wants everything, at once.
            vec![reader.read(Spanned::new(span, ClientEntry::default()), 1)?]
        } else {
            let groups = clients.into_iter().enumerate();
            groups.map(|(index, group)| reader.read(group, index + 1)).collect::<Result<_, _>>()?
        };
        Ok(Repository { server, config, items, clients })
    }
}

impl RepositoryEntry {
    fn config(
        &self,
        text: &Text<'_>,
        section: &Range<usize>,
        server: NodeId,
        mtu: u16,
    ) -> Result<SourceConfig, Mistake> {
        let channel = crate::channel(Some(server), GROUP);
        let packet_len = mtu - MTU_RESERVE;
        let RepositoryEntry { max_rate, min_rate, pace_to, share, .. } = *self;
        let pace = PaceKeys { max_rate, min_rate, pace_to, share };
        let pace = pace.pace(self.rate.0, packet_len.into());
        let pace = pace.map_err(|message| text.mistake(section.clone(), message))?;
        let default = SourceConfig::new(Tsi(GROUP), channel, pace.rate);
        let nak_spread = match &self.nak_spread {
            Some(spread) => {
                let [least, most] = spread.get_ref().map(|time| time.0.0);
                if least > most {
                    let message = "nak_spread: expected the least time before the greatest";
                    return Err(text.mistake(spread.span(), message));
                }
                (least, most)
            }
            None => default.naks.spread,
        };
        let loss_cap = match &self.loss_cap {
            Some(cap) if !(0.0..1.0).contains(&cap.get_ref().0.0) => {
                let message = format!("loss_cap = {}: expected 0 to below 1", cap.get_ref().0.0);
                return Err(text.mistake(cap.span(), message));
            }
            Some(cap) => cap.get_ref().0.0,
            None => default.loss_cap,
        };
        let gather_fraction = match &self.gather_fraction {
            Some(share) if !share.get_ref().is_finite() || *share.get_ref() < 0.0 => {
                let message = format!("gather_fraction = {}: expected 0 or more", share.get_ref());
                return Err(text.mistake(share.span(), message));
            }
            Some(share) => *share.get_ref(),
            None => default.start.fraction,
        };
        let segment = time(self.segment, default.segment.time);
        let policy = self.policy.map_or(default.policy, |policy| policy.0);
        Ok(SourceConfig {
            packet_len: packet_len.into(),
            congestion: pace.congestion,
            policy,
            scheduler: self.scheduler.map_or(policy.usual_scheduler(), |scheduler| scheduler.0),
            lookahead: time(self.lookahead, default.lookahead),
            segment: SegmentConfig {
                time: if self.whole_items { Duration::MAX } else { segment },
                ..default.segment
            },
            start: StartConfig {
                join_lead: time(self.join_lead, default.start.join_lead),
                quiet: time(self.gather_quiet, default.start.quiet),
                fraction: gather_fraction,
                most: time(self.gather_max, default.start.most),
            },
            naks: NakConfig {
                spread_per_client: time(self.nak_spread_per_client, default.naks.spread_per_client),
                spread: nak_spread,
                margin: time(self.nak_margin, default.naks.margin),
            },
            reading: self.reading(),
            loss_cap,
            ..default
        })
    }

    /// Returns the reading of the paper for a policy that is set by hand.
    fn reading(&self) -> PaperReading {
        let default = PaperReading::default();
        PaperReading {
            cut_short: self.cut_short.unwrap_or(default.cut_short),
            gather_fully: self.gather_fully.unwrap_or(default.gather_fully),
            wait_for_naks: self.wait_for_naks.unwrap_or(default.wait_for_naks),
            join_repairs: self.join_repairs.unwrap_or(default.join_repairs),
            open_repairs: self.open_repairs.unwrap_or(default.open_repairs),
            expand_repairs: self.expand_repairs.unwrap_or(default.expand_repairs),
            reschedule_whole: self.reschedule_whole.unwrap_or(default.reschedule_whole),
        }
    }

    /// Reads the items, which are a number of equal ones or a list.
    fn items(
        &self,
        text: &Text<'_>,
        section: &Range<usize>,
        cut: Cut,
    ) -> Result<Vec<Item>, Mistake> {
        let size = match (&self.item_size, &self.item_packets) {
            (Some(_), Some(packets)) => {
                let message = "item_packets and item_size both say how long an item is";
                return Err(text.mistake(packets.span(), message));
            }
            (Some(size), None) => Some((size.get_ref().0.0, size.span())),
            (None, Some(packets)) => {
                Some((u64::from(*packets.get_ref()) * u64::from(cut.symbol_len), packets.span()))
            }
            (None, None) => None,
        };
        let (Some(count), Some((size, sized))) = (&self.items, &size) else {
            return match (&self.items, size) {
                (Some(items), None) => {
                    let message = "items: their `item_size` or `item_packets` is missing";
                    Err(text.mistake(items.span(), message))
                }
                (None, Some((_, size))) => {
                    Err(text.mistake(size, "the number of such items, `items`, is missing"))
                }
                _ => self.listed_items(text, section, cut),
            };
        };
        if let Some(item) = self.item.first() {
            let message = "expected either `items` or a list of [[repository.item]]";
            return Err(text.mistake(item.span(), message));
        }
        if *count.get_ref() == 0 {
            return Err(text.mistake(count.span(), "items = 0: expected at least 1"));
        }
        if *count.get_ref() > MOST_ITEMS {
            let message = format!("items = {}: at most {MOST_ITEMS} fit", count.get_ref());
            return Err(text.mistake(count.span(), message));
        }
        let oti = oti(cut, *size).map_err(|message| text.mistake(sized.clone(), message))?;
        let item = |n| Item { name: format!("item{n}"), oti };
        Ok((1..=*count.get_ref()).map(item).collect())
    }

    fn listed_items(
        &self,
        text: &Text<'_>,
        section: &Range<usize>,
        cut: Cut,
    ) -> Result<Vec<Item>, Mistake> {
        let mut items: Vec<Item> = Vec::new();
        for entry in &self.item {
            let ItemEntry { name, size } = entry.get_ref();
            if items.iter().any(|item| item.name == *name) {
                return Err(text.mistake(entry.span(), format!("two items are called `{name}`")));
            }
            let oti = oti(cut, size.0.0).map_err(|message| text.mistake(entry.span(), message))?;
            items.push(Item { name: name.clone(), oti });
        }
        if items.is_empty() {
            let message = "there is nothing to serve: expected `items` and `item_size`, or a list \
                           of [[repository.item]]";
            return Err(text.mistake(section.clone(), message));
        }
        Ok(items)
    }
}

impl RepositoryEntry {
    /// Returns the parameters by which items are divided into symbols, as in `umbel serve`.
    fn cut(&self, config: &SourceConfig) -> Cut {
        Cut {
            scheme: match self.code {
                _ if config.policy.is_exact() => Scheme::NoCode,
                Some(CodeEntry::NoCode) => Scheme::NoCode,
                Some(CodeEntry::RaptorQ) => Scheme::RaptorQ,
                Some(CodeEntry::ReedSolomon) | None => Scheme::ReedSolomon,
            },
            symbol_len: (config.packet_len - DataHeader::LEN) as u16 & !7,
            max_block_symbols: self.block.as_ref().map_or(128, |block| *block.get_ref()),
        }
    }
}

fn oti(cut: Cut, object_len: u64) -> Result<Oti, String> {
    cut.oti(object_len).map_err(|error| match error {
        FecError::TooManyBlocks { .. } => {
            format!("{} are too much for one item of this code", ByteCount(object_len))
        }
        error => error.to_string(),
    })
}

/// Reads groups of clients.
struct Clients<'a> {
    text: &'a Text<'a>,
    hosts: &'a Hosts<'a>,
    items: &'a [Item],
    /// End of the run.
    end: Duration,
    /// Nodes that already have a client.
    taken: BTreeSet<usize>,
}

impl Clients<'_> {
    fn read(&mut self, entry: Spanned<ClientEntry>, number: usize) -> Result<ClientGroup, Mistake> {
        let span = entry.span();
        let entry = entry.into_inner();
        let arrivals = self.arrivals(&entry, &span)?;
        let items = self.wanted(&entry)?;
        let hosts = match &entry.hosts {
            Some(patterns) => self.hosts.matching(patterns.get_ref())?,
            None => self.hosts.matching(&[Spanned::new(span.clone(), "*".to_owned())])?,
        };
        let named = entry.hosts.as_ref().map_or(span, Spanned::span);
        if hosts.is_empty() {
            return Err(self.text.mistake(named, "expected at least one host"));
        }
        if let Some(&twice) = hosts.iter().find(|&&host| !self.taken.insert(host)) {
            let name = self.hosts.name(twice);
            let message = format!("`{name}` is in another group of clients already");
            return Err(self.text.mistake(named, message));
        }
        let want = entry.want.as_ref().map_or(0, |want| *want.get_ref());
        if want < items.len() && hosts.len().saturating_mul(want) > MOST_WANTS {
            let (span, count) = (entry.want.as_ref().map_or(named, Spanned::span), hosts.len());
            let message =
                format!("{count} clients want {want} items each: at most {MOST_WANTS} fit");
            return Err(self.text.mistake(span, message));
        }
        let zipf = self.popularity(&entry, hosts.len(), items.len())?;
        let start = entry.start.as_ref().map_or(Duration::ZERO, |start| start.get_ref().0.0);
        if let Some(start) = &entry.start
            && start.get_ref().0.0 >= self.end
        {
            let (start_time, end) = (start.get_ref().0.0, self.end);
            let message = format!("{start_time:?} is after the end, `duration` = {end:?}");
            return Err(self.text.mistake(start.span(), message));
        }
        let default = ReceiverConfig::default();
        Ok(ClientGroup {
            name: entry.name.unwrap_or_else(|| format!("clients {number}")),
            hosts: hosts.into_iter().map(|host| NodeId(host as u32)).collect(),
            shuffled: entry.shuffled,
            start,
            arrivals,
            items,
            want: entry.want.map(Spanned::into_inner),
            zipf,
            leave_after: entry.leave_after.map(|time| time.0.0),
            config: ReceiverConfig {
                linger: time(entry.linger, default.linger),
                nak_delay_min: time(entry.nak_delay_min, default.nak_delay_min),
                ..default
            },
        })
    }

    fn arrivals(&self, entry: &ClientEntry, span: &Range<usize>) -> Result<Arrivals, Mistake> {
        let every = entry.every.as_ref().map(|every| every.get_ref().0.0);
        let kind = entry.arrivals.as_ref().map(|kind| *kind.get_ref());
        match (kind, every) {
            (None | Some(ArrivalsEntry::Together), None) => Ok(Arrivals::Together),
            (None | Some(ArrivalsEntry::Regular), Some(every)) => Ok(Arrivals::Regular(every)),
            (Some(ArrivalsEntry::Poisson), Some(every)) => Ok(Arrivals::Poisson(every)),
            (Some(ArrivalsEntry::Together), Some(_)) => {
                let span = entry.every.as_ref().map_or(span.clone(), Spanned::span);
                Err(self.text.mistake(span, "clients that arrive together take no `every`"))
            }
            (Some(_), None) => {
                let span = entry.arrivals.as_ref().map_or(span.clone(), Spanned::span);
                Err(self.text.mistake(span, "`every`, the time between two clients, is missing"))
            }
        }
    }

    /// Returns the exponent of the items' popularity.
    fn popularity(
        &self,
        entry: &ClientEntry,
        clients: usize,
        items: usize,
    ) -> Result<Option<f64>, Mistake> {
        let Some(zipf) = &entry.zipf else { return Ok(None) };
        let exponent = *zipf.get_ref();
        let message = if !(0.0..=MOST_ZIPF).contains(&exponent) {
            format!("zipf = {exponent}: expected an exponent from 0 to {MOST_ZIPF}")
        } else if entry.want.is_none() {
            "zipf says which items are wanted more: expected `want`, their number, beside it"
                .to_owned()
        } else if clients.saturating_mul(items) > MOST_WANTS {
            format!("{clients} clients choose from {items} items: at most {MOST_WANTS} fit")
        } else {
            return Ok(Some(exponent));
        };
        Err(self.text.mistake(zipf.span(), message))
    }

    /// Returns the positions of the items that match, and checks the number of wanted items.
    fn wanted(&self, entry: &ClientEntry) -> Result<Vec<u32>, Mistake> {
        let positions = 0..self.items.len() as u32;
        let mut found: Vec<u32> = match &entry.items {
            None => positions.collect(),
            Some(patterns) => {
                let mut found = Vec::new();
                for pattern in patterns {
                    let matching = positions.clone().filter(|&item| {
                        matches(pattern.get_ref(), &self.items[item as usize].name)
                    });
                    let before = found.len();
                    found.extend(matching);
                    if found.len() == before {
                        let all = listed(self.items.iter().map(|item| item.name.as_str()));
                        let message =
                            format!("no item matches `{}`: there are {all}", pattern.get_ref());
                        return Err(self.text.mistake(pattern.span(), message));
                    }
                }
                found
            }
        };
        found.sort_unstable();
        found.dedup();
        if let Some(want) = &entry.want
            && !(1..=found.len()).contains(want.get_ref())
        {
            let message = format!(
                "want = {}: expected 1 to {}, the items there are",
                want.get_ref(),
                found.len()
            );
            return Err(self.text.mistake(want.span(), message));
        }
        Ok(found)
    }
}
