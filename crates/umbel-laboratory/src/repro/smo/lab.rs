//! The sessions of `umbel repro smo --figure lab`: `umbel` as server, helpers and relays on hosts of
//! a lab, and sockets of the kernel as receivers.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockType, SockaddrStorage, connect};
use tempfile::TempDir;
use umbel_cli::output::Output;
use umbel_cli::process::Reporter;
use umbel_cli::programs::Umbel;
use umbel_engine::units::counted;
use umbel_lab::{Impairment, Lab, Node, Topology};
use umbel_repro::smo::kernel::{HOSTS, LOSING, LOSS, Laboratory, Measured, Session};
use umbel_repro::smo::scenario::{Load, MSS, Rule};

const SERVER: &str = "server";
const SWITCH: &str = "switch";
/// Time that a server, helper or relay may take to start, or to end.
const SOON: Duration = Duration::from_secs(30);
/// Files that may be open besides a socket for each receiver: those of the hosts and programs.
const SPARE: u64 = 500;
/// Time that a session may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// Hosts of this machine.
#[derive(Debug)]
pub(super) struct Namespaces {
    output: Output,
    program: PathBuf,
    most: u32,
}

impl Namespaces {
    /// Checks that a lab for as many receivers can be made here, unless earlier runs are all.
    ///
    /// # Errors
    ///
    /// If it cannot: one line says what is missing.
    pub(super) fn new(output: &Output, most: u32, may_run: bool) -> anyhow::Result<Namespaces> {
        if may_run {
            Lab::available().map_err(|reason| {
                anyhow!("--figure lab needs network namespaces, and none can be made: {reason}")
            })?;
            let (files, (_, allowed)) =
                (u64::from(most) + SPARE, getrlimit(Resource::RLIMIT_NOFILE)?);
            ensure!(
                allowed >= files,
                "--figure lab needs {files} open files, and {allowed} are allowed: raise that with \
                 `ulimit -Hn {files}`, or have fewer --sockets"
            );
            setrlimit(Resource::RLIMIT_NOFILE, allowed, allowed)?;
        }
        let program = if may_run { Umbel::Product.find()? } else { PathBuf::new() };
        Ok(Namespaces { output: output.clone(), program, most })
    }
}

impl Laboratory for Namespaces {
    fn most_receivers(&self) -> u32 {
        self.most
    }

    fn run(&self, session: &Session) -> Measured {
        self.session(session).unwrap_or_else(|error| {
            let receivers = counted(session.receivers, "receiver");
            self.output.note(format!("{receivers}, not run: {error:#}"));
            Measured::failed()
        })
    }
}

impl Namespaces {
    fn session(&self, session: &Session) -> anyhow::Result<Measured> {
        let lab = Lab::up(&topology(session)).context("cannot make the hosts")?;
        let stage = Stage { lab: &lab, program: &self.program, directory: tempfile::tempdir()? };
        let content = content(session.segments());
        std::fs::write(stage.directory.path().join("file"), &content)?;
        let groups = groups(session);
        let server = stage.serve(session)?;
        let mut programs = Vec::new();
        for group in &groups {
            programs.extend(stage.start(group)?);
        }
        let received = stage.receive(&groups, &content)?;
        let sent = stage.sent()?;
        let first = received.iter().filter_map(|received| received.first).min();
        let last = received.iter().filter_map(|received| received.last).max();
        let (first, last) = first.zip(last).context("nobody received anything")?;
        let whole: u32 = received.iter().map(|received| received.whole).sum();
        let summary = server.wait_for("done", SOON)?["summary"].take();
        let count = |name: &str| summary["traffic"][name].as_u64().unwrap_or_default();
        let filtered = summary["filtered"].as_u64().unwrap_or_default();
        Ok(Measured {
            whole: f64::from(whole) / f64::from(session.receivers),
            seconds: (last - first).as_secs_f64(),
            acks: count("acknowledgements") + filtered,
            sent: sent as f64 / content.len() as f64,
            multicast_again: count("multicast_again"),
            unicast: count("unicast_bytes").div_ceil(u64::from(MSS)) + count("unicast_again"),
            timeouts: count("timeouts"),
        })
    }
}

