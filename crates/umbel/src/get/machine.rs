//! The real machine of a client's host: its ports and its disk.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use umbel_engine::SessionId;
use umbel_engine::host::{Mailbox, PortError, PortSpec, SessionNews};
use umbel_engine::repository::receiver::{Brought, Held};
use umbel_engine::units::Rate;
use umbel_net::driver::Opener;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::{Port, SessionPort, UdpPort};
use umbel_net::session::{
    ClientError, ClientEvent, ClientSession, ConnectOptions, Credentials, SessionUrl,
};
use umbel_net::udp::{Discard, ReceiverOptions, SenderOptions};
use umbel_store::sink::{self, Change, DiskSink, HeldParts, NamedFile, SinkError};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Channel, Digest, Toi};

use super::device::DeviceItem;
use super::progress::{Observer, Snapshot};
use super::store::{Added, ItemStore};
use crate::endpoint::Listed;

/// Interface and channel of incoming multicast, known once the channel was opened.
type Listening = Arc<Mutex<Option<(Interface, Channel)>>>;

/// Opens the ports of a client.
pub(super) struct Machine {
    url: SessionUrl,
    session_options: ConnectOptions,
    interface: Option<String>,
    discard: Option<Discard>,
    mailbox: Mailbox<SessionNews>,
    /// This host's address on the way to the server.
    local: Arc<Mutex<Option<IpAddr>>>,
    listening: Listening,
    /// A session that is already being opened.
    ready: Option<(SessionId, ClientSession)>,
}

impl Machine {
    pub(super) fn new(
        (url, credentials): (SessionUrl, Credentials),
        interface: Option<String>,
        discard: Option<Discard>,
        mailbox: Mailbox<SessionNews>,
    ) -> Machine {
        let (local, listening) = (Arc::default(), Arc::default());
        let session_options = ConnectOptions { credentials, ..ConnectOptions::default() };
        let ready = None;
        Machine { url, session_options, interface, discard, mailbox, local, listening, ready }
    }

    /// Begins to open the first session, which continues while the directory is opened.
    ///
    /// # Errors
    ///
    /// If the URL has no pin, or the system cannot start a thread.
    pub(super) fn dial_ahead(&mut self) -> Result<(), ClientError> {
        let first = SessionId(0);
        self.ready = Some((first, self.dial(first)?));
        Ok(())
    }

    /// Creates an observer that also reports why multicast may not arrive.
    pub(super) fn diagnosing(&self, observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
        Arc::new(Diagnosing { observer, listening: self.listening.clone() })
    }

    pub(super) fn opener(mut self) -> Opener {
        Box::new(move |spec| self.open(spec).map_err(|error| PortError(format!("{error:#}"))))
    }

    fn open(&mut self, spec: &PortSpec) -> anyhow::Result<Box<dyn Port>> {
        Ok(match *spec {
            PortSpec::Session { session } => {
                let ready = self.ready.take_if(|(id, _)| *id == session);
                let opened = match ready {
                    Some((_, opened)) => opened,
                    None => self.dial(session)?,
                };
                Box::new(SessionPort::new(session, opened))
            }
            PortSpec::Channel { channel, rate } => Box::new(self.channel(channel, rate)?),
            PortSpec::Group { channel } => {
                let interface = self.interface(channel)?;
                let options = SenderOptions::new(Family::of(channel.group));
                Box::new(UdpPort::group(channel, &interface, &options)?)
            }
        })
    }

    fn dial(&self, session: SessionId) -> Result<ClientSession, ClientError> {
        let (mailbox, local) = (self.mailbox.clone(), self.local.clone());
        ClientSession::start(&self.url, &self.session_options, move |event| {
            if let ClientEvent::Connected { local: here, .. } = &event {
                *local.lock().unwrap_or_else(PoisonError::into_inner) = Some(here.ip());
            }
            event.post(session, &mailbox);
        })
    }

    fn channel(&self, channel: Channel, rate: Option<Rate>) -> anyhow::Result<UdpPort> {
        let interface = self.interface(channel)?;
        let options = ReceiverOptions { rate, discard: self.discard, ..ReceiverOptions::default() };
        let family = Family::of(channel.group);
        let port = UdpPort::receiver(family, channel.port, &interface, &options)?;
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        *listening = Some((interface, channel));
        Ok(port)
    }

    fn interface(&self, channel: Channel) -> anyhow::Result<Interface> {
        if let Some(name) = &self.interface {
            return Ok(Interface::resolve(name)?);
        }
        let local = *self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let local = local.filter(|local| Family::of(*local) == Family::of(channel.group));
        match (local, channel.source) {
            (Some(local), _) => Ok(Interface::resolve(&local.to_string())?),
            (None, Some(source)) => Ok(Interface::for_peer(source)?),
            (None, None) => Err(anyhow!("no interface is known for {channel}"))
                .context("name one with --interface"),
        }
    }
}

/// Looks for the cause when no multicast arrives.
struct Diagnosing {
    observer: Arc<dyn Observer>,
    listening: Listening,
}

impl Observer for Diagnosing {
    fn progress(&self, snapshot: &Snapshot) {
        self.observer.progress(snapshot);
    }

