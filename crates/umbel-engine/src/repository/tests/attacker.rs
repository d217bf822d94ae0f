//! Somebody on the path of a sealed server's channel, who sees, drops, repeats, alters and invents.

use std::collections::VecDeque;

use rand_core::Rng;
use umbel_wire::repository::{GroupKey, GroupSecret};
use umbel_wire::sealed::SealedPacket;

use crate::chance::{Generator, generator};
use crate::seal::Keyring;

/// Packets that it remembers, also those of keys that are long out of use.
const SEEN: usize = 4_096;

#[derive(Debug)]
pub(super) struct Attacker {
    random: Generator,
    seen: VecDeque<Vec<u8>>,
}

impl Attacker {
    pub(super) fn new(seed: u64) -> Attacker {
        Attacker { random: generator(seed), seen: VecDeque::new() }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end as u64) as usize
    }

    /// Returns what a client hears instead of a packet.
    pub(super) fn instead_of(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        self.seen.push_back(packet.to_vec());
        if self.seen.len() > SEEN {
            self.seen.pop_front();
        }
        let mut heard: Vec<Vec<u8>> = (0..self.below(4)).map(|_| self.evil()).collect();
        if self.below(10) > 0 {
            heard.push(packet.to_vec());
        }
        heard
    }

    fn any_seen(&mut self) -> Vec<u8> {
        let which = self.below(self.seen.len());
        self.seen[which].clone()
    }

    fn evil(&mut self) -> Vec<u8> {
        let mut packet = self.any_seen();
        let (byte, bit) = (self.below(packet.len()), self.below(8));
        match self.below(4) {
            // Once more.
            0 => packet,
            // Altered, be it the number of the key or of the packet.
            1 => {
                packet[byte] ^= 1 << bit;
                packet
            }
            // The head of one, and the rest of another.
            2 => {
                let other = self.any_seen();
                let cut = byte.min(other.len());
                [&packet[..cut], &other[cut..]].concat()
            }
            // Sealed under a number that is in use, with a secret of its own.
            _ => self.sealed_like(&packet),
        }
    }

    fn sealed_like(&mut self, packet: &[u8]) -> Vec<u8> {
        let Ok(SealedPacket { header, .. }) = SealedPacket::parse(packet) else {
            return packet.to_vec();
        };
        let id = header.key.wrapping_add(self.below(3) as u16).wrapping_sub(1);
        let mut own = Keyring::new(GroupKey { id, secret: GroupSecret([99; 32]) });
        let mut sealed = Vec::new();
        own.seal_packet(header.header, &[7; 64], &mut sealed);
        sealed
    }
}
