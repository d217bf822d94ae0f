//! The source of TCP-SMO on its packet port, and kernels' TCP with and without delivery.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::namespaces::{Host as Machine, has_nft, hosts_on_a_bridge, in_namespace, run, skip};
use bytes::Bytes;
use umbel_engine::RateClass;
use umbel_engine::chance::generator;
use umbel_engine::host::{Host, Io};
use umbel_engine::smo::{
    MasterId, Source, SourceCommand, SourceConfig, SourceEvent, SourceStats, Stream,
};
use umbel_net::clock::Clock;
use umbel_net::delivery::{Delivery, Way};
use umbel_net::driver::Driver;
use umbel_net::interface::Interface;
use umbel_net::mailbox;
use umbel_net::packet::{PacketCounts, PacketOptions, PacketPort};
use umbel_wire::Channel;

const PORT: u16 = 8080;
const SERVERS: [&str; 2] = ["10.9.0.1", "fd09::1"];

/// Bytes that differ from place to place.
fn data(length: usize) -> Bytes {
    (0..length).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect::<Vec<_>>().into()
}

fn channel(server: &str) -> Channel {
    let source: IpAddr = server.parse().unwrap();
    let group = if source.is_ipv4() { "232.7.7.7" } else { "ff3e::7:7" };
    Channel { source: Some(source), group: group.parse().unwrap(), port: PORT }
}

/// Returns the interface of the calling thread's host that a source's packets pass.
fn interface_of(channel: Channel) -> Interface {
    let source = channel.source.unwrap();
    Interface::resolve(if source.is_loopback() { "lo" } else { "eth0" }).unwrap()
}

/// Multicasts its data once this number of connections is there, and stops when all have ended.
struct Serve {
    data: Bytes,
    clients: usize,
    connected: usize,
    ended: usize,
    written: usize,
    received: usize,
    /// Connections that did not end in order.
    broken: Vec<SourceEvent>,
    stats: SourceStats,
}

impl Serve {
    fn write(&mut self, io: &mut dyn Io<Source>) {
        let to = Stream::Master(MasterId::FIRST);
        while self.written < self.data.len() {
            let room = io.engine().room(to);
            if room == 0 {
                return;
            }
            let end = (self.written + room).min(self.data.len());
            let bytes = self.data.slice(self.written..end);
            self.written = end;
            io.command(SourceCommand::Write { to, bytes }).unwrap();
            if end == self.data.len() {
                io.command(SourceCommand::Finish { to }).unwrap();
            }
        }
    }
}

impl Host<Source> for Serve {
    type Input = ();

    fn start(&mut self, _io: &mut dyn Io<Source>) {}

    fn event(&mut self, io: &mut dyn Io<Source>, event: SourceEvent) {
        match event {
            SourceEvent::Connected { .. } => self.connected += 1,
            SourceEvent::Received { child, bytes } => {
                self.received += bytes.len();
                let consumed = SourceCommand::Consumed { child, bytes: bytes.len() };
                let _ = io.command(consumed);
            }
            SourceEvent::Closed { .. } => self.ended += 1,
            SourceEvent::Removed { .. } => {
                self.ended += 1;
                self.broken.push(event);
            }
            SourceEvent::Pace { rate, burst } => {
                io.set_burst(RateClass::Data, burst);
                io.set_pace(RateClass::Data, Some(rate));
            }
            _ => {}
        }
        if self.connected >= self.clients {
            self.write(io);
        }
        self.stats = io.engine().stats();
        if self.ended == self.clients {
            io.stop();
        }
    }
}

/// Outcome of a source.
#[derive(Debug)]
struct Outcome {
    stats: SourceStats,
    packets: PacketCounts,
    received: usize,
    broken: Vec<SourceEvent>,
}

