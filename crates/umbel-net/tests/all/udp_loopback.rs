//! Multicast between sockets of this host, on its loopback interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::{Address, Allowance, TransmitBuf};
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::{
    DropCounts, JoinError, OpenSenderError, Receiver, ReceiverOptions, SendError, Sender,
    SenderOptions,
};
use umbel_net::wake::Waker;
use umbel_wire::Channel;

/// Time longer than anything in these tests takes.
const LAST_RESORT: Duration = Duration::from_mins(2);

/// Returns a group that tests of other processes, and other tests of this one, do not use.
fn group(prefix: u8, test: u8) -> IpAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(prefix, 100 + test, high, low))
}

fn loopback() -> Interface {
    Interface::resolve("lo").unwrap()
}

fn sender(offload: bool) -> Sender {
    let options = SenderOptions { offload, ..SenderOptions::new(Family::V4) };
    Sender::open(&loopback(), &options).unwrap()
}

/// Opens a receiver on its own port.
fn receiver() -> Receiver {
    Receiver::open(0, Family::V4, &loopback(), &ReceiverOptions::default()).unwrap()
}

/// Opens another receiver on the same port.
fn sharing(other: &Receiver) -> Receiver {
    let options = ReceiverOptions::default();
    Receiver::open(other.port(), Family::V4, &loopback(), &options).unwrap()
}

fn channel(group: IpAddr, source: Option<IpAddr>, receiver: &Receiver) -> Channel {
    Channel { source, group, port: receiver.port() }
}

/// Returns datagrams of these lengths, each recognisable in each of its bytes, split into head and
/// body.
fn datagrams(lengths: &[usize]) -> TransmitBuf {
    let mut buf = TransmitBuf::new(Allowance::data(lengths.len()));
    for (n, bytes) in lengths.iter().enumerate() {
        let datagram: Vec<u8> = (0..*bytes).map(|i| (n * 31 + i) as u8).collect();
        let (head, body) = datagram.split_at(16.min(*bytes));
        buf.push(head, Bytes::copy_from_slice(body));
    }
    buf
}

/// Returns the datagrams that arrive, until there are `count` or no more arrive.
fn collect(receiver: &mut Receiver, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let end = Instant::now() + LAST_RESORT;
    while got.len() < count && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        receiver.receive(Some(left), None, |datagram| got.push(datagram.payload.to_vec())).unwrap();
    }
    got
}

/// Checks that nothing arrives for a while.
fn assert_silent(receiver: &mut Receiver) {
    let reception = receiver
        .receive(Some(Duration::from_millis(50)), None, |datagram| panic!("got {datagram:?}"))
        .unwrap();
    assert_eq!(reception.datagrams, 0);
}

/// Returns the bytes that `buf` describes.
fn expected(buf: &TransmitBuf) -> Vec<Vec<u8>> {
    buf.iter().map(|(head, body)| [head, body].concat()).collect()
}

#[test]
fn a_sender_and_a_receiver_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Sender>();
    is_send::<Receiver>();
}

#[test]
fn a_batch_arrives_intact_with_its_boundaries() {
    for offload in [true, false] {
        let mut receiver = receiver();
        let group = group(239, 0);
        receiver.join(&channel(group, None, &receiver)).unwrap();
        let mut sender = sender(offload);
        let mut lengths = vec![1_400; 60];
        lengths.extend([700, 1_400, 1, 0, 1_400, 1_400, 1_401, 20]);
        let buf = datagrams(&lengths);
        let report = sender.send(SocketAddr::new(group, receiver.port()), &buf).unwrap();
        assert_eq!(report.datagrams, lengths.len());
        assert_eq!(report.bytes, lengths.iter().sum::<usize>() as u64);
        assert_eq!(collect(&mut receiver, lengths.len()), expected(&buf), "offload {offload}");
        assert_eq!(sender.offloads(), offload);
        assert_eq!(receiver.drops(), DropCounts::default());
    }
}

#[test]
fn several_receivers_on_one_host_all_get_everything() {
    let mut first = receiver();
    let mut second = sharing(&first);
    let mut third = sharing(&first);
    let group = group(239, 1);
    let channel = channel(group, None, &first);
    for receiver in [&mut first, &mut second] {
        receiver.join(&channel).unwrap();
    }
    let buf = datagrams(&[1_000; 20]);
    sender(true).send(channel.destination(), &buf).unwrap();
    for receiver in [&mut first, &mut second] {
        assert_eq!(collect(receiver, 20), expected(&buf));
    }
    // The port alone is not enough. A receiver that has not joined gets nothing.
    assert_silent(&mut third);
    assert_eq!(third.drops(), DropCounts::default());
}

