//! Which receivers report how often, so that the reports of many take a small part of the rate.
//!
//! - *Prompt*: those that limit the rate, each few packets. At the start, some that are drawn.
//! - *Sample*: the drawn ones later. They stand for all those of which nothing is known.
//! - *Others*: seldom, and when their paths get into trouble.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::reception::ReportSchedule;

use super::api::Event;
use super::config::feedback::{
    DRAWN, FEW, NEWCOMER_REPORTS, NEWCOMERS, OTHERS_EVERY, OTHERS_LATEST, OTHERS_LEAST,
    OTHERS_PACKETS, PROMPT, PROMPT_PACKETS, PROMPT_PACKETS_OF_MANY, PROMPT_SHARE, REPORT_BITS,
    SAMPLE_LATEST, SAMPLE_PACKETS, SPREAD_MOST, SPREAD_SHARE,
};
use crate::chance::{Generator, uniform};
use crate::shares::Origin;

/// How often a receiver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Prompt,
    Sample,
}

/// A receiver with a schedule of its own.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    /// Whether it was drawn to stand for others.
    drawn: bool,
    /// Whether it limits the rate.
    limits: bool,
    /// Reports until it is no newcomer any more.
    new: u32,
    told: ReportSchedule,
}

/// The schedules of all receivers.
#[derive(Clone, Debug)]
pub(super) struct Feedback<Who> {
    random: Generator,
    /// Number of receivers at each host.
    names: BTreeMap<Origin, u32>,
    members: usize,
    tracked: BTreeMap<Who, Tracked>,
    drawn: usize,
    newcomers: usize,
    /// Whether no limit was ever known.
    is_start: bool,
    others: ReportSchedule,
}

impl<Who: Ord + Clone> Feedback<Who> {
    pub(super) fn new(random: Generator) -> Feedback<Who> {
        Feedback {
            random,
            names: BTreeMap::new(),
            members: 0,
            tracked: BTreeMap::new(),
            drawn: 0,
            newcomers: 0,
            is_start: true,
            others: ReportSchedule::START,
        }
    }

    /// Returns the number of receivers at a host.
    pub(super) fn names(&self, from: Origin) -> u32 {
        self.names.get(&from).copied().unwrap_or(1).max(1)
    }

    /// Returns the receivers with a schedule of their own, and whether each was drawn.
    pub(super) fn tracked(&self) -> impl Iterator<Item = (&Who, bool)> {
        self.tracked.iter().map(|(who, tracked)| (who, tracked.drawn))
    }

    /// Returns those whose reports are waited for.
    pub(super) fn prompt(&self) -> impl Iterator<Item = &Who> {
        let prompt = |tracked: &Tracked| self.role(tracked) == Role::Prompt;
        self.tracked.iter().filter(move |(_, tracked)| prompt(tracked)).map(|(who, _)| who)
    }

    pub(super) fn schedule(&self, who: &Who) -> ReportSchedule {
        self.tracked.get(who).map_or(self.others, |tracked| tracked.told)
    }

    /// Takes a new receiver in.
    pub(super) fn join(&mut self, who: &Who, from: Origin, events: &mut VecDeque<Event<Who>>) {
        self.members += 1;
        let names = self.names.entry(from).or_default();
        *names += 1;
        let is_first = *names == 1;
        let mut tracked =
            Tracked { drawn: false, limits: false, new: 0, told: ReportSchedule::START };
        if self.drawn < DRAWN && (is_first || self.members <= FEW) {
            tracked.drawn = true;
            self.drawn += 1;
        } else if is_first && uniform(&mut self.random) * (self.names.len() as f64) < DRAWN as f64 {
            // Each has been drawn with the same chance in the end.
            let out = (uniform(&mut self.random) * self.drawn as f64) as usize;
            let out = self.tracked.iter().filter(|(_, tracked)| tracked.drawn).nth(out);
            if let Some(out) = out.map(|(who, _)| who.clone()) {
                self.put_back(&out, events);
                tracked.drawn = true;
                self.drawn += 1;
            }
        }
        if !self.is_start && self.newcomers < NEWCOMERS {
            tracked.new = NEWCOMER_REPORTS;
            self.newcomers += 1;
        }
        if tracked.drawn || tracked.new > 0 {
            self.tracked.insert(who.clone(), tracked);
            events.push_back(Event::Schedule { who: who.clone(), schedule: tracked.told });
        }
    }

