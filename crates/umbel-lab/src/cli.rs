//! The functions behind `umbel lab`: a lab that stays up until it is taken down.
//!
//! `up` starts a supervisor, a process that owns the lab and listens on a socket in a folder of the
//! user. The other commands talk to it there. When the supervisor dies, by whatever signal, the lab
//! disappears with it.
//!
//! | command | function |
//! |---|---|
//! | `umbel lab up FILE` | [`up`] |
//! | `umbel lab supervise FILE` (hidden; also the foreground form) | [`run_supervisor`] |
//! | `umbel lab exec HOST -- CMD…` | [`exec`] |
//! | `umbel lab status` | [`status`] |
//! | `umbel lab set A B loss=5% …`, `cut A B`, `mend A B` | [`set_link`], [`set_link_up`] |
//! | `umbel lab route SOURCE GROUP [HOST…]` | [`route_multicast`] |
//! | `umbel lab down` | [`down`] |
//!
//! The folder is `$UMBEL_LAB_DIR`, or `umbel-lab` in `$XDG_RUNTIME_DIR`, or
//! `/tmp/umbel-lab-UID`. There is one lab in a folder; another folder holds another lab.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use umbel_topology::{NodeKind, Topology};

use crate::emulator::DirectionStats;
use crate::error::LabError;
use crate::lab::Lab;
use crate::namespace::Namespace;

/// Maximum time that one command may keep the supervisor busy, and the supervisor a command.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(10);
/// The first line that a supervisor prints once the lab is up.
const READY: &str = "ready";

/// A running lab, as `umbel lab status` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor's process.
    pub pid: u32,
    /// The topology's file.
    pub file: PathBuf,
    /// Hosts, routers and switches.
    pub nodes: Vec<NodeStatus>,
    /// Links.
    pub links: Vec<LinkStatus>,
}

/// A host, router or switch of a running lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// `host`, `router` or `switch`.
    pub kind: String,
    /// The interfaces of a host or router.
    pub interfaces: Vec<InterfaceStatus>,
    /// The supervisor's descriptors of its network and user namespace.
    namespaces: Option<(i32, Option<i32>)>,
}

/// An interface of a host or router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name inside the node.
    pub name: String,
    /// Its first IPv4 address.
    pub addr4: Ipv4Addr,
    /// Its first IPv6 address.
    pub addr6: Ipv6Addr,
    /// The node at the other end of its link.
    pub peer: String,
}

/// A link of a running lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// One end's node.
    pub a: String,
    /// The other end's node.
    pub b: String,
    /// Impairment of frames from `a` to `b` and back, in words; `None` on plain links.
    pub impairments: Option<[String; 2]>,
    /// Counters of frames from `a` to `b` and back; `None` on plain links.
    pub stats: Option<[DirectionStats; 2]>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Status,
    Down,
    SetLink { from: String, to: String, settings: Vec<String>, both: bool },
    SetLinkUp { a: String, b: String, up: bool },
    RouteMulticast { source: String, group: IpAddr, receivers: Vec<String> },
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Status(Status),
    Done,
    Failed(String),
}

/// Brings the lab in `file` up and returns once it is up. `supervisor` is the command that ends up
/// in [`run_supervisor`]; the file is appended to its arguments.
///
/// # Errors
/// If the lab does not come up. The error is the supervisor's.
pub fn up(file: &Path, supervisor: Command) -> Result<Status, LabError> {
    Folder::of_user()?.up(file, supervisor)
}

/// Owns the lab in `file` until [`down`] is called. Prints `ready` on stdout when the lab is up.
/// It may run in the foreground, where Ctrl-C ends the lab. On each router it runs the command
/// `router`, if there is one, which must say on stdout that it is ready.
///
/// # Errors
/// If the lab cannot come up. The error is also printed on stdout, where [`up`] reads it.
pub fn run_supervisor(file: &Path, router: &[OsString]) -> Result<(), LabError> {
    let result = Folder::of_user().and_then(|folder| folder.supervise(file, router));
    if let Err(error) = &result {
        // The reader may be gone, which changes nothing about the error.
        let _ = writeln!(io::stdout(), "{error}");
    }
    result
}

/// Runs a command in a host or router of the running lab. Returns its exit code, or 128 plus the
/// signal's number.
///
/// # Errors
/// If no lab is up, the host is unknown or the command cannot be started.
pub fn exec(host: &str, command: &[OsString]) -> Result<u8, LabError> {
    Folder::of_user()?.exec(host, command)
}

