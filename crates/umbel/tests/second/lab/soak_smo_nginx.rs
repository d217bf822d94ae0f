//! Cost of a server with N plain downloads: `umbel smo serve` with helpers on the receivers' hosts,
//! and nginx. It prints a table, and asserts that every byte is right.
//!
//! ```text
//! cargo test --release -p umbel --test second lab::soak_smo_nginx:: -- --ignored --nocapture
//! ```
//!
//! The kernel does a part of each server's work in interrupts, which it charges to whatever program
//! they interrupt. Here a thread of the kernel's takes in all frames for the server's host
//! (threaded NAPI). That thread and the server have CPU 0, everything else has CPU 1: switch,
//! receivers and helpers. The scheduler tells the time of both to the nanosecond.
//!
//! That is not all. What the kernel does in interrupts while CPU 0 is idle, or by its thread for
//! them (ksoftirqd), is charged to neither. It sends on what the server has handed over, and frees
//! it when the last receiver has it. With nginx, which is never idle, nearly all of that is in its
//! own time. So the last column is what counts: the time in which CPU 0 was not idle.
//!
//! With `UMBEL_ACK_FILTER=off` the server takes all acknowledgements. `UMBEL_RECEIVERS=1,100` and
//! `UMBEL_RUNS=1` choose cases and runs.
//!
//! All hosts of the lab share the queue of CPU 1 for what the helpers hand out, so that more than
//! some 60 downloads need `sysctl -w net.core.netdev_max_backlog=16384`, as `join` advises.
//!
//! When the receiver's host frees a frame, TCP of the kernel sends more (TCP small queues). That
//! runs on CPU 1, and is counted for nobody. That favours nginx.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use umbel_lab::Lab;

use super::soak_smo::connections;
use crate::support::process::Process;
use crate::support::smo::{Site, clients, end, have};
use crate::support::{files, lab, skip};

const HOSTS: [&str; 4] = ["h2", "h3", "h4", "h5"];
const PATIENCE: Duration = Duration::from_mins(5);
/// The processors of the server, and of everything else.
const SERVER_CPU: usize = 0;
const OTHER_CPU: usize = 1;

/// Downloads at once, and the length of their file.
const CASES: [(usize, u64); 4] =
    [(1, 20_000_000), (10, 20_000_000), (100, 20_000_000), (1_000, 2_000_000)];
const RUNS: usize = 3;

/// Place where the server's frames are cut into segments.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Offload {
    /// The card: here nobody, as the receivers take whole frames.
    On,
    /// The server's kernel.
    Off,
}

/// Cost of one delivery to everybody at a server.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// CPU time of the program, and of the kernel's thread that takes in frames.
    program: Duration,
    arrivals: Duration,
    /// All that the server's processor did.
    busy: Duration,
    bytes: u64,
    frames: u64,
    /// Frames that came: acknowledgements, nearly all.
    acks: u64,
    delivered: u64,
    took: Duration,
}

impl Cost {
    fn cpu(&self) -> Duration {
        self.program + self.arrivals
    }

    fn row(&self, who: &str) -> String {
        let cpu_us = self.cpu().as_secs_f64() * 1e6;
        format!(
            "{who:>6} {:>8.3} {:>8.3} {:>9.1} {:>8} {:>9} {:>9.1} {:>8.2} {:>7.2} {:>8.3}",
            self.program.as_secs_f64(),
            self.arrivals.as_secs_f64(),
            self.bytes as f64 / 1e6,
            self.frames,
            self.acks,
            cpu_us / (self.delivered as f64 / 1e6),
            cpu_us / self.acks as f64,
            self.took.as_secs_f64(),
            self.busy.as_secs_f64(),
        )
    }
}

/// Meter of a server's cost so far.
struct Meter<'lab> {
    lab: &'lab Lab,
    server: u32,
    napi: u32,
    begin: Instant,
    program: Duration,
    arrivals: Duration,
    idle: Duration,
    /// Bytes and frames received, bytes and frames sent.
    traffic: [u64; 4],
}

