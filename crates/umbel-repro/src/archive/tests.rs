use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::pool::{Outcomes, Pool, Runs};
use crate::record::record;

/// Number of runs that ran.
static RAN: AtomicU32 = AtomicU32::new(0);
/// Tests that count runs do not run at one time.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Third {
    of: String,
}

#[derive(Debug, PartialEq)]
struct Outcome {
    third: f64,
    parts: Vec<u32>,
}

record!(Outcome { third, parts });

impl Experiment for Third {
    type Outcome = Outcome;

    fn run(&self, seed: u64) -> Outcome {
        RAN.fetch_add(1, Ordering::Relaxed);
        Outcome { third: seed as f64 / 3.0, parts: vec![seed as u32; self.of.len()] }
    }

    fn work(&self) -> u64 {
        1
    }
}

fn runs(seeds: u32) -> Runs<Third> {
    // Names that CSV has to quote.
    ["", "a,b", "say \"x\"\nand y"].map(|of| (Third { of: of.to_owned() }, seeds)).into()
}

fn origin() -> Origin {
    let [paper, program, options] = ["poem", "0123", "--rhyme yes"].map(str::to_owned);
    Origin { paper, program, options }
}

/// Runs all with the archive of a folder. Returns the outcomes, and the number of runs that ran.
fn go(
    dir: &Path,
    origin: Origin,
    to: Use,
    seeds: u32,
) -> Result<(Outcomes<Third>, u32), ArchiveError> {
    go_with(Archive::new(dir, origin, to), seeds)
}

fn go_with(archive: Archive, seeds: u32) -> Result<(Outcomes<Third>, u32), ArchiveError> {
    let archive = Arc::new(archive);
    archive.open(&[Third::RUNS])?;
    let before = RAN.load(Ordering::Relaxed);
    let outcomes = Pool::of(2).keeping(archive.clone()).run_all(&runs(seeds), &());
    archive.finish()?;
    Ok((outcomes, RAN.load(Ordering::Relaxed) - before))
}

#[test]
fn a_report_goes_on_from_its_runs_and_is_redrawn_without_running() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let go = |to, seeds| go(dir.path(), origin(), to, seeds).unwrap();
    let (first, ran) = go(Use::Nothing, 2);
    assert_eq!(ran, 6);
    let (again, ran) = go(Use::Resume, 2);
    assert_eq!((ran, &again), (0, &first));
    let (more, ran) = go(Use::Resume, 3);
    assert_eq!(ran, 3);
    assert_eq!(go(Use::Redraw, 3), (more, 0));
    assert_eq!(go(Use::Redraw, 2), (first, 0));
    let text = std::fs::read_to_string(dir.path().join("runs.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("# runs of poem, program 0123, options --rhyme yes"));
    assert_eq!(lines.next(), Some("experiment,seed,run_seconds,third,parts"));
    assert_eq!(lines.count(), 9);
    assert_eq!(go(Use::Nothing, 1).1, 3, "what was there is begun anew");
}

#[test]
fn a_last_line_that_is_torn_is_run_again() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let (whole, _) = go(dir.path(), origin(), Use::Nothing, 2).unwrap();
    let path = dir.path().join("runs.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(end, _)| end).collect();
    for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        std::fs::write(&path, &text[..cut]).unwrap();
        let (outcomes, ran) = go(dir.path(), origin(), Use::Resume, 2).unwrap();
        assert_eq!(outcomes, whole, "cut at {cut}");
        let left = ends.iter().filter(|end| **end < cut).count().saturating_sub(2);
        assert_eq!(ran as usize, 6 - left, "cut at {cut}");
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(lines, 8, "cut at {cut}");
    }
}

#[test]
fn runs_of_others_are_refused_with_what_was_expected() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    go(dir.path(), origin(), Use::Nothing, 1).unwrap();
    let other = |change: fn(&mut Origin), to| {
        let mut own = origin();
        change(&mut own);
        go(dir.path(), own, to, 1).map(|_| ()).map_err(|error| error.to_string())
    };
    let program = |origin: &mut Origin| origin.program = "4567".to_owned();
    let error = other(program, Use::Resume).unwrap_err();
    assert!(
        error.contains("the program `0123`") && error.contains("expected is `4567`"),
        "{error}"
    );
    assert_eq!(other(program, Use::Redraw), Ok(()), "another program may draw");
    let options = |origin: &mut Origin| origin.options = "--rhyme no".to_owned();
    for to in [Use::Resume, Use::Redraw] {
        let error = other(options, to).unwrap_err();
        assert!(error.contains("`--rhyme yes`") && error.contains("`--rhyme no`"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
    let error = go(dir.path(), origin(), Use::Redraw, 2).unwrap_err().to_string();
    assert!(error.contains("lacks 3 runs") && error.contains("seed 2"), "{error}");
    let path = dir.path().join("runs.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.clone() + "Third,1\n").unwrap();
    let error = go(dir.path(), origin(), Use::Resume, 1).unwrap_err().to_string();
    assert!(error.ends_with("runs.csv:6: expected a run of 5 cells"), "{error}");
    std::fs::write(&path, "a,b\n").unwrap();
    let error = go(dir.path(), origin(), Use::Resume, 1).unwrap_err().to_string();
    assert!(error.contains("runs.csv:1: expected `# runs of PAPER"), "{error}");
}

#[test]
fn runs_that_depend_on_another_program_go_on_with_that_one_only() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let with = |digest: &str, to| {
        let archive = Archive::new(dir.path(), origin(), to);
        go_with(archive.with_program(Third::RUNS, digest.to_owned()), 1).map(|(_, ran)| ran)
    };
    assert_eq!(with("abc", Use::Nothing).unwrap(), 3);
    assert_eq!(with("abc", Use::Resume).unwrap(), 0);
    let error = with("def", Use::Resume).unwrap_err().to_string();
    assert!(error.contains("`0123 with abc`") && error.contains("`0123 with def`"), "{error}");
    assert_eq!(with("def", Use::Redraw).unwrap(), 0);
}

#[test]
fn a_run_that_cannot_be_kept_is_told() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone");
    let error = go(&gone, origin(), Use::Nothing, 1).unwrap_err().to_string();
    assert!(error.contains("cannot write") && error.contains("runs.csv"), "{error}");
}