    /// Notes a report.
    pub(super) fn on_report(&mut self, who: &Who, events: &mut VecDeque<Event<Who>>) {
        let Some(tracked) = self.tracked.get_mut(who) else { return };
        if tracked.new > 0 {
            tracked.new -= 1;
            if tracked.new == 0 {
                self.newcomers -= 1;
                self.drop_unless_needed(who, events);
            }
        }
    }

    /// Forgets a receiver.
    pub(super) fn leave(&mut self, who: &Who, from: Origin) {
        self.members = self.members.saturating_sub(1);
        if let Some(names) = self.names.get_mut(&from) {
            *names -= 1;
            if *names == 0 {
                self.names.remove(&from);
            }
        }
        if let Some(tracked) = self.tracked.remove(who) {
            self.drawn -= usize::from(tracked.drawn);
            self.newcomers -= usize::from(tracked.new > 0);
        }
    }

    /// Draws `all` that are left, if they are few: they would go on to report as seldom as among many.
    /// More than a few are drawn when they come, so that no host has more than its share of places.
    pub(super) fn draw_few<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Who>,
        events: &mut VecDeque<Event<Who>>,
    ) where
        Who: 'a,
    {
        if self.members > FEW || self.drawn >= self.members {
            return;
        }
        for who in all {
            let told = ReportSchedule::START;
            let new = Tracked { drawn: false, limits: false, new: 0, told };
            let tracked = self.tracked.entry(who.clone()).or_insert(new);
            if !std::mem::replace(&mut tracked.drawn, true) {
                self.drawn += 1;
                events.push_back(Event::Schedule { who: who.clone(), schedule: tracked.told });
            }
        }
    }

    /// Returns how many of the slowest receivers report promptly.
    pub(super) fn prompt_most(&self, rate: f64, rtt: f64) -> usize {
        if self.members <= FEW {
            return FEW;
        }
        ((rate * rtt.max(0.1) * PROMPT_SHARE / REPORT_BITS) as usize).clamp(1, PROMPT)
    }

    /// Lets the slowest receivers report promptly.
    pub(super) fn follow(&mut self, slowest: &BTreeSet<Who>, events: &mut VecDeque<Event<Who>>) {
        self.is_start = false;
        let limits = self.tracked.iter().filter(|(_, tracked)| tracked.limits);
        let gone: Vec<_> =
            limits.filter(|(who, _)| !slowest.contains(who)).map(|(who, _)| who.clone()).collect();
        for who in gone {
            if let Some(tracked) = self.tracked.get_mut(&who) {
                tracked.limits = false;
            }
            self.drop_unless_needed(&who, events);
        }
        for who in slowest {
            let new = Tracked { drawn: false, limits: true, new: 0, told: self.others };
            self.tracked.entry(who.clone()).or_insert(new).limits = true;
        }
    }

    /// Tells schedules that have changed much. `rtt` is the round trip to a receiver.
    pub(super) fn tell(
        &mut self,
        rate: f64,
        rtt: impl Fn(&Who) -> Option<f64>,
        events: &mut VecDeque<Event<Who>>,
    ) {
        let count = self.prompt().count().max(1) as u32;
        let many = self.members > FEW;
        let drawn = self.drawn as u32;
        let is_start = self.is_start;
        for (who, tracked) in &mut self.tracked {
            let rtt = rtt(who).unwrap_or(0.1).max(1e-4);
            let prompt = is_start || tracked.limits || tracked.new > 0 || !many;
            let schedule = if is_start {
                ReportSchedule {
                    every: Duration::from_secs_f64(rtt / 4.0).min(Duration::from_millis(20)),
                    latest: Duration::from_secs_f64(rtt + 0.1),
                    ..ReportSchedule::START
                }
            } else if prompt {
                ReportSchedule {
                    every: Duration::from_secs_f64((rtt / 4.0).clamp(1e-3, 0.02)),
                    packets: if many { PROMPT_PACKETS_OF_MANY * count } else { PROMPT_PACKETS },
                    latest: Duration::from_secs_f64(rtt + 0.1),
                    spread: Duration::ZERO,
                }
            } else {
                ReportSchedule {
                    every: Duration::from_secs_f64((rtt * 4.0).max(0.02)),
                    packets: SAMPLE_PACKETS * drawn,
                    latest: Duration::from_secs_f64(rtt * 4.0) + SAMPLE_LATEST,
                    spread: Duration::ZERO,
                }
            };
            if differs(schedule, tracked.told) {
                tracked.told = schedule;
                events.push_back(Event::Schedule { who: who.clone(), schedule });
            }
        }
        self.tell_others(rate, events);
    }

    /// Tells the schedule of all others, if it has changed much.
    pub(super) fn tell_others(&mut self, rate: f64, events: &mut VecDeque<Event<Who>>) {
        let n = u32::try_from(self.members).unwrap_or(u32::MAX);
        let spread = f64::from(n) * REPORT_BITS / (rate * SPREAD_SHARE);
        let others = ReportSchedule {
            every: OTHERS_LEAST.max(OTHERS_EVERY * n),
            packets: OTHERS_PACKETS.saturating_mul(n),
            latest: (OTHERS_LEAST * 10).max(OTHERS_LATEST * n),
            spread: Duration::from_secs_f64(spread).min(SPREAD_MOST),
        };
        if self.members > FEW && differs(others, self.others) {
            self.others = others;
            events.push_back(Event::ScheduleOthers(others));
        }
    }

    fn role(&self, tracked: &Tracked) -> Role {
        let prompt = self.is_start || tracked.limits || tracked.new > 0 || self.members <= FEW;
        if prompt { Role::Prompt } else { Role::Sample }
    }

    /// Takes back that a receiver was drawn.
    fn put_back(&mut self, who: &Who, events: &mut VecDeque<Event<Who>>) {
        if let Some(tracked) = self.tracked.get_mut(who) {
            tracked.drawn = false;
            self.drawn -= 1;
        }
        self.drop_unless_needed(who, events);
    }

    fn drop_unless_needed(&mut self, who: &Who, events: &mut VecDeque<Event<Who>>) {
        let Some(tracked) = self.tracked.get(who) else { return };
        if !tracked.drawn && !tracked.limits && tracked.new == 0 {
            self.tracked.remove(who);
            events.push_back(Event::Schedule { who: who.clone(), schedule: self.others });
        }
    }
}

