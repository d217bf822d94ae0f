//! Multicast segments reach unmodified TCP sockets, by eBPF and by the agent.

use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::mini_server::{MSS, MiniServer, Report};
use crate::namespaces::{Host, has_nft, hosts_on_a_bridge, in_namespace, run, run_without, skip};
use bytes::Bytes;
use umbel_net::delivery::{Delivery, DeliveryError, Way};
use umbel_net::interface::Interface;
use umbel_net::packet::{PacketOptions, PacketPort};
use umbel_wire::Channel;

const PORT: u16 = 8080;
const SERVERS: [&str; 2] = ["10.9.0.1", "fd09::1"];
const WAYS: [Way; 2] = [Way::Ebpf, Way::Agent];

/// Bytes that differ from place to place.
fn data(length: usize) -> Bytes {
    (0..length).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect::<Vec<_>>().into()
}

fn channel(server: &str) -> Channel {
    let source: IpAddr = server.parse().unwrap();
    let group = if source.is_ipv4() { "232.7.7.7" } else { "ff3e::7:7" };
    Channel { source: Some(source), group: group.parse().unwrap(), port: PORT + 1 }
}

/// Starts a server on a host, which multicasts once this number of clients is there.
fn serve(host: &Host, server: &str, data: &Bytes, clients: usize) -> JoinHandle<Report> {
    let (tell, told) = mpsc::channel();
    let (channel, data) = (channel(server), data.clone());
    let serving = host.spawn(move || {
        let address = SocketAddr::new(channel.source.unwrap(), PORT);
        let interface = Interface::resolve("eth0").unwrap();
        let options = PacketOptions::default();
        let port = PacketPort::open(address, channel.group, &interface, &options).unwrap();
        tell.send(()).unwrap();
        MiniServer::new(port, address, channel, data).serve(clients)
    });
    told.recv().unwrap();
    serving
}

/// Starts delivery on a host.
fn deliver(host: &Host, server: &str, way: Way) -> Result<Delivery, DeliveryError> {
    let channel = channel(server);
    host.run(move || {
        let interface = Interface::resolve("eth0").unwrap();
        Delivery::start(
            SocketAddr::new(channel.source.unwrap(), PORT),
            channel.group,
            &interface,
            way,
        )
    })
}

/// Connects from a host, and receives everything. `after` is called with what came so far.
fn download(
    host: &Host,
    server: &str,
    mut after: impl FnMut(usize) + Send + 'static,
) -> JoinHandle<Vec<u8>> {
    let server = SocketAddr::new(server.parse().unwrap(), PORT);
    host.spawn(move || {
        let mut stream = TcpStream::connect(server).unwrap();
        let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match stream.read(&mut part).unwrap() {
                0 => return all,
                length => all.extend(&part[..length]),
            }
            after(all.len());
        }
    })
}

/// Returns whether programs can be loaded here; says so if not.
fn has_ebpf(hosts: &[Host]) -> bool {
    match deliver(hosts.last().unwrap(), SERVERS[0], Way::Ebpf) {
        Ok(_) => true,
        Err(error @ (DeliveryError::NotPermitted { .. } | DeliveryError::OldKernel)) => {
            // A user namespace is not enough, and an old kernel is none.
            skip(&format!("without eBPF: {error}"));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_socket_gets_every_byte_from_one_stream() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(3);
        let data = data(200 * MSS + 77);
        let ebpf = has_ebpf(&hosts);
        for (server, way) in SERVERS.into_iter().flat_map(|server| WAYS.map(|way| (server, way))) {
            if way == Way::Ebpf && !ebpf {
                continue;
            }
            let deliveries: Vec<_> =
                hosts[1..].iter().map(|host| deliver(host, server, way).unwrap()).collect();
            // One connection on one host, three on the other.
            let serving = serve(&hosts[0], server, &data, 4);
            let clients: Vec<_> =
                [1, 2, 2, 2].map(|n| download(&hosts[n], server, |_| ())).into_iter().collect();
            for client in clients {
                assert!(client.join().unwrap() == data, "{server} by {way}: other bytes");
            }
            let report = serving.join().unwrap();
            let counts: Vec<_> = deliveries.iter().map(Delivery::counts).collect();
            assert_eq!(report.multicasts, 201, "{server} by {way}");
            assert_eq!(report.resets, 0, "{server} by {way}: {counts:?}");
            // Frames of many segments count as one. Nothing was lost, and nearly all was delivered.
            assert!(counts[0].delivered >= 13, "{server} by {way}: {counts:?}");
            assert!(counts[1].delivered >= 3 * 13, "{server} by {way}: {counts:?}");
            assert_eq!(counts[1].malformed + counts[1].table_full, 0, "{counts:?}");
            assert!(report.unicasts < 4 * 50, "{server} by {way}: {report:?} {counts:?}");
        }
    });
}

#[test]
fn a_helper_that_stops_in_the_middle_breaks_no_connection() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let data = data(1000 * MSS);
        let ebpf = has_ebpf(&hosts);
        for way in WAYS.into_iter().filter(|way| ebpf || *way == Way::Agent) {
            let mut delivery = Some(deliver(&hosts[1], SERVERS[0], way).unwrap());
            let serving = serve(&hosts[0], SERVERS[0], &data, 1);
            // However late this host is, the window lets only a part leave before it reads again.
            let client = download(&hosts[1], SERVERS[0], move |_| drop(delivery.take()));
            assert!(client.join().unwrap() == data, "by {way}: other bytes");
            let report = serving.join().unwrap();
            assert!(report.unicasts > 0 && report.resets == 0, "by {way}: {report:?}");
        }
    });
}

