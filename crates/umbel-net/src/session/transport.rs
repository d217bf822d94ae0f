//! QUIC's settings for sessions.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};

use super::congestion::Congestion;

/// Round-trip time assumed before the first is measured. An unanswered first packet is
/// retransmitted after three of them, then after six, and so on. On a path that loses half of all
/// packets, QUIC's own 333 ms [RFC 9002 §6.2.2] seldom connects in ten seconds. This wait is
/// also the possible error of the first measurement, if an answer was lost. On a path with a round
/// trip of 100 ms some packets are sent twice or thrice, and that is all.
const INITIAL_RTT: Duration = Duration::from_millis(10);

/// Duration above which a handshake may have waited for lost packets, rather than for the path.
pub(super) const DOUBTFUL_RTT: Duration = Duration::from_millis(20);

/// Buffer for the datagrams of nudges, which are never read. Each takes 33 bytes.
const DATAGRAM_BUFFER: usize = 256;

/// Bytes that one client may send ahead of the server's reading: requests and NAKs, no bulk data.
const SERVER_RECEIVE_WINDOW: u32 = 128 * 1024;

/// Bytes that a server may send ahead of the client's reading, on one stream and on all together.
/// 4 MiB are 100 ms at 335 Mbit/s.
const CLIENT_STREAM_WINDOW: u32 = 4 * 1024 * 1024;
const CLIENT_RECEIVE_WINDOW: u32 = 6 * 1024 * 1024;

/// Bytes that a client may send without acknowledgement.
const CLIENT_SEND_WINDOW: u64 = 1024 * 1024;

/// Maximum number of concurrent bulk streams to one client.
const BULK_STREAMS: u32 = 16;

/// The largest UDP payload that a server tries, that of an Ethernet frame over IPv6.
const LARGEST_PAYLOAD: u16 = 1452;

/// Buffer size requested for each socket; the system may grant less. 200 clients that start at once
/// send about half a megabyte, as the kernel counts it, before the server has read the first.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

/// Returns the settings common to both ends. All data is in streams; datagrams are nudges.
fn common(idle: Duration, keep_alive: Option<Duration>) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(IdleTimeout::try_from(idle).unwrap_or(VarInt::MAX.into())))
        .keep_alive_interval(keep_alive)
        .initial_rtt(INITIAL_RTT)
        .congestion_controller_factory(Arc::new(Congestion::default()))
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
        .datagram_send_buffer_size(DATAGRAM_BUFFER);
    config
}

/// Returns a server's settings. The windows bound the cost of one session. The client opens the
/// only stream.
pub(super) fn server(
    idle: Duration,
    keep_alive: Option<Duration>,
    send_window: u64,
) -> TransportConfig {
    let mut config = common(idle, keep_alive);
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(LARGEST_PAYLOAD);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(SERVER_RECEIVE_WINDOW))
        .receive_window(VarInt::from_u32(SERVER_RECEIVE_WINDOW))
        .send_window(send_window)
        .mtu_discovery_config(Some(discovery));
    config
}

/// Returns a client's settings. It sends little, so it does not probe for larger packet sizes.
pub(super) fn client(idle: Duration, keep_alive: Option<Duration>) -> TransportConfig {
    let mut config = common(idle, keep_alive);
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(BULK_STREAMS))
        .stream_receive_window(VarInt::from_u32(CLIENT_STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CLIENT_RECEIVE_WINDOW))
        .send_window(CLIENT_SEND_WINDOW)
        .mtu_discovery_config(None);
    config
}

/// Opens a socket for QUIC on `address`. An unspecified IPv6 address serves IPv4 as well.
pub(super) fn socket(address: SocketAddr, interface: Option<&str>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    // Best effort: the system caps both.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}
