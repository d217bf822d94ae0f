//! Status of a running server, for its operator.

use serde::Serialize;

use crate::endpoint::pace::LimitReport;

/// A server at a moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Open sessions, with the items that they want.
    pub clients: Vec<ClientReport>,
    /// Current rate of the data channel, in bits per second.
    pub rate_bits_per_s: u64,
    /// What limits it; `None` while nobody wants anything.
    pub limit: Option<LimitReport>,
    /// Items that some client still wants.
    pub pending_items: usize,
    /// Data packets sent.
    pub packets: u64,
    /// Bytes of UDP payload in them.
    pub bytes: u64,
    /// Transmissions finished, retransmissions included.
    pub transmissions: u64,
    /// Retransmissions finished.
    pub repairs: u64,
    /// Clients that hear of transmissions in the multicast control group.
    pub clients_on_control: usize,
    /// Repairs that the server has sent in the control group.
    pub control_repairs: u64,
    /// Datagrams in the control group that did not come from its members.
    pub control_forged: u64,
    /// Number of changes of the group key; `None` if the channels are not sealed.
    pub key_changes: Option<u64>,
    /// NAKs heard.
    pub naks: u64,
    /// Items delivered, counted once for each client.
    pub delivered: u64,
    /// Clients that got everything they wanted.
    pub satisfied: u64,
    /// Bytes sent by unicast to clients that multicast does not reach.
    pub unicast_bytes: u64,
    /// Input discarded, by reason.
    pub drops: String,
    /// Reason why packets cannot leave, if they cannot.
    pub trouble: Option<String>,
}

/// A client at a moment.
#[derive(Clone, Debug, Serialize)]
pub struct ClientReport {
    /// The session's number.
    pub session: u64,
    /// The client's address.
    pub address: Option<String>,
    /// Items that it wants and does not have.
    pub wanted: usize,
    /// Of these, those that it gets by unicast.
    pub by_unicast: usize,
    /// Estimated loss, 0 to 1.
    pub loss: f64,
    /// Round trip time in milliseconds.
    pub rtt_ms: f64,
    /// Rate that its path carries, in bits per second, if that is less than the channel's, so that
    /// it gets its items by unicast.
    pub aside_bits_per_s: Option<u64>,
}
