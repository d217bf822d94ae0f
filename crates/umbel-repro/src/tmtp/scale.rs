//! Experiments that the paper did not do: groups of up to 10,000, and SRM and LMS in the same
//! places.

use super::crowd::{Crowd, Outcome, Service, Tree};
use crate::bounds::{LESS, around, up_to};
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Row, Section, Series, Table};
use crate::pool::{Outcomes, Runs};

/// A number of receivers, and that of their subnets.
type Size = (u32, u32);
/// Sizes of the usual groups. Others are compared with the second.
const SIZES: [Size; 3] = [(10, 7), (100, 40), (1_000, 200)];
/// Size of the largest group, which takes half a minute a run and service.
const LARGE: Size = (10_000, 1_000);
/// Values of K: that of the paper's example tree, and the default.
const KS: [u16; 2] = [4, 8];
/// Maximum number of seeds.
const SEEDS: u32 = 5;

fn crowd(service: Service, (receivers, subnets): Size) -> Crowd {
    Crowd { service, receivers, subnets }
}

/// Sizes of groups, in rising order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes(Vec<Size>);

impl Sizes {
    /// Returns the sizes that these parts of the report need; none for none.
    pub(super) fn of(has_usual: bool, has_large: bool) -> Sizes {
        let usual = SIZES.into_iter().filter(|size| has_usual || has_large && *size == SIZES[1]);
        Sizes(usual.chain(has_large.then_some(LARGE)).collect())
    }

    /// Returns those of a service. SRM is not run with 10,000 receivers. Each node would keep a
    /// tree to all nodes that ever sent a request or repair, which takes too much memory.
    fn with(&self, service: Service) -> impl Iterator<Item = Size> {
        let is_possible = move |size: &Size| match service {
            Service::Srm => *size != LARGE,
            Service::Tmtp { .. } | Service::TmtpImproving { .. } | Service::Lms => true,
        };
        self.0.iter().copied().filter(is_possible)
    }

    /// Returns those that are compared with the second of the usual ones.
    fn compared(&self) -> impl Iterator<Item = Size> {
        self.0.iter().copied().filter(|size| *size > SIZES[1])
    }
}

/// Returns TMTP with this K.
fn tmtp(max_children: u16) -> Service {
    Service::Tmtp { max_children }
}

/// Returns TMTP with this K and trees that are improved while they stand.
fn improving(max_children: u16) -> Service {
    Service::TmtpImproving { max_children }
}

/// Returns TMTP with each K, with trees that stay and that are improved, and the other services.
fn services() -> impl Iterator<Item = Service> {
    let trees = KS.map(tmtp).into_iter().chain(KS.map(improving));
    trees.chain([Service::Lms, Service::Srm])
}

/// Returns the experiments to run.
pub(super) fn runs(sizes: &Sizes, seeds: u32) -> Runs<Crowd> {
    let crowds =
        services().flat_map(|service| sizes.with(service).map(move |size| crowd(service, size)));
    crowds.map(|crowd| (crowd, seeds.min(SEEDS))).collect()
}

/// Draws curves of outcomes.
struct Draw<'a> {
    outcomes: &'a Outcomes<Crowd>,
    sizes: &'a Sizes,
}

impl Draw<'_> {
    fn estimate(&self, crowd: Crowd, value: impl Fn(&Outcome) -> f64) -> Estimate {
        let runs = self.outcomes.get(&crowd).into_iter().flatten();
        Estimate::of(&runs.map(value).collect::<Vec<f64>>())
    }

    /// Returns the mean of a value of the control tree of a group.
    fn tree(&self, service: Service, size: Size, value: impl Fn(&Tree) -> f64) -> f64 {
        let of = |outcome: &Outcome| outcome.tree.as_ref().map_or(f64::NAN, &value);
        self.estimate(crowd(service, size), of).mean
    }

    /// Returns a curve over the sizes of a service.
    fn curve(&self, name: &str, service: Service, value: impl Fn(&Outcome) -> f64) -> Series {
        let points = self.sizes.with(service).map(|size| {
            let Estimate { mean, ci95 } = self.estimate(crowd(service, size), &value);
            Point { x: f64::from(size.0).log10(), y: mean, ci95 }
        });
        Series { name: name.to_owned(), points: points.collect() }
    }

    /// Returns a curve for each K, with trees that stay and that are improved.
    fn tree_curves(&self, name: &str, value: impl Fn(&Tree) -> f64) -> Vec<Series> {
        let of = |outcome: &Outcome| outcome.tree.as_ref().map_or(f64::NAN, &value);
        let stays = KS.map(|k| self.curve(&format!("{name}, K = {k}"), tmtp(k), of));
        let improved =
            KS.map(|k| self.curve(&format!("{name}, K = {k}, improved"), improving(k), of));
        stays.into_iter().chain(improved).collect()
    }

    /// Returns a curve for each service.
    fn services(&self, value: fn(&Outcome) -> f64) -> Vec<Series> {
        Service::ALL.map(|service| self.curve(service.name(), service, value)).into()
    }
}

