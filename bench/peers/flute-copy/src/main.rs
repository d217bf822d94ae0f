//! Copies one file to many receivers with the crate `flute`, as fast as that crate can.
//!
//! ```text
//! flute-copy recv GROUP PORT ADDRESS FILE                       # one in each receiver, first
//! flute-copy send GROUP PORT ADDRESS FILE CODE PARITY MBIT_S    # goes round until it is killed
//! ```
//!
//! `ADDRESS` is that of the local interface. `CODE` is `none` or `raptorq`. `PARITY` is the number
//! of repair symbols of a block, in percent of its source symbols. `MBIT_S` is the rate of the UDP
//! payload, 0 to send without pause. A receiver ends when it has written the whole file. There is
//! no feedback to the sender.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use flute::core::{Oti, UDPEndpoint};
use flute::error::{FluteError, Result as FluteResult};
use flute::receiver::writer::{
    ObjectMetadata, ObjectWriter, ObjectWriterBuilder, ObjectWriterBuilderResult,
};
use flute::receiver::{Config as ReceiverConfig, MultiReceiver};
use flute::sender::{
    CarouselRepeatMode, Config as SenderConfig, ObjectDesc, Sender, TransferConfig,
};
use socket2::{Domain, Protocol, Socket, Type};
use url::Url;

type Error = Box<dyn std::error::Error>;

/// Length of a symbol in bytes: with all headers a packet has about 1,470 bytes.
const SYMBOL_LEN: u16 = 1_400;
/// Number of source symbols of a RaptorQ block, if the file allows it: the best value for 100 MB.
const BLOCK_SYMBOLS: u64 = 300;
/// Maximum number of blocks: RaptorQ numbers its blocks in 8 bits [RFC 6330 §3.3.3].
const MAX_BLOCKS: u64 = 250;
const SOCKET_BUFFER: usize = 4 << 20;
const TSI: u64 = 1;
/// Waits shorter than this add up to a longer one, since the timer is no finer.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["recv", group, port, address, file] => {
            receive(SocketAddrV4::new(group.parse()?, port.parse()?), address.parse()?, file.into())
        }
        ["send", group, port, address, file, code, parity, rate] => {
            let to = SocketAddrV4::new(group.parse()?, port.parse()?);
            let len = std::fs::metadata(file)?.len();
            let oti = oti(code, len, parity.parse()?)?;
            send(to, address.parse()?, Path::new(file), &oti, rate.parse()?)
        }
        _ => Err("usage: flute-copy recv GROUP PORT ADDRESS FILE | \
                  flute-copy send GROUP PORT ADDRESS FILE none|raptorq PARITY MBIT_S"
            .into()),
    }
}

/// Returns the code for a file of `len` bytes.
fn oti(code: &str, len: u64, parity_percent: f64) -> Result<Oti, Error> {
    match code {
        "none" => Ok(Oti::new_no_code(SYMBOL_LEN, 1_024)),
        "raptorq" => {
            let symbols = len.div_ceil(u64::from(SYMBOL_LEN)).max(1);
            let block = BLOCK_SYMBOLS.max(symbols.div_ceil(MAX_BLOCKS)).min(symbols);
            let parity = (block as f64 * parity_percent / 100.0).ceil() as u16;
            Oti::new_raptorq(SYMBOL_LEN, block.try_into()?, parity, 1, 4).map_err(said)
        }
        _ => Err("CODE is none or raptorq".into()),
    }
}

/// Converts an error of flute, which does not implement the standard library's trait.
fn said(error: FluteError) -> Error {
    error.0.into()
}

fn endpoint(to: SocketAddrV4) -> UDPEndpoint {
    UDPEndpoint::new(None, to.ip().to_string(), to.port())
}

