//! Emits and parses messages of TMTP.

use super::fields::{
    AFTER, ALONE, ASKED, BEACON, BLOCK, BY_UNICAST, CHALLENGE, COOKIE, DIGESTS, FEED, FIRST, FROM,
    HINT, KEY, LAST_WORD, LESS_DEEP_THAN, NAME, NODE, NONCE, OFFER, PAYLOAD, REASON, RECEPTION,
    REQUEST, RUNS, SCHEDULE, SEALED_KEY, SEARCH, SYMBOLS, TOKEN, bad, read_bytes, reader,
};
use super::values::{
    put_beacon, put_feed, put_node, put_port, put_runs, put_standing, read_beacon, read_feed,
    read_hops, read_node, read_port, read_role, read_runs, read_standing, role_byte,
};
use super::{
    Ack, Beacon, BlockRun, Body, Dismissal, FeedInfo, Heartbeat, JoinConfirm, JoinRequest, Message,
    Nack, NodeId, Portion, Refusal, Report, Role, Search, TreePage, Willing, limits,
};
use crate::codec::{Reader, put_varint};
use crate::control::{self, Field, Fields, Frame, FrameHeader, Parsed};
use crate::reception::{ReceptionReport, ReportSchedule};
use crate::repository::{SymbolDigest, SymbolKey};
use crate::{ParseError, Tsi};

