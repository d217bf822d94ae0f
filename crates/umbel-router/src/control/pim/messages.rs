//! Joins and prunes that are due, as messages of bounded length.

use std::collections::BTreeMap;
use std::net::IpAddr;

use umbel_wire::pim::{JoinPrune, JoinPruneGroup, JoinedSource};

use super::super::api::{Family, SourceGroup};
use super::super::work::LinkId;

/// Groups in one message, whose number has 8 bits.
const GROUPS: usize = 255;
/// Longest message, whatever the link carries.
const MAX_LEN: usize = 1400;
/// Least room for a message on any link.
const MIN_LEN: usize = 500;
/// Bytes of an IP header, for either family.
const IP_LEN: usize = 40;

/// Requests to upstream neighbours: whether a channel is joined or pruned.
#[derive(Debug, Default)]
pub(in crate::control) struct Requests {
    due: BTreeMap<(LinkId, IpAddr), BTreeMap<SourceGroup, bool>>,
}

impl Requests {
    /// Asks a neighbour for a channel.
    pub(in crate::control) fn join(&mut self, link: LinkId, to: IpAddr, channel: SourceGroup) {
        self.due.entry((link, to)).or_default().insert(channel, true);
    }

    /// Asks a neighbour no longer for a channel.
    pub(in crate::control) fn prune(&mut self, link: LinkId, to: IpAddr, channel: SourceGroup) {
        self.due.entry((link, to)).or_default().insert(channel, false);
    }

    /// Forgets what was to be asked on a link.
    pub(in crate::control) fn forget(&mut self, link: LinkId) {
        self.due.retain(|(of, _), _| *of != link);
    }

    /// Takes the next message. `mtu_of` tells the longest packet on a link.
    pub(in crate::control) fn next(
        &mut self,
        holdtime_s: u16,
        mtu_of: impl FnOnce(LinkId) -> u32,
    ) -> Option<(LinkId, JoinPrune)> {
        let mut entry = self.due.first_entry()?;
        let &(link, upstream) = entry.key();
        let channels = entry.get_mut();
        let address_len = if link.family == Family::Ipv4 { 4 } else { 16 };
        let mtu = usize::try_from(mtu_of(link)).unwrap_or(MAX_LEN);
        let mut room = mtu.saturating_sub(IP_LEN).clamp(MIN_LEN, MAX_LEN) - (10 + address_len);
        let mut groups: Vec<JoinPruneGroup> = Vec::new();
        while let Some((&channel, &is_join)) = channels.first_key_value() {
            let is_new = groups.last().is_none_or(|last| last.group != channel.group);
            let source_len = 4 + address_len;
            let len = source_len + if is_new { 8 + address_len } else { 0 };
            if room < len || (is_new && groups.len() == GROUPS) {
                break;
            }
            room -= len;
            channels.pop_first();
            if is_new {
                let (joins, prunes) = (Vec::new(), Vec::new());
                let group = channel.group;
                groups.push(JoinPruneGroup { group, is_specific: true, joins, prunes });
            }
            if let Some(last) = groups.last_mut() {
                let list = if is_join { &mut last.joins } else { &mut last.prunes };
                list.push(JoinedSource { source: channel.source, is_specific: true });
            }
        }
        if channels.is_empty() {
            entry.remove();
        }
        Some((link, JoinPrune { upstream, holdtime_s, groups }))
    }
}

#[cfg(test)]
mod tests {
    use umbel_engine::router::InterfaceId;
    use umbel_wire::pim::{Message, emit};

    use super::*;

    #[test]
    fn many_channels_share_messages_that_fit_the_link() {
        let link = LinkId { interface: InterfaceId(1), family: Family::Ipv4 };
        let upstream = IpAddr::from([10, 0, 0, 1]);
        let mut requests = Requests::default();
        for n in 0..1000_u16 {
            let [high, low] = n.to_be_bytes();
            let group = [232, 0, 0, (n / 100) as u8].into();
            let channel = SourceGroup { group, source: [10, 1, high, low].into() };
            requests.join(link, upstream, channel);
            if n % 3 == 0 {
                requests.prune(link, upstream, channel);
            }
        }
        let (mut joins, mut prunes, mut messages) = (0, 0, 0);
        while let Some((on, message)) = requests.next(210, |_| 1500) {
            assert_eq!(on, link);
            joins += message.groups.iter().map(|group| group.joins.len()).sum::<usize>();
            prunes += message.groups.iter().map(|group| group.prunes.len()).sum::<usize>();
            let mut bytes = Vec::new();
            emit(&Message::JoinPrune(message), upstream, upstream, &mut bytes);
            assert!(bytes.len() <= MAX_LEN, "{}", bytes.len());
            messages += 1;
        }
        assert_eq!((joins, prunes, messages), (666, 334, 6));
    }
}
