//! A tap on all links of a lab.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt, sockopt};
use umbel_lab::{Lab, Node};
use umbel_wire::datagram::IpDatagram;

/// Bytes of packets that wait to be looked at, at each node.
const QUEUE: usize = 64 << 20;

/// A datagram on a link.
pub(crate) struct Sight<'a> {
    /// Name of the node where it was seen, and of the one at the link's other end.
    pub(crate) node: &'a str,
    pub(crate) peer: &'a str,
    /// Whether it leaves the node. Otherwise it has come for it.
    pub(crate) is_sent: bool,
    /// Time of day.
    pub(crate) at: Duration,
    pub(crate) datagram: IpDatagram<'a>,
}

/// Shows all datagrams of a lab to what keeps account of them, until it is dropped.
pub(crate) struct Tap<A> {
    account: Arc<Mutex<A>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<A: Send + 'static> Tap<A> {
    /// Listens at every node.
    pub(crate) fn new(lab: &Lab, account: A, see: fn(&mut A, &Sight<'_>)) -> Tap<A> {
        let ears: Vec<Ear> = lab.hosts_and_routers().map(Ear::at).collect();
        let (account, stop) = (Arc::new(Mutex::new(account)), Arc::<AtomicBool>::default());
        let (kept, stopped) = (account.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let mut fds: Vec<PollFd<'_>> =
                    ears.iter().map(|e| PollFd::new(e.socket.as_fd(), PollFlags::POLLIN)).collect();
                let _ = poll(&mut fds, PollTimeout::from(20_u8));
                let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
                for (ear, _) in ears.iter().zip(ready).filter(|(_, ready)| *ready) {
                    ear.listen(|sight| see(&mut kept.lock().unwrap(), sight));
                }
            }
        });
        Tap { account, stop, thread: Some(thread) }
    }

    /// Looks at the account so far.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut A) -> T) -> T {
        look(&mut self.account.lock().unwrap())
    }
}

impl<A> Drop for Tap<A> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket that sees all packets of a node.
struct Ear {
    socket: OwnedFd,
    node: String,
    /// Names behind the interfaces.
    peers: BTreeMap<usize, String>,
}

impl Ear {
    fn at(node: Node<'_>) -> Ear {
        let all = i32::from((libc::ETH_P_ALL as u16).to_be());
        let socket = node.socket(libc::AF_PACKET, libc::SOCK_DGRAM, all).unwrap();
        // Only the machine's administrator may have more than the usual room.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &QUEUE);
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).unwrap();
        let peers = node.interfaces().iter().map(|i| (i.index as usize, i.peer.clone()));
        Ear { socket, node: node.name().to_owned(), peers: peers.collect() }
    }

    /// Shows what waits, up to a number that lets other nodes have their turn.
    fn listen(&self, mut show: impl FnMut(&Sight<'_>)) {
        let mut buffer = vec![0; 65_536];
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
        for _ in 0..1024 {
            let mut slices = [IoSliceMut::new(&mut buffer)];
            let flags = MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_raw_fd();
            let Ok(got) = recvmsg::<LinkAddr>(fd, &mut slices, Some(&mut control), flags) else {
                return;
            };
            let stamp = got.cmsgs().unwrap().find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
                _ => None,
            });
            let (len, from, at) = (got.bytes, got.address.unwrap(), stamp.unwrap());
            let is_sent = match from.pkttype() {
                libc::PACKET_OUTGOING => true,
                libc::PACKET_HOST | libc::PACKET_MULTICAST => false,
                _ => continue,
            };
            let Some(peer) = self.peers.get(&from.ifindex()) else { continue };
            let Ok(datagram) = IpDatagram::parse(&buffer[..len]) else { continue };
            show(&Sight { node: &self.node, peer, is_sent, at, datagram });
        }
    }
}
