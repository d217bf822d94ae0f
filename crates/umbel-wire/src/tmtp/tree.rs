//! Reports and pages of the control tree.

use super::values::{put_node, read_depth, read_node, read_role, role_byte};
use super::{ReceiverReport, ReceiverState, Role, TreeEntry, limits};
use crate::channel::{put_host, read_host};
use crate::codec::{Reader, put_bytes, put_varint};
use crate::{Digest, ParseError};

const RECEIVING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
const LEFT: u8 = 3;
/// A receipt follows, of a receiver that is done.
const DONE_WITH_RECEIPT: u8 = 4;

pub(super) fn put_receivers(out: &mut Vec<u8>, receivers: &[ReceiverReport]) {
    for receiver in receivers {
        put_node(out, receiver.node);
        put_bytes(out, receiver.name.as_bytes());
        put_varint(out, receiver.held.into());
        match &receiver.state {
            ReceiverState::Receiving => out.push(RECEIVING),
            ReceiverState::Done => match receiver.receipt {
                None => out.push(DONE),
                Some(receipt) => {
                    out.push(DONE_WITH_RECEIPT);
                    out.extend_from_slice(&receipt.0);
                }
            },
            ReceiverState::Failed(reason) => {
                out.push(FAILED);
                put_bytes(out, reason.as_bytes());
            }
            ReceiverState::Left => out.push(LEFT),
        }
    }
}

pub(super) fn read_receivers(mut reader: Reader<'_>) -> Result<Vec<ReceiverReport>, ParseError> {
    let mut receivers = Vec::new();
    while !reader.is_empty() {
        if receivers.len() == limits::REPORTS {
            return Err(reader.bad("too many receivers"));
        }
        let node = read_node(&mut reader)?;
        let name = reader.string(limits::NAME_LEN)?;
        let held = reader.number()?;
        let mut receipt = None;
        let state = match reader.byte()? {
            RECEIVING => ReceiverState::Receiving,
            DONE => ReceiverState::Done,
            DONE_WITH_RECEIPT => {
                receipt = Some(Digest(reader.array()?));
                ReceiverState::Done
            }
            FAILED => ReceiverState::Failed(reader.string(limits::REASON_LEN)?),
            LEFT => ReceiverState::Left,
            _ => return Err(reader.bad("an unknown state")),
        };
        receivers.push(ReceiverReport { node, name, held, state, receipt });
    }
    Ok(receivers)
}

/// A flag: the node has a parent.
const PARENT: u8 = 1;

pub(super) fn put_entries(out: &mut Vec<u8>, entries: &[TreeEntry]) {
    for entry in entries {
        put_node(out, entry.node);
        out.push(role_byte(entry.role));
        out.push(if entry.parent.is_some() { PARENT } else { 0 });
        if let Some(parent) = entry.parent {
            put_node(out, parent);
        }
        put_host(out, entry.address);
        put_bytes(out, entry.name.as_bytes());
        put_varint(out, entry.depth.into());
        out.extend_from_slice(&[entry.hops, entry.radius]);
        for number in [entry.members, entry.children.into(), entry.loss_ppm, entry.load_per_ks] {
            put_varint(out, number.into());
        }
    }
}

pub(super) fn read_entries(mut reader: Reader<'_>) -> Result<Vec<TreeEntry>, ParseError> {
    let mut entries = Vec::new();
    while !reader.is_empty() {
        if entries.len() == limits::TREE_ENTRIES {
            return Err(reader.bad("too many nodes"));
        }
        let node = read_node(&mut reader)?;
        let role = read_role(&mut reader, Role::Member, Role::Source)?;
        let parent = match reader.byte()? {
            0 => None,
            PARENT => Some(read_node(&mut reader)?),
            _ => return Err(reader.bad("unknown flags")),
        };
        let address = read_host(&mut reader)?;
        let name = reader.string(limits::NAME_LEN)?;
        let depth = read_depth(&mut reader)?;
        let (hops, radius) = (reader.byte()?, reader.byte()?);
        let (members, children) = (reader.number()?, reader.number()?);
        let (loss_ppm, load_per_ks) = (reader.number()?, reader.number()?);
        if loss_ppm > 1_000_000 {
            return Err(reader.bad("more lost than there was"));
        }
        entries.push(TreeEntry {
            node,
            parent,
            address,
            name,
            role,
            depth,
            hops,
            radius,
            members,
            children,
            loss_ppm,
            load_per_ks,
        });
    }
    Ok(entries)
}