/// Starts a source on a host, which sends frames of several segments where it has `offload`.
fn serve(
    host: &Machine,
    server: &str,
    data: &Bytes,
    clients: usize,
    offload: bool,
) -> JoinHandle<Outcome> {
    let (tell, told) = mpsc::channel();
    let (channel, data) = (channel(server), data.clone());
    let serving = host.spawn(move || {
        let address = SocketAddr::new(channel.source.unwrap(), PORT);
        let interface = interface_of(channel);
        let options = PacketOptions { offload, ..PacketOptions::default() };
        let port = PacketPort::open(address, channel.group, &interface, &options).unwrap();
        let counters = port.counters();
        let (mailbox, line) = mailbox::line::<()>().unwrap();
        let config = SourceConfig::new(PORT, channel);
        let packet = usize::from(config.mss) + 20;
        let host = Serve {
            data,
            clients,
            connected: 0,
            ended: 0,
            written: 0,
            received: 0,
            broken: Vec::new(),
            stats: SourceStats::default(),
        };
        let driver = Driver::new(Source::new(config, generator(1)), host, Clock::new(), line)
            .port(port)
            .pace(RateClass::Data, None, packet);
        tell.send(()).unwrap();
        let host = driver.run().unwrap();
        drop(mailbox);
        let Serve { stats, received, broken, .. } = host;
        Outcome { stats, packets: counters.counts(), received, broken }
    });
    told.recv().unwrap();
    serving
}

fn deliver(host: &Machine, server: &str, way: Way) -> Delivery {
    let channel = channel(server);
    host.run(move || {
        let interface = interface_of(channel);
        Delivery::start(
            SocketAddr::new(channel.source.unwrap(), PORT),
            channel.group,
            &interface,
            way,
        )
        .unwrap()
    })
}

/// Connects from a host, says something, and receives everything.
fn download(host: &Machine, server: &str) -> JoinHandle<Vec<u8>> {
    let server = SocketAddr::new(server.parse().unwrap(), PORT);
    host.spawn(move || {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn kernels_with_and_without_delivery_get_every_byte() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(4);
        let data = data(3_000_000);
        for server in SERVERS {
            // Each its own way; the last host has none.
            let deliveries =
                [deliver(&hosts[1], server, Way::Auto), deliver(&hosts[2], server, Way::Agent)];
            let serving = serve(&hosts[0], server, &data, 5, true);
            let clients: Vec<_> = [1, 1, 2, 2, 3].map(|n| download(&hosts[n], server)).into();
            for client in clients {
                assert!(client.join().unwrap() == data, "{server}: other bytes");
            }
            let outcome = serving.join().unwrap();
            let counts = deliveries.map(|delivery| delivery.counts());
            assert!(outcome.broken.is_empty(), "{server}: {outcome:?}");
            assert_eq!(outcome.received, 5 * 5);
            assert_eq!(outcome.packets.wrong_checksums + outcome.packets.malformed, 0);
            let sent = outcome.stats;
            assert!(sent.multicast.bytes >= data.len() as u64, "{sent:?}");
            // The deaf one got its own; the others lost nothing that matters.
            assert!(
                sent.unicast.bytes + sent.unicast_again.bytes < 2 * data.len() as u64,
                "{sent:?} {counts:?}"
            );
        }
    });
}

#[test]
fn losses_are_repaired_whoever_has_them() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(4);
        // Two hosts lose one frame of fifty.
        for port in ["port-2", "port-3"] {
            let rules = format!(
                "table netdev lossy-{port} {{ chain out {{ \
                 type filter hook egress device {port} priority 0 ; \
                 numgen random mod 50 == 0 drop ; }} ; }}"
            );
            let set = std::process::Command::new("nft").arg(rules).status();
            if !set.is_ok_and(|status| status.success()) {
                return skip("nft cannot drop frames here");
            }
        }
        let data = data(1_000_000);
        for server in SERVERS {
            let ways = [(1, Way::Auto), (2, Way::Agent), (3, Way::Auto)];
            let deliveries = ways.map(|(n, way)| deliver(&hosts[n], server, way));
            let serving = serve(&hosts[0], server, &data, 4, false);
            let clients: Vec<_> = [1, 1, 2, 3].map(|n| download(&hosts[n], server)).into();
            for client in clients {
                assert!(client.join().unwrap() == data, "{server}: other bytes");
            }
            let outcome = serving.join().unwrap();
            let counts = deliveries.map(|delivery| delivery.counts());
            assert!(outcome.broken.is_empty(), "{server}: {outcome:?} {counts:?}");
            assert!(outcome.stats.loss_events > 0, "{server}: nothing was lost: {outcome:?}");
        }
    });
}

