//! A packet port serves unmodified TCP clients of other hosts, and of its own host.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::mini_server::{MSS, MiniServer, Report};
use crate::namespaces::{
    Host, has_nft, hosts_on_a_bridge, in_namespace, once_more, run, run_without,
};
use bytes::Bytes;
use socket2::{Domain, Socket, Type};
use umbel_engine::Instant;
use umbel_net::interface::Interface;
use umbel_net::packet::{OpenPacketError, PacketOptions, PacketPort, TABLE_PREFIX};
use umbel_net::port::Port as _;
use umbel_wire::Channel;

const PORT: u16 = 8080;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Bytes that differ from place to place.
fn data(length: usize) -> Bytes {
    (0..length).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect::<Vec<_>>().into()
}

fn group(server: IpAddr) -> IpAddr {
    address(if server.is_ipv4() { "232.7.7.7" } else { "ff3e::7:7" })
}

fn open(server: SocketAddr, interface: &str) -> Result<PacketPort, OpenPacketError> {
    let interface = Interface::resolve(interface).unwrap();
    PacketPort::open(server, group(server.ip()), &interface, &PacketOptions::default())
}

/// Creates `eth0` with 10.9.0.1 in the calling thread's namespace.
fn lonely_interface() {
    run("ip link add eth0 type veth peer name other");
    run("ip addr add 10.9.0.1/24 dev eth0");
    run("ip link set eth0 up");
}

/// Returns a server on the calling thread's host that serves without multicast.
fn unicast_server(server: SocketAddr, interface: &str, data: Bytes) -> MiniServer {
    let port = open(server, interface).unwrap();
    let channel = Channel { source: Some(server.ip()), group: group(server.ip()), port: PORT };
    let mut server = MiniServer::new(port, server, channel, data);
    server.deaf = true;
    server
}

/// Connects, sends a request, and receives everything.
fn download(server: SocketAddr) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.write_all(&[7; 1000]).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Serves `data` at `server`, an address of the first host or of nobody, to clients of the others.
fn serve(hosts: &[Host], server: SocketAddr, data: &Bytes) -> Report {
    let (theirs, clients) = (data.clone(), hosts.len() - 1);
    let (tell, told) = std::sync::mpsc::channel();
    let serving = hosts[0].spawn(move || {
        let mut server = unicast_server(server, "eth0", theirs);
        tell.send(()).unwrap();
        server.serve(clients)
    });
    told.recv().unwrap();
    let clients: Vec<_> =
        hosts[1..].iter().map(|host| host.spawn(move || download(server))).collect();
    for client in clients {
        assert!(client.join().unwrap() == *data, "other bytes than were served");
    }
    serving.join().unwrap()
}

#[test]
fn clients_of_other_hosts_are_served_at_an_address_that_the_kernel_owns() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(3);
        let data = data(300_000);
        for server in ["10.9.0.1", "fd09::1"] {
            let report = serve(&hosts, SocketAddr::new(address(server), PORT), &data);
            assert_eq!((report.heard, report.resets), (2000, 0), "{server}");
        }
        // Nothing is left of the rules.
        let rules = hosts[0].run(|| Command::new("nft").args(["list", "tables"]).output().unwrap());
        assert!(!String::from_utf8_lossy(&rules.stdout).contains(TABLE_PREFIX));
    });
}

#[test]
fn clients_of_other_hosts_are_served_at_an_address_that_nobody_owns() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let data = data(100_000);
        for (server, routes) in
            [("10.9.0.77", false), ("fd09::77", false), ("10.9.0.77", true), ("fd09::77", true)]
        {
            // A host that routes would send such segments back where they came from.
            hosts[0].run(move || {
                for path in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                    let path = format!("/proc/sys/net/{path}");
                    std::fs::write(path, if routes { "1" } else { "0" }).unwrap();
                }
            });
            let report = serve(&hosts, SocketAddr::new(address(server), PORT), &data);
            assert_eq!((report.heard, report.resets), (1000, 0), "{server}, routes: {routes}");
        }
    });
}

#[test]
fn clients_of_the_same_host_are_served_too() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(1);
        let data = data(100_000);
        for server in ["10.9.0.1", "fd09::1"] {
            let server = SocketAddr::new(address(server), PORT);
            let expected = data.clone();
            hosts[0].run(move || {
                let mut serving = unicast_server(server, "eth0", expected.clone());
                let client = thread::spawn(move || download(server));
                serving.serve(1);
                assert!(client.join().unwrap() == expected);
            });
        }
    });
}

