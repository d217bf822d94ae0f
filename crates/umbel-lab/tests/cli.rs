//! Tests of the functions behind `umbel lab`, each in its own process as on the command line.
//!
//! This is a program without the test harness, whose own output on stdout would be taken for the
//! supervisor's. Started plainly, it runs the checks in a child with its own folder.

#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use umbel_lab::testing::lab;
use umbel_lab::{Topology, cli};

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [role, file] if role == "supervise" => {
            let failed = cli::run_supervisor(Path::new(file), &[]).is_err();
            // As on a busy machine, where a process takes its time to end.
            std::thread::sleep(Duration::from_millis(200));
            std::process::exit(i32::from(failed));
        }
        [role, address] if role == "reach" => {
            std::process::exit(i32::from(!reaches(&address.to_string_lossy())));
        }
        [role, scratch] if role == "check" => {
            a_lab_stays_up_between_commands_until_it_is_taken_down(Path::new(scratch));
        }
        _ if lab(&Topology::line(0)).is_none() => {}
        _ => {
            let scratch = tempfile::tempdir().unwrap();
            let folder = scratch.path().join("lab");
            std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
            let status = this_program()
                .arg("check")
                .arg(scratch.path())
                .env("UMBEL_LAB_DIR", &folder)
                .status()
                .unwrap();
            assert!(status.success());
        }
    }
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// Returns the command to which `cli::up` adds the file.
fn this_as_supervisor() -> Command {
    let mut command = this_program();
    command.arg("supervise");
    command
}

/// Returns whether an address answers. A port without a listener refuses the connection.
fn reaches(address: &str) -> bool {
    let discard = SocketAddr::new(address.parse().unwrap(), 9);
    let answer = TcpStream::connect_timeout(&discard, Duration::from_secs(2));
    answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Returns whether host `a` reaches an address.
fn a_reaches(address: Ipv4Addr) -> bool {
    let program = std::env::current_exe().unwrap().into_os_string();
    cli::exec("a", &[program, "reach".into(), address.to_string().into()]).unwrap() == 0
}

fn exec(host: &str, script: &str) -> u8 {
    let command: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
    cli::exec(host, &command).unwrap()
}

fn a_lab_stays_up_between_commands_until_it_is_taken_down(scratch: &Path) {
    let file = scratch.join("topology.toml");
    let text = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
                [[link]]\na = \"a\"\nb = \"r\"\ndelay = \"1ms\"\n[[link]]\na = \"r\"\nb = \"b\"\n";

    assert!(cli::status().unwrap_err().to_string().contains("no lab is up"));
    assert!(cli::up(&file, this_as_supervisor()).is_err(), "the file is not there");
    std::fs::write(&file, format!("{text}loss = 2")).unwrap();
    let error = cli::up(&file, this_as_supervisor()).unwrap_err().to_string();
    assert!(error.contains("loss = 2 is not a probability"), "{error}");

    std::fs::write(&file, text).unwrap();
    let status = cli::up(&file, this_as_supervisor()).unwrap();
    assert_eq!(status.nodes.len(), 3);
    assert_eq!(status.links[0].impairments.as_ref().unwrap()[0], "delay 1ms");
    let b = status.nodes[1].interfaces[0].addr4;
    assert!(a_reaches(b));
    assert_eq!(exec("b", "exit 7"), 7);
    assert_eq!(exec("b", "kill -9 $$"), 137);
    assert!(cli::exec("x", &["true".into()]).is_err());

    let error = cli::up(&file, this_as_supervisor()).unwrap_err().to_string();
    assert!(error.contains("up already"), "{error}");
    cli::set_link("a", "r", &["loss=100%".to_owned()], true).unwrap();
    assert!(!a_reaches(b));
    cli::set_link("a", "r", &["loss=0".to_owned()], true).unwrap();
    assert!(cli::set_link("r", "b", &["loss=1".to_owned()], true).is_err(), "it is plain");
    cli::set_link_up("r", "b", false).unwrap();
    assert!(!a_reaches(b));
    cli::set_link_up("r", "b", true).unwrap();
    cli::route_multicast("a", "239.1.1.1".parse().unwrap(), &["b".to_owned()]).unwrap();
    let status = cli::status().unwrap();
    assert_eq!(status.links[0].impairments.as_ref().unwrap()[0], "delay 1ms");
    assert!(status.links[0].stats.unwrap()[0].lost > 0);

    cli::down().unwrap();
    assert!(cli::status().is_err());
    assert!(!Path::new(&format!("/proc/{}/ns", status.pid)).exists() || is_zombie(status.pid));

    // A supervisor that was killed does not obstruct the next.
    let status = cli::up(&file, this_as_supervisor()).unwrap();
    let pid = nix::unistd::Pid::from_raw(status.pid as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    while cli::status().is_ok() {}
    cli::up(&file, this_as_supervisor()).unwrap();
    cli::down().unwrap();
}

/// This process is the supervisor's parent and never waits for it.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}