#[test]
fn many_sockets_of_one_host_get_every_byte() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let data = data(500_000);
        for way in [Way::Auto, Way::Agent] {
            let delivery = deliver(&hosts[1], SERVERS[0], way);
            let serving = serve(&hosts[0], SERVERS[0], &data, 100, true);
            let clients: Vec<_> = (0..100).map(|_| download(&hosts[1], SERVERS[0])).collect();
            for client in clients {
                assert!(client.join().unwrap() == data, "{way}: other bytes");
            }
            let outcome = serving.join().unwrap();
            assert!(outcome.broken.is_empty(), "{way}: {outcome:?} {:?}", delivery.counts());
        }
    });
}

#[test]
fn two_helpers_for_one_channel_on_a_host_do_no_harm() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let data = data(1_000_000);
        for ways in [[Way::Auto; 2], [Way::Auto, Way::Agent], [Way::Agent; 2]] {
            let deliveries = ways.map(|way| deliver(&hosts[1], SERVERS[0], way));
            let serving = serve(&hosts[0], SERVERS[0], &data, 3, true);
            let clients = [(); 3].map(|()| download(&hosts[1], SERVERS[0]));
            for client in clients {
                assert!(client.join().unwrap() == data, "{ways:?}: other bytes");
            }
            let outcome = serving.join().unwrap();
            let counts = deliveries.map(|delivery| delivery.counts());
            assert!(outcome.broken.is_empty(), "{ways:?}: {outcome:?} {counts:?}");
            let sent = outcome.stats;
            let by_unicast = sent.unicast.bytes + sent.unicast_again.bytes;
            assert!(by_unicast < data.len() as u64, "{ways:?}: {sent:?} {counts:?}");
        }
    });
}

#[test]
fn all_of_it_works_on_the_loopback_interface() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let host = Machine::alone();
        host.run(|| run("ip link set lo up"));
        let data = data(1_000_000);
        for way in [Way::Auto, Way::Agent] {
            let delivery = deliver(&host, "127.0.0.1", way);
            let serving = serve(&host, "127.0.0.1", &data, 2, true);
            let clients = [0, 1].map(|_| download(&host, "127.0.0.1"));
            for client in clients {
                assert!(client.join().unwrap() == data, "{way}: other bytes");
            }
            let outcome = serving.join().unwrap();
            assert!(outcome.broken.is_empty(), "{way}: {outcome:?} {:?}", delivery.counts());
        }
    });
}

/// Returns the processor time of this process so far, in seconds.
fn cpu() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let of = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + 1e-6 * time.tv_usec() as f64;
    of(usage.user_time()) + of(usage.system_time())
}

#[test]
#[ignore = "measures; run it with --release --nocapture on a quiet machine"]
fn rate_of_one_receiver_beside_that_of_the_kernel() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let data = data(400_000_000);
        let report = |what: &str, work: &mut dyn FnMut()| {
            let (start, before) = (std::time::Instant::now(), cpu());
            work();
            let (took, cpu) = (start.elapsed().as_secs_f64(), cpu() - before);
            let rate = 8e-9 * data.len() as f64 / took;
            eprintln!("{what}: {rate:.2} Gbit/s, {took:.2} s, CPU of all ends {cpu:.2} s");
        };
        let theirs = data.clone();
        report("kernel", &mut || {
            let theirs = theirs.clone();
            let (tell, told) = mpsc::channel();
            let sender = hosts[0].spawn(move || {
                let listener = std::net::TcpListener::bind("10.9.0.1:9000").unwrap();
                tell.send(()).unwrap();
                listener.accept().unwrap().0.write_all(&theirs).unwrap();
            });
            told.recv().unwrap();
            let received = hosts[1].run(|| {
                let mut all = Vec::new();
                TcpStream::connect("10.9.0.1:9000").unwrap().read_to_end(&mut all).unwrap();
                all.len()
            });
            sender.join().unwrap();
            assert_eq!(received, data.len());
        });
        for way in [Some(Way::Auto), Some(Way::Agent), None] {
            let delivery = way.map(|way| deliver(&hosts[1], SERVERS[0], way));
            report(&format!("delivery {way:?}"), &mut || {
                let serving = serve(&hosts[0], SERVERS[0], &data, 1, true);
                let received = download(&hosts[1], SERVERS[0]).join().unwrap();
                assert_eq!(received.len(), data.len());
                let outcome = serving.join().unwrap();
                eprintln!("{:?} {:?}", outcome.stats, outcome.packets);
            });
            eprintln!("{:?}", delivery.map(|delivery| delivery.counts()));
        }
    });
}