    fn item(&self, name: &str, path: &std::path::Path, bytes: u64) {
        self.observer.item(name, path, bytes);
    }

    fn already_there(&self, name: &str) {
        self.observer.already_there(name);
    }

    fn changed(&self, path: &str, change: Change) {
        self.observer.changed(path, change);
    }

    fn removed(&self, path: &std::path::Path) {
        self.observer.removed(path);
    }

    fn failed(&self, name: &str, reason: &str) {
        self.observer.failed(name, reason);
    }

    fn note(&self, line: &str) {
        self.observer.note(line);
    }

    fn fallback(&self, brought: &Brought, cause: Option<&str>) {
        self.observer.fallback(brought, cause);
        let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((interface, channel)) = listening else { return };
        let (observer, brought) = (self.observer.clone(), *brought);
        // The doctor takes a second or two; the engine cannot wait that long.
        let diagnose = move || {
            if let Some(finding) = crate::doctor::quick(&interface, &channel) {
                observer.fallback(&brought, Some(&finding.to_string()));
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(diagnose) {
            tracing::warn!("no thread for the doctor: {error}");
        }
    }
}

/// The directory where items are stored.
pub(super) struct Directory {
    path: PathBuf,
    sink: DiskSink,
    /// Names of the items that the server offers, where others are removed.
    listed: Option<Listed>,
    /// The item that is written to a block device instead.
    device: Option<DeviceItem>,
}

impl Directory {
    /// Creates it; `is_mirror` if it is to have exactly what the server offers.
    pub(super) fn new(path: PathBuf, sink: DiskSink, is_mirror: bool) -> Directory {
        Directory { path, sink, listed: is_mirror.then(Listed::default), device: None }
    }

    /// Has an item compared with what a device has, if the sink writes to one. `mailbox` is told
    /// then.
    pub(super) fn comparing(self, mailbox: Mailbox<Toi>) -> Directory {
        let preparer = self.sink.preparer();
        let device = preparer.is_device().then(|| DeviceItem::new(preparer, mailbox));
        Directory { device, ..self }
    }

    /// Returns the names in the list of items.
    pub(super) fn listed(&self) -> Listed {
        self.listed.clone().unwrap_or_default()
    }
}

impl ItemStore for Directory {
    type Sink = DiskSink;

    fn add(&mut self, info: &ItemInfo) -> Result<Added, String> {
        if let Some(device) = &mut self.device {
            device.wait(info);
            return Ok(Added::AsksDigests);
        }
        let held = match self.sink.add(info) {
            Err(SinkError::Differs { .. }) => return Ok(Added::Differs),
            other => other.map_err(|error| error.to_string())?,
        };
        match held {
            sink::Held::AlreadyThere => Ok(Added::AlreadyThere),
            sink::Held::Directory => Ok(Added::Directory),
            sink::Held::Link(path) => Ok(Added::Link(path)),
            sink::Held::OtherName => Ok(Added::OtherName),
            sink::Held::LeftOut => Ok(Added::LeftOut),
            sink::Held::Parts(parts) => Ok(parts_of(&parts)),
        }
    }

    fn compared(&mut self, toi: Toi) -> Option<Result<Added, String>> {
        let prepared = match self.device.as_mut()?.take(toi)? {
            Ok(prepared) => prepared,
            Err(error) => return Some(Err(error.to_string())),
        };
        match self.sink.admit(prepared) {
            sink::Held::Parts(parts) => Some(Ok(parts_of(&parts))),
            _ => None,
        }
    }

    fn takes_one(&self) -> bool {
        self.device.is_some()
    }

    fn cancel(&mut self, toi: Toi) {
        self.sink.cancel(toi);
    }

    fn check_blocks(&mut self, toi: Toi, digests: Vec<Digest>) {
        if !self.device.as_mut().is_some_and(|device| device.compare(toi, &digests)) {
            self.sink.check_blocks(toi, digests);
        }
    }

    fn begin_list(&mut self) {
        self.sink.begin_list();
        if let Some(listed) = &self.listed {
            listed.names().clear();
        }
    }

    fn list(&mut self, name: &str) {
        if let Some(listed) = &self.listed {
            listed.names().insert(name.to_owned());
        }
    }

    fn name_files(&mut self) -> Vec<NamedFile> {
        self.sink.name_files()
    }

    fn may_hold_something(&self) -> bool {
        // The release before may have some, and so may a device.
        if self.listed.is_some() || self.device.is_some() {
            return true;
        }
        let Ok(mut entries) = std::fs::read_dir(&self.path) else { return true };
        entries.any(|entry| {
            !entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(sink::is_claim))
        })
    }
}

/// Returns the parts that the sink holds, in blocks and in symbols, with their bytes.
fn parts_of(parts: &HeldParts) -> Added {
    let symbols: u64 = parts.partial_blocks().map(|(_, block)| u64::from(block.count())).sum();
    let symbol_len = u64::from(parts.partition().symbol_len());
    Added::Parts(Held::from(parts), parts.restored_bytes() + symbols * symbol_len)
}