impl<'lab> Meter<'lab> {
    fn start(lab: &'lab Lab, server: u32, napi: u32) -> Meter<'lab> {
        let (program, arrivals) = (cpu_time(server), cpu_time(napi));
        let (begin, idle, traffic) = (Instant::now(), idle_time(), traffic(lab));
        Meter { lab, server, napi, begin, program, arrivals, idle, traffic }
    }

    fn stop(self, delivered: u64) -> Cost {
        let idle = idle_time().saturating_sub(self.idle);
        let took = self.begin.elapsed();
        let now = traffic(self.lab);
        let since = |n: usize| now[n] - self.traffic[n];
        Cost {
            program: cpu_time(self.server).saturating_sub(self.program),
            arrivals: cpu_time(self.napi).saturating_sub(self.arrivals),
            bytes: since(2),
            frames: since(3),
            acks: since(1),
            delivered,
            took,
            busy: took.saturating_sub(idle),
        }
    }
}

/// Returns the CPU time of all threads of a process.
fn cpu_time(process: u32) -> Duration {
    let mut ns = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        ns += text.split(' ').next().unwrap().parse::<u64>().unwrap();
    }
    Duration::from_nanos(ns)
}

/// Returns for how long the server's processor has been idle, without interrupts.
fn idle_time() -> Duration {
    let text = std::fs::read_to_string("/proc/timer_list").unwrap();
    let of_cpu = text.split("\ncpu: ").find(|part| part.starts_with(&format!("{SERVER_CPU}\n")));
    let lines = of_cpu
        .unwrap()
        .lines()
        .filter(|line| line.contains(".idle_sleeptime") || line.contains(".iowait_sleeptime"));
    let ns =
        lines.map(|line| line.split_whitespace().rev().nth(1).unwrap().parse::<u64>().unwrap());
    Duration::from_nanos(ns.sum())
}

/// Returns the counters of the server's interface.
fn traffic(lab: &Lab) -> [u64; 4] {
    let host = lab.host("h1").unwrap();
    let output = host.command("cat").arg("/proc/net/dev").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let prefix = format!("{}:", host.interface());
    let line = text.lines().find_map(|line| line.trim().strip_prefix(prefix.as_str())).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
    [numbers[0], numbers[1], numbers[8], numbers[9]]
}

/// Binds this thread, and the threads and programs that it starts from now on, to a processor.
fn stay_on(cpu: usize) {
    bind_to(Pid::from_raw(0), cpu);
}

fn bind_to(task: Pid, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(task, &set).unwrap();
}

/// Starts a server on its processor.
fn on_server_cpu<T>(start: impl FnOnce() -> T) -> T {
    stay_on(SERVER_CPU);
    let server = start();
    stay_on(OTHER_CPU);
    server
}

#[track_caller]
fn run(mut command: Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Assigns separate processors to the server's host and to the rest. Returns the process of the
/// kernel that takes in frames for the server.
fn part_the_processors(lab: &Lab, offload: Offload) -> u32 {
    let shell = |mut command: Command, script: &str| {
        command.args([
            "-m",
            "sh",
            "-ec",
            &format!("mount -t sysfs none /sys 2>&1 || true; {script}"),
        ]);
        run(command);
    };
    let to_other = format!(
        "for queue in /sys/class/net/*/queues/rx-0; do echo {} > $queue/rps_cpus; done",
        1 << OTHER_CPU
    );
    // Frames of a port that cuts none are taken in by the other end's thread. Those to the server
    // are acknowledgements.
    let cuts_none = "for port in /sys/class/net/p0*; do ethtool -K ${port##*/} tso off; done";
    shell(lab.switch_command("unshare"), &format!("{to_other}; {cuts_none}"));
    for host in HOSTS {
        shell(lab.host(host).unwrap().command("unshare"), &to_other);
    }
    let host = lab.host("h1").unwrap();
    let name = host.interface();
    let known = napi_threads(name);
    let segmentation = if offload == Offload::Off { "tso off gso off" } else { "" };
    let threaded =
        format!("ethtool -K {name} gro on {segmentation}; echo 1 > /sys/class/net/{name}/threaded");
    shell(host.command("unshare"), &threaded);
    let napi = napi_threads(name).into_iter().find(|thread| !known.contains(thread)).unwrap();
    bind_to(Pid::from_raw(napi as i32), SERVER_CPU);
    napi
}

/// Returns the threads of the kernel that take in frames of interfaces of this name.
fn napi_threads(interface: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process = entry.ok()?.file_name().to_str()?.parse::<u32>().ok()?;
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        name.starts_with(&format!("napi/{interface}-")).then_some(process)
    });
    all.collect()
}

/// A download by HTTP that is compared on its way.
struct Fetch {
    stream: TcpStream,
    head: Vec<u8>,
    got: usize,
    is_done: bool,
}

