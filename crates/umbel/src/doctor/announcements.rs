//! Compares what is announced on the interfaces of a host that has several.

use std::time::{Duration, Instant};

use umbel_engine::units::counted;
use umbel_wire::session::FindSessions;

use super::Finding;
use crate::directory::{Session, Station};

const CHECK: &str = "announcements";
/// Time for which sources have to answer, and pause between questions.
const LISTEN: Duration = Duration::from_millis(1500);
const ASK: Duration = Duration::from_millis(500);

/// Asks on all interfaces which sessions are on the air. Returns a finding that says where some are;
/// `None` if there is only one interface.
pub fn compare() -> Option<Finding> {
    let mut station = match Station::open(None) {
        Ok(station) => station,
        Err(error) => return Some(Finding::unknown(CHECK, format!("{error:#}"))),
    };
    let until = Instant::now() + LISTEN;
    loop {
        station.ask(&FindSessions { name: None }, None);
        let left = until.saturating_duration_since(Instant::now());
        match station.listen(left.min(ASK)) {
            Ok(_) if left.is_zero() => break,
            Ok(_) => {}
            Err(error) => return Some(Finding::unknown(CHECK, format!("{error:#}"))),
        }
    }
    let sessions = station.directory().sessions();
    let on = |session: &&&Session| {
        let kind = session.kind.as_ref()?;
        station.interface_of(kind).ok().map(|interface| interface.index)
    };
    let mut lines = Vec::new();
    for interface in station.interfaces() {
        let there = sessions.iter().filter(|session| on(session) == Some(interface.index)).count();
        let what = if there == 0 { "nothing".to_owned() } else { counted(there, "session") };
        lines.push(format!("{} has {what}", interface.name));
    }
    (lines.len() > 1).then(|| Finding::ok(CHECK, lines.join(", ")))
}