#[test]
fn a_receiver_gets_only_the_groups_that_it_has_joined() {
    let (mut one, mut two) = (receiver(), receiver());
    let groups = [group(239, 2), group(239, 3)];
    one.join(&channel(groups[0], None, &one)).unwrap();
    two.join(&channel(groups[1], None, &two)).unwrap();
    // Joined by this host, but not by this socket.
    let mut sender = sender(true);
    sender.send(SocketAddr::new(groups[1], one.port()), &datagrams(&[10])).unwrap();
    assert_silent(&mut one);
    sender.send(SocketAddr::new(groups[0], one.port()), &datagrams(&[20])).unwrap();
    assert_eq!(collect(&mut one, 1)[0].len(), 20);
}

#[test]
fn a_datagram_to_the_port_that_is_not_multicast_is_discarded_and_counted() {
    let mut receiver = receiver();
    receiver.join(&channel(group(239, 4), None, &receiver)).unwrap();
    let stray = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stray.send_to(b"stray", ("127.0.0.1", receiver.port())).unwrap();
    assert_silent(&mut receiver);
    assert_eq!(receiver.drops().not_joined, 1);
}

#[test]
fn a_source_specific_channel_takes_its_source_and_no_other() {
    let mut receiver = receiver();
    let group = group(232, 5);
    let here = IpAddr::from([127, 0, 0, 1]);
    receiver.join(&channel(group, Some(here), &receiver)).unwrap();
    let to = SocketAddr::new(group, receiver.port());
    let options = SenderOptions {
        source: Some(IpAddr::from([127, 0, 0, 2])),
        ..SenderOptions::new(Family::V4)
    };
    let mut other = Sender::open(&loopback(), &options).unwrap();
    other.send(to, &datagrams(&[10])).unwrap();
    assert_silent(&mut receiver);

    let mut right = sender(true);
    assert_eq!(right.source().ip(), here);
    right.send(to, &datagrams(&[20])).unwrap();
    let mut seen = Vec::new();
    receiver
        .receive(Some(LAST_RESORT), None, |datagram| {
            assert_eq!(datagram.from, right.source());
            assert_eq!(datagram.to, to);
            seen.push(datagram.datagram().by);
        })
        .unwrap();
    assert_eq!(seen, [Address::Channel(channel(group, Some(here), &receiver))]);
}

#[test]
fn two_sources_of_one_group_are_joined_and_left_one_by_one() {
    let mut receiver = receiver();
    let group = group(232, 6);
    let sources = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
    let mut senders = sources.map(|source| {
        let options = SenderOptions { source: Some(source), ..SenderOptions::new(Family::V4) };
        Sender::open(&loopback(), &options).unwrap()
    });
    let channels = sources.map(|source| channel(group, Some(source), &receiver));
    for channel in &channels {
        receiver.join(channel).unwrap();
        receiver.join(channel).unwrap();
    }
    assert_eq!(receiver.joined(), channels);
    let to = channels[0].destination();
    for (n, sender) in senders.iter_mut().enumerate() {
        sender.send(to, &datagrams(&[n + 1])).unwrap();
        assert_eq!(collect(&mut receiver, 1)[0].len(), n + 1);
    }
    receiver.leave(&channels[0]).unwrap();
    receiver.leave(&channels[0]).unwrap();
    senders[0].send(to, &datagrams(&[1])).unwrap();
    senders[1].send(to, &datagrams(&[2])).unwrap();
    assert_eq!(collect(&mut receiver, 1)[0].len(), 2);
    assert_silent(&mut receiver);
}

#[test]
fn nothing_arrives_after_leaving_not_even_what_the_kernel_holds() {
    let mut receiver = receiver();
    let channel = channel(group(239, 7), None, &receiver);
    receiver.join(&channel).unwrap();
    let mut sender = sender(true);
    sender.send(channel.destination(), &datagrams(&[10])).unwrap();
    assert_eq!(collect(&mut receiver, 1).len(), 1);
    sender.send(channel.destination(), &datagrams(&[10])).unwrap();
    receiver.leave(&channel).unwrap();
    assert!(receiver.joined().is_empty());
    sender.send(channel.destination(), &datagrams(&[10])).unwrap();
    assert_silent(&mut receiver);
    assert_eq!(receiver.drops().not_joined, 1);
    receiver.join(&channel).unwrap();
    sender.send(channel.destination(), &datagrams(&[30])).unwrap();
    assert_eq!(collect(&mut receiver, 1)[0].len(), 30);
}

#[test]
fn a_receiver_that_does_not_read_is_told_how_much_the_kernel_dropped() {
    let mut receiver = receiver();
    let channel = channel(group(239, 8), None, &receiver);
    receiver.join(&channel).unwrap();
    // Unsegmented, so that each datagram is one message and counts as one.
    let mut sender = sender(false);
    let buf = datagrams(&[1_400; 64]);
    let mut sent = 0;
    while receiver.drops().kernel == 0 {
        assert!(sent < 1_000_000, "64 times the largest buffer is not filled");
        sent += sender.send(channel.destination(), &buf).unwrap().datagrams as u64;
    }
    let dropped = receiver.drops().kernel;
    let mut got = 0;
    loop {
        let reception = receiver.receive(Some(Duration::from_millis(50)), None, |_| {}).unwrap();
        got += reception.datagrams as u64;
        if reception.datagrams == 0 {
            break;
        }
    }
    assert_eq!(receiver.drops().kernel, dropped, "reading must not count again");
    assert_eq!(got + dropped, sent);
    // The next message carries the count too.
    sender.send(channel.destination(), &datagrams(&[10])).unwrap();
    assert_eq!(collect(&mut receiver, 1).len(), 1);
    assert_eq!(receiver.drops().kernel, dropped);
}

