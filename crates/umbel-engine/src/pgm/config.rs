//! Every constant of the protocol, as a default that experiments can sweep.
//!
//! RFC 3208 gives no numbers for most of them; these suit wide-area round trips.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Channel;

use crate::reliable::WindowLimits;

/// Configuration of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceConfig {
    /// Channel of the data. Its source address is this host's.
    pub channel: Channel,
    /// Number of units kept for retransmission: the transmit window. At least 1; default 1,024.
    pub window_units: usize,
    /// Bytes of these units. Default 1 MiB; one unit is always kept.
    pub window_bytes: usize,
    /// Number of units that may wait for the pacer. Default 1,024.
    pub queue_units: usize,
    /// Time that a retransmission waits after the first NAK, so that NAKs of far receivers come in
    /// and set up state in routers. It is about the greatest round trip [LMS §IV-H]. Default
    /// 250 ms; 0 retransmits at once, for each NAK that comes.
    pub wait: Duration,
    /// Time from data to the next SPM (IHB_MIN). It doubles with each SPM [RFC 3208 §5.1.5].
    /// Default 100 ms.
    pub heartbeat: Duration,
    /// Longest time between SPMs (ambient SPMs). Default 5 s.
    pub ambient: Duration,
}

impl SourceConfig {
    /// Creates the default configuration for this channel.
    pub fn new(channel: Channel) -> SourceConfig {
        SourceConfig {
            channel,
            window_units: 1024,
            window_bytes: 1 << 20,
            queue_units: 1024,
            wait: Duration::from_millis(250),
            heartbeat: Duration::from_millis(100),
            ambient: Duration::from_secs(5),
        }
    }
}

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The channel to receive; it has a source.
    pub channel: Channel,
    /// First unit wanted; `None` is the first that it hears of. Default none.
    pub first: Option<u64>,
    /// Limits of the units held and requested at once.
    pub window: WindowLimits,
    /// Greatest random delay of a NAK (NAK_BO_IVL). Default 50 ms; the LMS paper's simulations do
    /// not wait.
    pub nak_backoff: Duration,
    /// Time after which, with the back-off, a NAK without an NCF is repeated (NAK_RPT_IVL). Default
    /// 500 ms.
    pub nak_repeat: Duration,
    /// Time after which, with the back-off, a NAK with an NCF but no data is repeated
    /// (NAK_RDATA_IVL). Default 2 s.
    pub nak_rdata: Duration,
    /// Number of NAKs without an NCF after which a unit is given up (NAK_NCF_RETRIES). Default 50.
    pub ncf_retries: u32,
    /// Number of NCFs without data after which a unit is given up (NAK_DATA_RETRIES). Default 50.
    pub data_retries: u32,
    /// Whether it answers NAKs with the units that it holds (a designated local repairer). Default
    /// false.
    pub designated: bool,
    /// Bytes of units that a designated local repairer holds. Default 1 MiB.
    pub history_bytes: usize,
}

impl ReceiverConfig {
    /// Creates the default configuration for this channel.
    pub fn new(channel: Channel) -> ReceiverConfig {
        ReceiverConfig {
            channel,
            first: None,
            window: WindowLimits::default(),
            nak_backoff: Duration::from_millis(50),
            nak_repeat: Duration::from_millis(500),
            nak_rdata: Duration::from_secs(2),
            ncf_retries: 50,
            data_retries: 50,
            designated: false,
            history_bytes: 1 << 20,
        }
    }
}

/// Configuration of a router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterConfig {
    /// The router's own address, which it puts into SPMs. NAKs from below are sent there.
    pub address: SocketAddr,
    /// A designated local repairer that is asked before the node above. Default none.
    pub repairer: Option<SocketAddr>,
    /// Number of states that NAKs from one interface may set up. NAKs beyond it are dropped.
    /// Default 4,096.
    pub interface_states: usize,
    /// Number of channels whose upstream node is remembered. SPMs of further ones are passed on
    /// unchanged. Default 1,024.
    pub sessions: usize,
    /// Time without SPMs after which a session gives way to another: that of another channel, if
    /// there is no room, or of its source that has started anew and numbers its SPMs from 0.
    /// Default 60 s.
    pub session_expiry: Duration,
    /// Time after a NAK went up for which no other of the same unit does (NAK_ELIM_IVL). Default
    /// 250 ms.
    pub nak_elimination: Duration,
    /// Time after which a NAK without an NCF goes up again (NAK_RPT_IVL). Default 500 ms.
    pub nak_repeat: Duration,
    /// Number of NAKs of a unit that go up without an NCF before its state is dropped. Default 10.
    pub nak_retries: u32,
    /// Time after the last NCF from above at which state is dropped (NAK_RDATA_IVL). Default 5 s.
    pub state_expiry: Duration,
}

impl RouterConfig {
    /// Creates the default configuration for this address.
    pub fn new(address: SocketAddr) -> RouterConfig {
        RouterConfig {
            address,
            repairer: None,
            interface_states: 4096,
            sessions: 1024,
            session_expiry: Duration::from_mins(1),
            nak_elimination: Duration::from_millis(250),
            nak_repeat: Duration::from_millis(500),
            nak_retries: 10,
            state_expiry: Duration::from_secs(5),
        }
    }
}
