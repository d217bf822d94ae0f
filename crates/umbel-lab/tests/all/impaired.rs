//! Tests of the emulator with real traffic.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Ends, LAST_RESORT, SILENCE, Traffic, lab, receive, socket, warm_up};
use umbel_engine::units::Rate;
use umbel_lab::{Impairment, Lab, Queue, Topology};

const PORT: u16 = 7100;
/// The next port. Ports are not reused, since a fork of another test may hold a closed socket a
/// little longer.
static NEXT_PORT: AtomicU16 = AtomicU16::new(PORT + 1);

/// Returns `h1` and `h2` on a switch, with the link to `h2` impaired.
fn star(impairment: Impairment) -> Topology {
    Topology::star(2).emulated().with_link(|link| link.b_to_a = impairment)
}

/// Opens sockets on `h1` and `h2` that have resolved each other.
fn ends(lab: &Lab) -> Ends {
    let (h1, h2) = (lab.host("h1").unwrap(), lab.host("h2").unwrap());
    let to = SocketAddr::new(h2.addr4().into(), NEXT_PORT.fetch_add(1, Ordering::Relaxed));
    let (sender, receiver) = (socket(h1, to.ip(), 0), socket(h2, to.ip(), to.port()));
    warm_up(&sender, &receiver, to);
    Ends { sender, receiver, to }
}

/// Sends `count` datagrams `gap` apart while the receiver reads. Returns those that arrive.
fn sent_and_received(lab: &Lab, count: u32, gap: Duration) -> Vec<(u32, Vec<u8>)> {
    let ends = ends(lab);
    Traffic::new(lab).carry(&ends, count, 500, gap).0
}

fn share(part: usize, whole: u32) -> f64 {
    part as f64 / f64::from(whole)
}

/// Fails if the machine was too busy for the figures to be valid.
fn assert_no_overruns(lab: &Lab) {
    for direction in lab.link_stats().iter().filter_map(|link| link.directions).flatten() {
        assert_eq!(direction.overruns, 0);
    }
}

const GAP: Duration = Duration::from_micros(25);

#[test]
fn loss_hits_its_share_of_a_burst_and_is_counted() {
    let Some(lab) = lab(&star(Impairment::none().loss(0.2)).seed(5)) else { return };
    let received = sent_and_received(&lab, 10_000, GAP);
    let lost = 1.0 - share(received.len(), 10_000);
    assert!((0.18..0.22).contains(&lost), "{lost}");
    assert!(received.windows(2).all(|w| w[0].0 < w[1].0), "loss alone must not reorder");
    let stats = lab.link_stats()[1].directions.unwrap()[1];
    assert_eq!(stats.frames, stats.lost + stats.delivered);
    assert!(stats.lost as usize >= 10_000 - received.len());
    assert_no_overruns(&lab);
}

#[test]
fn loss_and_rate_can_change_while_traffic_runs() {
    let Some(lab) = lab(&star(Impairment::none())) else { return };
    assert_eq!(sent_and_received(&lab, 1_000, GAP).len(), 1_000);
    lab.set_link("h2", "sw", Impairment::none().loss(0.5)).unwrap();
    assert!((lab.impairment("sw", "h2").unwrap().loss - 0.5).abs() < 1e-9);
    let ends = ends(&lab);
    let traffic = Traffic::new(&lab);
    let received = traffic.carry(&ends, 2_000, 500, GAP).0.len();
    assert!((800..1_200).contains(&received), "{received}");
    lab.set_link_up("h2", "sw", false).unwrap();
    assert_eq!(traffic.carry(&ends, 100, 500, GAP).0.len(), 0);
    lab.set_link_up("sw", "h2", true).unwrap();
    lab.set_link("h2", "sw", Impairment::none()).unwrap();
    assert_eq!(traffic.carry(&ends, 100, 500, GAP).0.len(), 100);
}