/// Returns the number of levels of a tree in which every node has K children.
fn log_k(k: u16, subnets: u32) -> f64 {
    f64::from(subnets).ln() / f64::from(k).ln()
}

fn panel(title: &str, y_label: &str, series: Vec<Series>) -> Panel {
    Panel {
        title: title.to_owned(),
        x_label: "receivers (power of ten)".to_owned(),
        y_label: y_label.to_owned(),
        series,
        ..Panel::default()
    }
}

fn figure(number: u32, title: &str, panels: Vec<Panel>) -> Figure {
    let (id, title) = (FigureId::Beyond(number), title.to_owned());
    Figure { id, title, panels, caption: String::new() }
}

/// Returns the sections of the report.
pub(super) fn sections(outcomes: &Outcomes<Crowd>, sizes: &Sizes) -> Vec<Section> {
    let draw = Draw { outcomes, sizes };
    vec![growth(&draw), others(&draw)]
}

fn growth(draw: &Draw<'_>) -> Section {
    let ideal = KS.map(|k| Series {
        name: format!("log_K of the subnets, K = {k}"),
        points: (draw.sizes.0.iter())
            .map(|&(receivers, subnets)| Point {
                x: f64::from(receivers).log10(),
                y: log_k(k, subnets),
                ci95: 0.0,
            })
            .collect(),
    });
    let load = [
        draw.tree_curves("source", |tree| tree.load),
        draw.tree_curves("manager, on average", |tree| tree.manager_load),
    ];
    let depth = [
        draw.tree_curves("deepest", |tree| f64::from(tree.depth)),
        draw.tree_curves("on average", |tree| tree.mean_depth),
        ideal.into(),
    ];
    let delay = vec![
        draw.curve("TMTP, K = 4", Service::TMTP, |outcome| outcome.delay),
        draw.curve("TMTP, K = 4, improved", improving(4), |outcome| outcome.delay),
    ];
    let panels = vec![
        panel("load", "events for 100 packets", load.concat()),
        panel("depth", "edges of the control tree from the source to a manager", depth.concat()),
        panel("delay", "time until the last receiver has everything (s)", delay),
    ];
    let head = [
        "K",
        "tree",
        "receivers",
        "subnets",
        "load of the source",
        "load of a manager",
        "children of the source",
        "most children",
        "deepest",
        "mean depth",
        "delay (s)",
    ];
    let cells = |k: u16, is_improved: bool, size: Size| {
        let service = if is_improved { improving(k) } else { tmtp(k) };
        let tree = |value: fn(&Tree) -> f64| format!("{:.1}", draw.tree(service, size, value));
        let delay = draw.estimate(crowd(service, size), |outcome| outcome.delay).mean;
        vec![
            k.to_string(),
            if is_improved { "improved" } else { "stays" }.to_owned(),
            size.0.to_string(),
            size.1.to_string(),
            tree(|tree| tree.load),
            tree(|tree| tree.manager_load),
            tree(|tree| f64::from(tree.children)),
            tree(|tree| f64::from(tree.most_children)),
            tree(|tree| f64::from(tree.depth)),
            tree(|tree| tree.mean_depth),
            format!("{delay:.1}"),
        ]
    };
    Section {
        title: "Groups of up to 10,000".to_owned(),
        text: "Groups of 10,000 receivers are the part `crowd`, which takes half a minute a run and \
               protocol.\n\n100 packets at 10 a second to receivers in 7 to 1,000 subnets at random places of one \
               transit–stub graph of 1,056 routers; T_ack = 1 s, n = 3; each link between routers \
               loses 0.2 % of data, repairs and NACKs. Load is counted as in the paper, while the feed \
               lasts. Every manager looks for the closest parent by itself: the tree is deeper than one that \
               was laid out. With trees that are improved (which is off by default) managers also look, \
               every 5 s at first, for a parent that stands two levels above them or more; the tree has \
               30 to 60 s for that before the feed."
            .to_owned(),
        figures: vec![figure(1, "TMTP in groups of any size", panels)],
        tables: vec![Table {
            name: "scale",
            head: head.map(str::to_owned).into(),
            rows: KS
                .into_iter()
                .flat_map(|k| [false, true].map(|is_improved| (k, is_improved)))
                .flat_map(|(k, way)| draw.sizes.0.iter().map(move |size| cells(k, way, *size)))
                .collect(),
        }],
    }
}

