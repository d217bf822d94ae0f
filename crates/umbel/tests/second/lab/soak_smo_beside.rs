//! `umbel smo` beside TCP of the kernel, over one bottleneck: one receiver of each, alone and
//! together. It prints rates, and asserts none.
//!
//! ```text
//! cargo test --release -p umbel --test second lab::soak_smo_beside:: -- --ignored --nocapture
//! ```

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockType, SockaddrStorage, bind, connect};
use umbel_engine::units::Rate;
use umbel_lab::{Impairment, Lab, Node, Queue, Topology};

use crate::support::bench::SOON;
use crate::support::smo::{Comparison, Site, end, have};
use crate::support::{files, lab};

/// Rate of the bottleneck, in bits per second.
const RATE: u64 = 20_000_000;
/// Delay of the bottleneck, each way.
const DELAY: Duration = Duration::from_millis(10);
/// Packets that fit in its queue: 1.8 times what is under way without one.
const QUEUE: u32 = 60;
/// Time that flows have before they are measured, and for which they are.
const TIMES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));
/// Port of the kernel's sender.
const PORT: u16 = 9_000;

/// Returns two senders, `h1` and `h2`, and `h3` behind the bottleneck.
fn bottleneck() -> Topology {
    Topology::star(3).with_every_link(|link| {
        if link.a == "h3" {
            link.emulated = Some(true);
            link.a_to_b = Impairment::none().delay(DELAY);
            let rate = Rate::from_bits_per_s(RATE).unwrap();
            let queue = Queue::Packets(QUEUE);
            link.b_to_a = Impairment::none().delay(DELAY).rate(rate).queue(queue);
        }
    })
}

/// A flow whose bytes are counted as they come.
enum Flow {
    Smo(Comparison),
    Kernel(Kernel),
}

impl Flow {
    fn len(&self) -> u64 {
        match self {
            Flow::Smo(download) => download.len(),
            Flow::Kernel(flow) => flow.received.load(Ordering::Relaxed),
        }
    }
}

/// A connection of the kernel's TCP with a sender that always has something to send. Dropping it
/// ends it.
struct Kernel {
    received: Arc<AtomicU64>,
    stream: TcpStream,
}

impl Kernel {
    fn start(lab: &Lab, controller: &'static str, port: u16) -> Kernel {
        let [from, to] = ["h2", "h3"].map(|host| lab.host(host).unwrap());
        let listener = open(from);
        let address = SocketAddr::from((from.addr4(), port));
        bind(listener.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
        let listener = TcpListener::from(listener);
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let socket = socket2::SockRef::from(&stream);
            socket.set_tcp_congestion(controller.as_bytes()).unwrap();
            // Until the receiver has gone.
            let zeros = vec![0; 1 << 16];
            while stream.write_all(&zeros).is_ok() {}
        });
        let socket = open(to);
        connect(socket.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
        let stream = TcpStream::from(socket);
        let received = Arc::<AtomicU64>::default();
        let (mut reader, count) = (stream.try_clone().unwrap(), received.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(len @ 1..) = reader.read(&mut buffer) {
                count.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
        Kernel { received, stream }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn open(host: Node<'_>) -> OwnedFd {
    host.socket(AddressFamily::Inet as i32, SockType::Stream as i32, 0).unwrap()
}

/// Returns what each flow receives, in Mbit/s.
fn rates(flows: &[Flow]) -> Vec<f64> {
    let until = Instant::now() + SOON;
    while flows.iter().any(|flow| flow.len() == 0) {
        assert!(Instant::now() < until, "nothing comes");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(TIMES.0);
    let begin = Instant::now();
    let before: Vec<u64> = flows.iter().map(Flow::len).collect();
    std::thread::sleep(TIMES.1);
    let seconds = begin.elapsed().as_secs_f64();
    let came = flows.iter().zip(before).map(|(flow, before)| flow.len() - before);
    came.map(|bytes| bytes as f64 * 8.0 / seconds / 1e6).collect()
}

/// Returns how even rates are, from 1 / n to 1 (Jain's index).
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

/// Runs one receiver of TCP-SMO, if it is to, beside connections of the kernel.
fn run(smo: Option<(&str, bool)>, kernel: &[&'static str]) {
    let Some(lab) = lab(&bottleneck()) else { return };
    let site = Site::new(&lab);
    let server = smo.map(|(congestion, _)| {
        files::make(&site.www(), &[("file", 80_000_000)]);
        site.serve_http(&["--congestion", congestion, "--window", "100ms"])
    });
    let helper = smo.filter(|(_, helped)| *helped).map(|_| site.join("h3", &[]));
    let mut flows: Vec<Flow> = smo.iter().map(|_| Flow::Smo(site.compare("h3", "file"))).collect();
    let ports = PORT..;
    let others = kernel.iter().zip(ports);
    flows.extend(others.map(|(name, port)| Flow::Kernel(Kernel::start(&lab, name, port))));
    let rates = rates(&flows);
    for flow in &flows {
        if let Flow::Smo(download) = flow {
            assert!(download.is_same(), "a wrong byte");
        }
    }
    drop((flows, helper));
    let name = match smo {
        None => "–".to_owned(),
        Some((congestion, helped)) => {
            format!("{congestion}, {}", if helped { "multicast" } else { "no helper" })
        }
    };
    let each: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
    let share = smo.map_or(String::from("–"), |_| {
        let fair: f64 = rates.iter().sum::<f64>() / rates.len() as f64;
        format!("{:.2}", rates[0] / fair)
    });
    println!(
        "| {name} | {} | {} | {share} | {:.2} |",
        kernel.join(" "),
        each.join(" / "),
        jain(&rates)
    );
    server.map(end);
}

#[test]
#[ignore = "soak: ten minutes; measures"]
fn one_receiver_beside_the_kernels_tcp() {
    if !have(&["curl", "nft"]) {
        return;
    }
    println!(
        "| TCP-SMO | kernel | Mbit/s of each | of a fair share | Jain |\n|---|---|---|---|---|"
    );
    for alone in ["reno", "cubic", "bbr"] {
        run(None, &[alone]);
    }
    for congestion in ["reno", "cubic"] {
        run(Some((congestion, false)), &[]);
        run(Some((congestion, true)), &[]);
        for beside in [&["reno"][..], &["cubic"], &["bbr"], &["cubic"; 4]] {
            run(Some((congestion, true)), beside);
        }
    }
}
