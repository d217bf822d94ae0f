//! The points of each figure of the paper.

use std::collections::BTreeSet;
use std::time::Duration;

use super::choices::Choices;
use super::point::{Outcome, Period, Point, Share};
use crate::estimate::Estimate;
use crate::output::{self, Figure, FigureId, Panel, Series};
use crate::pool::Outcomes;

/// A curve to be measured.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    name: String,
    points: Vec<(u32, Point)>,
}

/// A figure to be measured.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) number: u32,
    title: &'static str,
    x_label: &'static str,
    caption: &'static str,
    /// Upper limit of the axis of delays in seconds.
    y_limit: Option<f64>,
    curves: Vec<Curve>,
}

/// Settings that all points share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) choices: Choices,
    pub(super) period: Period,
}

/// Loss of the clients' links in percent, if it is the same for all.
pub(super) const LOSS: &[u32] = &[0, 1, 2, 4, 6, 8, 10, 12];
/// Loss of the clients' links in percent, if the server's link loses packets, too.
pub(super) const LOSS_BEHIND: &[u32] = &[0, 2, 4, 6, 8, 10];
/// Share of bad clients in percent.
pub(super) const BAD: &[u32] = &[0, 5, 10, 20, 30, 45, 60, 75, 100];
/// Share of bad clients for schemes that retransmit always. With more bad clients delays come near
/// the length of the run.
const BAD_RETRANSMITTING: &[u32] = &[0, 5, 10, 20, 30];
/// Share of bad clients for retransmission of exact packets, and for rescheduling of them.
const BAD_EXACT: &[u32] = &[0, 5, 10];
const BAD_EXACT_RESCHEDULED: &[u32] = &[0, 5, 10, 20, 30, 45];

pub(super) const CLIENT_LOSS: &str = "loss of each client's link (%)";
pub(super) const BAD_CLIENTS: &str = "share of clients that lose 50 % rather than 5 % (%)";

impl Base {
    pub(super) fn point(&self, policy: &str) -> Point {
        Point {
            policy: policy.to_owned(),
            fill: false,
            known_loss: false,
            server_loss: Share::default(),
            client_loss: Share::percent(5),
            bad_clients: Share::default(),
            choices: self.choices,
            period: self.period,
        }
    }

    /// Creates a point at which all clients lose `loss` percent, behind a server's link that loses
    /// `server` percent.
    pub(super) fn alike(&self, policy: &str, server: u32, loss: u32) -> Point {
        Point {
            server_loss: Share::percent(server),
            client_loss: Share::percent(loss),
            ..self.point(policy)
        }
    }

    /// Creates a point at which `bad` percent of the clients are bad.
    pub(super) fn mixed(&self, policy: &str, bad: u32) -> Point {
        let mut point = Point { bad_clients: Share::percent(bad), ..self.point(policy) };
        if bad > 0 && policy.contains("R(inf)") {
            // Queues are long and take long to settle.
            point.period = point.period.stretched();
        }
        point
    }

    /// Creates curves over the loss of all clients, behind a server's link that loses `server`
    /// percent.
    fn uniform(&self, policies: &[&str], server: u32, losses: &[u32]) -> Vec<Curve> {
        let curve = |&policy: &&str| Curve {
            name: named(policy),
            points: losses.iter().map(|&loss| (loss, self.alike(policy, server, loss))).collect(),
        };
        policies.iter().map(curve).collect()
    }

    /// Creates a curve over the share of bad clients; `change` sets what else the curve varies.
    fn classes(
        &self,
        policy: &str,
        name: String,
        shares: &[u32],
        change: impl Fn(&mut Point),
    ) -> Curve {
        let point = |share: u32| {
            let mut point = self.mixed(policy, share);
            change(&mut point);
            (share, point)
        };
        Curve { name, points: shares.iter().map(|&share| point(share)).collect() }
    }

    /// Returns the plans of all figures.
    pub(super) fn plans(&self) -> Vec<Plan> {
        vec![
            self.figure_3(),
            self.figure_4(),
            self.figure_5(),
            self.figure_6(),
            self.figure_7(),
            self.figure_8(),
            self.figure_9(),
            self.figure_10(),
            self.figure_11(),
        ]
    }

    fn figure_3(&self) -> Plan {
        let mut curves = self.uniform(&["R(inf)", "R(0)", "R(1)", "R(3)", "R(10)"], 0, LOSS);
        let beyond = self.uniform(&["R(0)"], 0, &[20, 30]).remove(0);
        curves[1].points.extend(beyond.points);
        Plan {
            number: 3,
            title: "Retransmission Schemes",
            x_label: CLIENT_LOSS,
            caption: "Rescheduling does not get worse with loss up to 30 %; \
                      retransmission does. Answering small NAKs only is better than both.",
            y_limit: None,
            curves,
        }
    }