/// Returns the address of a channel: the server's, or that of a relay.
fn channel(number: u32) -> String {
    format!("232.7.7.{}:8080", 7 + number)
}

/// Returns bytes that differ from segment to segment.
fn content(segments: u32) -> Vec<u8> {
    let words =
        (0..segments * u32::from(MSS) / 4).map(|word| word.wrapping_mul(0x9e37_79b9).to_be_bytes());
    words.flatten().collect()
}

/// Receivers on a host, and their server.
struct Group {
    host: String,
    receivers: usize,
    /// Host of the server or relay.
    server: String,
    /// Number of the channel.
    channel: u32,
}

/// Returns the groups of receivers of a session.
fn groups(session: &Session) -> Vec<Group> {
    let hosts = if session.relays > 0 { session.relays } else { HOSTS };
    let group = |n: u32| {
        let is_relayed = session.relays > 0;
        Group {
            host: format!("h{n}"),
            receivers: (session.receivers / hosts) as usize,
            server: if is_relayed { format!("r{n}") } else { SERVER.to_owned() },
            channel: if is_relayed { n } else { 0 },
        }
    };
    (1..=hosts).map(group).collect()
}

fn topology(session: &Session) -> Topology {
    let mut topology = Topology::new().switch(SWITCH).host(SERVER).link(SERVER, SWITCH);
    for relay in 1..=session.relays {
        let relay = format!("r{relay}");
        topology = topology.host(&relay).link(&relay, SWITCH);
    }
    for (n, Group { host, .. }) in groups(session).iter().enumerate() {
        topology = topology.host(host).link(host, SWITCH);
        if session.is_lossy && n < LOSING as usize {
            topology = topology.emulated();
        }
    }
    if !session.is_lossy {
        return topology;
    }
    topology.with_every_link(|link| {
        // What reaches the host is lost, not what it sends.
        if link.emulated == Some(true) {
            (link.a_to_b, link.b_to_a) = (Impairment::none(), Impairment::none().loss(LOSS));
        }
    })
}

/// A lab with the program that runs on its hosts.
struct Stage<'a> {
    lab: &'a Lab,
    program: &'a PathBuf,
    directory: TempDir,
}

