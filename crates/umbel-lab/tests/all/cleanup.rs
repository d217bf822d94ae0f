//! Nothing survives its owner, and an ordinary user can own a lab.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, LAST_RESORT, lab};
use umbel_lab::{Lab, Topology};

/// Runs the test called `name` of this binary in its own process, with `ROLE` set.
fn this_test_again(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env("ROLE", "child");
    command
}

fn namespace_of(pid: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// Returns the processes that hold one of the namespaces open or run in it.
fn holders(namespaces: &[PathBuf]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let holds = |path: &Path| {
        let fds = std::fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        fds.map(|fd| fd.path())
            .chain([path.join("ns/net")])
            .any(|link| link.read_link().is_ok_and(|target| namespaces.contains(&target)))
    };
    processes
        .map(|entry| entry.path())
        .filter(|path| path.join("ns").exists() && holds(path))
        .map(|path| path.display().to_string())
        .collect()
}

/// The child role never waits for its own children, since it is there to be killed.
#[test]
#[allow(clippy::zombie_processes)]
fn nothing_is_left_after_the_owner_was_killed() {
    const NAME: &str = "cleanup::nothing_is_left_after_the_owner_was_killed";
    if std::env::var_os("ROLE").is_some() {
        let lab = Lab::up(&Topology::star(2).loss(0.1)).unwrap();
        let host = |name| lab.host(name).unwrap();
        let sleeper = host("h1").command("sleep").arg("1000").spawn().unwrap();
        let script = "setsid sleep 1001 & echo $!; wait";
        let mut shell =
            host("h2").command("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut orphan = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut orphan).unwrap();
        println!("\nPIDS {} {}", sleeper.id(), orphan.trim());
        std::thread::sleep(Duration::from_mins(20));
        return;
    }
    if lab(&Topology::line(0)).is_none() {
        return;
    }
    let mut owner = this_test_again(&std::env::current_exe().unwrap(), NAME)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("PIDS")).unwrap();
    let pids: Vec<&str> = line.split(' ').skip(1).collect();
    let namespaces: Vec<PathBuf> = pids.iter().map(|pid| namespace_of(pid).unwrap()).collect();
    assert_ne!(namespaces[0], namespaces[1]);
    assert!(holders(&namespaces).len() >= 4);

    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until_gone(&namespaces);
    assert!(pids.iter().all(|pid| namespace_of(pid).is_none()));
}

/// Waits until no process holds the namespaces. Forks of other tests may hold one until they exec.
fn wait_until_gone(namespaces: &[PathBuf]) {
    let deadline = Instant::now() + LAST_RESORT;
    loop {
        let left = holders(namespaces);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "still there: {left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_ordinary_user_can_own_a_lab_or_is_told_why_not() {
    const NAME: &str = "cleanup::an_ordinary_user_can_own_a_lab_or_is_told_why_not";
    if std::env::var_os("ROLE").is_some() {
        if let Err(reason) = Lab::available() {
            println!("\nREFUSED {reason}");
        } else {
            use_everything(&Lab::up(&Topology::line(1).emulated()).unwrap());
            println!("\nWORKED");
        }
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        // Every other test already runs as an ordinary user.
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("test");
    // Not copied by this process, since a fork of another test would hold the copy open for
    // writing.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let child = this_test_again(&copy, NAME);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).current_dir("/");
    command.arg(child.get_program()).args(child.get_args()).env("ROLE", "child");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let refused = text.lines().find_map(|line| line.strip_prefix("REFUSED "));
    if let Some(reason) = refused {
        assert!(reason.contains("user namespace"), "{reason}");
    } else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("WORKED"), "{text}{complaint}");
    }
}

/// Exercises everything that needs privileges: emulator, routes, changes, commands.
fn use_everything(lab: &Lab) {
    let h2 = lab.host("h2").unwrap();
    let group = "239.1.1.1".parse().unwrap();
    lab.route_multicast("h1", group).unwrap();
    lab.route_multicast("h1", "ff15::1".parse().unwrap()).unwrap();
    lab.set_link_up("h1", "r1", false).unwrap();
    lab.set_link_up("h1", "r1", true).unwrap();
    let receiver = support::socket(h2, group, 7400);
    receiver.join_multicast_v4(&"239.1.1.1".parse().unwrap(), &h2.addr4()).unwrap();
    receiver.set_read_timeout(Some(LAST_RESORT)).unwrap();
    let sender = support::socket(lab.host("h1").unwrap(), group, 0);
    sender.set_multicast_ttl_v4(5).unwrap();
    sender.send_to(b"hello", (group, 7400)).unwrap();
    assert!(support::receive(&receiver, &mut [0; 10]).is_ok());
    let status = h2.command("ip").args(["link", "set", "eth0", "mtu", "1400"]).status().unwrap();
    assert!(status.success());
    assert!(lab.link_stats()[1].directions.unwrap()[0].delivered > 0);
}

#[test]
fn namespaces_of_a_dropped_lab_are_gone() {
    let Some(lab) = lab(&Topology::star(1)) else { return };
    let output =
        lab.host("h1").unwrap().command("readlink").arg("/proc/self/ns/net").output().unwrap();
    let namespace = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    assert!(holders(std::slice::from_ref(&namespace)).len() >= 2, "this process and the warden");
    drop(lab);
    wait_until_gone(&[namespace]);
}
