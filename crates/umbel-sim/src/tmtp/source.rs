//! Host of the source.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use umbel_engine::host::{Host, Io};
use umbel_engine::tmtp::{self, BlockCount, NodeId as MemberId, SourceCommand, SourceEvent};
use umbel_engine::{Instant, RateClass};
use umbel_wire::tmtp::{ReceiverReport, Totals};

use super::{Feed, FeedSymbols, host_config};
use crate::EngineHost;

/// Host that runs a source.
pub type SourceHost = EngineHost<tmtp::Source<FeedSymbols>, Source>;

/// Extends a feed at given times, ends it, and records the reports to the source.
#[derive(Clone, Debug)]
pub struct Source {
    plan: VecDeque<(Instant, BlockCount)>,
    is_finished: bool,
    /// Time when the group is deleted.
    close_at: Option<Instant>,
    completed: Option<Instant>,
    acknowledged: u32,
    totals: Totals,
    reports: BTreeMap<MemberId, ReceiverReport>,
    evicted: u32,
    closed: Option<Instant>,
}

impl Source {
    /// Creates a host that creates the group when it starts. It extends the feed by these blocks at
    /// these times, ascending, and ends it with the last.
    pub fn host(
        feed: &Feed,
        config: tmtp::SourceConfig,
        plan: impl IntoIterator<Item = (Instant, BlockCount)>,
    ) -> SourceHost {
        let plan: VecDeque<(Instant, BlockCount)> = plan.into_iter().collect();
        let runs = plan.iter().map(|(_, run)| (run.count as usize, run.symbols));
        let blocks =
            runs.flat_map(|(count, symbols)| std::iter::repeat_n(symbols, count)).collect();
        let symbols = FeedSymbols::new(feed.symbol_len, blocks);
        let application = Source {
            plan,
            is_finished: false,
            close_at: None,
            completed: None,
            acknowledged: 0,
            totals: Totals::default(),
            reports: BTreeMap::new(),
            evicted: 0,
            closed: None,
        };
        let host = host_config(Some(config.rate));
        let engine = tmtp::Source::new(config, feed.draws(feed.source), symbols);
        EngineHost::new(engine, application, host)
    }

    /// Makes the source delete the group at this time.
    pub fn close_at(&mut self, at: Instant) {
        self.close_at = Some(at);
    }

    /// Returns the first time when the feed had ended and every known receiver had everything, had
    /// given up or had left.
    pub fn completed(&self) -> Option<Instant> {
        self.completed
    }

    /// Returns the first block that is missing at a child for which the source waits.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged
    }

    /// Returns the totals of the tree, as reported to the source.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the reports of receivers to the source.
    pub fn reports(&self) -> &BTreeMap<MemberId, ReceiverReport> {
        &self.reports
    }

    /// Returns the number of children that were given up.
    pub fn evicted(&self) -> u32 {
        self.evicted
    }

    /// Returns the time when the group was deleted.
    pub fn closed(&self) -> Option<Instant> {
        self.closed
    }

    fn set_timer(&self, io: &mut dyn Io<tmtp::Source<FeedSymbols>>) {
        let next = self.plan.front().map(|(at, _)| *at);
        io.wake_at([next, self.close_at].into_iter().flatten().min());
    }
}

fn tell(io: &mut dyn Io<tmtp::Source<FeedSymbols>>, command: SourceCommand) {
    let told = io.command(command);
    assert_eq!(told, Ok(()), "the plan is one that can be carried out");
}

impl Host<tmtp::Source<FeedSymbols>> for Source {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<tmtp::Source<FeedSymbols>>) {
        tell(io, SourceCommand::Start);
        self.set_timer(io);
    }

    fn event(&mut self, io: &mut dyn Io<tmtp::Source<FeedSymbols>>, event: SourceEvent) {
        match event {
            SourceEvent::Acknowledged { below } => self.acknowledged = below,
            SourceEvent::Rate(rate) => io.set_pace(RateClass::Data, Some(rate)),
            SourceEvent::Totals(totals) => self.totals = totals,
            SourceEvent::Report(report) => {
                self.reports.insert(report.node, report);
            }
            SourceEvent::Evicted(_) => self.evicted += 1,
            SourceEvent::Complete => {
                self.completed.get_or_insert(io.now());
            }
            SourceEvent::Gone(why) => panic!("symbols of the plan are always there: {why}"),
            SourceEvent::Closed => self.closed = Some(io.now()),
            SourceEvent::Tree(_)
            | SourceEvent::Rival(_)
            | SourceEvent::Aside { .. }
            | SourceEvent::ByUnicast { .. }
            | SourceEvent::ByMulticast { .. } => {}
        }
    }

    fn wake(&mut self, io: &mut dyn Io<tmtp::Source<FeedSymbols>>) {
        let now = io.now();
        while let Some((_, run)) = self.plan.pop_front_if(|(at, _)| *at <= now) {
            tell(io, SourceCommand::Extend(vec![run]));
        }
        if self.plan.is_empty() && !std::mem::replace(&mut self.is_finished, true) {
            tell(io, SourceCommand::Finish { failed: None });
        }
        if self.close_at.take_if(|at| *at <= now).is_some() {
            tell(io, SourceCommand::Close);
        }
        self.set_timer(io);
    }
}