impl Fetch {
    fn ask(stream: TcpStream) -> Fetch {
        Fetch { stream, head: Vec::new(), got: 0, is_done: false }
    }

    /// Takes in what has come.
    fn on_bytes(&mut self, mut bytes: &[u8], expected: &[u8]) {
        if !self.head.ends_with(b"\r\n\r\n") {
            while let Some((&byte, rest)) = bytes.split_first() {
                self.head.push(byte);
                bytes = rest;
                if self.head.ends_with(b"\r\n\r\n") {
                    break;
                }
            }
            if !self.head.ends_with(b"\r\n\r\n") {
                return;
            }
            let head = String::from_utf8_lossy(&self.head);
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        }
        assert!(
            expected.get(self.got..self.got + bytes.len()) == Some(bytes),
            "other bytes after {}",
            self.got
        );
        self.got += bytes.len();
    }
}

/// Downloads the file this number of times from a host.
fn fetch_all(streams: Vec<TcpStream>, expected: &[u8]) {
    let until = Instant::now() + PATIENCE;
    let mut all: Vec<Fetch> = streams.into_iter().map(Fetch::ask).collect();
    for fetch in &mut all {
        let request = b"GET /file HTTP/1.1\r\nHost: h1\r\nConnection: close\r\n\r\n";
        fetch.stream.write_all(request).unwrap();
    }
    let mut buffer = vec![0; 1 << 18];
    while all.iter().any(|fetch| !fetch.is_done) {
        let got: Vec<usize> = all.iter().map(|fetch| fetch.got).collect();
        assert!(Instant::now() < until, "{got:?} of {} bytes", expected.len());
        let open: Vec<usize> = (0..all.len()).filter(|n| !all[*n].is_done).collect();
        let mut ready: Vec<PollFd<'_>> =
            open.iter().map(|n| PollFd::new(all[*n].stream.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut ready, PollTimeout::from(1000_u16)).unwrap();
        let ready = open.iter().zip(&ready).filter(|(_, fd)| fd.any().unwrap_or(true));
        let ready: Vec<usize> = ready.map(|(n, _)| *n).collect();
        for n in ready {
            let fetch = &mut all[n];
            match fetch.stream.read(&mut buffer) {
                Ok(0) => fetch.is_done = true,
                Ok(len) => fetch.on_bytes(&buffer[..len], expected),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("after {} bytes: {error}", fetch.got),
            }
            assert!(!fetch.is_done || fetch.got == expected.len(), "{} bytes", fetch.got);
        }
    }
}

/// Downloads the file from all hosts. Returns what that cost the server.
fn download(lab: &Lab, count: usize, expected: &[u8], server: u32, napi: u32) -> Cost {
    let address = SocketAddr::from((lab.host("h1").unwrap().addr4(), 8080));
    let streams: Vec<Vec<TcpStream>> = (0..HOSTS.len())
        .map(|n| {
            let share = (count + HOSTS.len() - 1 - n) / HOSTS.len();
            connections(lab.host(HOSTS[n]).unwrap(), address, share)
        })
        .collect();
    let meter = Meter::start(lab, server, napi);
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .map(|streams| scope.spawn(move || fetch_all(streams, expected)))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    meter.stop(count as u64 * expected.len() as u64)
}

fn umbel(count: usize, len: u64, offload: Offload) -> Option<Cost> {
    let lab = lab(&clients(&[0.0; HOSTS.len()]))?;
    let napi = part_the_processors(&lab, offload);
    let site = Site::new(&lab);
    files::make(&site.www(), &[("file", len)]);
    let expected = std::fs::read(site.www().join("file")).unwrap();
    let receivers = count.to_string();
    let filter = std::env::var("UMBEL_ACK_FILTER").unwrap_or_else(|_| "auto".to_owned());
    let options = ["--window", "1min", "--receivers", &receivers, "--ack-filter", &filter];
    let server = on_server_cpu(|| site.serve_http(&options));
    let _helpers: [Process; HOSTS.len()] = HOSTS.map(|host| site.join(host, &[]));
    let cost = download(&lab, count, &expected, server.id(), napi);
    let summary = end(server);
    let traffic = &summary["traffic"];
    println!(
        "{:>6} {} ACKs were dropped before, {} were taken",
        "", summary["filtered"], traffic["acknowledgements"]
    );
    if std::env::var_os("UMBEL_SUMMARY").is_some() {
        println!("{summary}");
    }
    Some(cost)
}

/// Starts nginx in one process.
fn start_nginx(lab: &Lab, directory: &Path) -> std::process::Child {
    let mut conf = String::from("daemon off; master_process off; pid nginx.pid; user root;\n");
    let here = directory.display();
    write!(
        conf,
        "error_log stderr crit;\nevents {{ worker_connections 4096; }}\nhttp {{ access_log off; \
         sendfile on; tcp_nopush on; keepalive_timeout 0;\nclient_body_temp_path {here}/body; \
         proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path \
         {here}/uwsgi; scgi_temp_path {here}/scgi;\nserver {{ listen 8080 backlog=2048; root \
         {here}/www; }} }}\n"
    )
    .unwrap();
    std::fs::write(directory.join("nginx.conf"), conf).unwrap();
    let mut command = lab.host("h1").unwrap().command("nginx");
    command.arg("-p").arg(directory).args(["-c", "nginx.conf"]).stdin(Stdio::null());
    command.spawn().unwrap()
}

fn nginx(count: usize, len: u64, offload: Offload) -> Option<Cost> {
    let lab = lab(&clients(&[0.0; HOSTS.len()]))?;
    let napi = part_the_processors(&lab, offload);
    let directory = tempfile::tempdir().unwrap();
    let www = directory.path().join("www");
    std::fs::create_dir(&www).unwrap();
    files::make(&www, &[("file", len)]);
    let expected = std::fs::read(www.join("file")).unwrap();
    let mut server = on_server_cpu(|| start_nginx(&lab, directory.path()));
    let address = SocketAddr::from((lab.host("h1").unwrap().addr4(), 8080));
    wait_until_it_listens(&lab, address);
    let cost = download(&lab, count, &expected, server.id(), napi);
    server.kill().unwrap();
    server.wait().unwrap();
    Some(cost)
}

fn wait_until_it_listens(lab: &Lab, address: SocketAddr) {
    let until = Instant::now() + PATIENCE;
    let script = format!("exec 3<>/dev/tcp/{}/{}", address.ip(), address.port());
    while Instant::now() < until {
        let mut command = lab.host("h2").unwrap().command("bash");
        command.args(["-c", &script]).stderr(Stdio::null());
        if command.status().unwrap().success() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nginx does not listen");
}

/// Returns the run with the median of all CPU time.
fn median(mut costs: Vec<Cost>) -> Cost {
    costs.sort_by_key(|cost| cost.busy);
    costs[costs.len() / 2]
}

/// Returns the numbers in an environment variable, or the ones given.
fn chosen(variable: &str, otherwise: &[usize]) -> Vec<usize> {
    let Ok(text) = std::env::var(variable) else { return otherwise.to_vec() };
    text.split(',').map(|number| number.parse().unwrap()).collect()
}

#[test]
#[ignore = "soak: minutes of both cores; measures"]
fn what_a_server_costs_beside_nginx() {
    if !have(&["nft", "ethtool"]) {
        return;
    }
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        return skip("nginx is not installed");
    }
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    stay_on(OTHER_CPU);
    let runs = chosen("UMBEL_RUNS", &[RUNS])[0];
    let counts = chosen("UMBEL_RECEIVERS", &CASES.map(|(count, _)| count));
    println!(
        "   who  program arrivals   MB sent   frames      acks us per MB   us/ack seconds    CPU 0"
    );
    for offload in [Offload::On, Offload::Off] {
        for (count, len) in CASES.into_iter().filter(|(count, _)| counts.contains(count)) {
            println!("{count} downloads of {len} bytes, offload {offload:?}");
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                let Some(cost) = umbel(count, len, offload) else { return };
                ours.push(cost);
                theirs.extend(nginx(count, len, offload));
            }
            let (ours, theirs) = (median(ours), median(theirs));
            println!("{}\n{}", ours.row("umbel"), theirs.row("nginx"));
            let times = |theirs: f64, ours: f64| theirs / ours;
            println!(
                "{:>6} {:.2} times less CPU in all, {:.2} of program and thread; {:.1} times less \
                 bytes",
                "",
                times(theirs.busy.as_secs_f64(), ours.busy.as_secs_f64()),
                times(theirs.cpu().as_secs_f64(), ours.cpu().as_secs_f64()),
                times(theirs.bytes as f64, ours.bytes as f64),
            );
        }
    }
}
