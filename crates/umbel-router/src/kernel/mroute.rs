//! The kernel's forwarding of multicast: one table of one family.
//!
//! A table belongs to the process that opened it. Its interfaces have places (VIFs) there, and each
//! entry says by which of them a channel comes in and by which it goes out. All of it is gone when
//! the owner closes the table or dies.
//!
//! # Scope and limitations
//!
//! A table has at most 32 interfaces, so that an entry has at most 31 outputs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::Family;
use super::socket::{Envelope, InterfaceSocket};

// `linux/mroute.h` and `linux/mroute6.h`; both families use the same numbers.
const MRT_INIT: i32 = 200;
const MRT_DONE: i32 = 201;
const MRT_ADD_VIF: i32 = 202;
const MRT_DEL_VIF: i32 = 203;
const MRT_ADD_MFC: i32 = 204;
const MRT_DEL_MFC: i32 = 205;
const MRT_ASSERT: i32 = 207;
const MRT_PIM: i32 = 208;
const MRT_TABLE: i32 = 209;
const MRT_FLUSH: i32 = 212;
/// All entries and all interfaces, static ones as well.
const FLUSH_ALL: i32 = 15;
const VIFF_USE_IFINDEX: u8 = 8;
/// `SIOCGETSGCNT` and `SIOCGETSGCNT_IN6`.
const GET_COUNTERS: libc::c_ulong = 0x89E1;

/// Greatest number of interfaces of a table: `MAXVIFS`, `MAXMIFS`.
pub const MAX_INTERFACES: usize = 32;

/// Length of an upcall that matters, in bytes: `struct igmpmsg`, `struct mrt6msg`.
const UPCALL_V4: usize = 20;
const UPCALL_V6: usize = 40;
/// Types of upcalls.
const NO_ENTRY: u8 = 1;
const WRONG_INTERFACE: u8 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
struct VifCtl {
    vif: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    interface: i32,
    remote: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MfcCtl {
    origin: libc::in_addr,
    group: libc::in_addr,
    parent: u16,
    ttls: [u8; MAX_INTERFACES],
    counters: [u32; 3],
    expire: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Mif6Ctl {
    mif: u16,
    flags: u8,
    threshold: u8,
    interface: u16,
    rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Mf6Cctl {
    origin: libc::sockaddr_in6,
    group: libc::sockaddr_in6,
    parent: u16,
    outputs: [u32; 8],
}

#[repr(C)]
struct Counters4 {
    source: libc::in_addr,
    group: libc::in_addr,
    packets: libc::c_ulong,
    bytes: libc::c_ulong,
    wrong: libc::c_ulong,
}

#[repr(C)]
struct Counters6 {
    source: libc::sockaddr_in6,
    group: libc::sockaddr_in6,
    packets: libc::c_ulong,
    bytes: libc::c_ulong,
    wrong: libc::c_ulong,
}

/// Counts of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Packets that came by another interface and were not forwarded.
    pub wrong_interface: u64,
}

/// A question of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upcall {
    /// The subject of the upcall.
    pub kind: UpcallKind,
    /// The interface by which the packet came; `None` if it is no longer in the table.
    pub interface: Option<u32>,
    /// Source of the packet.
    pub source: IpAddr,
    /// Its group.
    pub group: IpAddr,
}

/// The subject of an upcall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpcallKind {
    /// There is no entry for the channel.
    NoEntry,
    /// A packet came by another interface than the entry's.
    WrongInterface,
}

/// A message from the socket of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A question of the kernel.
    Upcall(Upcall),
    /// A message of IGMP or ICMPv6. For IPv4 the IP header comes first.
    Message(Envelope),
    /// Something else, to be ignored.
    Other,
}

/// The forwarding of one family. Dropping it releases the forwarding.
#[derive(Debug)]
pub struct MulticastTable {
    raw: InterfaceSocket,
    /// The interface at each place, by its number in the system.
    places: [Option<u32>; MAX_INTERFACES],
}

