//! `umbel repro`: its files, its output, and its errors.
use std::path::Path;

use crate::support::{LABORATORY, Ran, run};

/// Makes one figure, for such a short time that its numbers mean nothing.
fn short(out: &Path, more: &[&str]) -> Ran {
    let out = out.to_str().unwrap();
    let args = ["repro", "repository", "--figure=8", "--duration=30", "--out", out];
    let seeds: &[&str] = if more.contains(&"--seeds=5") { &[] } else { &["--seeds=1"] };
    run(args.iter().chain(seeds).chain(more))
}

#[test]
fn the_folder_has_a_page_tables_and_plots() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/out");
    let ran = short(&out, &[]);
    assert!(ran.succeeded().stderr.contains("report.html"), "{ran:?}");
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let files = ["fig8.csv", "fig8.svg", "manifest.json", "report.html", "runs.csv", "table.csv"];
    assert_eq!(names, files);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let table = read("table.csv");
    assert!(
        table.starts_with(
            "figure,what,reported,measured,measured_low,measured_high,low,high,verdict,kind,p,p_holm,\
             why\n8,"
        ),
        "{table}"
    );
    // One run says nothing about others.
    assert!(table.lines().skip(1).all(|line| line.contains(",undecided,")), "{table}");
    assert!(read("fig8.csv").starts_with("series,x,y,ci95\n"));

    let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
    let program = std::fs::read(LABORATORY).unwrap();
    assert_eq!(manifest["program"], blake3::hash(&program).to_hex().as_str());
    assert_eq!(manifest["arguments"][1], "repository");
    assert_eq!(manifest["seeds"], 1);
    assert_eq!(manifest["rows"], table.lines().count() - 1);
    // No argument names this one.
    let warm_up = serde_json::json!(["--warm-up", "8.571428571"]);
    assert!(manifest["settings"].as_array().unwrap().contains(&warm_up), "{manifest}");
    assert!(manifest["processor_seconds"].is_f64(), "{manifest}");
    if let Some(commit) = manifest["commit"].as_str() {
        assert_eq!(commit.len(), 40, "{manifest}");
    }
}

