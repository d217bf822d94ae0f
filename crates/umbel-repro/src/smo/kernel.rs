//! The paper's sessions with real servers, and with sockets of the kernel as receivers.
//!
//! Whoever calls has a [`Laboratory`] that runs them. Their outcomes depend on the machine, so they
//! only run if they are asked for.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::scenario::{Load, Rule};
use super::verdicts::{ALL, over};
use crate::certainty::judged;
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Row, Section, Series, Table};
use crate::pool::{Experiment, Outcomes, Pool, Progress, Runs};
use crate::record::record;

/// Hosts over which receivers are spread [SMO §V-A].
pub const HOSTS: u32 = 5;
/// Hosts of these that lose frames in a session with losses, and the share that they lose.
pub const LOSING: u32 = 2;
/// Share of the frames that these hosts lose.
pub const LOSS: f64 = 0.02;
/// Numbers of receivers of a file, without losses.
const SIZES: [u32; 5] = [5, 100, 500, 1_000, 2_000];
/// Numbers of receivers at 100 packets/s [SMO §V-A].
const STEADY: [u32; 3] = [400, 800, 1_200];
/// Segments of a file, as in the simulation of Figure 5.
const FILE: u32 = 1_500;
/// Segments that are sent at 100 packets/s: 10 s.
const PACKETS: u32 = 1_000;
/// Rules under which losses are compared.
const RULES: [(Rule, &str); 2] =
    [(Rule::Strict, "strictly fair"), (Rule::Essential(1, 4), "essentially fair, a = 1, b = 4")];
/// Receivers by relays, and the relays: the paper has 2,300 receivers [SMO §V-D].
const RELAYED: (u32, u32) = (1_998, 3);

/// A session. Its runs differ in what the machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
    /// Number of receivers, a multiple of the hosts or relays.
    pub receivers: u32,
    /// Load that is sent: [`Load::Bulk`] or [`Load::Frames`].
    pub load: Load,
    /// Whether [`LOSING`] of the [`HOSTS`] lose [`LOSS`] of what reaches them.
    pub is_lossy: bool,
    /// Rule of the window.
    pub rule: Rule,
    /// Number of relays, each with one host of receivers; 0 for receivers of the server itself.
    pub relays: u32,
}

impl Session {
    fn file(receivers: u32) -> Session {
        let (load, rule) = (Load::Bulk(FILE), Rule::Strict);
        Session { receivers, load, is_lossy: false, rule, relays: 0 }
    }

    fn steady(receivers: u32) -> Session {
        Session { load: Load::Frames(PACKETS, 10_000), ..Session::file(receivers) }
    }

    fn lossy(rule: Rule) -> Session {
        Session { is_lossy: true, rule, ..Session::file(1_000) }
    }

    fn relayed() -> Session {
        let (receivers, relays) = RELAYED;
        Session { relays, ..Session::file(receivers) }
    }

    /// Returns the number of segments that are sent.
    pub fn segments(&self) -> u32 {
        match self.load {
            Load::Bulk(segments) | Load::Frames(segments, _) => segments,
            Load::For(_) => 0,
        }
    }
}

/// Outcome of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Share of the receivers that have every byte.
    pub whole: f64,
    /// Seconds from the first byte that a receiver had until the last receiver had the last one.
    pub seconds: f64,
    /// ACKs that reached the server's host, also those that its kernel dropped.
    pub acks: u64,
    /// Bytes that left the server's interface, over those of the stream.
    pub sent: f64,
    /// Segments that were multicast again.
    pub multicast_again: u64,
    /// Segments that were sent to one receiver, again or for the first time.
    pub unicast: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

record!(Measured { whole, seconds, acks, sent, multicast_again, unicast, timeouts });

impl Measured {
    /// Returns the outcome of a session that could not be run.
    pub fn failed() -> Measured {
        let (seconds, sent) = (f64::NAN, f64::NAN);
        Measured { whole: 0.0, seconds, acks: 0, sent, multicast_again: 0, unicast: 0, timeouts: 0 }
    }

    /// Returns the rate to each receiver in Mb/s.
    fn rate(&self, session: &Session) -> f64 {
        f64::from(session.segments()) * f64::from(super::scenario::MSS) * 8.0 / 1e6 / self.seconds
    }

    /// Returns the ACKs for each segment and receiver.
    fn acks_per_segment(&self, session: &Session) -> f64 {
        self.acks as f64 / f64::from(session.segments()) / f64::from(session.receivers)
    }
}

/// Runs sessions of real servers.
pub trait Laboratory: fmt::Debug + Send + Sync {
    /// Returns the number of receivers that a session may have; larger ones are left out.
    fn most_receivers(&self) -> u32;

    /// Runs a session; others wait meanwhile.
    fn run(&self, session: &Session) -> Measured;
}

/// A session with the laboratory that runs it. Only the session counts in comparisons.
#[derive(Clone)]
struct InLab {
    session: Session,
    lab: Arc<dyn Laboratory>,
}

impl PartialEq for InLab {
    fn eq(&self, other: &InLab) -> bool {
        self.session == other.session
    }
}