/// Returns whether two schedules differ so much that it is worth a message.
fn differs(a: ReportSchedule, b: ReportSchedule) -> bool {
    let apart = |a: f64, b: f64| a > b * 1.7 + 1e-3 || b > a * 1.7 + 1e-3;
    let times = [(a.every, b.every), (a.latest, b.latest), (a.spread, b.spread)];
    let packets = apart(f64::from(a.packets), f64::from(b.packets));
    packets || times.iter().any(|(a, b)| apart(a.as_secs_f64(), b.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::chance::generator;

    #[test]
    fn who_is_left_reports_promptly_once_the_others_are_gone() {
        let mut feedback = Feedback::new(generator(1));
        let mut events = VecDeque::new();
        let from = Origin::of(IpAddr::from([10, 0, 0, 1]));
        for who in 0..40 {
            feedback.join(&who, from, &mut events);
        }
        feedback.follow(&BTreeSet::new(), &mut events);
        feedback.tell(1e6, |_| Some(0.001), &mut events);
        // They were killed, so that nothing is heard of them any more.
        for who in 0..39 {
            feedback.leave(&who, from);
            feedback.draw_few((who + 1..40).collect::<Vec<_>>().iter(), &mut events);
            let few = feedback.members <= FEW;
            assert!(!few || feedback.drawn == feedback.members);
        }
        feedback.tell(1e6, |_| Some(0.001), &mut events);
        let last = feedback.schedule(&39);
        assert!(last.latest < Duration::from_secs(1), "{last:?}");
        let told = events.iter().rev().find_map(|event| match event {
            Event::Schedule { who: 39, schedule } => Some(*schedule),
            _ => None,
        });
        assert_eq!(told, Some(last));
        assert_eq!((feedback.members, feedback.drawn, feedback.tracked.len()), (1, 1, 1));
    }
}
