//! Checks that the source and receivers make before they look at a message's contents.

use std::net::SocketAddr;

use umbel_wire::tmtp::{Body, Message, Report};

use super::config::NodeConfig;
use super::drops::DropReason;
use super::tree::Arrival;
use crate::{Address, Datagram};

/// Returns the message in a datagram's payload.
///
/// # Errors
///
/// If it is malformed, of another feed, or claims to be this node's own.
pub(super) fn message(payload: &[u8], node: &NodeConfig) -> Result<Message, DropReason> {
    let message = Message::parse(payload).map_err(|_| DropReason::Malformed)?;
    let message = message.message().ok_or(DropReason::Malformed)?;
    if message.feed != node.feed {
        return Err(DropReason::OtherSession);
    }
    if message.sender == node.id {
        return Err(DropReason::Own);
    }
    Ok(message)
}

/// Returns whether a datagram came by the data channel.
///
/// # Errors
///
/// If it did, but not from the source, whose address was announced.
pub(super) fn by_data_channel(
    datagram: &Datagram<'_>,
    node: &NodeConfig,
    source: SocketAddr,
) -> Result<bool, DropReason> {
    match datagram.by {
        Address::Channel(by) if (by.group, by.port) == (node.data.group, node.data.port) => {
            let genuine = by.source == Some(source.ip());
            if genuine { Ok(true) } else { Err(DropReason::ForgedSource) }
        }
        _ => Ok(false),
    }
}

/// Returns how a datagram came.
///
/// # Errors
///
/// If it came neither by the domain group nor to this node alone.
pub(super) fn arrival(datagram: &Datagram<'_>, node: &NodeConfig) -> Result<Arrival, DropReason> {
    let (from, multicast) = match datagram.by {
        Address::Host(from) => (from, false),
        Address::Channel(by) if (by.group, by.port) == (node.domain.group, node.domain.port) => {
            (SocketAddr::new(by.source.ok_or(DropReason::Unexpected)?, 0), true)
        }
        _ => return Err(DropReason::Unexpected),
    };
    Ok(Arrival { from, multicast, hops_left: datagram.hop_limit })
}

/// Returns the confirmation of the receivers in a child's report.
pub(super) fn confirmation(report: &Report) -> Body {
    let count = report.receivers.len() as u32;
    Body::ReportAck { token: report.token, before: report.first.wrapping_add(count) }
}