    fn figure_4(&self) -> Plan {
        let policies = ["FEC(0)+R(inf)", "FEC(0.1)+R(inf)", "FEC(0.2)+R(inf)", "FEC(0.3)+R(inf)"];
        Plan {
            number: 4,
            title: "Constant Forward Error Correction Schemes",
            x_label: CLIENT_LOSS,
            caption: "The server's link loses 10 % on top. Expansion pays when it covers more than \
                      the mean loss, and costs its own size where there is nothing to cover.",
            y_limit: None,
            curves: self.uniform(&policies, 10, LOSS_BEHIND),
        }
    }

    fn figure_5(&self) -> Plan {
        let policies = ["R(inf)", "R(inf)+notify", "R(0)", "R(0)+notify"];
        Plan {
            number: 5,
            title: "Retransmission Schemes, with and without notification",
            x_label: CLIENT_LOSS,
            caption: "Telling new clients of the transmission under way hurts a server that \
                      retransmits, and helps one that reschedules a little.",
            y_limit: None,
            curves: self.uniform(&policies, 0, LOSS),
        }
    }

    fn figure_6(&self) -> Plan {
        let policies = [
            "FEC(0.1)+R(inf)",
            "FEC(0.1)+R(inf)+notify",
            "FEC(0.2)+R(inf)",
            "FEC(0.2)+R(inf)+notify",
            "FEC(0.3)+R(inf)",
            "FEC(0.3)+R(inf)+notify",
        ];
        Plan {
            number: 6,
            title: "Constant Forward Error Correction, with and without notification",
            x_label: CLIENT_LOSS,
            caption: "The server's link loses 10 % on top.",
            y_limit: None,
            curves: self.uniform(&policies, 10, LOSS_BEHIND),
        }
    }

    fn variable(&self, policies: &[&str]) -> Vec<Curve> {
        let curve = |&policy: &&str| {
            let always = policy.contains("R(inf)");
            let shares = if always { BAD_RETRANSMITTING } else { BAD };
            self.classes(policy, named(policy), shares, |_| {})
        };
        policies.iter().map(curve).collect()
    }

    fn figure_7(&self) -> Plan {
        let policies = [
            "FEC(0.1)+R(inf)",
            "FEC(0.01R)+R(inf)",
            "FEC(0.03R)+R(inf)",
            "FEC(0.05R)+R(inf)",
            "FEC(0.01R)+R(0)",
            "FEC(0.03R)+R(0)",
            "FEC(0.05R)+R(0)",
        ];
        Plan {
            number: 7,
            title: "Variable Forward Error Correction",
            x_label: BAD_CLIENTS,
            caption: "Curves with retransmission end at 30 %: with more bad clients, and NAKs \
                      gathered for 15 s, delays are as long as a run (see R(∞) in both readings); \
                      what is above 2,500 s is in fig7.csv only.",
            y_limit: Some(2_500.0),
            curves: self.variable(&policies),
        }
    }

    fn figure_8(&self) -> Plan {
        Plan {
            number: 8,
            title: "Variable Forward Error Correction, rescheduling only",
            x_label: BAD_CLIENTS,
            caption: "The lower part of Figure 7. The paper sees the order of the factors change at \
                      its right edge (\"it may be helpful to adjust the expansion factor\"); the row \
                      of 100 % tells whether it does here.",
            y_limit: None,
            curves: self.variable(&["FEC(0.01R)+R(0)", "FEC(0.03R)+R(0)", "FEC(0.05R)+R(0)"]),
        }
    }

    fn figure_9(&self) -> Plan {
        let policies = [
            "FEC(maxloss)+R(0)",
            "FEC(maxloss+0.05)+R(0)",
            "FEC(maxloss+0.1)+R(0)",
            "FEC(maxloss+0.2)+R(0)",
        ];
        let knowing = |policy: &&str| {
            self.classes(policy, named(policy), BAD, |point| point.known_loss = true)
        };
        Plan {
            number: 9,
            title: "Perfectly Loss-Aware Forward Error Correction",
            x_label: BAD_CLIENTS,
            caption: "The server knows each client's loss. The paper has padding beyond the \
                      greatest loss worse across the plot. Here it helps where bad clients are few, \
                      and costs more than it brings where they are many.",
            y_limit: None,
            curves: policies.iter().map(knowing).collect(),
        }
    }

    fn figure_10(&self) -> Plan {
        let curve = |policy: &str, shares: &[u32]| {
            self.classes(policy, named(policy), shares, |point| {
                point.server_loss = Share::percent(3);
                if policy.contains("R(inf)+no-ecc") {
                    point.period = point.period.stretched();
                }
            })
        };
        Plan {
            number: 10,
            title: "Exact Versus Error-Correcting Packets",
            x_label: BAD_CLIENTS,
            caption: "The server's link loses 3 % on top. Curves of exact packets and with \
                      retransmission end where delays would be as long as a run; what is above \
                      4,000 s is in fig10.csv only.",
            y_limit: Some(4_000.0),
            curves: vec![
                curve("R(inf)", BAD_RETRANSMITTING),
                curve("R(0)", BAD),
                curve("R(inf)+no-ecc", BAD_EXACT),
                curve("R(0)+no-ecc", BAD_EXACT_RESCHEDULED),
            ],
        }
    }

