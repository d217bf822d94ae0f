//! Constants of a receiver, as defaults that experiments can sweep.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Channel;

/// Configuration of receivers. Receivers that are alike share one.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// Address of the source's listening socket.
    pub source: SocketAddr,
    /// Channel that the receiver's host subscribes to, with a helper that delivers it. Default
    /// `None`: an ordinary connection by unicast. The membership option decides on the port.
    pub channel: Option<Channel>,
    /// Longest payload that is received. Default 1,460.
    pub mss: u16,
    /// Bits by which windows are shifted [RFC 7323 §2]. Default 7. With `None` it is not offered.
    pub window_scale: Option<u8>,
    /// Whether SACK is offered [RFC 2018]. Default true.
    pub sack: bool,
    /// Whether duplicates are reported [RFC 2883], with SACK. Default true, as stacks do.
    pub dsack: bool,
    /// Receive buffer in bytes: the window while the application reads at once. Default 256 KiB.
    pub buffer: u32,
    /// Segments in order for which one ACK is sent. Default 2 [RFC 9293 §3.8.6.3]; the paper's
    /// adaptive ACK is 4 [SMO §II-D].
    pub ack_every: u8,
    /// Time for which an ACK is delayed at most. Default 40 ms, as stacks use today.
    pub ack_delay: Duration,
    /// Time after which a hole is skipped: real-time mode [SMO §V-C]. It counts from the first
    /// arrival of later data. A hole is skipped at once when there is no room for another segment
    /// behind it. Default `None`: never.
    pub real_time: Option<Duration>,
    /// RTO before an RTT is known. Default 1 s [RFC 6298 §2.1].
    pub initial_rto: Duration,
    /// Bounds of the RTO. Default 200 ms to 60 s.
    pub rto: (Duration, Duration),
    /// Transmissions of a segment at most, after which the connection is given up. Default 8.
    pub transmissions: u8,
    /// Bytes sent and not acknowledged at most, as long as the source's window permits. Default 10
    /// segments of 1,460. There is no congestion control: requests are short.
    pub in_flight: u32,
    /// Bytes of the application that wait to be sent at most. Default 64 KiB.
    pub send_buffer: usize,
    /// Duration of TIME-WAIT. Default 60 s.
    pub time_wait: Duration,
}

impl ReceiverConfig {
    /// Creates the default configuration of receivers of this source.
    pub fn new(source: SocketAddr) -> ReceiverConfig {
        ReceiverConfig {
            source,
            channel: None,
            mss: 1460,
            window_scale: Some(7),
            sack: true,
            dsack: true,
            buffer: 256 << 10,
            ack_every: 2,
            ack_delay: Duration::from_millis(40),
            real_time: None,
            initial_rto: Duration::from_secs(1),
            rto: (Duration::from_millis(200), Duration::from_mins(1)),
            transmissions: 8,
            in_flight: 14_600,
            send_buffer: 64 << 10,
            time_wait: Duration::from_mins(1),
        }
    }
}