impl MulticastTable {
    /// Takes the forwarding of this network namespace, in the main table or a numbered one. Nothing
    /// of an earlier owner is left in it.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if another program has the table, `EPERM` without the capability
    /// `CAP_NET_RAW` (and `CAP_NET_ADMIN` for a numbered table).
    pub fn open(family: Family, table: Option<u32>) -> io::Result<MulticastTable> {
        let protocol = match family {
            Family::V4 => umbel_wire::ip::IGMP,
            Family::V6 => libc::IPPROTO_ICMPV6 as u8,
        };
        MulticastTable::take(InterfaceSocket::new(family, protocol)?, table)
    }

    /// Does the same with a raw socket of IGMP or ICMPv6 in any network namespace.
    ///
    /// # Errors
    ///
    /// As [`MulticastTable::open`].
    pub fn from_socket(family: Family, socket: OwnedFd) -> io::Result<MulticastTable> {
        MulticastTable::take(InterfaceSocket::from_socket(family, socket)?, None)
    }

    fn take(raw: InterfaceSocket, number: Option<u32>) -> io::Result<MulticastTable> {
        let table = MulticastTable { raw, places: [None; MAX_INTERFACES] };
        if let Some(number) = number {
            table.set_option(MRT_TABLE, &number)?;
        }
        table.set_option(MRT_INIT, &1_i32)?;
        // Refused by kernels before 5.4, which have no other use for it either.
        let _ = table.set_option(MRT_FLUSH, &FLUSH_ALL);
        Ok(table)
    }

