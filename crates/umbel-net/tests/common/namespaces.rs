//! Hosts for tests: network namespaces that each test makes and that vanish with it.
//!
//! A test runs itself again in a namespace by `unshare`, as root or with a user namespace, so that
//! it has no effect outside. Where that is not allowed, it says so and passes.

#![allow(dead_code, unreachable_pub, reason = "shared by test binaries")]

use std::io::Write as _;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};

const INSIDE: &str = "UMBEL_NET_TEST_INSIDE";

/// Runs the body of test `name` in its own network namespace.
pub fn in_namespace(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        run("ip link set lo up");
        return body();
    }
    let root = nix::unistd::geteuid().is_root();
    let options: &[&str] = if root { &["--net"] } else { &["--map-root-user", "--net"] };
    if !Command::new("unshare").args(options).arg("true").status().is_ok_and(|s| s.success()) {
        return skip(name, "this system does not let us make network namespaces");
    }
    let status = Command::new("unshare")
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed in its namespace");
}

/// Runs test `name` once more without these capabilities, with `variable` set.
pub fn run_without(capabilities: &str, name: &str, variable: &str) {
    let status = Command::new("setpriv")
        .args([&format!("--bounding-set={capabilities}"), "--inh-caps=-all"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable, "1")
        .status();
    match status {
        Ok(status) => assert!(status.success(), "{name} failed without {capabilities}"),
        Err(error) => skip(name, &format!("setpriv: {error}")),
    }
}

/// Reports on the real standard error why a test is skipped.
pub fn skip(name: &str, reason: &str) {
    let required = std::env::var_os("UMBEL_LAB").is_some_and(|value| value == "required");
    assert!(!required, "{name} would be skipped, but UMBEL_LAB=required: {reason}");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {reason}");
}

/// Runs a command in the namespace of the calling thread.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

/// Another host: a thread in another namespace.
pub struct Host {
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: Option<JoinHandle<()>>,
    /// File of its namespace.
    pub namespace: String,
}

impl Host {
    /// Creates a host without links.
    pub fn alone() -> Host {
        let (jobs, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            tell.send(nix::unistd::gettid()).unwrap();
            for job in todo {
                job();
            }
        });
        let (process, id) = (std::process::id(), told.recv().unwrap());
        let namespace = format!("/proc/{process}/task/{id}/ns/net");
        Host { jobs, thread: Some(thread), namespace }
    }

    /// Runs a job on the host, and returns its result.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        self.jobs.send(Box::new(move || tell.send(job()).unwrap())).unwrap();
        told.recv().expect("the job on the other host panicked")
    }

    /// Starts a thread on the host.
    pub fn spawn<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.run(move || thread::spawn(job))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.jobs = mpsc::channel().0;
        let _ = self.thread.take().unwrap().join();
    }
}

/// Creates `count` hosts on a bridge with IGMP snooping, which is in the calling thread's
/// namespace. Host `n`, counted from 1, has `eth0` with 10.9.0.n and fd09::n; its port of the
/// bridge is `port-n`.
pub fn hosts_on_a_bridge(count: usize) -> Vec<Host> {
    run("ip link add sw type bridge mcast_snooping 1 mcast_igmp_version 3");
    // It floods until its first query could have been answered: 10 ms.
    run("ip link set sw type bridge mcast_query_response_interval 1");
    run("ip link set sw type bridge mcast_querier 1");
    // Without its own address the querier has none to ask from.
    run("ip addr add 10.9.0.254/24 dev sw");
    run("ip link set sw up");
    (1..=count)
        .map(|n| {
            let host = Host::alone();
            let there = &host.namespace;
            run(&format!("ip link add port-{n} type veth peer name eth0 netns {there}"));
            run(&format!("ip link set port-{n} master sw"));
            run(&format!("ip link set port-{n} up"));
            host.run(move || {
                run("ip link set lo up");
                run("ip link set eth0 up");
                run(&format!("ip addr add 10.9.0.{n}/24 dev eth0"));
                run(&format!("ip addr add fd09::{n}/64 dev eth0 nodad"));
            });
            host
        })
        .collect()
}
