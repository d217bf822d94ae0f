//! Lists the items of a directory or an archive that are not sent, for users and programs.

use serde_json::{Value, json};
use umbel_store::Skipped;

use super::output::plain;

/// Most items that are named in lines for people.
const NAMED: usize = 10;

/// Returns the items that are left out, for programs: the first thousand.
pub(super) fn as_json(skipped: &Skipped) -> Value {
    let named = skipped.named().iter();
    named.map(|item| json!({ "name": item.name, "reason": item.reason.to_string() })).collect()
}

/// Returns the same in lines for people.
pub(super) fn lines(skipped: &Skipped) -> Vec<String> {
    let named = skipped.named().iter().take(NAMED);
    let mut lines: Vec<String> = named
        .map(|item| {
            format!("  left out: {}: {}", plain(&item.name), plain(&item.reason.to_string()))
        })
        .collect();
    if skipped.total() > NAMED as u64 {
        lines.push(format!("  left out in all: {}", skipped.total()));
    }
    lines
}