    fn figure_11(&self) -> Plan {
        let mut curves = Vec::new();
        for policy in ["R(0)", "FEC(0.01R)+R(0)", "FEC(0.05R)+R(0)"] {
            curves.push(self.classes(policy, format!("{policy}, R/Q"), BAD, |_| {}));
            let name = format!("{policy}, R/(Q/fill)");
            curves.push(self.classes(policy, name, BAD, |point| {
                (point.fill, point.known_loss) = (true, true);
            }));
        }
        Plan {
            number: 11,
            title: "Applying a Loss-Sensitive Scheduler",
            x_label: BAD_CLIENTS,
            caption: "The server knows each client's loss; the scheduler's use of it changes little. \
                      The paper's text says \"about 110 minutes\" (6,600 s) at 45 %, which lies far \
                      above every rescheduling curve of its own Figures 8 to 10; 1,100 s fits.",
            y_limit: None,
            curves,
        }
    }
}

/// Returns a policy in the notation of the figures.
pub(super) fn named(policy: &str) -> String {
    policy.replace("inf", "∞")
}

impl Period {
    /// Returns the period made longer by half.
    pub(super) fn stretched(self) -> Period {
        let stretch = |time: Duration| time.saturating_add(time / 2);
        Period { from: stretch(self.from), to: stretch(self.to) }
    }
}

impl Plan {
    pub(super) fn points(&self) -> impl Iterator<Item = &Point> {
        self.curves.iter().flat_map(|curve| &curve.points).map(|(_, point)| point)
    }

    /// Returns the point of a curve.
    pub(super) fn point(&self, curve: &str, x: f64) -> Option<&Point> {
        let curve = self.curves.iter().find(|candidate| candidate.name == curve)?;
        let point = curve.points.iter().find(|(at, _)| (f64::from(*at) - x).abs() < 1e-9);
        point.map(|(_, point)| point)
    }

    /// Returns the same figure with other points.
    pub(super) fn with(&self, change: impl Fn(&Point) -> Point) -> Plan {
        let mut plan = self.clone();
        for (_, point) in plan.curves.iter_mut().flat_map(|curve| &mut curve.points) {
            *point = change(point);
        }
        plan
    }

    /// Returns the figure, from the outcomes of its points.
    pub(super) fn figure(&self, outcomes: &Outcomes<Point>) -> Figure {
        let point = |(x, point): &(u32, Point)| {
            let Estimate { mean, ci95 } = delay(outcomes, point);
            output::Point { x: f64::from(*x), y: mean, ci95 }
        };
        let series = |curve: &Curve| Series {
            name: curve.name.clone(),
            points: curve.points.iter().map(point).collect(),
        };
        let panel = Panel {
            title: String::new(),
            x_label: self.x_label.to_owned(),
            y_label: "average client delay (s)".to_owned(),
            y_limit: self.y_limit,
            series: self.curves.iter().map(series).collect(),
            ..Panel::default()
        };
        Figure {
            id: FigureId::Paper(self.number),
            title: self.title.to_owned(),
            panels: vec![panel],
            caption: self.caption.to_owned(),
        }
    }
}

/// Returns the average client delay of a point, NaN if it did not run.
pub(super) fn delay(outcomes: &Outcomes<Point>, point: &Point) -> Estimate {
    estimate(outcomes, point, |outcome| outcome.delay)
}

/// Returns the mean of a value over the runs of a point.
pub(super) fn estimate(
    outcomes: &Outcomes<Point>,
    point: &Point,
    of: impl Fn(&Outcome) -> f64,
) -> Estimate {
    let outcomes = outcomes.get(point).map_or(&[][..], Vec::as_slice);
    Estimate::of(&outcomes.iter().map(of).collect::<Vec<f64>>())
}

/// Returns the points of these figures; equal ones once.
pub(super) fn points(plans: &[Plan]) -> BTreeSet<Point> {
    plans.iter().flat_map(Plan::points).cloned().collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn base() -> Base {
        let period = Period { from: Duration::from_secs(200), to: Duration::from_secs(800) };
        Base { choices: Choices::default(), period }
    }

    #[test]
    fn every_policy_can_be_read() {
        for plan in base().plans() {
            for point in plan.points() {
                let policy = point.policy.parse::<umbel_engine::repository::policy::Policy>();
                assert!(policy.is_ok(), "{}", point.policy);
            }
        }
    }

    #[test]
    fn figures_share_the_points_that_they_have_in_common() {
        let plans = base().plans();
        let all: usize = plans.iter().map(|plan| plan.points().count()).sum();
        let different = points(&plans).len();
        assert!(different + 60 < all, "{different} of {all}");
        assert_eq!(
            points(&plans[5..6]),
            points(&plans[4..6]).intersection(&points(&plans[5..6])).cloned().collect()
        );
    }
}
