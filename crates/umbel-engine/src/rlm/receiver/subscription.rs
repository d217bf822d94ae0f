//! Which channels a receiver is in at its level.

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::Channel;
use umbel_wire::stream::StreamMode;

use crate::{Instant, Membership};

/// Time after which a higher layer is left although the lower one has not come yet. Chosen.
const SWITCH: Duration = Duration::from_secs(2);

/// Joins and leaves channels as the level changes. In independent mode the layer that is left stays
/// until the other one has come, so that the stream does not pause.
#[derive(Debug)]
pub(super) struct Subscription {
    mode: StreamMode,
    channels: Vec<Channel>,
    /// Whether each channel is joined.
    joined: Vec<bool>,
    level: u8,
    /// Layer that stays until the layer of the level has come, and the time at which it is left
    /// anyway.
    leaving: Option<(u8, Option<Instant>)>,
    memberships: VecDeque<Membership>,
    left: VecDeque<u8>,
}

impl Subscription {
    pub(super) fn new(mode: StreamMode, channels: Vec<Channel>) -> Subscription {
        Subscription {
            mode,
            joined: vec![false; channels.len()],
            channels,
            level: 0,
            leaving: None,
            memberships: VecDeque::new(),
            left: VecDeque::new(),
        }
    }

    /// Returns the layer of a channel.
    pub(super) fn layer_of(&self, channel: Channel) -> Option<u8> {
        self.channels.iter().position(|&other| other == channel).map(|layer| layer as u8)
    }

    /// Returns whether a layer is received.
    pub(super) fn has(&self, layer: u8) -> bool {
        self.joined.get(usize::from(layer)).is_some_and(|joined| *joined)
    }

    /// Changes to a level; 0 leaves all.
    pub(super) fn set_level(&mut self, now: Instant, level: u8) {
        let before = std::mem::replace(&mut self.level, level);
        let mode = self.mode;
        let wanted = |layer: u8| match mode {
            _ if level == 0 => false,
            StreamMode::Cumulative => layer < level,
            StreamMode::Independent => layer + 1 == level,
        };
        let stays = self.staying(before, level);
        self.leaving = stays.map(|layer| {
            let at = (level < before).then(|| now + SWITCH);
            (layer, at)
        });
        let layers = 0..self.channels.len() as u8;
        for layer in layers.clone().filter(|&layer| wanted(layer)) {
            self.join(layer);
        }
        for layer in layers.rev().filter(|&layer| !wanted(layer) && Some(layer) != stays) {
            self.leave(layer);
        }
    }

    /// Takes the arrival of a packet of a layer.
    pub(super) fn on_packet(&mut self, layer: u8) {
        if layer + 1 == self.level
            && let Some((other, _)) = self.leaving.take()
        {
            self.leave(other);
        }
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        if let Some((other, Some(at))) = self.leaving
            && at <= now
        {
            self.leaving = None;
            self.leave(other);
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.leaving?.1
    }

    pub(super) fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    /// Returns the next layer that was left.
    pub(super) fn poll_left(&mut self) -> Option<u8> {
        self.left.pop_front()
    }

    /// Returns the layer that stays for a while. None does when a new layer is left before it came,
    /// since the old one is still there.
    fn staying(&self, before: u8, level: u8) -> Option<u8> {
        let old = before.checked_sub(1).filter(|_| self.mode == StreamMode::Independent)?;
        let new = level.checked_sub(1)?;
        (!self.has(new) && new != old).then_some(old)
    }

    fn join(&mut self, layer: u8) {
        let at = usize::from(layer);
        if !std::mem::replace(&mut self.joined[at], true) {
            self.memberships.push_back(Membership::Join(self.channels[at]));
        }
    }

    fn leave(&mut self, layer: u8) {
        let at = usize::from(layer);
        if std::mem::replace(&mut self.joined[at], false) {
            self.memberships.push_back(Membership::Leave(self.channels[at]));
            self.left.push_back(layer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(layer: u8) -> Channel {
        Channel {
            source: Some([192, 0, 2, 1].into()),
            group: [232, 0, 0, layer].into(),
            port: 7704,
        }
    }

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    fn subscription(mode: StreamMode) -> Subscription {
        Subscription::new(mode, (0..4).map(channel).collect())
    }

    /// Returns the changes, as signed layers from 1.
    fn changes(subscription: &mut Subscription) -> Vec<i32> {
        let layer = |subscription: &Subscription, channel| {
            i32::from(subscription.layer_of(channel).unwrap()) + 1
        };
        std::iter::from_fn(|| {
            Some(match subscription.poll_membership()? {
                Membership::Join(channel) => layer(subscription, channel),
                Membership::Leave(channel) => -layer(subscription, channel),
            })
        })
        .collect()
    }

    #[test]
    fn cumulative_layers_are_joined_from_below_and_left_from_above() {
        let mut subscription = subscription(StreamMode::Cumulative);
        for (level, expected) in [
            (1, vec![1]),
            (3, vec![2, 3]),
            (2, vec![-3]),
            (4, vec![3, 4]),
            (0, vec![-4, -3, -2, -1]),
        ] {
            subscription.set_level(at(0), level);
            assert_eq!(changes(&mut subscription), expected);
        }
        assert_eq!(subscription.next_timeout(), None);
    }

    #[test]
    fn an_independent_layer_stays_until_the_other_has_come() {
        let mut subscription = subscription(StreamMode::Independent);
        subscription.set_level(at(0), 1);
        subscription.set_level(at(1), 2);
        assert_eq!(changes(&mut subscription), [1, 2]);
        subscription.on_packet(0);
        assert_eq!(changes(&mut subscription), []);
        subscription.on_packet(1);
        assert_eq!(changes(&mut subscription), [-1]);
        // Down: the lower one does not come in time.
        subscription.set_level(at(5), 1);
        assert_eq!(changes(&mut subscription), [1]);
        subscription.on_timeout(subscription.next_timeout().unwrap());
        assert_eq!((changes(&mut subscription), subscription.next_timeout()), (vec![-2], None));
    }

    #[test]
    fn a_new_independent_layer_that_fails_before_it_came_is_left_at_once() {
        let mut subscription = subscription(StreamMode::Independent);
        subscription.set_level(at(0), 1);
        subscription.set_level(at(1), 2);
        subscription.set_level(at(2), 1);
        assert_eq!(changes(&mut subscription), [1, 2, -2]);
        subscription.on_packet(0);
        assert_eq!(changes(&mut subscription), []);
        subscription.set_level(at(3), 2);
        subscription.set_level(at(3), 0);
        assert_eq!(changes(&mut subscription), [2, -2, -1]);
    }
}