#[test]
fn a_helper_that_starts_in_the_middle_takes_the_connection_over() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let data = data(500 * MSS);
        let ebpf = has_ebpf(&hosts);
        for way in WAYS.into_iter().filter(|way| ebpf || *way == Way::Agent) {
            let (give, take) = mpsc::channel();
            let serving = serve(&hosts[0], SERVERS[0], &data, 1);
            let channel = channel(SERVERS[0]);
            let mut delivery = None;
            let client = download(&hosts[1], SERVERS[0], move |_| {
                if delivery.is_none() {
                    let interface = Interface::resolve("eth0").unwrap();
                    let source = SocketAddr::new(channel.source.unwrap(), PORT);
                    let started = Delivery::start(source, channel.group, &interface, way);
                    delivery = Some(started.unwrap());
                }
                let _ = give.send(delivery.as_ref().unwrap().counts());
            });
            assert!(client.join().unwrap() == data, "by {way}: other bytes");
            let counts = take.iter().last().unwrap();
            assert!(counts.delivered > 0, "by {way}: {counts:?}");
            assert_eq!(serving.join().unwrap().resets, 0);
        }
    });
}

#[test]
fn hosts_that_are_not_members_see_nothing_and_say_nothing() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(4);
        let data = data(200 * MSS);
        // The second host delivers, the third only subscribes, the fourth does neither.
        let delivery = deliver(&hosts[1], SERVERS[0], Way::Agent).unwrap();
        let subscribed = deliver(&hosts[2], SERVERS[0], Way::Agent).unwrap();
        // The bridge must have heard of a member before it prunes the others.
        let members = || Command::new("bridge").args(["mdb", "show"]).output().unwrap().stdout;
        while String::from_utf8_lossy(&members()).matches("232.7.7.7").count() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        // Frames that a port has received from its host, and bytes that it has sent to it.
        let counter = |port: &str, which: usize| -> u64 {
            let all = std::fs::read_to_string("/proc/net/dev").unwrap();
            let line = all.lines().find(|line| line.trim().starts_with(port)).unwrap();
            line.split_whitespace().nth(which).unwrap().parse().unwrap()
        };
        let (rx_frames, tx_bytes) = (2, 9);
        let looked_at = [("port-3:", rx_frames), ("port-4:", rx_frames), ("port-4:", tx_bytes)];
        let before = looked_at.map(|(port, which)| counter(port, which));
        let serving = serve(&hosts[0], SERVERS[0], &data, 1);
        let client = download(&hosts[1], SERVERS[0], |_| ());
        assert!(client.join().unwrap() == data);
        serving.join().unwrap();
        let after = looked_at.map(|(port, which)| counter(port, which));
        let grown: Vec<_> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        // Reports and neighbour discovery may be under way, but no answers, and no data at the
        // last.
        assert!(grown[..2].iter().all(|frames| *frames < 10), "{grown:?}");
        assert!(grown[2] < data.len() as u64 / 10, "{grown:?}");
        assert!(delivery.counts().delivered > 0);
        assert_eq!(subscribed.counts().delivered, 0);
        assert!(subscribed.counts().not_enrolled > 0, "{:?}", subscribed.counts());
    });
}

#[test]
fn connections_are_told_with_their_channel() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let ebpf = has_ebpf(&hosts);
        for (server, way) in SERVERS.into_iter().flat_map(|server| WAYS.map(|way| (server, way))) {
            if way == Way::Ebpf && !ebpf {
                continue;
            }
            let delivery = deliver(&hosts[1], server, way).unwrap();
            let serving = serve(&hosts[0], server, &data(10), 2);
            let address = SocketAddr::new(server.parse().unwrap(), PORT);
            let stream = hosts[1].run(move || TcpStream::connect(address).unwrap());
            let connections = loop {
                let connections = delivery.connections();
                if !connections.is_empty() {
                    break connections;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            };
            assert_eq!(connections.len(), 1);
            let (connection, channel) = connections[0];
            assert_eq!(connection.local, stream.local_addr().unwrap(), "{way}");
            assert_eq!((connection.source_port, channel), (PORT, PORT + 1), "{way}");
            // The server serves once a second one is there.
            let second = download(&hosts[1], server, |_| ());
            assert_eq!(second.join().unwrap().len(), 10);
            serving.join().unwrap();
        }
    });
}

#[test]
fn without_the_capabilities_one_line_says_which() {
    const POWERLESS: &str = "UMBEL_NET_TEST_POWERLESS";
    if std::env::var_os(POWERLESS).is_some() {
        let interface = Interface::resolve("127.0.0.1").unwrap();
        let channel = channel("127.0.0.1");
        for (way, capability) in
            [(Way::Ebpf, "CAP_BPF"), (Way::Agent, "CAP_NET_RAW"), (Way::Auto, "CAP_NET_RAW")]
        {
            let started = Delivery::start(
                SocketAddr::new(channel.source.unwrap(), PORT),
                channel.group,
                &interface,
                way,
            );
            let message = started.unwrap_err().to_string();
            let expected = message.contains(capability)
                // Where a kernel is too old for eBPF, that is the first reason.
                || (way == Way::Ebpf && message.contains("6.6"));
            assert!(expected && !message.contains('\n'), "{message}");
        }
        return;
    }
    in_namespace(|| {
        run("ip route add 232.0.0.0/8 dev lo");
        run_without("-all", POWERLESS);
    });
}
