//! Table in CSV files.
//!
//! The table has one row for each event. Cells that do not apply to the event are empty.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `time_ns` | integer | time of the event, in nanoseconds of simulated time |
//! | `event` | text | of a packet `sent`, `delivered`, `lost`, `queue_drop`, `down`, `no_route`, `hop_limit` ([`Hop`](super::Hop)); `message` of a session; `join`, `leave`; `note` |
//! | `link` | integer | number of the link |
//! | `node`, `node_name` | integer, text | the near end of the link, or the node of the event |
//! | `peer`, `peer_name` | integer, text | the far end of the link; the receiver of a message |
//! | `packet` | integer | number of the packet; its copies have the same |
//! | `kind` | text | `data`, `repair`, `control`, `nak`, `announcement`, `other-N`; `session` for a message |
//! | `flow` | integer | flow of the packet |
//! | `source` | integer | source node of the packet; for `join` and `leave` the only source of the channel, empty if it may be any |
//! | `destination` | integer | destination node of a unicast packet |
//! | `channel` | integer | group number of a multicast packet, or of a channel that is joined or left |
//! | `hop_limit` | integer | number of links that the packet may still cross |
//! | `bytes` | integer | bytes that the packet takes on a link; bytes of the message |
//! | `arrives_ns` | integer | time of arrival of a sent packet or message, if it is not lost |
//! | `note` | text | name of the note |
//! | `value_1`, `value_2`, `value_3` | number | numbers of the note |

use std::borrow::Cow;

use umbel_engine::Instant;

use super::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord};
use crate::network::{Network, NodeId};
use crate::packet::{Destination, Kind};

/// Value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Empty,
    Integer(u64),
    Number(f64),
    Text(Cow<'a, str>),
}

/// Columns in their order.
pub(super) const COLUMNS: [&str; 20] = [
    "time_ns",
    "event",
    "link",
    "node",
    "node_name",
    "peer",
    "peer_name",
    "packet",
    "kind",
    "flow",
    "source",
    "destination",
    "channel",
    "hop_limit",
    "bytes",
    "arrives_ns",
    "note",
    "value_1",
    "value_2",
    "value_3",
];

/// Row of the table.
pub(super) type Row<'a> = [Cell<'a>; COLUMNS.len()];

/// Values of a row by name.
#[derive(Default)]
struct Fields<'a> {
    link: Option<u64>,
    peer: Option<NodeId>,
    packet: Option<u64>,
    kind: Option<Cow<'a, str>>,
    flow: Option<u64>,
    source: Option<NodeId>,
    destination: Option<NodeId>,
    channel: Option<u64>,
    hop_limit: Option<u64>,
    bytes: Option<u64>,
    arrives: Option<Instant>,
    note: Option<&'a str>,
    values: Option<[f64; 3]>,
}

/// Returns the row of a packet.
pub(super) fn packet<'a>(network: &'a Network, record: &PacketRecord<'a>) -> Row<'a> {
    let packet = record.packet;
    let destination = match packet.destination {
        Destination::Unicast(node) => Some(node),
        Destination::Group(_) => None,
    };
    let fields = Fields {
        link: record.link.map(|link| u64::from(link.0)),
        peer: record.link.map(|_| record.to),
        packet: Some(record.id),
        kind: Some(kind_name(packet.kind)),
        flow: Some(u64::from(packet.flow.0)),
        source: Some(packet.source),
        destination,
        channel: record.channel.map(|channel| u64::from(channel.group)),
        hop_limit: Some(u64::from(packet.hop_limit)),
        bytes: Some(u64::from(packet.wire_len)),
        arrives: record.arrives,
        ..Fields::default()
    };
    row(network, record.at, record.what.name(), record.from, fields)
}

/// Returns the row of a note.
pub(super) fn note<'a>(network: &'a Network, record: &NoteRecord<'a>) -> Row<'a> {
    let note = record.note;
    let fields = Fields { note: Some(note.name), values: Some(note.values), ..Fields::default() };
    row(network, record.at, "note", record.node, fields)
}

/// Returns the row of a message.
pub(super) fn message<'a>(network: &'a Network, record: &MessageRecord<'_>) -> Row<'a> {
    let fields = Fields {
        peer: Some(record.to),
        kind: Some(Cow::Borrowed(SESSION)),
        bytes: Some(record.message.len() as u64),
        arrives: Some(record.arrives),
        ..Fields::default()
    };
    row(network, record.at, "message", record.from, fields)
}

/// Returns the row of a join or a leave.
pub(super) fn membership<'a>(network: &'a Network, record: &MembershipRecord) -> Row<'a> {
    let event = if record.joined { "join" } else { "leave" };
    let fields = Fields {
        source: record.channel.source,
        channel: Some(u64::from(record.channel.group)),
        ..Fields::default()
    };
    row(network, record.at, event, record.node, fields)
}

fn row<'a>(
    network: &'a Network,
    at: Instant,
    event: &'a str,
    node: NodeId,
    fields: Fields<'a>,
) -> Row<'a> {
    let integer = |value: Option<u64>| value.map_or(Cell::Empty, Cell::Integer);
    let number = |node: Option<NodeId>| integer(node.map(|node| u64::from(node.0)));
    let text = |value: Option<&'a str>| value.map_or(Cell::Empty, |t| Cell::Text(t.into()));
    let value = |n: usize| fields.values.map_or(Cell::Empty, |values| Cell::Number(values[n]));
    [
        Cell::Integer(at.as_nanos()),
        text(Some(event)),
        integer(fields.link),
        number(Some(node)),
        text(Some(network.name(node))),
        number(fields.peer),
        text(fields.peer.map(|peer| network.name(peer))),
        integer(fields.packet),
        fields.kind.map_or(Cell::Empty, Cell::Text),
        integer(fields.flow),
        number(fields.source),
        number(fields.destination),
        integer(fields.channel),
        integer(fields.hop_limit),
        integer(fields.bytes),
        integer(fields.arrives.map(Instant::as_nanos)),
        text(fields.note),
        value(0),
        value(1),
        value(2),
    ]
}

/// Kind of session messages in traces.
pub(super) const SESSION: &str = "session";

/// Returns the name of a kind in traces.
pub(super) fn kind_name(kind: Kind) -> Cow<'static, str> {
    Cow::Borrowed(match kind {
        Kind::Data => "data",
        Kind::Repair => "repair",
        Kind::Control => "control",
        Kind::Nak => "nak",
        Kind::Announcement => "announcement",
        Kind::Other(number) => return Cow::Owned(format!("other-{number}")),
    })
}
