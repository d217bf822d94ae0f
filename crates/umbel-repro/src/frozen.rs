//! Outcomes of a few cheap runs of each report, compared to the last digit with those of the frozen
//! tables in `frozen/`. A change of these is a change of the results of simulations.
//!
//! `UMBEL_FREEZE=1 cargo test -p umbel-repro frozen` writes new tables.

use std::path::Path;
use std::time::Duration;

use crate::lms::beyond::Run;
use crate::lms::beyond::stream::{Damage, Stream};
use crate::lms::scenario::{Delays, Graph, Setting};
use crate::lms::schemes::Scheme;
use crate::lms::trial::Trial;
use crate::output::csv;
use crate::pool::Experiment;
use crate::record::Record;
use crate::repository::choices::Choices;
use crate::repository::point::{Period, Point, Share};
use crate::tmtp::crowd::{Crowd, Service};
use crate::tmtp::transfer::{Protocol, Transfer};
use crate::{archive, rlm, smo};

/// Returns a line for each experiment and seed, with all that a run measures.
fn table<E: Experiment>(experiments: impl IntoIterator<Item = E>, seeds: u64) -> String {
    let columns = ["experiment", "seed"].map(str::to_owned).into_iter();
    let mut text = csv::row(&columns.chain(E::Outcome::columns()).collect::<Vec<String>>());
    for experiment in experiments {
        for seed in 1..=seeds {
            let mut cells = vec![archive::name_of(&experiment), seed.to_string()];
            experiment.run(seed).write(&mut cells);
            text += &csv::row(&cells);
        }
    }
    text
}

#[allow(clippy::disallowed_methods, reason = "the frozen tables are files")]
fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen").join(format!("{name}.csv"));
    if std::env::var_os("UMBEL_FREEZE").is_some() {
        return std::fs::write(&path, text).unwrap();
    }
    let frozen = std::fs::read_to_string(&path).unwrap();
    for ((now, before), line) in text.lines().zip(frozen.lines()).zip(1..) {
        assert_eq!(
            now, before,
            "frozen/{name}.csv:{line}; see frozen.rs if that is meant to change"
        );
    }
    assert_eq!(text.lines().count(), frozen.lines().count(), "{}", path.display());
}

#[test]
fn repository_outcomes_are_frozen() {
    let period = Period { from: Duration::from_mins(1), to: Duration::from_mins(3) };
    let points =
        ["R(10)", "R(inf)+notify", "FEC(0.01R)+R(0)", "R(0)+no-ecc", "auto"].map(|policy| Point {
            policy: policy.to_owned(),
            fill: false,
            known_loss: false,
            server_loss: Share::percent(3),
            client_loss: Share::percent(5),
            bad_clients: Share::percent(10),
            choices: Choices::default(),
            period,
        });
    compare("repository", &table(points, 2));
}

#[test]
fn lms_outcomes_are_frozen() {
    let trial = |scheme, graph| {
        let (delays, number) = (Delays::Plane, 0);
        let setting = Setting { graph, delays, number, access_percent: 20 };
        Trial { scheme, setting }
    };
    let random = Graph::Random { receivers: 4 };
    let mut trials = vec![trial(Scheme::Lms, Graph::Binary { height: 3 })];
    trials.extend([Scheme::Lms, Scheme::Srm, Scheme::Pgm].map(|scheme| trial(scheme, random)));
    compare("lms", &table(trials, 2));
    let damage = Damage::Everything;
    let stream = Stream { scheme: Scheme::Lms, receivers: 4, damage, loss: 100, change_ms: 0 };
    compare("lms-beyond", &table([Run::Stream(stream)], 1));
}

#[test]
fn tmtp_outcomes_are_frozen() {
    let transfer = |protocol| Transfer { protocol, receivers: 10, packets: 12, loss: 200 };
    compare("tmtp", &table(Protocol::DRAWN.map(transfer), 2));
    let crowd = Crowd { service: Service::TMTP, receivers: 10, subnets: 5 };
    compare("tmtp-beyond", &table([crowd], 1));
}

#[test]
fn rlm_outcomes_are_frozen() {
    let topology = rlm::scenario::Topology::Shared { receivers: 1 };
    compare("rlm", &table([rlm::scenario::Scenario::new(topology)], 1));
}

#[test]
fn smo_outcomes_are_frozen() {
    use smo::scenario::{Load, Losses, Scenario};

    let lan = Scenario::lan(10, Load::Bulk(40));
    let lossy = Scenario { losses: Losses::Independent(20, 5), ..lan };
    compare("smo", &table([lan, lossy], 2));
}
