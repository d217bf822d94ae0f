//! A child's view of the stream that it is served.

use super::child::{Child, Served};
use super::master::{Master, SendLog};

/// A child's view of the stream that it is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Next position that was not sent to it.
    pub(super) sent: u64,
    /// Greatest position that it may acknowledge.
    pub(super) ackable: u64,
    /// First position that is held.
    pub(super) start: u64,
    /// Position after FIN, if the end is known.
    pub(super) end: Option<u64>,
    /// Position up to which it may be sent new data by unicast; FIN has one, too.
    pub(super) available: u64,
    /// Whether no more is sent to it than its congestion window permits. A group that is not
    /// strictly fair goes on without it.
    pub(super) is_bound: bool,
}

impl View {
    /// Returns what a child must know.
    pub(super) fn of(child: &Child, masters: &[Option<Master>]) -> View {
        match &child.served {
            Served::Alone(buffer) => {
                let (start, end, available) = buffer.as_ref().map_or((0, None, 0), |buffer| {
                    let end = buffer.is_finished().then(|| buffer.end_with_fin());
                    (buffer.start(), end, buffer.end_with_fin())
                });
                let (sent, ackable) = (child.nxt, child.nxt);
                View { sent, ackable, start, end, available, is_bound: true }
            }
            Served::Master(place, _) => match masters.get(*place as usize) {
                Some(Some(master)) => View::of_master(child, master),
                _ => View::done(child),
            },
            Served::Done => View::done(child),
        }
    }

    fn of_master(child: &Child, master: &Master) -> View {
        let start = master.buffer.start();
        if let Some(end) = child.own_end {
            let (sent, available) = (child.nxt, end + 1);
            let end = Some(available);
            return View { sent, ackable: sent, start, end, available, is_bound: true };
        }
        let hearing = &child.hearing;
        let sent = if hearing.hears { master.nxt } else { child.nxt };
        let ackable = if hearing.may_hear { master.nxt.max(child.nxt) } else { child.nxt };
        let end = master.buffer.is_finished().then(|| master.buffer.end_with_fin());
        let is_bound = master.is_bound || !hearing.hears;
        View { sent, ackable, start, end, available: master.nxt, is_bound }
    }

    fn done(child: &Child) -> View {
        let una = child.una;
        View { sent: una, ackable: una, start: una, end: None, available: una, is_bound: true }
    }
}

/// Returns when what a child is sent was multicast.
pub(super) fn log_of<'a>(child: &Child, masters: &'a [Option<Master>]) -> Option<&'a SendLog> {
    match child.served {
        Served::Master(place, _) => Some(&masters.get(place as usize)?.as_ref()?.log),
        _ => None,
    }
}