#[test]
fn a_delay_is_held_to_within_milliseconds_and_jitter_does_not_reorder() {
    let delay = Duration::from_millis(30);
    let Some(lab) = lab(&star(Impairment::none().delay(delay))) else { return };
    let ends = ends(&lab);
    ends.receiver.set_read_timeout(Some(LAST_RESORT)).unwrap();
    let passage = || {
        let start = Instant::now();
        ends.sender.send_to(b"0123", ends.to).unwrap();
        receive(&ends.receiver, &mut [0; 10]).unwrap();
        start.elapsed()
    };
    let times: Vec<Duration> = (0..20).map(|_| passage()).collect();
    assert!(times.iter().all(|time| *time >= delay), "{times:?}");
    // One of many is soon enough, however busy the machine is.
    let most = delay + Duration::from_millis(3);
    let soon = times.into_iter().chain((0..500).map(|_| passage())).any(|time| time < most);
    assert!(soon, "every datagram took more than {most:?}");
    let jittered =
        Impairment { jitter: Duration::from_millis(20), ..Impairment::none().delay(delay) };
    lab.set_link_direction("sw", "h2", jittered).unwrap();
    ends.receiver.set_read_timeout(Some(SILENCE)).unwrap();
    let (received, _) = Traffic::new(&lab).carry(&ends, 200, 100, Duration::from_micros(500));
    assert_eq!(received.len(), 200);
    assert!(received.windows(2).all(|w| w[0].0 < w[1].0));
}

#[test]
fn a_rate_is_held() {
    let rate: Rate = "20M".parse().unwrap();
    let shaped = Impairment::none().rate(rate).queue(Queue::Packets(2_000));
    let Some(lab) = lab(&star(shaped)) else { return };
    let ends = ends(&lab);
    let traffic = Traffic::new(&lab);
    // 958 + 42 bytes of headers make 1,000-byte frames: 0.4 ms each.
    let count = 1_000;
    let share = || {
        let start = Instant::now();
        let last_arrival = std::thread::scope(|scope| {
            scope.spawn(|| traffic.burst(&ends.sender, ends.to, count, 958, Duration::ZERO));
            let mut last = (0, start.elapsed());
            let mut buffer = [0; 2_000];
            // Without the last, if this host was too busy to read.
            while last.0 + 1 < count && receive(&ends.receiver, &mut buffer).is_ok() {
                let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                last = (number, start.elapsed());
            }
            last
        });
        let (number, took) = last_arrival;
        took.as_secs_f64() / rate.time_for((u64::from(number) + 1) * 1_000).as_secs_f64()
    };
    // Never too fast; once in a while without delay, however busy the machine is.
    let shares: Vec<f64> = (0..30)
        .map(|_| share())
        .scan(false, |done, share| (!std::mem::replace(done, share < 1.06)).then_some(share))
        .collect();
    assert!(shares.iter().all(|share| *share >= 0.99), "{shares:?}");
    assert!(shares.iter().any(|share| *share < 1.06), "{shares:?}");
}

#[test]
fn a_queue_is_bounded_and_drops_the_newest() {
    let slow = Impairment::none().rate("1M".parse().unwrap()).queue(Queue::Packets(50));
    let Some(lab) = lab(&star(slow)) else { return };
    let (received, sending) = Traffic::new(&lab).carry(&ends(&lab), 1_000, 958, Duration::ZERO);
    // A frame takes 8 ms, so few leave the queue while the burst lasts.
    let left = sending.as_millis() as usize / 8;
    assert!((49..=60 + left).contains(&received.len()), "{} got through", received.len());
    assert!((0..40).all(|n| received[n].0 == n as u32), "the oldest are kept");
    let dropped = lab.link_stats()[1].directions.unwrap()[1].queue_full as usize;
    // A frame or two of neighbour discovery may also meet the full queue.
    assert!((1_000..1_005).contains(&(received.len() + dropped)), "{dropped}");
}

#[test]
fn duplicates_reordering_and_corruption_are_seen_by_the_receiver() {
    let impairment = Impairment {
        duplicate: 0.1,
        reorder: 0.1,
        reorder_by: Some(Duration::from_millis(2)),
        corrupt: 0.05,
        corrupt_silently: 0.05,
        ..Impairment::none()
    };
    let Some(lab) = lab(&star(impairment).seed(11)) else { return };
    let count = 5_000;
    let received = sent_and_received(&lab, count, Duration::from_micros(50));
    let intact =
        |datagram: &[u8]| datagram.len() == 500 && datagram[4..].iter().all(|b| *b == 0x55);
    // The first four bytes may be hit too, hence the filter.
    let numbers: Vec<u32> =
        received.iter().filter(|(n, d)| intact(d) && *n < count).map(|(n, _)| *n).collect();
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    let duplicates = share(numbers.len() - distinct.len(), count);
    assert!((0.06..0.12).contains(&duplicates), "{duplicates}");
    let mut newest = 0;
    let mut was_overtaken = |n: &&u32| {
        newest = newest.max(**n);
        newest > **n
    };
    let late = numbers.iter().filter(&mut was_overtaken).count();
    assert!((0.06..0.15).contains(&share(late, count)), "{late}");
    let damaged = share(received.iter().filter(|(_, d)| !intact(d)).count(), count);
    // Silently damaged copies arrive. Copies with a bad checksum are dropped.
    assert!((0.04..0.07).contains(&damaged), "{damaged}");
    let stats = lab.link_stats()[1].directions.unwrap()[1];
    let copies = stats.frames + stats.duplicated;
    assert!((share(stats.corrupted as usize, copies as u32) - 0.0975).abs() < 0.02);
    assert!((share(stats.reordered as usize, copies as u32) - 0.1).abs() < 0.02);
    let vanished = copies - received.len() as u64;
    assert!((share(vanished as usize, copies as u32) - 0.0475).abs() < 0.02, "{vanished}");
    assert_no_overruns(&lab);
}