fn others(draw: &Draw<'_>) -> Section {
    let panels = vec![
        panel(
            "feedback at the source",
            "ACKs and requests that came, and repairs sent, for 100 packets",
            draw.services(|outcome| outcome.feedback),
        ),
        panel("repairs", "repairs sent for each packet", draw.services(|outcome| outcome.repairs)),
        panel(
            "exposure",
            "repairs that came to a receiver for each packet",
            draw.services(|outcome| outcome.exposure),
        ),
        panel(
            "delay",
            "time until the last receiver has everything (s)",
            draw.services(|outcome| outcome.delay),
        ),
    ];
    Section {
        title: "Beside SRM and LMS".to_owned(),
        text: "The same groups, losses and packets. LMS has static repliers and an agent in each of the \
               routers, which steer repairs where they are needed; TMTP and SRM need nothing of routers. TMTP \
               alone tells the source that everybody has everything: its feedback is nearly all ACKs. SRM has \
               fixed timers; with 1,000 receivers members know their distance to the source only. The figure \
               of SRM ends at 1,000."
            .to_owned(),
        figures: vec![figure(2, "TMTP, LMS and SRM on the same networks", panels)],
        tables: Vec::new(),
    }
}

/// Returns the rows of claims that must hold.
pub(super) fn rows(outcomes: &Outcomes<Crowd>, sizes: &Sizes) -> Vec<Row> {
    let draw = &Draw { outcomes, sizes };
    let mut rows: Vec<Row> = KS
        .into_iter()
        .flat_map(|k| sizes.compared().map(move |size| (k, size)))
        .flat_map(|(k, size)| grown(draw, k, size))
        .collect();
    rows.extend(
        KS.into_iter()
            .flat_map(|k| sizes.compared().map(move |size| (k, size)))
            .flat_map(|(k, size)| improved(draw, k, size)),
    );
    let mut incomplete = 0.0;
    for service in services() {
        for size in sizes.with(service) {
            let missing = |outcome: &Outcome| f64::from(outcome.incomplete);
            incomplete += draw.estimate(crowd(service, size), missing).mean;
        }
    }
    let what = "receivers without everything, all sizes and protocols";
    rows.push(row(2, what, "none", incomplete, (0.0, 0.0)));
    if sizes.0.contains(&SIZES[2]) {
        let exposure =
            |service| draw.estimate(crowd(service, SIZES[2]), |outcome| outcome.exposure).mean;
        let what = "repairs that come to a receiver, TMTP over SRM, 1000 receivers";
        let quotient = exposure(Service::TMTP) / exposure(Service::Srm);
        rows.push(row(2, what, "fewer: local recovery", quotient, LESS));
    }
    rows
}

fn row(
    figure: u32,
    what: impl Into<String>,
    reported: &str,
    measured: f64,
    bounds: (f64, f64),
) -> Row {
    Row::new(FigureId::Beyond(figure), what, reported, (measured, ""), bounds)
}

/// Returns the rows of a tree that is improved while it stands, beside one that stays.
fn improved(draw: &Draw<'_>, k: u16, size: Size) -> Vec<Row> {
    let (receivers, subnets) = size;
    let both = |value: fn(&Tree) -> f64| {
        [improving(k), tmtp(k)].map(|service| draw.tree(service, size, value))
    };
    let [deepest, deepest_before] = both(|tree| f64::from(tree.depth));
    let [mean, mean_before] = both(|tree| tree.mean_depth);
    let [load, load_before] = both(|tree| tree.manager_load);
    let delay = |service| draw.estimate(crowd(service, size), |outcome| outcome.delay).mean;
    let with = format!("{receivers} receivers, K = {k}");
    let over = format!("an improved tree over one that stays, {with}");
    vec![
        row(
            1,
            format!("greatest depth of an improved tree over log_K, {with}"),
            "at most 1.5",
            deepest / log_k(k, subnets),
            up_to(1.5),
        ),
        row(1, format!("greatest depth, {over}"), "less", deepest / deepest_before, LESS),
        row(1, format!("mean depth, {over}"), "less", mean / mean_before, LESS),
        row(1, format!("load of a manager, {over}"), "at most 1.1", load / load_before, up_to(1.1)),
        row(
            1,
            format!("delay, {over}"),
            "at most 1.05",
            delay(improving(k)) / delay(tmtp(k)),
            up_to(1.05),
        ),
    ]
}

