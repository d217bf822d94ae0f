//! Every constant of the protocol, as a default that experiments can sweep.
//!
//! RFC 3208 gives no numbers for most of them; these suit wide-area round trips.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Channel;

use crate::stream::WindowLimits;

/// How a source behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceConfig {
    /// Where data go; its source is this host.
    pub channel: Channel,
    /// Units that are kept for retransmission: the transmit window. At least 1; default 1,024.
    pub window_units: usize,
    /// Bytes of these units. Default 1 MiB; one unit is always kept.
    pub window_bytes: usize,
    /// Units that may wait for the pacer. Default 1,024.
    pub queue_units: usize,
    /// A retransmission waits this long after the first NAK, so that NAKs of far receivers come in
    /// and set up state in routers; about the greatest round trip [LMS §IV-H]. Default 250 ms; 0
    /// retransmits at once, for each NAK that comes.
    pub wait: Duration,
    /// The time from data to the next SPM (IHB_MIN); it doubles with each SPM
    /// [RFC 3208 §5.1.5]. Default 100 ms.
    pub heartbeat: Duration,
    /// The longest time between SPMs (ambient SPMs). Default 5 s.
    pub ambient: Duration,
}

impl SourceConfig {
    /// The defaults on this channel.
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

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// What it receives; it has a source.
    pub channel: Channel,
    /// The first unit that it wants; `None` is the first that it hears of. Default none.
    pub first: Option<u64>,
    /// What it holds and asks for at once.
    pub window: WindowLimits,
    /// A NAK waits for a random time up to this (NAK_BO_IVL). Default 50 ms; the LMS paper's
    /// simulations do not wait.
    pub nak_backoff: Duration,
    /// A NAK without an NCF is repeated after this and the back-off (NAK_RPT_IVL). Default 500 ms.
    pub nak_repeat: Duration,
    /// A NAK with an NCF and no data is repeated after this and the back-off (NAK_RDATA_IVL).
    /// Default 2 s.
    pub nak_rdata: Duration,
    /// NAKs of a unit without an NCF before it is given up (NAK_NCF_RETRIES). Default 50.
    pub ncf_retries: u32,
    /// NCFs of a unit without data before it is given up (NAK_DATA_RETRIES). Default 50.
    pub data_retries: u32,
    /// Whether it answers NAKs with what it holds (a designated local repairer). Default false.
    pub designated: bool,
    /// Bytes of units that a designated local repairer holds. Default 1 MiB.
    pub history_bytes: usize,
}

impl ReceiverConfig {
    /// The defaults on this channel.
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

/// How a router behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouterConfig {
    /// The router's own address, which it puts into SPMs: NAKs of those below come there.
    pub address: SocketAddr,
    /// A designated local repairer that is asked before the node above. Default none.
    pub repairer: Option<SocketAddr>,
    /// States that NAKs from one interface may set up; NAKs beyond are dropped. Default 4,096.
    pub interface_states: usize,
    /// Channels whose upstream node is remembered; SPMs of further ones are passed on unchanged.
    /// Default 1,024.
    pub sessions: usize,
    /// A session without SPMs is forgotten after this. Default 60 s.
    pub session_expiry: Duration,
    /// For this long after a NAK went up no other of the same unit does (NAK_ELIM_IVL). Default
    /// 250 ms.
    pub nak_elimination: Duration,
    /// A NAK without an NCF goes up again after this (NAK_RPT_IVL). Default 500 ms.
    pub nak_repeat: Duration,
    /// NAKs of a unit that go up without an NCF before its state is dropped. Default 10.
    pub nak_retries: u32,
    /// State is dropped so long after the last NCF from above (NAK_RDATA_IVL). Default 5 s.
    pub state_expiry: Duration,
}

impl RouterConfig {
    /// The defaults at this address.
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
