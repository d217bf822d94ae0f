//! Encoding of TLV values that several messages share.

use std::time::Duration;

use super::{
    AckRun, Beacon, BlockRun, Echo, End, EsiSet, FeedInfo, Manifest, NackRun, Need, NodeId,
    Progress, Role, Standing, Timing, Totals, limits,
};
use crate::channel::{put_host, read_host};
use crate::codec::{Reader, put_bytes, put_varint};
use crate::{Digest, ParseError};

const CLOSING: u8 = 1;
const WATCHED: u8 = 2;
const END: u8 = 4;
const FAILED: u8 = 8;

const FEC: u8 = 1;
const MANIFEST: u8 = 2;

pub(super) fn put_node(out: &mut Vec<u8>, node: NodeId) {
    out.extend_from_slice(&node.0.to_be_bytes());
}

pub(super) fn read_node(reader: &mut Reader<'_>) -> Result<NodeId, ParseError> {
    Ok(NodeId(u64::from_be_bytes(reader.array()?)))
}

/// Appends a duration in whole nanoseconds.
pub(super) fn put_duration(out: &mut Vec<u8>, time: Duration) {
    put_varint(out, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

pub(super) fn read_duration(reader: &mut Reader<'_>) -> Result<Duration, ParseError> {
    let time = Duration::from_nanos(reader.varint()?);
    if time > limits::DURATION { Err(reader.bad("too long a time")) } else { Ok(time) }
}

/// Reads a hop limit or hop count of at least 1.
pub(super) fn read_hops(reader: &mut Reader<'_>) -> Result<u8, ParseError> {
    match reader.byte()? {
        0 => Err(reader.bad("of no hop")),
        hops => Ok(hops),
    }
}

pub(super) fn put_port(out: &mut Vec<u8>, port: u16) {
    out.extend_from_slice(&port.to_be_bytes());
}

pub(super) fn read_port(reader: &mut Reader<'_>) -> Result<u16, ParseError> {
    match u16::from_be_bytes(reader.array()?) {
        0 => Err(reader.bad("port 0")),
        port => Ok(port),
    }
}

pub(super) const fn role_byte(role: Role) -> u8 {
    match role {
        Role::Member => 0,
        Role::Manager => 1,
        Role::Source => 2,
    }
}

/// Reads a role from `lowest` to `highest`, both included.
pub(super) fn read_role(
    reader: &mut Reader<'_>,
    lowest: Role,
    highest: Role,
) -> Result<Role, ParseError> {
    let role = match reader.byte()? {
        0 => Role::Member,
        1 => Role::Manager,
        2 => Role::Source,
        _ => return Err(reader.bad("an unknown role")),
    };
    if (lowest..=highest).contains(&role) { Ok(role) } else { Err(reader.bad("the wrong role")) }
}

pub(super) fn put_standing(out: &mut Vec<u8>, standing: Standing) {
    put_varint(out, standing.epoch);
    put_varint(out, standing.depth.into());
}

pub(super) fn read_standing(reader: &mut Reader<'_>) -> Result<Standing, ParseError> {
    let standing = Standing { epoch: reader.varint()?, depth: read_depth(reader)? };
    Ok(standing)
}

pub(super) fn read_depth(reader: &mut Reader<'_>) -> Result<u16, ParseError> {
    let depth = reader.number::<u16>()?;
    if usize::from(depth) > limits::PATH { Err(reader.bad("too deep")) } else { Ok(depth) }
}

pub(super) fn put_feed(out: &mut Vec<u8>, feed: &FeedInfo) {
    out.push(if feed.fec { FEC } else { 0 } | if feed.manifest.is_some() { MANIFEST } else { 0 });
    put_node(out, feed.source);
    put_host(out, feed.address);
    put_varint(out, feed.symbol_len.into());
    out.push(feed.block_symbols);
    if let Some(manifest) = &feed.manifest {
        put_varint(out, manifest.blocks.into());
        put_varint(out, manifest.len);
        out.extend_from_slice(&manifest.digest.0);
    }
}

pub(super) fn read_feed(mut reader: Reader<'_>) -> Result<FeedInfo, ParseError> {
    let flags = reader.byte()?;
    if flags & !(FEC | MANIFEST) != 0 {
        return Err(reader.bad("unknown flags"));
    }
    let source = read_node(&mut reader)?;
    let address = read_host(&mut reader)?;
    let (symbol_len, block_symbols) = (reader.number::<u16>()?, reader.byte()?);
    if symbol_len == 0 || block_symbols == 0 {
        return Err(reader.bad("symbols of no bytes or blocks of no symbols"));
    }
    let manifest = if flags & MANIFEST != 0 { Some(read_manifest(&mut reader)?) } else { None };
    reader.finish()?;
    let fec = flags & FEC != 0;
    Ok(FeedInfo { source, address, symbol_len, block_symbols, fec, manifest })
}

fn read_manifest(reader: &mut Reader<'_>) -> Result<Manifest, ParseError> {
    let (blocks, len) = (reader.number::<u32>()?, reader.varint()?);
    if blocks == 0 {
        return Err(reader.bad("a manifest of no blocks"));
    }
    Ok(Manifest { blocks, len, digest: Digest(reader.array()?) })
}

pub(super) fn put_beacon(out: &mut Vec<u8>, beacon: &Beacon) {
    let Progress { sent, lowest, end } = &beacon.progress;
    let failed = end.as_ref().and_then(|end| end.failed.as_deref());
    let flag = |set: bool, flag| if set { flag } else { 0 };
    out.push(
        flag(beacon.closing, CLOSING)
            | flag(beacon.watched, WATCHED)
            | flag(end.is_some(), END)
            | flag(failed.is_some(), FAILED),
    );
    out.extend_from_slice(&[beacon.hop_limit, role_byte(beacon.role), beacon.radius]);
    put_port(out, beacon.port);
    put_varint(out, beacon.stamp_ns);
    put_standing(out, beacon.standing);
    put_varint(out, beacon.path.len() as u64);
    beacon.path.iter().for_each(|&node| put_node(out, node));
    put_varint(out, beacon.children.into());
    put_duration(out, beacon.timing.t_ack);
    out.push(beacon.timing.intervals);
    put_duration(out, beacon.timing.rtt);
    put_varint(out, (*lowest).into());
    put_varint(out, sent.wrapping_sub(*lowest).into());
    if let Some(end) = end {
        put_varint(out, end.blocks.into());
    }
    if let Some(failed) = failed {
        put_bytes(out, failed.as_bytes());
    }
}

/// Reads the beacon of this node.
pub(super) fn read_beacon(mut reader: Reader<'_>, sender: NodeId) -> Result<Beacon, ParseError> {
    let flags = reader.byte()?;
    if flags & !(CLOSING | WATCHED | END | FAILED) != 0 || flags & (END | FAILED) == FAILED {
        return Err(reader.bad("unknown flags"));
    }
    let hop_limit = read_hops(&mut reader)?;
    let role = read_role(&mut reader, Role::Manager, Role::Source)?;
    let radius = read_hops(&mut reader)?;
    let port = read_port(&mut reader)?;
    let stamp_ns = reader.varint()?;
    let standing = read_standing(&mut reader)?;
    let path = read_path(&mut reader, sender)?;
    if standing.depth != path.len().saturating_sub(1) as u16 {
        return Err(reader.bad("a depth that is not the path's"));
    }
    let children = reader.number()?;
    let timing = read_timing(&mut reader)?;
    let lowest = reader.number::<u32>()?;
    let sent = lowest.checked_add(reader.number()?);
    let sent = sent.ok_or_else(|| reader.bad("a block number above 32 bits"))?;
    let end = if flags & END != 0 {
        let blocks = reader.number()?;
        let failed = flags & FAILED != 0;
        let failed = if failed { Some(reader.string(limits::REASON_LEN)?) } else { None };
        Some(End { blocks, failed })
    } else {
        None
    };
    reader.finish()?;
    Ok(Beacon {
        hop_limit,
        port,
        role,
        radius,
        stamp_ns,
        standing,
        path,
        children,
        timing,
        progress: Progress { sent, lowest, end },
        closing: flags & CLOSING != 0,
        watched: flags & WATCHED != 0,
    })
}

fn read_path(reader: &mut Reader<'_>, sender: NodeId) -> Result<Vec<NodeId>, ParseError> {
    let len = reader.number::<usize>()?;
    if len > limits::PATH {
        return Err(reader.bad("too long a path"));
    }
    let path = (0..len).map(|_| read_node(reader)).collect::<Result<Vec<_>, _>>()?;
    if path.last().is_some_and(|&last| last != sender) {
        return Err(reader.bad("a path that does not end with its sender"));
    }
    let mut sorted = path.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(reader.bad("a path with a loop"));
    }
    Ok(path)
}

fn read_timing(reader: &mut Reader<'_>) -> Result<Timing, ParseError> {
    let (t_ack, intervals) = (read_duration(reader)?, reader.byte()?);
    if t_ack.is_zero() || intervals < 2 {
        return Err(reader.bad("T_ack of no time, or less than two to a T_retrans"));
    }
    Ok(Timing { t_ack, intervals, rtt: read_duration(reader)? })
}

pub(super) fn put_echo(out: &mut Vec<u8>, echo: Echo) {
    put_varint(out, echo.stamp_ns);
    put_duration(out, echo.held);
}

pub(super) fn read_echo(mut reader: Reader<'_>) -> Result<Echo, ParseError> {
    let echo = Echo { stamp_ns: reader.varint()?, held: read_duration(&mut reader)? };
    reader.finish()?;
    Ok(echo)
}

pub(super) fn put_totals(out: &mut Vec<u8>, totals: Totals) {
    for number in [totals.members, totals.done, totals.failed, totals.below] {
        put_varint(out, number.into());
    }
    out.push(totals.height);
}

pub(super) fn read_totals(mut reader: Reader<'_>) -> Result<Totals, ParseError> {
    let (members, done, failed): (u32, u32, u32) =
        (reader.number()?, reader.number()?, reader.number()?);
    if u64::from(done) + u64::from(failed) > u64::from(members) {
        return Err(reader.bad("more receivers finished than there are"));
    }
    let (below, height) = (reader.number()?, reader.byte()?);
    if usize::from(height) > limits::PATH {
        return Err(reader.bad("too high a tree"));
    }
    let totals = Totals { members, done, failed, below, height };
    reader.finish()?;
    Ok(totals)
}

/// Appends a run: its distance from the end of the previous one (from 0 at first), and its length
/// less one. Returns the run's end.
fn put_run(out: &mut Vec<u8>, run: BlockRun, end: u32) -> u32 {
    put_varint(out, run.first.wrapping_sub(end).into());
    put_varint(out, run.count.wrapping_sub(1).into());
    run.first.wrapping_add(run.count)
}

fn read_run(reader: &mut Reader<'_>, end: u32) -> Result<BlockRun, ParseError> {
    let overflow = reader.bad("a block number above 32 bits");
    let first = end.checked_add(reader.number()?).ok_or_else(|| overflow.clone())?;
    let count = reader.number::<u32>()?.checked_add(1).ok_or_else(|| overflow.clone())?;
    first.checked_add(count).ok_or(overflow)?;
    Ok(BlockRun { first, count })
}

pub(super) fn put_runs(out: &mut Vec<u8>, runs: &[BlockRun]) {
    runs.iter().fold(0, |end, &run| put_run(out, run, end));
}

pub(super) fn read_runs(mut reader: Reader<'_>) -> Result<Vec<BlockRun>, ParseError> {
    let (mut runs, mut end) = (Vec::new(), 0);
    while !reader.is_empty() {
        if runs.len() == limits::FETCH_RUNS {
            return Err(reader.bad("too many runs"));
        }
        let run = read_run(&mut reader, end)?;
        end = run.end();
        runs.push(run);
    }
    if runs.is_empty() { Err(reader.bad("no block")) } else { Ok(runs) }
}

pub(super) fn put_ack_runs(out: &mut Vec<u8>, below: u32, runs: &[AckRun]) {
    runs.iter().fold(below, |end, run| {
        let end = put_run(out, run.run, end);
        out.push(run.lacks);
        end
    });
}

pub(super) fn read_ack_runs(
    mut reader: Reader<'_>,
    below: u32,
    known: u32,
) -> Result<Vec<AckRun>, ParseError> {
    let (mut runs, mut end) = (Vec::new(), below);
    while !reader.is_empty() {
        if runs.len() == limits::ACK_RUNS {
            return Err(reader.bad("too many runs"));
        }
        let run = read_run(&mut reader, end)?;
        end = run.end();
        if end > known {
            return Err(reader.bad("blocks beyond the last one known"));
        }
        runs.push(AckRun { run, lacks: reader.byte()? });
    }
    Ok(runs)
}

/// Appends each run. After it stands 0 for whole blocks, a count of at least 1, or 255 with the
/// length of a bit map and the map.
pub(super) fn put_nack_runs(out: &mut Vec<u8>, runs: &[NackRun]) {
    runs.iter().fold(0, |end, run| {
        let end = put_run(out, run.run, end);
        match run.need {
            Need::Whole => out.push(0),
            Need::Count(count) => out.push(count),
            Need::Exact(esis) => {
                out.push(EXACT);
                put_esis(out, esis);
            }
        }
        end
    });
}

/// Never a count: a block of 255 symbols, all missing, is [`Need::Whole`].
const EXACT: u8 = 255;

pub(super) fn read_nack_runs(mut reader: Reader<'_>) -> Result<Vec<NackRun>, ParseError> {
    let (mut runs, mut end, mut blocks) = (Vec::new(), 0, 0_u32);
    while !reader.is_empty() {
        let run = read_run(&mut reader, end)?;
        end = run.end();
        blocks = blocks.saturating_add(run.count);
        if runs.len() == limits::NACK_RUNS || blocks > limits::NACK_BLOCKS {
            return Err(reader.bad("too many blocks"));
        }
        let need = match reader.byte()? {
            0 => Need::Whole,
            EXACT => Need::Exact(read_esis(&mut reader)?),
            count => Need::Count(count),
        };
        runs.push(NackRun { run, need });
    }
    if runs.is_empty() { Err(reader.bad("no block")) } else { Ok(runs) }
}

/// Appends the bit map without trailing zero bytes: symbol 0 is the lowest bit of the first byte.
fn put_esis(out: &mut Vec<u8>, esis: EsiSet) {
    let mut map = [0; 32];
    for (bytes, word) in map.chunks_exact_mut(8).zip(esis.0) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let len = map.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    put_bytes(out, &map[..len]);
}

fn read_esis(reader: &mut Reader<'_>) -> Result<EsiSet, ParseError> {
    let len = reader.number::<usize>()?;
    if len > 32 {
        return Err(reader.bad("symbols above 254"));
    }
    let mut map = [0; 32];
    map[..len].copy_from_slice(reader.take(len)?);
    let mut esis = EsiSet::default();
    for (word, bytes) in esis.0.iter_mut().zip(map.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    if esis.0[3] >> 63 != 0 {
        return Err(reader.bad("symbols above 254"));
    }
    if esis.is_empty() { Err(reader.bad("no symbol")) } else { Ok(esis) }
}
