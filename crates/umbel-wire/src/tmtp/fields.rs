//! The fields of all messages, in one table. A number means the same in each message that has it,
//! but for 29.

use crate::ParseError;
use crate::codec::Reader;
use crate::control::{Field, Fields};

pub(super) const NODE: Field = Field { number: 1, name: "feed and sender" };
pub(super) const NONCE: Field = Field { number: 2, name: "nonce" };
pub(super) const TOKEN: Field = Field { number: 3, name: "token" };
pub(super) const COOKIE: Field = Field { number: 4, name: "cookie" };
pub(super) const SEARCH: Field = Field { number: 5, name: "search" };
pub(super) const OFFER: Field = Field { number: 6, name: "offer" };
pub(super) const REQUEST: Field = Field { number: 7, name: "join request" };
pub(super) const NAME: Field = Field { number: 8, name: "name" };
pub(super) const REASON: Field = Field { number: 10, name: "reason" };
pub(super) const FROM: Field = Field { number: 11, name: "first block guaranteed" };
pub(super) const FEED: Field = Field { number: 12, name: "feed" };
pub(super) const BEACON: Field = Field { number: 13, name: "beacon" };
pub(super) const ACK: Field = Field { number: 14, name: "acknowledgement" };
pub(super) const BEYOND: Field = Field { number: 15, name: "blocks beyond" };
pub(super) const TOTALS: Field = Field { number: 16, name: "totals" };
pub(super) const ECHO: Field = Field { number: 17, name: "echo" };
pub(super) const PARENT: Field = Field { number: 18, name: "parent" };
pub(super) const MISSING: Field = Field { number: 19, name: "missing blocks" };
pub(super) const RUNS: Field = Field { number: 20, name: "blocks" };
pub(super) const FIRST: Field = Field { number: 21, name: "first report" };
pub(super) const RECEIVERS: Field = Field { number: 22, name: "receivers" };
pub(super) const ENTRIES: Field = Field { number: 23, name: "nodes of the tree" };
pub(super) const AFTER: Field = Field { number: 24, name: "node before the page" };
pub(super) const MORE: Field = Field { number: 25, name: "more nodes" };
pub(super) const CHALLENGE: Field = Field { number: 26, name: "challenge" };
pub(super) const HINT: Field = Field { number: 27, name: "hint of a receiver" };
pub(super) const LESS_DEEP_THAN: Field = Field { number: 29, name: "depth of a parent" };
pub(super) const SEALED_KEY: Field = Field { number: 28, name: "sealed key" };
pub(super) const KEY: Field = Field { number: 31, name: "key of digests" };
pub(super) const BLOCK: Field = Field { number: 32, name: "block" };
pub(super) const DIGESTS: Field = Field { number: 33, name: "digests of symbols" };
pub(super) const LAST_WORD: Field = Field { number: 30, name: "last word" };
pub(super) const ASKED: Field = Field { number: 34, name: "node that is asked" };
pub(super) const RECEPTION: Field = Field { number: 35, name: "reception" };
pub(super) const SCHEDULE: Field = Field { number: 36, name: "schedule of reports" };
pub(super) const ALONE: Field = Field { number: 29, name: "blocks by unicast" };
pub(super) const BY_UNICAST: Field = Field { number: 37, name: "everything by unicast" };
pub(super) const SYMBOLS: Field = Field { number: 38, name: "symbols of a block" };
pub(super) const PAYLOAD: Field = Field { number: 39, name: "longest payload" };

/// Returns a reader of a field that a message must have.
pub(super) fn reader<'a>(fields: &mut Fields<'a>, field: Field) -> Result<Reader<'a>, ParseError> {
    Ok(Reader::new(field.name, fields.required(field)?))
}

/// Returns a field of a fixed length.
pub(super) fn read_bytes<const N: usize>(
    fields: &mut Fields<'_>,
    field: Field,
) -> Result<[u8; N], ParseError> {
    fields.required(field)?.try_into().map_err(|_| bad(field, "of another length"))
}

pub(super) fn bad(field: Field, problem: &'static str) -> ParseError {
    ParseError::Value { what: field.name, problem }
}