impl<'a> Stage<'a> {
    fn host(&self, name: &str) -> anyhow::Result<Node<'a>> {
        Ok(self.lab.host(name)?)
    }

    fn address(&self, name: &str) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::from((self.host(name)?.addr4(), 8080)))
    }

    /// Returns the command `umbel smo` on a host.
    fn smo(&self, host: &str) -> anyhow::Result<Command> {
        let mut command = self.host(host)?.command(self.program);
        command.current_dir(self.directory.path()).args(["--json", "smo"]);
        Ok(command)
    }

    /// Starts the server of a session, which begins when all are connected.
    fn serve(&self, session: &Session) -> anyhow::Result<Reporter> {
        let rate = match session.load {
            Load::Frames(_, every_us) => u64::from(MSS) * 8 * 1_000_000 / u64::from(every_us),
            Load::Bulk(_) | Load::For(_) => 100_000_000,
        };
        let fairness = match session.rule {
            Rule::Strict => "strict".to_owned(),
            Rule::Essential(a, b) => format!("{a},{b}"),
        };
        let connections = if session.relays > 0 { session.relays } else { session.receivers };
        let mut server = self.smo(SERVER)?;
        server.args(["serve", "--listen", ":8080", "--channel", &channel(0), "--file", "file"]);
        server.args(["--receivers", &connections.to_string(), "--rate", &format!("{rate}bit/s")]);
        server.args(["--fairness", &fairness, "--mss", &MSS.to_string()]);
        let server = Reporter::start(SERVER, server)?;
        server.wait_for("serving", SOON)?;
        Ok(server)
    }

    /// Starts what a group needs: its relay, if it has one, and its helper.
    fn start(&self, group: &Group) -> anyhow::Result<Vec<Reporter>> {
        let target = |number, address: Ipv4Addr| format!("{}@{address}", channel(number));
        let mut programs = Vec::new();
        if group.channel > 0 {
            let mut relay = self.smo(&group.server)?;
            relay.args(["relay", &target(0, self.host(SERVER)?.addr4()), "--listen", ":8080"]);
            relay.args(["--channel", &channel(group.channel)]);
            relay.args(["--receivers", &group.receivers.to_string(), "--rate", "100M"]);
            let relay = Reporter::start(&group.server, relay)?;
            relay.wait_for("serving", SOON)?;
            programs.push(relay);
        }
        let mut helper = self.smo(&group.host)?;
        let server = self.host(&group.server)?.addr4();
        helper.args(["join", &target(group.channel, server)]);
        let helper = Reporter::start(&group.host, helper)?;
        helper.wait_for("joined", SOON)?;
        programs.push(helper);
        Ok(programs)
    }

    /// Connects all receivers, each group from a thread. Returns what the groups had of this
    /// content.
    fn receive(&self, groups: &[Group], content: &[u8]) -> anyhow::Result<Vec<Received>> {
        let until = Instant::now() + PATIENCE;
        std::thread::scope(|scope| {
            let receive = |group: &Group| {
                let (host, address) = (self.host(&group.host), self.address(&group.server));
                let receivers = group.receivers;
                scope.spawn(move || receive(host?, address?, receivers, content, until))
            };
            let threads: Vec<_> = groups.iter().map(receive).collect();
            let gone = || Err(anyhow!("a thread of receivers is gone"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
        })
    }

    /// Returns the bytes that the server's interface has sent.
    fn sent(&self) -> anyhow::Result<u64> {
        let host = self.host(SERVER)?;
        let output = host.command("cat").arg("/proc/net/dev").output()?;
        let text = String::from_utf8(output.stdout)?;
        let name = format!("{}:", host.interface());
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name.as_str()));
        let sent = line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
        sent.context("the kernel does not say what the server sent")
    }
}

/// What the receivers of a host had.
#[derive(Debug, Default)]
struct Received {
    /// Receivers that had every byte.
    whole: u32,
    /// Time of the first byte, and of the end of the last whole stream.
    first: Option<Instant>,
    last: Option<Instant>,
}

/// Connects receivers of a host, and reads until all their streams have ended. What is left at the
/// given time counts as not received.
fn receive(
    host: Node<'_>,
    server: SocketAddr,
    receivers: usize,
    content: &[u8],
    until: Instant,
) -> anyhow::Result<Received> {
    let mut open: Vec<(TcpStream, usize)> = Vec::with_capacity(receivers);
    for _ in 0..receivers {
        let socket = host.socket(AddressFamily::Inet as i32, SockType::Stream as i32, 0)?;
        connect(socket.as_raw_fd(), &SockaddrStorage::from(server)).context("cannot connect")?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        open.push((stream, 0));
    }
    let mut received = Received::default();
    let mut buffer = vec![0; 1 << 16];
    while !open.is_empty() && Instant::now() < until {
        let mut ready: Vec<PollFd<'_>> =
            open.iter().map(|(stream, _)| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut ready, PollTimeout::from(1000_u16))?;
        let ready: Vec<bool> = ready.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut ready = ready.into_iter();
        let mut failure = None;
        open.retain_mut(|(stream, at)| {
            if ready.next() != Some(true) {
                return true;
            }
            match stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => true,
                // One that was cut off does not have the stream.
                Err(_) => false,
                Ok(0) => {
                    if *at == content.len() {
                        received.whole += 1;
                        received.last = Some(Instant::now());
                    }
                    false
                }
                Ok(len) => {
                    received.first.get_or_insert_with(Instant::now);
                    if content.get(*at..*at + len) != Some(&buffer[..len]) {
                        failure = Some(*at);
                    }
                    *at += len;
                    true
                }
            }
        });
        ensure!(failure.is_none(), "wrong bytes from {failure:?} on, on {}", host.name());
    }
    Ok(received)
}
