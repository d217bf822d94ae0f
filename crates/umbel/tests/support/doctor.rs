//! `umbel doctor` in a lab, and servers that it looks at.

use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::process::{Child, Output, Stdio};

use serde_json::Value;
use umbel_lab::{Lab, Node, Topology};

use super::sh;

/// The findings of a run of the doctor.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) code: i32,
}

#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) check: String,
    pub(crate) verdict: String,
    pub(crate) what: String,
    pub(crate) mend: Option<String>,
}

impl Report {
    pub(crate) fn read(output: &Output) -> Report {
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
    pub(crate) fn complaints(&self, check: &str) -> Vec<&Finding> {
        let mine = self.findings.iter().filter(|f| f.check == check);
        mine.filter(|f| f.verdict != "ok").collect()
    }

    /// Returns the complaint of this check and verdict whose text has `words`.
    pub(crate) fn complaint(&self, check: &str, verdict: &str, words: &str) -> Finding {
        let complaints = self.complaints(check);
        let found = complaints.iter().find(|f| f.verdict == verdict && f.what.contains(words));
        (*found.unwrap_or_else(|| panic!("no {verdict} of {check} with `{words}`: {self:#?}")))
            .clone()
    }

    pub(crate) fn problems(&self) -> Vec<&Finding> {
        self.findings.iter().filter(|f| f.verdict == "problem").collect()
    }
}

/// Checks without waiting for a querier.
pub(crate) fn doctor(host: Node<'_>, args: &[&str]) -> Report {
    patient_doctor(host, &[&["--quick"], args].concat())
}

pub(crate) fn patient_doctor(host: Node<'_>, args: &[&str]) -> Report {
    let mut command = host.command(env!("CARGO_BIN_EXE_umbel"));
    Report::read(&command.args(["--json", "doctor"]).args(args).output().unwrap())
}

/// A server in a lab, which is killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// The group of its data channel.
    pub(crate) group: IpAddr,
    _directory: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start(host: Node<'_>, args: &[&str]) -> Server {
        Server::start_with(host, args, 20_000)
    }

    /// Starts a server of one item of this number of bytes.
    pub(crate) fn start_with(host: Node<'_>, args: &[&str], bytes: usize) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let (repository, state) = (directory.path().join("repo"), directory.path().join("state"));
        std::fs::create_dir(&repository).unwrap();
        std::fs::write(repository.join("item"), vec![7; bytes]).unwrap();
        let mut command = host.command(env!("CARGO_BIN_EXE_umbel"));
        command.args(["--json", "serve"]).arg(&repository).arg("--state-dir").arg(&state);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let serving: Value = serde_json::from_str(&line).expect(&line);
        let channel = serving["channel"].as_str().unwrap();
        let (destination, _) = channel.split_once('@').unwrap();
        let (group, _) = destination.rsplit_once(':').unwrap();
        let group = group.trim_matches(['[', ']']).parse().unwrap();
        let url = serving["url"].as_str().unwrap().to_owned();
        Server { child, url, group, _directory: directory }
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn h1(lab: &Lab) -> Node<'_> {
    lab.host("h1").unwrap()
}

pub(crate) fn h2(lab: &Lab) -> Node<'_> {
    lab.host("h2").unwrap()
}

/// Asserts that the check has only `ok` findings.
pub(crate) fn assert_ok(report: &Report, check: &str) {
    let mine: Vec<_> = report.findings.iter().filter(|f| f.check == check).collect();
    assert!(!mine.is_empty() && mine.iter().all(|f| f.verdict == "ok"), "{check}: {report:#?}");
}

/// Creates a topology of `h1` and `h2` with an emulated link each.
pub(crate) fn emulated() -> Topology {
    Topology::star(2).with_every_link(|link| link.emulated = Some(true))
}

/// A fault, its finding and its remedy.
pub(crate) struct Case<'a> {
    /// The command that breaks it, on host `h1`.
    pub(crate) breaks: &'a str,
    pub(crate) check: &'a str,
    pub(crate) verdict: &'a str,
    pub(crate) words: &'a str,
    pub(crate) mend: &'a str,
}

/// Breaks it, looks for the finding, runs its command, and looks again.
pub(crate) fn break_and_mend(host: Node<'_>, case: &Case<'_>) {
    sh(host, case.breaks);
    let before = doctor(host, &["--interface", "eth0"]);
    let found = before.complaint(case.check, case.verdict, case.words);
    assert_eq!(before.code, i32::from(!before.problems().is_empty()));
    let mend = found.mend.unwrap();
    assert_eq!(mend, case.mend);
    sh(host, &mend);
    let after = doctor(host, &["--interface", "eth0"]);
    let left = after.complaints(case.check);
    assert!(left.iter().all(|f| !f.what.contains(case.words)), "after `{mend}`: {left:?}");
}