/// Returns the rows of a group beside the smaller one that it is compared with.
fn grown(draw: &Draw<'_>, k: u16, size: Size) -> Vec<Row> {
    let (receivers, subnets) = size;
    let over_smaller = |value: fn(&Tree) -> f64| {
        let [own, smaller] = [size, SIZES[1]].map(|size| draw.tree(tmtp(k), size, value));
        own / smaller
    };
    let most = draw.tree(tmtp(k), size, |tree| f64::from(tree.most_children));
    let levels = log_k(k, subnets);
    let mean = draw.tree(tmtp(k), size, |tree| tree.mean_depth) / levels;
    let deepest = draw.tree(tmtp(k), size, |tree| f64::from(tree.depth)) / levels;
    let over = format!("{receivers} over 100, K = {k}");
    let each = "each child sends an ACK in a T_ack, by definition";
    vec![
        row(
            1,
            format!("load of the source, {receivers} receivers over 100, K = {k}"),
            "the same within 20 %",
            over_smaller(|tree| tree.load),
            around(1.0, 0.2),
        )
        .same(0.2, "a fifth, over a tenfold or hundredfold group"),
        row(
            1,
            format!("load of the source for each of its children, {over}"),
            "the same within 20 %",
            over_smaller(|tree| tree.load) / over_smaller(|tree| f64::from(tree.children)),
            around(1.0, 0.2),
        )
        .unjudged(each),
        row(
            1,
            format!("most children of a node, {receivers} receivers"),
            &format!("K = {k}"),
            most,
            up_to(f64::from(k)),
        ),
        row(
            1,
            format!("busiest node's load for each of its children, {over}"),
            "bounded by K",
            over_smaller(|tree| tree.busiest),
            up_to(1.5),
        )
        .unjudged(each),
        row(
            1,
            format!("load of a manager, {over}"),
            "bounded by K",
            over_smaller(|tree| tree.manager_load),
            up_to(1.5),
        ),
        row(
            1,
            format!("mean depth over log_K of the subnets, {receivers} receivers, K = {k}"),
            "about 1",
            mean,
            (0.5, 2.0),
        ),
        row(
            1,
            format!("greatest depth over log_K of the subnets, {receivers} receivers, K = {k}"),
            "about 1",
            deepest,
            (0.5, 2.0),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Verdict;

    #[test]
    fn every_size_has_runs_enough_to_be_judged_and_what_was_not_run_is_a_miss() {
        let all = Sizes::of(true, true);
        let runs = runs(&all, 9);
        assert_eq!(runs.len(), 4 * 4 + 4 + 3);
        assert!(runs.values().all(|seeds| *seeds == 5), "{runs:?}");
        let (sections, rows) = (sections(&Outcomes::new(), &all), rows(&Outcomes::new(), &all));
        assert_eq!(sections.len(), 2);
        let is_miss = |row: &Row| row.verdict() == Verdict::Miss || row.remark.is_some();
        assert!(rows.iter().all(is_miss), "{rows:?}");
    }

    #[test]
    fn the_largest_group_comes_alone_with_what_it_is_compared_with() {
        assert_eq!(Sizes::of(false, true).0, [SIZES[1], LARGE]);
        assert_eq!(Sizes::of(true, false).0, SIZES);
        let rows = rows(&Outcomes::new(), &Sizes::of(true, false));
        assert!(rows.iter().all(|row| !row.what.contains("10000")), "{rows:?}");
    }

    #[test]
    fn a_full_tree_of_k_children_has_log_k_levels() {
        assert!((log_k(4, 4) - 1.0).abs() < 1e-9 && (log_k(4, 1_024) - 5.0).abs() < 1e-9);
    }
}
