//! Listens to a feed's domain group somewhere in a lab, and counts the datagrams there.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use umbel_lab::Node;
use umbel_wire::small_block::SmallBlockPacket;

/// Counts for each sender: repairs, and other datagrams.
pub(crate) type Heard = BTreeMap<IpAddr, (u64, u64)>;

/// A listener until it is dropped.
pub(crate) struct Ear {
    heard: Arc<Mutex<Heard>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    /// Listens on a host to the domain group that an event `sending` names; IPv4.
    pub(crate) fn new(host: Node<'_>, sending: &Value) -> Ear {
        let domain: SocketAddr = sending["domain"].as_str().unwrap().parse().unwrap();
        let IpAddr::V4(group) = domain.ip() else { panic!("an IPv6 group: {domain}") };
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, domain.port()));
        let socket = host.udp_socket(any).unwrap();
        socket.join_multicast_v4(&group, &host.addr4()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (heard, stopped) = (Arc::<Mutex<Heard>>::default(), Arc::<AtomicBool>::default());
        let (told, stop) = (heard.clone(), stopped.clone());
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !stop.load(Ordering::Acquire) {
                match socket.recv_from(&mut buffer) {
                    Ok((len, from)) => {
                        let repair = SmallBlockPacket::parse(&buffer[..len]).is_ok();
                        let mut heard = told.lock().unwrap();
                        let (repairs, others) = heard.entry(from.ip()).or_default();
                        *if repair { repairs } else { others } += 1;
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Ear { heard, stopped, thread: Some(thread) }
    }

    /// Returns the counts so far.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }

    /// Returns the repairs heard of a sender so far.
    pub(crate) fn repairs_of(&self, sender: Node<'_>) -> u64 {
        self.heard().get(&IpAddr::V4(sender.addr4())).map_or(0, |(repairs, _)| *repairs)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