#[test]
fn a_call_ends_the_wait_and_loses_no_datagram() {
    let mut receiver = receiver();
    let channel = channel(group(239, 9), None, &receiver);
    receiver.join(&channel).unwrap();
    let waker = Waker::new().unwrap();
    let theirs = waker.clone();
    let start = Instant::now();
    let caller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        theirs.wake();
    });
    let reception = receiver.receive(None, Some(&waker), |_| {}).unwrap();
    assert!(reception.woken && reception.datagrams == 0, "{reception:?}");
    assert!(start.elapsed() >= Duration::from_millis(15));
    caller.join().unwrap();
    // Both the call and a waiting datagram are reported at once.
    sender(true).send(channel.destination(), &datagrams(&[10])).unwrap();
    waker.wake();
    let reception = receiver.receive(None, Some(&waker), |_| {}).unwrap();
    assert!(reception.woken && reception.datagrams == 1, "{reception:?}");
    let reception = receiver.receive(Some(Duration::ZERO), Some(&waker), |_| {}).unwrap();
    assert_eq!(reception, umbel_net::udp::Reception::default());
}

#[test]
fn a_channel_that_does_not_suit_the_receiver_is_refused() {
    let mut receiver = receiver();
    let good = channel(group(239, 10), None, &receiver);
    let unicast = Channel { group: IpAddr::from([192, 0, 2, 1]), ..good };
    assert!(matches!(receiver.join(&unicast), Err(JoinError::NotMulticast(_))));
    for foreign in [
        Channel { port: good.port ^ 1, ..good },
        Channel { group: "ff3e::1".parse().unwrap(), ..good },
        Channel { source: Some("::1".parse().unwrap()), ..good },
    ] {
        assert!(matches!(receiver.join(&foreign), Err(JoinError::Foreign { .. })));
    }
    receiver.join(&good).unwrap();
    let mixed = Channel { source: Some(IpAddr::from([127, 0, 0, 1])), ..good };
    assert!(matches!(receiver.join(&mixed), Err(JoinError::Mixed(_))));
    assert_eq!(receiver.joined(), [good]);
}

#[test]
fn one_membership_too_many_names_the_limit() {
    let limit = std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships").unwrap();
    let limit: u8 = limit.trim().parse().unwrap_or(u8::MAX);
    if limit > 100 {
        eprintln!("SKIPPED: this host allows {limit} memberships or more");
        return;
    }
    let mut receiver = receiver();
    for n in 0..limit {
        receiver.join(&channel(group(239, 11 + n), None, &receiver)).unwrap();
    }
    let error = receiver.join(&channel(group(239, 11 + limit), None, &receiver)).unwrap_err();
    assert!(matches!(error, JoinError::TooMany { .. }), "{error}");
    assert!(error.to_string().contains("sysctl net.ipv4.igmp_max_memberships"), "{error}");
    assert_eq!(receiver.joined().len(), usize::from(limit));
}

#[test]
fn a_datagram_that_is_too_long_is_refused_by_name() {
    let mut sender = sender(true);
    let to = SocketAddr::new(group(239, 120), 9);
    let error = sender.send(to, &datagrams(&[100, 65_508, 100])).unwrap_err();
    assert!(matches!(error, SendError::TooLong { bytes: 65_508, .. }), "{error}");
    assert!(!error.is_transient());
    let counts = sender.counts();
    assert_eq!((counts.datagrams, counts.unsent), (1, 2));
    assert_eq!(sender.max_batch(1_400), 46);
    assert_eq!(sender.max_batch(0), 64);
    assert_eq!(sender.max_batch(70_000), 1);
}

#[test]
fn a_sender_that_cannot_be_opened_says_why() {
    let taken = sender(true).source().port();
    let holder = std::net::UdpSocket::bind(("127.0.0.1", taken)).unwrap();
    let options = SenderOptions { port: taken, ..SenderOptions::new(Family::V4) };
    let error = Sender::open(&loopback(), &options).unwrap_err();
    assert!(matches!(error, OpenSenderError::PortTaken(port) if port == taken), "{error}");
    drop(holder);
    for source in ["192.0.2.77", "::1"] {
        let source = Some(source.parse().unwrap());
        let options = SenderOptions { source, ..SenderOptions::new(Family::V4) };
        let error = Sender::open(&loopback(), &options).unwrap_err();
        assert!(matches!(error, OpenSenderError::Source { .. }), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
}
