//! What an operator sees of a running server.

use serde::Serialize;

/// A server at a moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Open sessions and what they want.
    pub clients: Vec<ClientReport>,
    /// Rate of the data channel now, in bits per second: less than was set where most clients
    /// cannot take it.
    pub rate_bits_per_s: u64,
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
    /// Datagrams of the control group that were none of its members'.
    pub control_forged: u64,
    /// NAKs heard.
    pub naks: u64,
    /// Items delivered: one for each client that has one.
    pub delivered: u64,
    /// Clients that got all that they wanted.
    pub satisfied: u64,
    /// Bytes sent by unicast to clients that multicast does not reach.
    pub unicast_bytes: u64,
    /// Input discarded, by reason.
    pub drops: String,
    /// What keeps packets from leaving, if anything does.
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
}