/// Returns the state of the running lab.
///
/// # Errors
/// If no lab is up.
pub fn status() -> Result<Status, LabError> {
    Folder::of_user()?.status()
}

/// Takes the running lab down, with everything that runs in it.
///
/// # Errors
/// If no lab is up, or it does not end.
pub fn down() -> Result<(), LabError> {
    Folder::of_user()?.down()
}

/// Changes the impairment of frames from one node to its neighbour, or in both directions. Settings
/// are as in the topology file: `loss=5%`, `delay=20ms`.
///
/// # Errors
/// If no lab is up, the link is unknown or plain, or a setting is invalid.
pub fn set_link(from: &str, to: &str, settings: &[String], both: bool) -> Result<(), LabError> {
    let (from, to, settings) = (from.to_owned(), to.to_owned(), settings.to_vec());
    Folder::of_user()?.ask(&Request::SetLink { from, to, settings, both }).map(drop)
}

/// Cuts or restores a link.
///
/// # Errors
/// If no lab is up or the link is unknown.
pub fn set_link_up(a: &str, b: &str, up: bool) -> Result<(), LabError> {
    Folder::of_user()?.ask(&Request::SetLinkUp { a: a.to_owned(), b: b.to_owned(), up }).map(drop)
}

/// Makes the routers forward `source`'s packets for `group` to the listed hosts or, if none is
/// listed, to all.
///
/// # Errors
/// If no lab is up, a name is unknown or the group is not a multicast address.
pub fn route_multicast(source: &str, group: IpAddr, receivers: &[String]) -> Result<(), LabError> {
    let (source, receivers) = (source.to_owned(), receivers.to_vec());
    Folder::of_user()?.ask(&Request::RouteMulticast { source, group, receivers }).map(drop)
}

/// The folder where the supervisor and the commands meet.
struct Folder(PathBuf);