/// Defines the message types with their numbers.
macro_rules! message_types {
    ($($(#[$doc:meta])+ $name:ident = $number:literal,)+) => {
        /// Type of a message, from its header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum MessageType {
            $($(#[$doc])+ $name,)+
        }

        impl MessageType {
            const fn number(self) -> u8 {
                match self {
                    $(MessageType::$name => $number,)+
                }
            }

            const fn from_number(number: u8) -> Option<MessageType> {
                match number {
                    $($number => Some(MessageType::$name),)+
                    _ => None,
                }
            }
        }
    };
}

message_types! {
    /// SEARCH_FOR_PARENT.
    Search = 0xA1,
    /// WILLING_TO_BE_PARENT.
    Willing = 0xA2,
    /// JOIN_REQUEST.
    JoinRequest = 0xA3,
    /// JOIN_CONFIRM.
    JoinConfirm = 0xA4,
    /// The refusal of a JOIN_REQUEST.
    JoinRefused = 0xA5,
    /// A manager's beacon.
    Beacon = 0xA6,
    /// The source's heartbeat.
    Heartbeat = 0xA7,
    /// ACK.
    Ack = 0xA8,
    /// NACK.
    Nack = 0xA9,
    /// LEAVE_TREE.
    LeaveTree = 0xAA,
    /// LEAVE_CONFIRM.
    LeaveConfirm = 0xAB,
    /// FIND_NEW_PARENT.
    FindNewParent = 0xAC,
    /// The reply to FIND_NEW_PARENT.
    FindNewParentReply = 0xAD,
    /// A parent's dismissal of a child.
    Dismiss = 0xAE,
    /// FETCH.
    Fetch = 0xC1,
    /// A cookie for FETCH.
    FetchCookie = 0xC2,
    /// The reply to a FETCH of blocks that are no longer available.
    FetchGone = 0xC3,
    /// REPORT.
    Report = 0xC4,
    /// The acknowledgement of reports.
    ReportAck = 0xC5,
    /// TREE_QUERY.
    TreeQuery = 0xC6,
    /// TREE_PAGE.
    TreePage = 0xC7,
    /// JOIN_CHALLENGE.
    JoinChallenge = 0xC8,
    /// KEY_REQUEST.
    KeyRequest = 0xC9,
    /// KEY_ANSWER.
    KeyAnswer = 0xCA,
    /// FETCH_DIGESTS.
    FetchDigests = 0xCB,
    /// SYMBOL_DIGESTS.
    SymbolDigests = 0xCC,
    /// BLOCK_DIGESTS.
    BlockDigests = 0xCD,
    /// RECEPTION.
    Reception = 0xCE,
    /// REPORTS.
    Reports = 0xCF,
}

impl MessageType {
    /// Returns the type of a message if the first bytes are a valid header.
    pub fn of(datagram: &[u8]) -> Option<MessageType> {
        let FrameHeader { message_type, .. } = control::peek(datagram).ok()??;
        MessageType::from_number(message_type)
    }
}

impl Body {
    /// Returns the type of the message.
    pub fn message_type(&self) -> MessageType {
        match self {
            Body::Search(_) => MessageType::Search,
            Body::Willing(_) => MessageType::Willing,
            Body::JoinRequest(_) => MessageType::JoinRequest,
            Body::JoinConfirm(_) => MessageType::JoinConfirm,
            Body::JoinRefused { .. } => MessageType::JoinRefused,
            Body::JoinChallenge { .. } => MessageType::JoinChallenge,
            Body::KeyRequest { .. } => MessageType::KeyRequest,
            Body::KeyAnswer { .. } => MessageType::KeyAnswer,
            Body::Beacon(_) => MessageType::Beacon,
            Body::Heartbeat(_) => MessageType::Heartbeat,
            Body::Ack(_) => MessageType::Ack,
            Body::Nack(_) => MessageType::Nack,
            Body::LeaveTree { .. } => MessageType::LeaveTree,
            Body::LeaveConfirm { .. } => MessageType::LeaveConfirm,
            Body::FindNewParent { .. } => MessageType::FindNewParent,
            Body::FindNewParentReply { .. } => MessageType::FindNewParentReply,
            Body::Dismiss { .. } => MessageType::Dismiss,
            Body::Fetch { .. } => MessageType::Fetch,
            Body::FetchCookie { .. } => MessageType::FetchCookie,
            Body::FetchGone { .. } => MessageType::FetchGone,
            Body::FetchDigests { .. } => MessageType::FetchDigests,
            Body::SymbolDigests { .. } => MessageType::SymbolDigests,
            Body::BlockDigests { .. } => MessageType::BlockDigests,
            Body::Reception { .. } => MessageType::Reception,
            Body::Reports { .. } => MessageType::Reports,
            Body::Report(_) => MessageType::Report,
            Body::ReportAck { .. } => MessageType::ReportAck,
            Body::TreeQuery { .. } => MessageType::TreeQuery,
            Body::TreePage(_) => MessageType::TreePage,
        }
    }
}

impl Message {
    /// Appends the message to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::begin(out, self.body.message_type().number());
        frame.field(NODE, |out| {
            put_varint(out, self.feed.0.into());
            put_node(out, self.sender);
        });
        self.body.put(&mut frame);
        frame.end();
    }

    /// Parses one message, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &[u8]) -> Result<Parsed<Message>, ParseError> {
        control::parse(frame, |fields| {
            let Some(kind) = MessageType::from_number(fields.message) else { return Ok(None) };
            let mut reader = Reader::new(NODE.name, fields.required(NODE)?);
            let (feed, sender) = (Tsi(reader.number()?), read_node(&mut reader)?);
            reader.finish()?;
            Ok(Some(Message { feed, sender, body: Body::read(kind, sender, fields)? }))
        })
    }
}

impl Body {
    fn put(&self, frame: &mut Frame<'_>) {
        match self {
            Body::Search(search) => put_search(frame, search),
            Body::Willing(willing) => put_willing(frame, willing),
            Body::JoinRequest(request) => put_request(frame, request),
            Body::JoinConfirm(confirm) => put_confirm(frame, confirm),
            Body::JoinRefused { nonce, reason } => {
                frame.number(NONCE, *nonce);
                frame.number(REASON, refusal_number(*reason));
            }
            Body::JoinChallenge { nonce, challenge } => {
                frame.number(NONCE, *nonce);
                frame.number(CHALLENGE, *challenge);
            }
            Body::KeyRequest { nonce, hint } => {
                frame.number(NONCE, *nonce);
                frame.field(HINT, |out| out.extend_from_slice(hint));
            }
            Body::KeyAnswer { nonce, sealed } => {
                frame.number(NONCE, *nonce);
                frame.field(SEALED_KEY, |out| out.extend_from_slice(sealed));
            }
            Body::Beacon(beacon) => frame.field(BEACON, |out| put_beacon(out, beacon)),
            Body::Heartbeat(heartbeat) => {
                frame.field(FEED, |out| put_feed(out, &heartbeat.feed));
                frame.field(BEACON, |out| put_beacon(out, &heartbeat.beacon));
                if let Some(word) = &heartbeat.last_word {
                    frame.field(LAST_WORD, |out| out.extend_from_slice(word));
                }
            }
            Body::Ack(ack) => ack.put(frame),
            Body::Nack(nack) => nack.put(frame),
            Body::LeaveConfirm { nonce } => frame.number(NONCE, *nonce),
            Body::LeaveTree { token, nonce }
            | Body::FindNewParent { token, nonce }
            | Body::FindNewParentReply { token, nonce } => {
                frame.number(TOKEN, *token);
                frame.number(NONCE, *nonce);
            }
            Body::Dismiss { token, reason } => {
                frame.number(TOKEN, *token);
                frame.number(REASON, dismissal_number(*reason));
            }
            Body::Fetch { nonce, cookie, runs, alone, portion } => {
                frame.number(NONCE, *nonce);
                frame.number(COOKIE, *cookie);
                frame.field(RUNS, |out| put_runs(out, runs));
                if !alone.is_empty() {
                    frame.field(ALONE, |out| put_runs(out, alone));
                }
                if let Some(symbols) = portion.symbols {
                    frame.number(SYMBOLS, symbols);
                }
                if let Some(payload) = portion.payload {
                    frame.number(PAYLOAD, payload);
                }
            }
            Body::FetchCookie { nonce, cookie } => {
                frame.number(NONCE, *nonce);
                frame.number(COOKIE, *cookie);
            }
            Body::FetchGone { nonce, runs } => {
                frame.number(NONCE, *nonce);
                frame.field(RUNS, |out| put_runs(out, runs));
            }
            Body::FetchDigests { nonce, cookie, key, block } => {
                frame.number(NONCE, *nonce);
                frame.number(COOKIE, *cookie);
                frame.field(KEY, |out| out.extend_from_slice(&key.0));
                frame.number(BLOCK, *block);
            }
            Body::SymbolDigests { nonce, symbols, first, digests } => {
                frame.number(NONCE, *nonce);
                frame.field(DIGESTS, |out| put_digests(out, (*symbols, *first), digests));
            }
            Body::BlockDigests { key, block, symbols, first, digests } => {
                frame.field(DIGESTS, |out| put_digests(out, (*symbols, *first), digests));
                frame.field(KEY, |out| out.extend_from_slice(&key.0));
                frame.number(BLOCK, *block);
            }
            Body::Reception { nonce, cookie, report } => {
                frame.number(NONCE, *nonce);
                frame.number(COOKIE, *cookie);
                frame.field(RECEPTION, |out| report.put(out));
            }
            Body::Reports { nonce, cookie, schedule } => {
                frame.number(NONCE, *nonce);
                frame.number(COOKIE, *cookie);
                frame.field(SCHEDULE, |out| schedule.put(out));
            }
            Body::Report(report) => report.put(frame),
            Body::ReportAck { token, before } => {
                frame.number(TOKEN, *token);
                frame.number(FIRST, *before);
            }
            Body::TreeQuery { nonce, cookie, after } => {
                frame.number(NONCE, *nonce);
                frame.number(COOKIE, *cookie);
                if let Some(after) = after {
                    frame.field(AFTER, |out| put_node(out, *after));
                }
            }
            Body::TreePage(page) => page.put(frame),
        }
    }

    fn read(
        kind: MessageType,
        sender: NodeId,
        fields: &mut Fields<'_>,
    ) -> Result<Body, ParseError> {
        Ok(match kind {
            MessageType::Search => Body::Search(read_search(fields)?),
            MessageType::Willing => Body::Willing(read_willing(fields)?),
            MessageType::JoinRequest => Body::JoinRequest(read_request(fields)?),
            MessageType::JoinConfirm => Body::JoinConfirm(Box::new(read_confirm(fields, sender)?)),
            MessageType::JoinRefused => Body::JoinRefused {
                nonce: fields.number(NONCE)?,
                reason: refusal(fields.number(REASON)?)?,
            },
            MessageType::JoinChallenge => Body::JoinChallenge {
                nonce: fields.number(NONCE)?,
                challenge: fields.number(CHALLENGE)?,
            },
            MessageType::KeyRequest => {
                Body::KeyRequest { nonce: fields.number(NONCE)?, hint: read_bytes(fields, HINT)? }
            }
            MessageType::KeyAnswer => Body::KeyAnswer {
                nonce: fields.number(NONCE)?,
                sealed: read_bytes(fields, SEALED_KEY)?,
            },
            MessageType::Beacon => Body::Beacon(read_beacon(reader(fields, BEACON)?, sender)?),
            MessageType::Heartbeat => Body::Heartbeat(Box::new(read_heartbeat(fields, sender)?)),
            MessageType::Ack => Body::Ack(Ack::read(fields)?),
            MessageType::Nack => Body::Nack(Nack::read(fields)?),
            MessageType::LeaveTree => {
                Body::LeaveTree { token: fields.number(TOKEN)?, nonce: fields.number(NONCE)? }
            }
            MessageType::LeaveConfirm => Body::LeaveConfirm { nonce: fields.number(NONCE)? },
            MessageType::FindNewParent => {
                Body::FindNewParent { token: fields.number(TOKEN)?, nonce: fields.number(NONCE)? }
            }
            MessageType::FindNewParentReply => Body::FindNewParentReply {
                token: fields.number(TOKEN)?,
                nonce: fields.number(NONCE)?,
            },
            MessageType::Dismiss => Body::Dismiss {
                token: fields.number(TOKEN)?,
                reason: dismissal(fields.number(REASON)?)?,
            },
            MessageType::Fetch => Body::Fetch {
                nonce: fields.number(NONCE)?,
                cookie: fields.number(COOKIE)?,
                runs: read_runs(reader(fields, RUNS)?)?,
                alone: read_alone(fields)?,
                portion: read_portion(fields)?,
            },
            MessageType::FetchCookie => {
                Body::FetchCookie { nonce: fields.number(NONCE)?, cookie: fields.number(COOKIE)? }
            }
            MessageType::FetchGone => Body::FetchGone {
                nonce: fields.number(NONCE)?,
                runs: read_runs(reader(fields, RUNS)?)?,
            },
            MessageType::FetchDigests => Body::FetchDigests {
                nonce: fields.number(NONCE)?,
                cookie: fields.number(COOKIE)?,
                key: SymbolKey(read_bytes(fields, KEY)?),
                block: fields.number(BLOCK)?,
            },
            MessageType::SymbolDigests => {
                let nonce = fields.number(NONCE)?;
                let ((symbols, first), digests) = read_digests(fields)?;
                Body::SymbolDigests { nonce, symbols, first, digests }
            }
            MessageType::BlockDigests => {
                let ((symbols, first), digests) = read_digests(fields)?;
                let key = SymbolKey(read_bytes(fields, KEY)?);
                let block = fields.number(BLOCK)?;
                Body::BlockDigests { key, block, symbols, first, digests }
            }
            MessageType::Reception => {
                let (nonce, cookie) = (fields.number(NONCE)?, fields.number(COOKIE)?);
                let mut reader = reader(fields, RECEPTION)?;
                let report = ReceptionReport::read(&mut reader)?;
                reader.finish()?;
                Body::Reception { nonce, cookie, report }
            }
            MessageType::Reports => {
                let (nonce, cookie) = (fields.number(NONCE)?, fields.number(COOKIE)?);
                let mut reader = reader(fields, SCHEDULE)?;
                let schedule = ReportSchedule::read(&mut reader)?;
                reader.finish()?;
                Body::Reports { nonce, cookie, schedule }
            }
            MessageType::Report => Body::Report(Report::read(fields)?),
            MessageType::ReportAck => {
                Body::ReportAck { token: fields.number(TOKEN)?, before: fields.number(FIRST)? }
            }
            MessageType::TreeQuery => Body::TreeQuery {
                nonce: fields.number(NONCE)?,
                cookie: fields.number(COOKIE)?,
                after: fields.optional(AFTER)?.map(|value| read_id(AFTER, value)).transpose()?,
            },
            MessageType::TreePage => Body::TreePage(TreePage::read(fields)?),
        })
    }
}

fn put_digests(out: &mut Vec<u8>, (symbols, first): (u8, u8), digests: &[SymbolDigest]) {
    out.extend_from_slice(&[symbols, first]);
    for digest in digests {
        out.extend_from_slice(&digest.0);
    }
}

/// Reads the number of source symbols, the ID of the first symbol that has a digest, and digests.
fn read_digests(fields: &mut Fields<'_>) -> Result<((u8, u8), Vec<SymbolDigest>), ParseError> {
    let mut reader = reader(fields, DIGESTS)?;
    let (symbols, first) = (reader.byte()?, reader.byte()?);
    let (digests, rest) = reader.rest().as_chunks();
    if symbols == 0 || !rest.is_empty() || digests.is_empty() {
        return Err(bad(DIGESTS, "of no symbols, or of a part of one"));
    }
    if digests.len() > limits::SYMBOL_DIGESTS || usize::from(first) + digests.len() > 255 {
        return Err(bad(DIGESTS, "of too many symbols"));
    }
    let digests = digests.iter().copied().map(SymbolDigest).collect();
    Ok(((symbols, first), digests))
}

fn read_alone(fields: &mut Fields<'_>) -> Result<Vec<BlockRun>, ParseError> {
    let alone = fields.optional(ALONE)?;
    alone.map_or(Ok(Vec::new()), |alone| read_runs(Reader::new(ALONE.name, alone)))
}

fn read_portion(fields: &mut Fields<'_>) -> Result<Portion, ParseError> {
    let (symbols, payload) = (fields.optional_number(SYMBOLS)?, fields.optional_number(PAYLOAD)?);
    if symbols == Some(0) {
        return Err(bad(SYMBOLS, "none"));
    }
    if payload.is_some_and(|payload| payload < limits::SHORTEST_PAYLOAD) {
        return Err(bad(PAYLOAD, "shorter than any path's"));
    }
    Ok(Portion { symbols, payload })
}

fn put_search(frame: &mut Frame<'_>, search: &Search) {
    frame.number(NONCE, search.nonce);
    frame.field(SEARCH, |out| {
        out.extend_from_slice(&[search.hop_limit, role_byte(search.role)]);
        put_port(out, search.port);
    });
    if let Some(depth) = search.less_deep_than {
        frame.number(LESS_DEEP_THAN, depth);
    }
}

fn read_search(fields: &mut Fields<'_>) -> Result<Search, ParseError> {
    let nonce = fields.number(NONCE)?;
    let mut reader = reader(fields, SEARCH)?;
    let hop_limit = read_hops(&mut reader)?;
    let role = read_role(&mut reader, Role::Member, Role::Manager)?;
    let port = read_port(&mut reader)?;
    reader.finish()?;
    let less_deep_than = fields.optional_number(LESS_DEEP_THAN)?;
    Ok(Search { nonce, hop_limit, port, role, less_deep_than })
}

fn put_willing(frame: &mut Frame<'_>, willing: &Willing) {
    frame.number(NONCE, willing.nonce);
    frame.field(OFFER, |out| {
        out.extend_from_slice(&[willing.hop_limit, role_byte(willing.role)]);
        put_varint(out, willing.children.into());
        put_standing(out, willing.standing);
    });
}

fn read_willing(fields: &mut Fields<'_>) -> Result<Willing, ParseError> {
    let nonce = fields.number(NONCE)?;
    let mut reader = reader(fields, OFFER)?;
    let hop_limit = read_hops(&mut reader)?;
    let role = read_role(&mut reader, Role::Manager, Role::Source)?;
    let children = reader.number()?;
    let standing = read_standing(&mut reader)?;
    reader.finish()?;
    Ok(Willing { nonce, hop_limit, role, children, standing })
}

fn put_request(frame: &mut Frame<'_>, request: &JoinRequest) {
    frame.number(NONCE, request.nonce);
    frame.field(REQUEST, |out| {
        out.extend_from_slice(&[request.hop_limit, request.hops, role_byte(request.role)]);
        put_standing(out, request.standing);
    });
    frame.string(NAME, &request.name);
    if let Some(parent) = request.parent {
        frame.field(ASKED, |out| put_node(out, parent));
    }
    if request.by_unicast {
        frame.number(BY_UNICAST, 1_u8);
    }
}

fn read_request(fields: &mut Fields<'_>) -> Result<JoinRequest, ParseError> {
    let nonce = fields.number(NONCE)?;
    let name = fields.string(NAME, limits::NAME_LEN)?;
    let mut reader = reader(fields, REQUEST)?;
    let (hop_limit, hops) = (read_hops(&mut reader)?, read_hops(&mut reader)?);
    let role = read_role(&mut reader, Role::Member, Role::Manager)?;
    let standing = read_standing(&mut reader)?;
    reader.finish()?;
    let parent = fields.optional(ASKED)?.map(|value| read_id(ASKED, value)).transpose()?;
    let by_unicast = match fields.optional_number::<u8>(BY_UNICAST)? {
        None => false,
        Some(1) => true,
        Some(_) => return Err(bad(BY_UNICAST, "not 1")),
    };
    Ok(JoinRequest { nonce, hop_limit, hops, role, standing, name, parent, by_unicast })
}

fn put_confirm(frame: &mut Frame<'_>, confirm: &JoinConfirm) {
    frame.number(NONCE, confirm.nonce);
    frame.number(TOKEN, confirm.token);
    frame.number(FROM, confirm.from);
    frame.field(FEED, |out| put_feed(out, &confirm.feed));
    frame.field(BEACON, |out| put_beacon(out, &confirm.beacon));
}

fn read_confirm(fields: &mut Fields<'_>, sender: NodeId) -> Result<JoinConfirm, ParseError> {
    let (feed, beacon) = read_feed_and_beacon(fields, sender)?;
    if beacon.path.is_empty() {
        return Err(bad(BEACON, "of a parent without a path to the source"));
    }
    Ok(JoinConfirm {
        nonce: fields.number(NONCE)?,
        token: fields.number(TOKEN)?,
        from: fields.number(FROM)?,
        feed,
        beacon,
    })
}

fn read_heartbeat(fields: &mut Fields<'_>, sender: NodeId) -> Result<Heartbeat, ParseError> {
    let (feed, beacon) = read_feed_and_beacon(fields, sender)?;
    if beacon.path != [feed.source] || beacon.role != Role::Source {
        return Err(bad(BEACON, "of another node than the source"));
    }
    let word = fields.optional(LAST_WORD)?.map(<[u8; 32]>::try_from).transpose();
    let last_word = word.map_err(|_| bad(LAST_WORD, "of another length"))?;
    Ok(Heartbeat { feed, beacon, last_word })
}

fn read_feed_and_beacon(
    fields: &mut Fields<'_>,
    sender: NodeId,
) -> Result<(FeedInfo, Beacon), ParseError> {
    let feed = read_feed(reader(fields, FEED)?)?;
    let beacon = read_beacon(reader(fields, BEACON)?, sender)?;
    if beacon.path.first().is_some_and(|&first| first != feed.source) {
        return Err(bad(BEACON, "with a path from another source"));
    }
    Ok((feed, beacon))
}

fn read_id(field: Field, value: &[u8]) -> Result<NodeId, ParseError> {
    let mut reader = Reader::new(field.name, value);
    let node = read_node(&mut reader)?;
    reader.finish()?;
    Ok(node)
}

const fn refusal_number(reason: Refusal) -> u8 {
    match reason {
        Refusal::Full => 0,
        Refusal::Detached => 1,
        Refusal::Loop => 2,
        Refusal::NotAdmitted => 3,
        Refusal::TooFar => 4,
        Refusal::Leaving => 5,
    }
}

fn refusal(number: u8) -> Result<Refusal, ParseError> {
    Ok(match number {
        0 => Refusal::Full,
        1 => Refusal::Detached,
        2 => Refusal::Loop,
        3 => Refusal::NotAdmitted,
        4 => Refusal::TooFar,
        5 => Refusal::Leaving,
        _ => return Err(bad(REASON, "an unknown refusal")),
    })
}

const fn dismissal_number(reason: Dismissal) -> u8 {
    match reason {
        Dismissal::Slow => 0,
        Dismissal::Unknown => 1,
        Dismissal::Demoted => 2,
    }
}

fn dismissal(number: u8) -> Result<Dismissal, ParseError> {
    Ok(match number {
        0 => Dismissal::Slow,
        1 => Dismissal::Unknown,
        2 => Dismissal::Demoted,
        _ => return Err(bad(REASON, "an unknown dismissal")),
    })
}