#[test]
fn a_report_goes_on_from_its_runs_and_is_redrawn_from_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    short(out, &[]).succeeded();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let (runs, table, figure) = (read("runs.csv"), read("table.csv"), read("fig8.csv"));
    assert!(runs.starts_with("# runs of repository, program "), "{runs}");
    assert_eq!(runs.lines().count(), 2 + 27, "{runs}");
    assert!(runs.contains(",delay,delay_99,clients,unfinished,"), "{runs}");

    // It was killed in the middle of a line.
    std::fs::write(out.join("runs.csv"), &runs[..runs.len() * 2 / 3]).unwrap();
    std::fs::remove_file(out.join("fig8.csv")).unwrap();
    short(out, &["--redraw"]).failed_with(&["runs.csv lacks", "--resume"]);
    short(out, &["--resume"]).succeeded();
    assert_eq!((read("table.csv"), read("fig8.csv")), (table.clone(), figure.clone()));
    std::fs::remove_file(out.join("fig8.csv")).unwrap();
    short(out, &["--redraw"]).succeeded();
    assert_eq!((read("table.csv"), read("fig8.csv")), (table, figure));
    short(out, &["--resume", "--set=wait=yes"]).failed_with(&["wait=no", "wait=yes"]);
    let other = runs.replacen("program ", "program f", 1);
    std::fs::write(out.join("runs.csv"), other).unwrap();
    let ran = short(out, &["--resume"]);
    ran.failed_with(&["the program", "expected is"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    short(out, &["--resume", "--redraw"]).misused(&["--resume"]);
}

#[test]
fn json_has_each_row_and_an_end_and_misses_fail_where_they_are_to() {
    let folder = tempfile::tempdir().unwrap();
    let ran = short(folder.path(), &["--json", "--seeds=5"]);
    let rows: Vec<_> = ran.succeeded().json().into_iter().filter(|v| v["event"] == "row").collect();
    let report = ran.event("done");
    assert_eq!(report["rows"], rows.len());
    let misses = rows.iter().filter(|row| row["verdict"] == "miss").count();
    assert_eq!(report["misses"], misses);
    assert!(misses > 0, "half a minute cannot show a steady state");
    assert_eq!(ran.stderr, "");

    assert!(rows.iter().all(|row| row["measured_low"].is_f64()), "{rows:?}");

    let again = short(folder.path(), &["--json", "--strict", "--threads=1", "--seeds=5"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    let rows_again: Vec<_> = again.json().into_iter().filter(|v| v["event"] == "row").collect();
    assert_eq!(rows_again, rows);
}

#[test]
fn mistakes_are_told_before_anything_is_computed() {
    for (option, words) in [
        ("--seeds=0", "--seeds"),
        ("--figure=2", "--figure"),
        ("--threads=0", "--threads"),
        ("--duration=long", "--duration"),
        ("--warm-up=3weeks", "90min"),
        ("--figure=3,12", "auto"),
    ] {
        run(["repro", "repository", "--out", "unused", option]).misused(&[words]);
    }
    run(["repro", "repository"]).misused(&["--out"]);
    run(["repro", "poetry", "--out", "unused"]).misused(&["poetry"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    let out = file.path().join("out");
    // The whole paper, which would take minutes.
    let args = ["repro", "repository", "--out", out.to_str().unwrap()];
    run(args).failed_with(&[out.to_str().unwrap(), "cannot make"]);
    let ran = run(args.iter().chain(&["--set", "taste=good"]));
    ran.failed_with(&["taste", "arrivals="]);
    assert_eq!(ran.stderr.matches("arrivals=").count(), 1, "{ran:?}");
    run(args.iter().chain(&["--duration", "5s"])).failed_with(&["10 s"]);
    run(args.iter().chain(&["--duration=1h", "--warm-up=60min"])).failed_with(&["leaves nothing"]);
}

#[test]
fn figures_times_and_choices_can_stand_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("umbel.toml");
    let text = "[repro]\nseeds = 1\nduration = \"0.5min\"\nfigure = [\"example\", \"8\"]\n\
                set = [\"gather=1\", \"wait=yes\"]\n[serve]\nrate = \"5M\"\n";
    std::fs::write(&config, text).unwrap();
    let out = folder.path().join("out");
    let (config, out) = (config.to_str().unwrap(), out.to_str().unwrap());
    let ran = run(["repro", "repository", "--config", config, "--out", out, "--json"]);
    let figures: std::collections::BTreeSet<String> = ran
        .succeeded()
        .json()
        .into_iter()
        .filter(|value| value["event"] == "row")
        .map(|row| row["figure"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(figures.into_iter().collect::<Vec<_>>(), ["8", "example"]);
    let page = std::fs::read_to_string(Path::new(out).join("report.html")).unwrap();
    assert!(page.contains("gather=1<") && page.contains("wait=yes<"), "{page}");
}

#[test]
fn the_lms_paper_has_its_figures_with_panels() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let ran = run(["repro", "lms", "--figure=16,15", "--seeds=1", "--json", "--out", out]);
    let rows: Vec<_> = ran.succeeded().json().into_iter().filter(|v| v["event"] == "row").collect();
    assert_eq!(rows.len(), 6, "{ran:?}");
    assert!(rows.iter().all(|row| row["measured"].is_f64()));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let points = read("fig15.csv");
    assert!(points.contains("\nloss at the source: average,0,"), "{points}");
    assert!(read("fig16.svg").contains("PGM repeated retransmissions"));
    for option in ["--figure=10", "--delays=none", "--access=0"] {
        run(["repro", "lms", "--out", out, option]).misused(&[option.split('=').next().unwrap()]);
    }
}

#[test]
fn the_rlm_paper_has_the_path_of_a_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let ran = run(["repro", "rlm", "--figure=8", "--seeds=1", "--json", "--out", out]);
    let rows: Vec<_> = ran.succeeded().json().into_iter().filter(|v| v["event"] == "row").collect();
    assert_eq!(rows.len(), 3, "{ran:?}");
    for row in &rows {
        let [measured, low, high] = ["measured", "low", "high"].map(|name| row[name].as_f64());
        // No number stands for no bound.
        assert!(low.is_none_or(|low| measured.unwrap() >= low), "{row}");
        assert!(high.is_none_or(|high| measured.unwrap() <= high), "{row}");
        assert_eq!(row["verdict"], "undecided", "one run says nothing about others: {row}");
    }
    let points = std::fs::read_to_string(folder.path().join("fig8.csv")).unwrap();
    assert!(points.contains("\nlevel,0,1,"), "{points}");
    run(["repro", "rlm", "--out", out, "--figure=7"]).misused(&["8 to 13"]);
}

#[test]
fn the_tmtp_paper_has_both_baselines() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let ran = run(["repro", "tmtp", "--figure=6", "--seeds=1", "--json", "--out", out]);
    let rows: Vec<_> = ran.succeeded().json().into_iter().filter(|v| v["event"] == "row").collect();
    assert_eq!(rows.len(), 9, "{ran:?}");
    assert!(rows.iter().all(|row| row["measured"].is_f64()));
    let points = std::fs::read_to_string(folder.path().join("fig6.csv")).unwrap();
    for protocol in ["TMTP", "WIN_BASEP", "BURST_BASEP"] {
        assert!(points.contains(&format!("\nprocessing load: {protocol},30,")), "{points}");
    }
    run(["repro", "tmtp", "--out", out, "--figure=5"]).misused(&["6 to 7"]);
}

#[test]
fn the_smo_paper_has_figures_5_and_7_and_named_parts() {
    for wrong in ["--figure=6", "--figure=4", "--figure=red"] {
        run(["repro", "smo", "--out", "unused", wrong]).misused(&["acks, loss, relay, beyond"]);
    }
}