#[test]
fn segments_in_sequence_leave_in_one_frame() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        let hosts = hosts_on_a_bridge(2);
        let server = SocketAddr::new(address("10.9.0.1"), PORT);
        let data = data(100 * MSS);
        let (theirs, expected) = (data.clone(), data);
        let (tell, told) = std::sync::mpsc::channel();
        let serving = hosts[0].spawn(move || {
            let port = open(server, "eth0").unwrap();
            let counters = port.counters();
            let channel = Channel { source: None, group: address("232.7.7.7"), port: PORT };
            let mut server = MiniServer::new(port, server, channel, theirs);
            server.deaf = true;
            tell.send(()).unwrap();
            server.serve(1);
            counters.counts()
        });
        told.recv().unwrap();
        let received = hosts[1].run(move || download(server));
        assert!(received == expected);
        let counts = serving.join().unwrap();
        assert!(counts.segments_sent >= 100, "{counts:?}");
        assert!(counts.frames_sent * 4 < counts.segments_sent, "{counts:?}");
        assert_eq!((counts.wrong_checksums, counts.malformed), (0, 0));
    });
}

#[test]
fn a_turn_takes_all_frames_also_where_they_came_one_by_one() {
    in_namespace(|| {
        /// Each has its own block, and there are more blocks.
        const SYNS: u64 = 24;
        if !has_nft() {
            return;
        }
        run("ip link set lo up");
        let server = SocketAddr::new(address("127.0.0.1"), PORT);
        let mut port = open(server, "lo").unwrap();
        for n in 0..SYNS {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            assert!(client.connect(&server.into()).is_err(), "{n}: nobody answers");
            thread::sleep(Duration::from_millis(15));
        }
        let mut heard = 0;
        let turn = port.turn(Instant::from_nanos(1), true, &mut |_| heard += 1);
        // One that was sent twice counts twice.
        assert!(heard >= SYNS && turn.datagrams as u64 == heard, "{heard} of {SYNS}");
    });
}

#[test]
fn a_port_that_is_taken_is_refused() {
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        lonely_interface();
        let server = SocketAddr::new(address("10.9.0.1"), PORT);
        let listener = std::net::TcpListener::bind(server).unwrap();
        let error = open(server, "eth0").unwrap_err();
        assert!(matches!(error, OpenPacketError::PortTaken(_)), "{error}");
        drop(listener);
        let port = open(server, "eth0").unwrap();
        assert!(matches!(open(server, "eth0"), Err(OpenPacketError::PortTaken(_))));
        drop(port);
        open(server, "eth0").unwrap();
        let error = open("0.0.0.0:8080".parse().unwrap(), "eth0").unwrap_err();
        assert!(matches!(error, OpenPacketError::Address(_)), "{error}");
    });
}

#[test]
fn the_rule_goes_with_a_process_that_is_killed() {
    const VICTIM: &str = "UMBEL_NET_TEST_VICTIM";
    let server = SocketAddr::new(address("10.9.0.1"), PORT);
    if std::env::var_os(VICTIM).is_some() {
        let _port = open(server, "eth0").unwrap();
        loop {
            thread::park();
        }
    }
    in_namespace(|| {
        if !has_nft() {
            return;
        }
        lonely_interface();
        let tables = || {
            let output = Command::new("nft").args(["list", "tables"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains(TABLE_PREFIX)
        };
        let mut victim = once_more(VICTIM).spawn().unwrap();
        while !tables() {
            assert!(victim.try_wait().unwrap().is_none(), "it ended by itself");
            thread::sleep(std::time::Duration::from_millis(10));
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        while tables() {
            thread::sleep(std::time::Duration::from_millis(10));
        }
        // A program that it was just starting holds the port until it runs.
        while let Err(error) = open(server, "eth0") {
            assert!(matches!(error, OpenPacketError::PortTaken(_)), "{error}");
            thread::sleep(std::time::Duration::from_millis(10));
        }
    });
}

#[test]
fn without_the_capabilities_one_line_says_which() {
    const POWERLESS: &str = "UMBEL_NET_TEST_POWERLESS";
    if std::env::var_os(POWERLESS).is_some() {
        let error = open(SocketAddr::new(address("127.0.0.1"), PORT), "lo").unwrap_err();
        assert!(matches!(error, OpenPacketError::NotPermitted), "{error}");
        let message = error.to_string();
        assert!(message.contains("CAP_NET_RAW") && !message.contains('\n'), "{message}");
        return;
    }
    in_namespace(|| {
        run_without("-net_raw,-net_admin", POWERLESS);
    });
}
