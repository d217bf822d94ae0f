//! Hosts for tests: network namespaces that each test makes and that vanish with it.
//!
//! A test runs itself again in a namespace by `unshare`, as root or with a user namespace, so that
//! it has no effect outside. Where that is not allowed, it says so and passes.

#![allow(dead_code, unreachable_pub, reason = "shared by test binaries")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, unshare};

/// Set to the name of a test in the process that runs it alone.
const INSIDE: &str = "UMBEL_NET_TEST_INSIDE";

/// Runs the body of a test in its own network namespace. The body is a closure of the test's
/// function, which tells the name of the test.
pub fn in_namespace<F: FnOnce()>(body: F) {
    if is_inside() {
        run("ip link set lo up");
        return body();
    }
    let name = name_of_test::<F>();
    let root = nix::unistd::geteuid().is_root();
    let options: &[&str] = if root { &["--net"] } else { &["--map-root-user", "--net"] };
    if !Command::new("unshare").args(options).arg("true").status().is_ok_and(|s| s.success()) {
        return say_skipped(name, "this system does not let us make network namespaces");
    }
    run_again(Command::new("unshare").args(options).arg(this_program()), name);
}

/// Runs the body of a test in its own process, where it can measure the process.
pub fn in_own_process<F: FnOnce()>(body: F) {
    if is_inside() {
        return body();
    }
    run_again(&mut Command::new(this_program()), name_of_test::<F>());
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs a test once more by a command that starts this binary.
fn run_again(command: &mut Command, name: &str) {
    let output = command
        .args(only(name))
        .arg("--include-ignored")
        .env(INSIDE, name)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{name} failed in its process: {said}");
}

/// Returns the path of the function that made a closure, without the crate.
fn name_of_test<F>() -> &'static str {
    let path = std::any::type_name::<F>();
    let function = path.split("::{{closure}}").next().unwrap_or(path);
    function.split_once("::").map_or(function, |(_, name)| name)
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Returns the arguments with which this binary runs one test.
fn only(name: &str) -> [&str; 4] {
    ["--exact", name, "--nocapture", "--test-threads=1"]
}

/// Returns the name of the test that has this process to itself.
fn inside() -> String {
    std::env::var(INSIDE).expect("this runs in its own process")
}

/// Returns a command that runs the test of this process once more, with `variable` set.
pub fn once_more(variable: &str) -> Command {
    let mut command = Command::new(this_program());
    command.args(only(&inside())).env(variable, "1");
    command
}

/// Runs the test of this process once more without these capabilities, with `variable` set.
pub fn run_without(capabilities: &str, variable: &str) {
    let status = Command::new("setpriv")
        .args([&format!("--bounding-set={capabilities}"), "--inh-caps=-all"])
        .arg(this_program())
        .args(only(&inside()))
        .env(variable, "1")
        .status();
    match status {
        Ok(status) => assert!(status.success(), "it failed without {capabilities}"),
        Err(error) => skip(&format!("setpriv: {error}")),
    }
}

/// Returns whether `nft` works in this namespace. If not, reports the test as skipped.
pub fn has_nft() -> bool {
    let works = Command::new("nft").args(["list", "tables"]).output();
    let works = works.is_ok_and(|output| output.status.success());
    if !works {
        skip("`nft` does not work here");
    }
    works
}

/// Reports why the test of this process is skipped.
pub fn skip(reason: &str) {
    say_skipped(&inside(), reason);
}

/// Reports on the real standard error why a test is skipped.
pub fn say_skipped(name: &str, reason: &str) {
    let required = std::env::var_os("UMBEL_LAB").is_some_and(|value| value == "required");
    assert!(!required, "{name} would be skipped, but UMBEL_LAB=required: {reason}");
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
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