#[test]
fn loss_at_the_switch_is_shared_and_at_the_hosts_independent() {
    let shared = Topology::star(3).seed(3);
    let shared = shared.host("s").link("s", "sw").emulated().with_link(|l| l.a_to_b.loss = 0.5);
    let independent = Topology::new().switch("sw").host("s").link("s", "sw").seed(3);
    let independent = (1..=3).map(|n| format!("h{n}")).fold(independent, |topology, name| {
        topology.host(&name).link(&name, "sw").with_link(|l| l.b_to_a.loss = 0.5)
    });
    for (topology, same) in [(shared, true), (independent, false)] {
        let Some(lab) = lab(&topology) else { return };
        let group: std::net::Ipv4Addr = "239.9.8.7".parse().unwrap();
        let receivers: Vec<UdpSocket> = (1..=3)
            .map(|n| {
                let host = lab.host(&format!("h{n}")).unwrap();
                let socket = socket(host, group.into(), PORT);
                socket.join_multicast_v4(&group, &host.addr4()).unwrap();
                socket
            })
            .collect();
        let sender = socket(lab.host("s").unwrap(), group.into(), 0);
        let traffic = Traffic::new(&lab);
        traffic.burst(&sender, (group, PORT).into(), 400, 100, Duration::from_micros(100));
        let got: Vec<Vec<u32>> = receivers
            .iter()
            .map(|receiver| traffic.collect(receiver).iter().map(|(n, _)| *n).collect())
            .collect();
        assert!(got.iter().all(|g| (140..260).contains(&g.len())), "{:?}", got[0].len());
        assert_eq!(got[0] == got[1] && got[1] == got[2], same);
    }
}

#[test]
fn segmented_sends_are_judged_packet_by_packet() {
    let Some(lab) = lab(&star(Impairment::none().loss(0.3)).seed(2)) else { return };
    let Ends { sender, receiver, to } = ends(&lab);
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::UdpGsoSegment, &1_000)
        .unwrap();
    let traffic = Traffic::new(&lab);
    let sent = 2_000;
    let (received, ()) = traffic.read_during(&receiver, sent, || {
        let mut buffer = vec![0_u8; 40_000];
        for first in (0..sent).step_by(40) {
            for (number, segment) in (first..).zip(buffer.chunks_mut(1_000)) {
                segment[..4].copy_from_slice(&number.to_be_bytes());
            }
            sender.send_to(&buffer, to).unwrap();
            traffic.wait_for_room(40, Some(&receiver));
        }
    });
    assert!(received.iter().all(|(_, datagram)| datagram.len() == 1_000));
    let lost = 1.0 - share(received.len(), sent);
    assert!((0.25..0.35).contains(&lost), "{lost}");
}

#[test]
fn an_emulated_link_carries_tcp_and_jumbo_frames() {
    let topology = Topology::line(0).mtu(9_000).delay(Duration::from_millis(1));
    let Some(lab) = lab(&topology) else { return };
    let (received, _) = Traffic::new(&lab).carry(&ends(&lab), 10, 8_972, GAP);
    assert_eq!(received.len(), 10);
    assert!(received.iter().all(|(_, d)| d.len() == 8_972));
    let h2 = lab.host("h2").unwrap();
    let script = "import socket,sys\ns=socket.create_server((sys.argv[1],7200))\nprint('up',flush=True)\n\
                  c,_=s.accept()\nn=0\nwhile d:=c.recv(65536): n+=len(d)\nprint(n)";
    let mut server = h2
        .command("python3")
        .args(["-c", script, &h2.addr4().to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let client = "import socket,sys\ns=socket.create_connection((sys.argv[1],7200))\ns.sendall(bytes(3000000))";
    let status = lab
        .host("h1")
        .unwrap()
        .command("python3")
        .args(["-c", client, &h2.addr4().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    line.clear();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line.trim(), "3000000");
    server.wait().unwrap();
}