    /// Asks for upcalls of [`UpcallKind::WrongInterface`], at most one for an entry in three
    /// seconds.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn report_wrong_interfaces(&self) -> io::Result<()> {
        // With this one also of packets on interfaces where the channel does not go out.
        self.set_option(MRT_PIM, &1_i32).or_else(|_| self.set_option(MRT_ASSERT, &1_i32))
    }

    fn set_option<T: Copy>(&self, name: i32, value: &T) -> io::Result<()> {
        let level = match self.raw.family() {
            Family::V4 => libc::IPPROTO_IP,
            Family::V6 => libc::IPPROTO_IPV6,
        };
        self.raw.set_value(level, name, value)
    }

    /// Returns the socket, by which IGMP or ICMPv6 is sent and received, too.
    pub fn socket(&self) -> &InterfaceSocket {
        &self.raw
    }

    /// Adds an interface. Does nothing if it is in the table.
    ///
    /// # Errors
    ///
    /// `ENFILE` if the table is full, or the system refuses.
    pub fn add_interface(&mut self, index: u32) -> io::Result<()> {
        if self.places.contains(&Some(index)) {
            return Ok(());
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.ok_or_else(|| io::Error::from(Errno::ENFILE))?;
        match self.raw.family() {
            Family::V4 => {
                let vif = VifCtl {
                    vif: place as u16,
                    flags: VIFF_USE_IFINDEX,
                    threshold: 1,
                    rate_limit: 0,
                    interface: index as i32,
                    remote: 0,
                };
                self.set_option(MRT_ADD_VIF, &vif)?;
            }
            Family::V6 => {
                let interface = u16::try_from(index).map_err(|_| Errno::EINVAL)?;
                let mif =
                    Mif6Ctl { mif: place as u16, flags: 0, threshold: 1, interface, rate_limit: 0 };
                self.set_option(MRT_ADD_VIF, &mif)?;
            }
        }
        self.places[place] = Some(index);
        Ok(())
    }

    /// Removes an interface. The kernel may have done so already, if the interface has vanished.
    pub fn remove_interface(&mut self, index: u32) {
        let Some(place) = self.place(index) else { return };
        let _ = match self.raw.family() {
            Family::V4 => {
                let vif = VifCtl {
                    vif: place as u16,
                    flags: 0,
                    threshold: 0,
                    rate_limit: 0,
                    interface: 0,
                    remote: 0,
                };
                self.set_option(MRT_DEL_VIF, &vif)
            }
            Family::V6 => self.set_option(MRT_DEL_VIF, &(place as u16)),
        };
        self.places[place] = None;
    }

    fn place(&self, index: u32) -> Option<usize> {
        self.places.iter().position(|place| *place == Some(index))
    }

    fn place_of(&self, index: u32) -> io::Result<usize> {
        self.place(index).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Forwards a channel from one interface to others. Replaces the entry of the channel.
    ///
    /// # Errors
    ///
    /// If an interface is not in the table, the addresses are of another family, or the system
    /// refuses.
    pub fn set(
        &self,
        source: IpAddr,
        group: IpAddr,
        input: u32,
        outputs: &[u32],
    ) -> io::Result<()> {
        let input = self.place_of(input)? as u16;
        match (self.raw.family(), source, group) {
            (Family::V4, IpAddr::V4(source), IpAddr::V4(group)) => {
                let mut entry = entry4(source, group, input);
                for &output in outputs {
                    // 0 and 255 forward nothing; a threshold of 1 lets every TTL above 1 pass.
                    entry.ttls[self.place_of(output)?] = 1;
                }
                self.set_option(MRT_ADD_MFC, &entry)
            }
            (Family::V6, IpAddr::V6(source), IpAddr::V6(group)) => {
                let mut entry = entry6(source, group, input);
                for &output in outputs {
                    let place = self.place_of(output)?;
                    entry.outputs[place / 32] |= 1 << (place % 32);
                }
                self.set_option(MRT_ADD_MFC, &entry)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Removes the entry of a channel.
    ///
    /// # Errors
    ///
    /// If there is none, or the addresses are of another family.
    pub fn remove(&self, source: IpAddr, group: IpAddr) -> io::Result<()> {
        match (self.raw.family(), source, group) {
            (Family::V4, IpAddr::V4(source), IpAddr::V4(group)) => {
                self.set_option(MRT_DEL_MFC, &entry4(source, group, 0))
            }
            (Family::V6, IpAddr::V6(source), IpAddr::V6(group)) => {
                self.set_option(MRT_DEL_MFC, &entry6(source, group, 0))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns what the entry of a channel has forwarded.
    ///
    /// # Errors
    ///
    /// If there is none, or the addresses are of another family.
    pub fn counters(&self, source: IpAddr, group: IpAddr) -> io::Result<Counters> {
        match (self.raw.family(), source, group) {
            (Family::V4, IpAddr::V4(source), IpAddr::V4(group)) => {
                let (source, group) = (address4(source), address4(group));
                let mut request = Counters4 { source, group, packets: 0, bytes: 0, wrong: 0 };
                get_counters(self.raw.as_fd(), &mut request)?;
                Ok(Counters {
                    packets: request.packets,
                    bytes: request.bytes,
                    wrong_interface: request.wrong,
                })
            }
            (Family::V6, IpAddr::V6(source), IpAddr::V6(group)) => {
                let (source, group) = (address6(source), address6(group));
                let mut request = Counters6 { source, group, packets: 0, bytes: 0, wrong: 0 };
                get_counters(self.raw.as_fd(), &mut request)?;
                Ok(Counters {
                    packets: request.packets,
                    bytes: request.bytes,
                    wrong_interface: request.wrong,
                })
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Receives the next upcall or message, if one waits.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none waits, or another error of the system.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Incoming> {
        let envelope = self.raw.receive(buffer)?;
        let packet = &buffer[..envelope.len];
        let upcall = match self.raw.family() {
            Family::V4 => read_upcall4(packet),
            Family::V6 => read_upcall6(packet),
        };
        Ok(match upcall {
            Read::Message => Incoming::Message(envelope),
            Read::Other => Incoming::Other,
            Read::Upcall { kind, place, source, group } => {
                let interface = self.places.get(place).copied().flatten();
                Incoming::Upcall(Upcall { kind, interface, source, group })
            }
        })
    }
}

impl Drop for MulticastTable {
    /// Stops forwarding now. Closing alone would not do: a child process that is being started
    /// holds copies of the socket until it runs its program.
    fn drop(&mut self) {
        let _ = self.set_option(MRT_DONE, &0_i32);
    }
}

/// Kinds of packets from a table's socket.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Message,
    Other,
    Upcall { kind: UpcallKind, place: usize, source: IpAddr, group: IpAddr },
}

fn kind(number: u8) -> Option<UpcallKind> {
    match number {
        NO_ENTRY => Some(UpcallKind::NoEntry),
        WRONG_INTERFACE => Some(UpcallKind::WrongInterface),
        _ => None,
    }
}

/// Reads `struct igmpmsg`, whose place of the protocol is 0.
fn read_upcall4(packet: &[u8]) -> Read {
    let Some(packet) = packet.first_chunk::<UPCALL_V4>() else { return Read::Other };
    if packet[9] != 0 {
        return Read::Message;
    }
    let Some(kind) = kind(packet[8]) else { return Read::Other };
    let address =
        |at: usize| IpAddr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let place = usize::from(packet[10]) | usize::from(packet[11]) << 8;
    Read::Upcall { kind, place, source: address(12), group: address(16) }
}

/// Reads `struct mrt6msg`, whose place of the ICMPv6 type is 0.
fn read_upcall6(packet: &[u8]) -> Read {
    match packet.first() {
        None => return Read::Other,
        Some(0) => {}
        Some(_) => return Read::Message,
    }
    let Some(packet) = packet.first_chunk::<UPCALL_V6>() else { return Read::Other };
    let Some(kind) = kind(packet[1]) else { return Read::Other };
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&packet[at..at + 16]);
        IpAddr::from(octets)
    };
    let place = usize::from(u16::from_ne_bytes([packet[2], packet[3]]));
    Read::Upcall { kind, place, source: address(8), group: address(24) }
}

fn address4(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) }
}

fn address6(address: Ipv6Addr) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: address.octets() },
        sin6_scope_id: 0,
    }
}

fn entry4(source: Ipv4Addr, group: Ipv4Addr, input: u16) -> MfcCtl {
    MfcCtl {
        origin: address4(source),
        group: address4(group),
        parent: input,
        ttls: [0; MAX_INTERFACES],
        counters: [0; 3],
        expire: 0,
    }
}

fn entry6(source: Ipv6Addr, group: Ipv6Addr, input: u16) -> Mf6Cctl {
    Mf6Cctl { origin: address6(source), group: address6(group), parent: input, outputs: [0; 8] }
}

/// Reads the counters of an entry. `T` is `Counters4` on a socket of IPv4, `Counters6` on one of
/// IPv6.
#[allow(unsafe_code)]
fn get_counters<T>(socket: BorrowedFd<'_>, request: &mut T) -> io::Result<()> {
    // SAFETY: the request reads and writes one structure of the socket's family, which `request`
    // exclusively borrows.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), GET_COUNTERS as _, std::ptr::from_mut(request)) };
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upcalls_are_told_from_messages() {
        let mut v4 = [0; 28];
        v4[8] = NO_ENTRY;
        v4[10] = 3;
        v4[12..20].copy_from_slice(&[10, 0, 0, 1, 232, 1, 1, 1]);
        let (source, group) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([232, 1, 1, 1]));
        let kind = UpcallKind::NoEntry;
        assert_eq!(read_upcall4(&v4), Read::Upcall { kind, place: 3, source, group });
        v4[9] = umbel_wire::ip::IGMP;
        assert_eq!(read_upcall4(&v4), Read::Message);
        assert_eq!(read_upcall4(&v4[..19]), Read::Other);

        let mut v6 = [0; 80];
        v6[1] = WRONG_INTERFACE;
        v6[2..4].copy_from_slice(&5_u16.to_ne_bytes());
        v6[8] = 0xFD;
        v6[24] = 0xFF;
        let Read::Upcall { kind, place, source, group } = read_upcall6(&v6) else { panic!() };
        assert_eq!((kind, place), (UpcallKind::WrongInterface, 5));
        assert_eq!(source, "fd00::".parse::<IpAddr>().unwrap());
        assert_eq!(group, "ff00::".parse::<IpAddr>().unwrap());
        v6[1] = 9;
        assert_eq!(read_upcall6(&v6), Read::Other);
        v6[0] = 143;
        assert_eq!(read_upcall6(&v6), Read::Message);
        for len in 0..80 {
            let _ = (read_upcall4(&v6[..len]), read_upcall6(&v6[..len]));
        }
    }
}