impl Folder {
    fn of_user() -> Result<Folder, LabError> {
        let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let uid = nix::unistd::geteuid();
        let path = variable("UMBEL_LAB_DIR")
            .or_else(|| Some(variable("XDG_RUNTIME_DIR")?.join("umbel-lab")))
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/umbel-lab-{uid}")));
        let failed = || LabError::system(format!("use the folder {}", path.display()));
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed()(error));
            }
            _ => {}
        }
        let metadata = fs::symlink_metadata(&path).map_err(failed())?;
        if !metadata.is_dir() || metadata.uid() != uid.as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(LabError::Control(format!(
                "{} is not a folder that only you can write to: set UMBEL_LAB_DIR to one",
                path.display()
            )));
        }
        Ok(Folder(path))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control")
    }

    /// Takes the lock that a supervisor holds as long as it lives. Returns `None` if one holds it.
    fn lock(&self) -> Result<Option<Flock<File>>, LabError> {
        let path = self.0.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(LabError::system(format!("open {}", path.display())))?;
        Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
    }

    /// Takes the lock, after a moment's wait if its last holder is just dying.
    fn lock_for_supervisor(&self) -> Result<Flock<File>, LabError> {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            if let Some(lock) = self.lock()? {
                return Ok(lock);
            }
            if UnixStream::connect(self.socket()).is_ok() || Instant::now() > deadline {
                return Err(LabError::Control(
                    "a lab is up already: take it down first (umbel lab down)".to_owned(),
                ));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn up(&self, file: &Path, mut supervisor: Command) -> Result<Status, LabError> {
        let file =
            file.canonicalize().map_err(LabError::system(format!("find {}", file.display())))?;
        let log = self.0.join("log");
        let log =
            File::create(&log).map_err(LabError::system(format!("write {}", log.display())))?;
        supervisor.arg(&file).env("UMBEL_LAB_DIR", &self.0).current_dir("/");
        supervisor.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        in_own_session(&mut supervisor);
        let mut child = supervisor.spawn().map_err(LabError::system("start the supervisor"))?;
        let mut answer = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut answer)
                .map_err(LabError::system("hear from the supervisor"))?;
        }
        match answer.trim() {
            READY => self.status(),
            "" => Err(LabError::Control(format!(
                "the supervisor died; see {}",
                self.0.join("log").display()
            ))),
            complaint => Err(LabError::Control(complaint.to_owned())),
        }
    }

    fn supervise(&self, file: &Path, router: &[OsString]) -> Result<(), LabError> {
        let _lock = self.lock_for_supervisor()?;
        let lab = Lab::up(&Topology::from_file(file)?)?;
        let _routers = self.start_routers(&lab, router)?;
        let failed = || LabError::system(format!("listen on {}", self.socket().display()));
        // The lock is ours, so the process that made a socket here before is dead.
        match fs::remove_file(self.socket()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
            _ => {}
        }
        let listener = UnixListener::bind(self.socket()).map_err(failed())?;
        // `up` may have been interrupted. The lab stays up all the same.
        let _ = writeln!(io::stdout(), "{READY}");
        for stream in listener.incoming() {
            // A command that disconnected or sent garbage affects no other.
            let Ok(true) = stream.and_then(|stream| serve(&lab, file, stream)) else { continue };
            break;
        }
        let _ = fs::remove_file(self.socket());
        Ok(())
    }

    /// Runs a command on each router, and waits until each has said something. They end with the
    /// lab.
    fn start_routers(&self, lab: &Lab, router: &[OsString]) -> Result<Vec<Child>, LabError> {
        let [program, arguments @ ..] = router else { return Ok(Vec::new()) };
        let kinds = lab.topology().nodes.iter().filter(|node| node.kind == NodeKind::Router);
        let mut children = Vec::new();
        for name in kinds.map(|node| node.name.as_str()) {
            let log = self.0.join(format!("{name}.log"));
            let failed = || LabError::system(format!("route on `{name}`; see {}", log.display()));
            let mut command = lab.host(name)?.command(program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
            command.stderr(File::create(&log).map_err(failed())?);
            children.push((name, log.clone(), command.spawn().map_err(failed())?));
        }
        for (name, log, child) in &mut children {
            let mut line = String::new();
            let read = child.stdout.as_mut().map(|out| BufReader::new(out).read_line(&mut line));
            if !matches!(read, Some(Ok(1..))) {
                let said = fs::read_to_string(log).unwrap_or_default();
                let said = said.lines().last().unwrap_or("nothing").to_owned();
                return Err(LabError::Control(format!("the router of `{name}` ended: {said}")));
            }
        }
        Ok(children.into_iter().map(|(_, _, child)| child).collect())
    }

    fn ask(&self, request: &Request) -> Result<Reply, LabError> {
        let none = || LabError::Control("no lab is up (umbel lab up FILE)".to_owned());
        let mut stream = UnixStream::connect(self.socket()).map_err(|_| none())?;
        let failed = || LabError::system("talk to the lab's supervisor");
        stream.set_read_timeout(Some(CONTROL_TIMEOUT)).map_err(failed())?;
        let mut line = serde_json::to_string(request).map_err(io::Error::from).map_err(failed())?;
        line.push('\n');
        stream.write_all(line.as_bytes()).map_err(failed())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).map_err(failed())?;
        match serde_json::from_str(&reply).map_err(io::Error::from).map_err(failed())? {
            Reply::Failed(message) => Err(LabError::Control(message)),
            reply => Ok(reply),
        }
    }

    fn status(&self) -> Result<Status, LabError> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            _ => Err(LabError::Control("the supervisor answered something else".to_owned())),
        }
    }

    fn down(&self) -> Result<(), LabError> {
        let pid = self.status()?.pid;
        let failed = || LabError::system(format!("wait for the supervisor, process {pid}"));
        // Opened while it lives, since its number may be another process's afterwards.
        let process = open_process(pid).map_err(failed())?;
        self.ask(&Request::Down)?;
        let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(CONTROL_TIMEOUT).unwrap_or(PollTimeout::MAX);
        if poll(&mut ended, patience).map_err(io::Error::from).map_err(failed())? == 0 {
            return Err(LabError::Control(format!(
                "the supervisor does not end: kill -9 {pid} takes the lab with it"
            )));
        }
        Ok(())
    }

    fn exec(&self, host: &str, command: &[OsString]) -> Result<u8, LabError> {
        let status = self.status()?;
        let unknown = || LabError::Unknown { kind: "host or router", name: host.to_owned() };
        let node = status.nodes.iter().find(|node| node.name == host).ok_or_else(unknown)?;
        let (net, user) = node.namespaces.ok_or_else(unknown)?;
        let open = |fd: i32| -> Result<OwnedFd, LabError> {
            let path = format!("/proc/{}/fd/{fd}", status.pid);
            let file = File::open(path).map_err(LabError::system(format!("enter `{host}`")))?;
            Ok(file.into())
        };
        let namespace = Namespace::from_fds(user.map(open).transpose()?, open(net)?);
        let [program, arguments @ ..] = command else {
            return Err(LabError::Control("no command is given".to_owned()));
        };
        let mut child = namespace.command(program);
        child.args(arguments).env("UMBEL_LAB_HOST", host);
        let status = wait_without_keyboard_signals(&mut child)
            .map_err(LabError::system(format!("run `{}`", program.display())))?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(u8::try_from(code).unwrap_or(u8::MAX))
    }
}