fn socket() -> Result<Socket, Error> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn send(
    to: SocketAddrV4,
    address: Ipv4Addr,
    file: &Path,
    oti: &Oti,
    mbit_s: f64,
) -> Result<(), Error> {
    let socket = socket()?;
    socket.set_multicast_if_v4(&address)?;
    socket.connect(&to.into())?;
    let socket = UdpSocket::from(socket);

    let again = CarouselRepeatMode::DelayBetweenTransfers(Duration::ZERO);
    let options = SenderConfig {
        fdt_carousel_mode: CarouselRepeatMode::DelayBetweenTransfers(Duration::from_millis(20)),
        interleave_blocks: 1,
        ..SenderConfig::default()
    };
    let mut sender = Sender::new(endpoint(to), TSI, oti, &options);
    let transfer = TransferConfig {
        max_transfer_count: u32::MAX,
        carousel_mode: Some(again),
        ..TransferConfig::default()
    };
    let url = Url::parse("file:///object")?;
    let octets = "application/octet-stream";
    let object = ObjectDesc::create_from_file(file, Some(&url), octets, false, false, transfer);
    sender.add_object(0, object.map_err(said)?).map_err(said)?;
    sender.publish(SystemTime::now()).map_err(said)?;

    let start = Instant::now();
    let mut bits = 0.0;
    loop {
        let Some(packet) = sender.read(SystemTime::now()) else {
            std::thread::sleep(SHORTEST_WAIT);
            continue;
        };
        if mbit_s > 0.0 {
            let due = Duration::from_secs_f64(bits / (mbit_s * 1e6));
            let early = due.saturating_sub(start.elapsed());
            if early >= SHORTEST_WAIT {
                std::thread::sleep(early);
            }
        }
        bits += packet.len() as f64 * 8.0;
        socket.send(&packet)?;
    }
}

fn receive(from: SocketAddrV4, address: Ipv4Addr, file: PathBuf) -> Result<(), Error> {
    let socket = socket()?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&from.into())?;
    socket.join_multicast_v4(from.ip(), &address)?;
    let socket = UdpSocket::from(socket);

    let done = Rc::new(Cell::new(false));
    let output = Rc::new(Output { file, done: Rc::clone(&done) });
    let options = ReceiverConfig {
        object_timeout: None,
        object_max_cache_size: Some(1 << 30),
        ..ReceiverConfig::default()
    };
    let mut receiver = MultiReceiver::new(output, Some(options), false);
    let endpoint = endpoint(from);
    let mut buffer = [0; 2_048];
    while !done.get() {
        let len = socket.recv(&mut buffer)?;
        // A packet that flute refuses counts as lost.
        let _ = receiver.push(&endpoint, &buffer[..len], SystemTime::now());
    }
    Ok(())
}

/// Destination of the only object.
struct Output {
    file: PathBuf,
    done: Rc<Cell<bool>>,
}

impl ObjectWriterBuilder for Output {
    fn new_object_writer(
        &self,
        _: &UDPEndpoint,
        _: &u64,
        _: &u128,
        _: &ObjectMetadata,
        _: SystemTime,
    ) -> ObjectWriterBuilderResult {
        ObjectWriterBuilderResult::StoreObject(Box::new(Writer {
            file: self.file.clone(),
            open: RefCell::new(None),
            done: Rc::clone(&self.done),
        }))
    }

    fn update_cache_control(
        &self,
        _: &UDPEndpoint,
        _: &u64,
        _: &u128,
        _: &ObjectMetadata,
        _: SystemTime,
    ) {
    }

    fn fdt_received(
        &self,
        _: &UDPEndpoint,
        _: &u64,
        _: &str,
        _: SystemTime,
        _: &ObjectMetadata,
        _: Duration,
        _: SystemTime,
        _: Option<SystemTime>,
    ) {
    }
}

struct Writer {
    file: PathBuf,
    open: RefCell<Option<BufWriter<File>>>,
    done: Rc<Cell<bool>>,
}

impl Writer {
    fn with_file(
        &self,
        action: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> FluteResult<()> {
        let mut open = self.open.borrow_mut();
        let file = open.as_mut().ok_or_else(|| FluteError::new("written before it was opened"))?;
        action(file).map_err(|error| FluteError::new(error.to_string()))
    }
}

impl ObjectWriter for Writer {
    fn open(&self, _: SystemTime) -> FluteResult<()> {
        let file = File::create(&self.file).map_err(|error| FluteError::new(error.to_string()))?;
        *self.open.borrow_mut() = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(())
    }

    fn write(&self, _: u32, data: &[u8], _: SystemTime) -> FluteResult<()> {
        self.with_file(|file| file.write_all(data))
    }

    fn complete(&self, _: SystemTime) {
        self.done.set(self.with_file(Write::flush).is_ok());
    }

    fn error(&self, _: SystemTime) {
        eprintln!("flute-copy: flute gave the object up");
    }

    fn interrupted(&self, _: SystemTime) {
        eprintln!("flute-copy: the sender gave the object up");
    }

    fn enable_md5_check(&self) -> bool {
        false
    }
}