impl Eq for InLab {}

impl PartialOrd for InLab {
    fn partial_cmp(&self, other: &InLab) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InLab {
    fn cmp(&self, other: &InLab) -> Ordering {
        self.session.cmp(&other.session)
    }
}

impl fmt::Debug for InLab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.session.fmt(f)
    }
}

impl Experiment for InLab {
    type Outcome = Measured;

    const RUNS: &'static str = "lab-runs";

    fn run(&self, _seed: u64) -> Measured {
        self.lab.run(&self.session)
    }

    /// Returns about the work of a simulated session of as many segments.
    fn work(&self) -> u64 {
        u64::from(self.session.segments()) * u64::from(self.session.receivers.max(100))
    }
}

/// Sessions that are to be run.
pub(super) struct Sessions(Runs<InLab>);

impl Sessions {
    /// Returns all sessions.
    pub(super) fn new(lab: &Arc<dyn Laboratory>, seeds: u32) -> Sessions {
        let sessions = (SIZES.into_iter().map(Session::file))
            .chain(STEADY.into_iter().map(Session::steady))
            .chain(RULES.into_iter().map(|(rule, _)| Session::lossy(rule)))
            .chain([Session::relayed()])
            .filter(|session| session.receivers <= lab.most_receivers());
        Sessions(sessions.map(|session| (InLab { session, lab: lab.clone() }, seeds)).collect())
    }

    pub(super) fn work(&self) -> u64 {
        crate::pool::work(&self.0)
    }

    /// Runs the sessions one by one. Returns their rows and their section.
    pub(super) fn run(&self, pool: &Pool, progress: &dyn Progress) -> (Vec<Row>, Section) {
        let mut outcomes = pool.one_by_one().run_all(&self.0, progress);
        let rows = judged(&mut outcomes, |outcomes| rows(&Results(outcomes)));
        (rows, section(&Results(&outcomes)))
    }
}

struct Results<'a>(&'a Outcomes<InLab>);

impl Results<'_> {
    fn has(&self, session: Session) -> bool {
        self.0.keys().any(|known| known.session == session)
    }

    fn estimate(&self, session: Session, value: impl Fn(&Measured) -> f64) -> Estimate {
        let found = self.0.iter().find(|(known, _)| known.session == session);
        let runs = found.into_iter().flat_map(|(_, runs)| runs);
        Estimate::of(&runs.map(value).collect::<Vec<f64>>())
    }

    fn rate(&self, session: Session) -> Estimate {
        self.estimate(session, |run| run.rate(&session))
    }
}

/// Returns the rows about the sessions that were run.
fn rows(results: &Results<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut judge = |session, what: String, reported: &str, measured, bounds| {
        if results.has(session) {
            let what = format!("real sockets: {what}");
            rows.push(Row::new("lab", what, reported, measured, bounds));
        }
    };
    let rate = |session| (results.rate(session).mean, "Mb/s");
    for (n, least) in [(100, 10.0), (1_000, 1.0)] {
        let (session, what) = (Session::file(n), format!("throughput to {n} receivers"));
        judge(session, what, &format!("over {least} Mb/s"), rate(session), over(least));
    }
    for (rule, name) in RULES {
        let (session, what) = (Session::lossy(rule), format!("400 of 1,000 lose 2 %, {name}"));
        judge(session, what, "over 1 Mb/s", rate(session), over(1.0));
    }
    let session = Session::steady(1_200);
    let each = results.estimate(session, |run| run.acks_per_segment(&session)).mean;
    let what = "ACKs for each segment and receiver".to_owned();
    judge(session, what, "one for two", (each, ""), (0.45, 0.55));
    let (receivers, relays) = RELAYED;
    let (session, what) =
        (Session::relayed(), format!("throughput to {receivers} receivers by {relays} relays"));
    judge(session, what, "1.1 Mb/s", rate(session), over(1.1));
    let whole = |run: &Measured| run.whole * 100.0;
    let sessions = results.0.keys().map(|known| results.estimate(known.session, whole).mean);
    let least = sessions.fold(100.0, f64::min);
    let what = "receivers that have the file".to_owned();
    judge(Session::file(SIZES[0]), what, "all", (least, "%"), ALL);
    rows
}

fn section(results: &Results<'_>) -> Section {
    Section {
        title: "Real sockets".to_owned(),
        text: format!(
            "`umbel smo serve` with sockets of this machine's kernel on {HOSTS} hosts, each with \
             `umbel smo join`, all in network namespaces of one machine: a server at 100 Mb/s, a \
             file of {FILE} segments, or {PACKETS} at 100 packets/s. With losses {LOSING} of the \
             hosts lose {} %, each for all of its receivers. Relays have a host of receivers each.\n\n\
             These numbers depend on the machine and on what else it does. The server's kernel drops \
             ACKs that tell nothing new; here they count as ACKs.",
            LOSS * 100.0
        ),
        figures: vec![figure(results)],
        tables: vec![table(results)],
    }
}

