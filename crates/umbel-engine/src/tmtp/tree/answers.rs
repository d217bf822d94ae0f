//! Limits of the answers to requests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::Instant;

/// Limits the answers of a second, in all and to each host. A search or request may come from an
/// address that is not its sender's.
#[derive(Clone, Debug)]
pub(in crate::tmtp) struct Answers {
    per_s: u32,
    per_host: u32,
    /// Start of the present second.
    since: Instant,
    sent: u32,
    /// Number of answers to each host in this second, for at most `per_s` hosts.
    hosts: BTreeMap<IpAddr, u32>,
}

impl Answers {
    pub(in crate::tmtp) fn new(per_s: u32, per_host: u32) -> Answers {
        Answers { per_s, per_host, since: Instant::EPOCH, sent: 0, hosts: BTreeMap::new() }
    }

    /// Returns whether an answer may leave now, and counts it if so.
    pub(in crate::tmtp) fn may_leave(&mut self, now: Instant, host: IpAddr) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            (self.since, self.sent) = (now, 0);
            self.hosts.clear();
        }
        if self.sent >= self.per_s {
            return false;
        }
        let to_host = self.hosts.get(&host).copied().unwrap_or(0);
        if to_host >= self.per_host {
            return false;
        }
        self.hosts.insert(host, to_host + 1);
        self.sent += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_answered_too_often_leaves_answers_for_others() {
        let mut answers = Answers::new(10, 4);
        let host = |n: u32| IpAddr::from(n.to_be_bytes());
        let second = |answers: &mut Answers, s: u64, n: u32| {
            let now = Instant::EPOCH + Duration::from_secs(s);
            (0..100).filter(|_| answers.may_leave(now, host(n))).count()
        };
        for s in 1..4 {
            let sent: Vec<usize> = (0..5).map(|n| second(&mut answers, s, n)).collect();
            assert_eq!(sent, [4, 4, 2, 0, 0]);
        }
        let sent: usize = (0..1000).map(|n| second(&mut answers, 5, n)).sum();
        assert_eq!(sent, 10);
        assert!(answers.hosts.len() <= 10);
    }
}
