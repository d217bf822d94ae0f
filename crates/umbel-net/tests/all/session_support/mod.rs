//! Helpers shared by the tests of sessions: a server and clients whose events are recorded, and a
//! relay that stands for the network between them.

pub(crate) mod raw;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::SessionId;
use umbel_net::session::{
    ClientError, ClientEvent, ClientSession, ConnectOptions, Host, Identity, Pin, ServerEndpoint,
    ServerOptions, SessionEvent, SessionHandle, SessionServer, SessionUrl,
};

/// Time longer than anything in these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) fn identity() -> Identity {
    let dir = tempfile::tempdir().unwrap();
    Identity::load_or_create(dir.path()).unwrap()
}

/// Returns a message whose body has this length and is filled with `kind`.
pub(crate) fn message(kind: u8, body: usize) -> Bytes {
    let mut message = vec![b'U', b'm', 1, kind];
    message.extend((body as u32).to_be_bytes());
    message.resize(8 + body, kind);
    message.into()
}

pub(crate) fn url(address: SocketAddr, pin: Pin) -> SessionUrl {
    let (host, port) = (Host::Ip(address.ip()), address.port());
    SessionUrl { host, port, pin: Some(pin), token: None }
}

pub(crate) struct Server {
    pub(crate) running: SessionServer,
    pub(crate) handle: SessionHandle,
    pub(crate) pin: Pin,
    pub(crate) address: SocketAddr,
    pub(crate) events: Receiver<SessionEvent>,
}

impl Server {
    pub(crate) fn start(options: ServerOptions) -> Server {
        Server::start_as(&identity(), "127.0.0.1:0".parse().unwrap(), options)
    }

    pub(crate) fn start_as(
        identity: &Identity,
        address: SocketAddr,
        options: ServerOptions,
    ) -> Server {
        let endpoint = ServerEndpoint::bind(address, identity, options).unwrap();
        let (events_in, events) = channel();
        let address = endpoint.local_addr();
        let server = endpoint.start(move |event| drop(events_in.send(event))).unwrap();
        let handle = server.handle();
        Server { running: server, handle, pin: identity.fingerprint(), address, events }
    }

    /// Starts a server that sends every message back.
    pub(crate) fn echo(options: ServerOptions) -> (SessionServer, SessionUrl) {
        let identity = identity();
        let address = "127.0.0.1:0".parse().unwrap();
        let endpoint = ServerEndpoint::bind(address, &identity, options).unwrap();
        let url = url(endpoint.local_addr(), identity.fingerprint());
        let handle: Arc<Mutex<Option<SessionHandle>>> = Arc::default();
        let server = {
            let handle = handle.clone();
            endpoint
                .start(move |event| {
                    if let SessionEvent::Message { id, bytes } = event {
                        let _ = handle.lock().unwrap().as_ref().unwrap().send(id, bytes);
                    }
                })
                .unwrap()
        };
        *handle.lock().unwrap() = Some(server.handle());
        (server, url)
    }

    pub(crate) fn url(&self) -> SessionUrl {
        url(self.address, self.pin)
    }

    pub(crate) fn next(&self) -> SessionEvent {
        self.events.recv_timeout(PATIENCE).expect("the server reports something")
    }

    pub(crate) fn opened(&self) -> SessionId {
        match self.next() {
            SessionEvent::Opened { id, .. } => id,
            other => panic!("{other:?} instead of an opened session"),
        }
    }

    pub(crate) fn message(&self) -> Bytes {
        match self.next() {
            SessionEvent::Message { bytes, .. } => bytes,
            other => panic!("{other:?} instead of a message"),
        }
    }

    /// Returns the reason of the next `Closed`. Skips other events before it.
    pub(crate) fn closed(&self) -> String {
        loop {
            if let SessionEvent::Closed { reason, .. } = self.next() {
                return reason;
            }
        }
    }
}

pub(crate) struct Client {
    pub(crate) session: ClientSession,
    pub(crate) events: Receiver<ClientEvent>,
}

impl Client {
    pub(crate) fn start(url: &SessionUrl, options: &ConnectOptions) -> Client {
        let (events_in, events) = channel();
        let session = ClientSession::start(url, options, record(events_in)).unwrap();
        Client { session, events }
    }

    pub(crate) fn connect(
        url: &SessionUrl,
        options: &ConnectOptions,
    ) -> Result<Client, ClientError> {
        let (events_in, events) = channel();
        let session = ClientSession::connect(url, options, record(events_in))?;
        Ok(Client { session, events })
    }

    pub(crate) fn next(&self) -> ClientEvent {
        self.events.recv_timeout(PATIENCE).expect("the client reports something")
    }

    /// Returns the next message. Skips other events before it.
    pub(crate) fn message(&self) -> Bytes {
        loop {
            match self.next() {
                ClientEvent::Message(bytes) => return bytes,
                ClientEvent::Disconnected { reason, .. } => panic!("disconnected: {reason}"),
                _ => {}
            }
        }
    }

    /// Returns the reason why the session ended. Skips other events before that.
    pub(crate) fn disconnected(&self) -> ClientError {
        loop {
            if let ClientEvent::Disconnected { reason, retryable } = self.next() {
                assert_eq!(reason.retryable(), retryable);
                return reason;
            }
        }
    }
}

fn record(events: Sender<ClientEvent>) -> impl Fn(ClientEvent) + Send + Sync {
    move |event| drop(events.send(event))
}

/// Passes datagrams between one client at a time and a server, each after `delay`.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    cut: Arc<AtomicBool>,
    lose_up: Arc<AtomicU32>,
    lose_down: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn new(server: SocketAddr, delay: Duration) -> Relay {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        inside.connect(server).unwrap();
        let (cut, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (lose_up, lose_down) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let address = outside.local_addr().unwrap();
        let client: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let mut threads = Vec::new();
        for up in [true, false] {
            let (from, to) = if up { (&outside, &inside) } else { (&inside, &outside) };
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (cut, stop, client) = (cut.clone(), stop.clone(), client.clone());
            let lose_percent = if up { lose_up.clone() } else { lose_down.clone() };
            let (queue, queued) = channel::<(Instant, Vec<u8>)>();
            let receiver = client.clone();
            threads.push(std::thread::spawn(move || {
                for (due, datagram) in queued {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let _ = if up {
                        to.send(&datagram)
                    } else {
                        let client = receiver.lock().unwrap().expect("the client spoke first");
                        to.send_to(&datagram, client)
                    };
                }
            }));
            threads.push(std::thread::spawn(move || {
                let mut buffer = [0; 2048];
                let mut draw = 12_345u32 + u32::from(up);
                while !stop.load(Ordering::Relaxed) {
                    let Ok((len, sender)) = from.recv_from(&mut buffer) else { continue };
                    if up {
                        *client.lock().unwrap() = Some(sender);
                    }
                    draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let lost = (draw >> 16) % 100 < lose_percent.load(Ordering::Relaxed);
                    if !cut.load(Ordering::Relaxed) && !lost {
                        let _ = queue.send((Instant::now() + delay, buffer[..len].to_vec()));
                    }
                }
            }));
        }
        Relay { address, cut, lose_up, lose_down, stop, threads }
    }

    /// Drops every datagram from now on.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Passes every datagram again from now on.
    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::Relaxed);
    }

    /// Sets the loss from now on: `up` of 100 datagrams on the way to the server, and `down` on the
    /// way back.
    pub(crate) fn lose(&self, up: u32, down: u32) {
        self.lose_up.store(up, Ordering::Relaxed);
        self.lose_down.store(down, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}