/// Returns a descriptor that becomes readable when the process ends.
fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Shields a process from the signals of the terminal that started it.
#[allow(unsafe_code)]
fn in_own_session(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            Ok(())
        });
    }
}

/// Runs the command to its end. Meanwhile Ctrl-C and Ctrl-\ reach only the command.
#[allow(unsafe_code)]
fn wait_without_keyboard_signals(command: &mut Command) -> io::Result<std::process::ExitStatus> {
    const KEYBOARD: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
    let set = |handlers: [SigHandler; 2]| -> nix::Result<[SigHandler; 2]> {
        let mut before = handlers;
        for (n, handler) in handlers.into_iter().enumerate() {
            // SAFETY: the handlers are the default one, the one that ignores, and those that
            // were installed before; none of them is code of this function.
            before[n] = unsafe { signal(KEYBOARD[n], handler)? };
        }
        Ok(before)
    };
    // SAFETY: between fork and exec the closure makes system calls only.
    unsafe {
        command.pre_exec(move || {
            set([SigHandler::SigDfl; 2])?;
            Ok(())
        });
    }
    let before = set([SigHandler::SigIgn; 2])?;
    let status = command.status();
    set(before)?;
    status
}

/// Answers one request. Returns whether it was the last.
fn serve(lab: &Lab, file: &Path, mut stream: UnixStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(CONTROL_TIMEOUT))?;
    stream.set_write_timeout(Some(CONTROL_TIMEOUT))?;
    let mut line = String::new();
    // A request is far below 64 KiB.
    BufReader::new((&stream).take(1 << 16)).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let last = matches!(request, Request::Down);
    let reply = answer(lab, file, request).unwrap_or_else(|error| Reply::Failed(error.to_string()));
    stream.write_all(serde_json::to_string(&reply)?.as_bytes())?;
    Ok(last)
}

fn answer(lab: &Lab, file: &Path, request: Request) -> Result<Reply, LabError> {
    match request {
        Request::Status => return Ok(Reply::Status(status_of(lab, file))),
        Request::Down => {}
        Request::SetLink { from, to, settings, both } => {
            let change = |from: &str, to: &str| {
                let changed = lab.impairment(from, to)?.with_settings(&settings)?;
                lab.set_link_direction(from, to, changed)
            };
            change(&from, &to)?;
            if both {
                change(&to, &from)?;
            }
        }
        Request::SetLinkUp { a, b, up } => lab.set_link_up(&a, &b, up)?,
        Request::RouteMulticast { source, group, receivers } if receivers.is_empty() => {
            lab.route_multicast(&source, group)?;
        }
        Request::RouteMulticast { source, group, receivers } => {
            let receivers: Vec<&str> = receivers.iter().map(String::as_str).collect();
            lab.route_multicast_to(&source, group, &receivers)?;
        }
    }
    Ok(Reply::Done)
}

fn status_of(lab: &Lab, file: &Path) -> Status {
    let nodes = lab.topology().nodes.iter().map(|spec| {
        let node = lab.host(&spec.name).ok();
        let interfaces = node.into_iter().flat_map(|node| node.interfaces());
        NodeStatus {
            name: spec.name.clone(),
            kind: match spec.kind {
                NodeKind::Host => "host",
                NodeKind::Router => "router",
                NodeKind::Switch { .. } => "switch",
            }
            .to_owned(),
            interfaces: interfaces
                .map(|interface| InterfaceStatus {
                    name: interface.name.clone(),
                    addr4: interface.addr4,
                    addr6: interface.addr6,
                    peer: interface.peer.clone(),
                })
                .collect(),
            namespaces: node.map(|node| node.namespace_fds()),
        }
    });
    let links = lab.link_stats().into_iter().map(|link| {
        let words = |from: &str, to: &str| {
            lab.impairment(from, to).map(|i| i.to_string()).unwrap_or_default()
        };
        let impairments =
            link.directions.map(|_| [words(&link.a, &link.b), words(&link.b, &link.a)]);
        LinkStatus { a: link.a, b: link.b, impairments, stats: link.directions }
    });
    Status {
        pid: std::process::id(),
        file: file.to_owned(),
        nodes: nodes.collect(),
        links: links.collect(),
    }
}