fn figure(results: &Results<'_>) -> Figure {
    let sizes = || SIZES.into_iter().filter(|&n| results.has(Session::file(n)));
    let points = sizes().map(|n| {
        let rate = results.rate(Session::file(n));
        Point { x: f64::from(n), y: rate.mean, ci95: rate.ci95 }
    });
    let unicasts = sizes().map(|n| Point { x: f64::from(n), y: 100.0 / f64::from(n), ci95: 0.0 });
    let panel = Panel {
        x_label: "number of receivers".to_owned(),
        y_label: "throughput to each (Mb/s)".to_owned(),
        series: vec![
            Series { name: "TCP-SMO, real sockets".to_owned(), points: points.collect() },
            Series { name: super::figures::UNICASTS.to_owned(), points: unicasts.collect() },
        ],
        ..Panel::default()
    };
    Figure {
        id: FigureId::Beyond(1),
        title: "Figure 5 with real sockets".to_owned(),
        panels: vec![panel],
        caption: "All hosts share the processors of one machine.".to_owned(),
    }
}

fn table(results: &Results<'_>) -> Table {
    let rows = results.0.keys().map(|known| {
        let session = known.session;
        let of = |value: &dyn Fn(&Measured) -> f64| results.estimate(session, value).mean;
        let rate = results.rate(session);
        let load = match session.load {
            Load::Frames(..) => "100 packets/s",
            Load::Bulk(_) | Load::For(_) => "file",
        };
        let rule = RULES.iter().find(|(rule, _)| *rule == session.rule);
        vec![
            session.receivers.to_string(),
            load.to_owned(),
            if session.is_lossy { LOSS * 100.0 } else { 0.0 }.to_string(),
            rule.map_or("", |(_, name)| name).to_owned(),
            session.relays.to_string(),
            format!("{:.2}", rate.mean),
            format!("{:.2}", rate.ci95),
            format!("{:.2}", of(&|run| run.seconds)),
            format!("{:.1}", of(&|run| run.whole * 100.0)),
            format!("{:.0}", of(&|run| run.acks as f64 / run.seconds)),
            format!("{:.3}", of(&|run| run.acks_per_segment(&session))),
            format!("{:.3}", of(&|run| run.sent)),
            format!("{:.0}", of(&|run| run.multicast_again as f64)),
            format!("{:.0}", of(&|run| run.unicast as f64)),
            format!("{:.0}", of(&|run| run.timeouts as f64)),
        ]
    });
    let head = [
        "receivers",
        "load",
        "loss of two hosts (%)",
        "rule",
        "relays",
        "throughput to each (Mb/s)",
        "half of its interval (Mb/s)",
        "duration (s)",
        "complete (%)",
        "ACKs/s",
        "ACKs for each segment and receiver",
        "bytes sent over those of the stream",
        "segments multicast again",
        "segments to one",
        "time-outs",
    ];
    Table { name: "lab", head: head.map(str::to_owned).into(), rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::output::Verdict;

    /// Has everything arrive in a second, but for a session with this number of receivers.
    #[derive(Debug)]
    struct Made {
        most: u32,
        fails: u32,
        seen: Mutex<Vec<Session>>,
    }

    impl Laboratory for Made {
        fn most_receivers(&self) -> u32 {
            self.most
        }

        fn run(&self, session: &Session) -> Measured {
            self.seen.lock().unwrap().push(*session);
            if session.receivers == self.fails {
                return Measured::failed();
            }
            let acks = u64::from(session.segments()) * u64::from(session.receivers) / 2;
            Measured { whole: 1.0, seconds: 1.0, acks, sent: 1.0, ..Measured::failed() }
        }
    }

    fn run_with(most: u32, fails: u32) -> (Vec<Row>, Section, usize) {
        let made = Arc::new(Made { most, fails, seen: Mutex::default() });
        let lab: Arc<dyn Laboratory> = made.clone();
        let (rows, section) = Sessions::new(&lab, 5).run(&Pool::of(4), &());
        let seen = made.seen.lock().unwrap().len();
        (rows, section, seen)
    }

    #[test]
    fn each_session_runs_for_each_seed_and_has_a_line() {
        let (rows, section, seen) = run_with(2_000, 0);
        assert_eq!(seen, 5 * section.tables[0].rows.len());
        assert!(section.tables[0].rows.iter().all(|row| row.len() == section.tables[0].head.len()));
        let verdicts: Vec<Verdict> = rows.iter().map(Row::verdict).collect();
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Ok), "{rows:?}");
    }

    #[test]
    fn a_session_that_could_not_run_is_not_passed_over() {
        let (rows, ..) = run_with(2_000, 1_200);
        let wrong = rows.iter().filter(|row| row.verdict() != Verdict::Ok);
        let wrong: Vec<&str> = wrong.map(|row| row.what.as_str()).collect();
        assert!(wrong.iter().any(|what| what.contains("have the file")), "{wrong:?}");
    }

    #[test]
    fn larger_sessions_than_there_may_be_have_no_line() {
        let (rows, section, seen) = run_with(100, 0);
        assert_eq!((seen, section.tables[0].rows.len()), (10, 2));
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows.iter().all(|row| row.verdict() == Verdict::Ok), "{rows:?}");
    }
}
