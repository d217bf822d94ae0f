//! Breaks one thing after the other in a lab: `umbel doctor` must name it, and the command that it
//! suggests must fix it.
//!
//! - `host.rs`: problems of the host itself.
//! - `path.rs`: problems of the path from a server.

mod host;
mod path;

use std::process::Output;

use serde_json::Value;
use umbel_lab::Node;
use umbel_lab::testing::{has_nft, lab, skip};

/// Runs a line of shell commands that must succeed.
fn sh(host: Node<'_>, line: &str) {
    let output = host.command("sh").args(["-e", "-c", line]).output().unwrap();
    assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
}

/// The findings of a run of the doctor.
#[derive(Debug)]
struct Report {
    findings: Vec<Finding>,
    code: i32,
}

#[derive(Clone, Debug)]
struct Finding {
    check: String,
    verdict: String,
    what: String,
    mend: Option<String>,
}

impl Report {
    fn read(output: &Output) -> Report {
        let findings = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| {
                let value: Value = serde_json::from_str(line).unwrap();
                let text = |key: &str| value[key].as_str().map(str::to_owned);
                Finding {
                    check: text("check").unwrap(),
                    verdict: text("verdict").unwrap(),
                    what: text("what").unwrap(),
                    mend: text("mend"),
                }
            })
            .collect();
        Report { findings, code: output.status.code().unwrap() }
    }

    /// Returns the findings of a check that are not `ok`.
    fn complaints(&self, check: &str) -> Vec<&Finding> {
        let mine = self.findings.iter().filter(|f| f.check == check);
        mine.filter(|f| f.verdict != "ok").collect()
    }

    /// Returns the complaint of this check and verdict whose text has `words`.
    fn complaint(&self, check: &str, verdict: &str, words: &str) -> Finding {
        let complaints = self.complaints(check);
        let found = complaints.iter().find(|f| f.verdict == verdict && f.what.contains(words));
        (*found.unwrap_or_else(|| panic!("no {verdict} of {check} with `{words}`: {self:#?}")))
            .clone()
    }

    fn problems(&self) -> Vec<&Finding> {
        self.findings.iter().filter(|f| f.verdict == "problem").collect()
    }
}

/// Checks without waiting for a querier.
fn doctor(host: Node<'_>, args: &[&str]) -> Report {
    patient_doctor(host, &[&["--quick"], args].concat())
}

fn patient_doctor(host: Node<'_>, args: &[&str]) -> Report {
    let mut command = host.command(env!("CARGO_BIN_EXE_umbel"));
    Report::read(&command.args(["--json", "doctor"]).args(args).output().unwrap())
}
