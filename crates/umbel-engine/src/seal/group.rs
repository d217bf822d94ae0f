//! The group keys of one end of a repository, and what is sealed and opened with them.
//!
//! An end holds at most two keys. At a change these are the old one and the next; then the one in
//! use and the one before, for what was under way. A third key takes the place of the oldest.

use std::collections::{BTreeMap, VecDeque};

use umbel_wire::alc::{DataHeader, DataPacket};
use umbel_wire::repository::{GroupKey, GroupSecret};
use umbel_wire::sealed::{MessageHeader, SealedHeader, SealedMessage, SealedPacket};
use umbel_wire::srm::MemberId;

use super::window::Window;
use super::{Cipher, NONCE_LEN};

/// Number of keys that are held.
const LIVE: usize = 2;
/// Words of the replay window of data packets: 8,128 packets, 9 ms at 10 Gbit/s.
const DATA_WORDS: usize = 128;
/// Words of the replay window of each sender in the control group: 64 messages.
const CONTROL_WORDS: usize = 2;
/// Greatest number of senders in the control group under one key. Only holders of the key are
/// counted.
const MOST_SENDERS: usize = 1 << 16;
/// The server, as sender.
const SERVER: MemberId = MemberId(0);

/// Reason why something was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// It is not sealed, or with another secret, or was altered. Or its sender is one more than
    /// fit.
    Forged,
    /// Its key is not held here: no longer, or not yet.
    UnknownKey,
    /// It was opened before, or is older than the replay window.
    Replayed,
}

/// A key with its state.
#[derive(Debug)]
struct Live {
    key: GroupKey,
    data: Cipher,
    control: Cipher,
    /// Number of data packets, and of messages, sealed here.
    sealed: (u32, u32),
    data_window: Window,
    control_windows: BTreeMap<MemberId, Window>,
}

/// The group keys of one end.
#[derive(Debug)]
pub struct Keyring {
    keys: VecDeque<Live>,
    /// Index of the key that seals.
    sealing: usize,
}

/// Derives a cipher from a secret.
fn derived(context: &str, secret: &GroupSecret) -> Cipher {
    let key = blake3::derive_key(context, &secret.0);
    let (half, _) = key.split_first_chunk().expect("32 bytes have a half");
    Cipher::aes_128(half)
}

fn nonce(sender: MemberId, number: u32) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&sender.0.to_be_bytes());
    nonce[8..].copy_from_slice(&number.to_be_bytes());
    nonce
}

impl Keyring {
    /// Creates a keyring with the key that seals.
    pub fn new(key: GroupKey) -> Keyring {
        let mut keyring = Keyring { keys: VecDeque::new(), sealing: 0 };
        keyring.add(key);
        keyring
    }

    /// Adds the next key, which only opens for now. The oldest of three keys is forgotten.
    pub fn add(&mut self, key: GroupKey) {
        if self.keys.iter().any(|live| live.key.id == key.id) {
            return;
        }
        self.keys.push_back(Live {
            data: derived("umbel 2026 repository: data channel", &key.secret),
            control: derived("umbel 2026 repository: control group", &key.secret),
            key,
            sealed: (0, 0),
            data_window: Window::new(DATA_WORDS),
            control_windows: BTreeMap::new(),
        });
        if self.keys.len() > LIVE {
            self.keys.pop_front();
            self.sealing = self.sealing.saturating_sub(1);
        }
    }

    /// Seals with the newest key from now on.
    pub fn switch(&mut self) {
        self.sealing = self.keys.len() - 1;
    }

    /// Returns the key that seals, and the next one if there is one.
    pub fn in_use(&self) -> impl Iterator<Item = GroupKey> {
        self.keys.iter().skip(self.sealing).map(|live| live.key.clone())
    }

    /// Returns the number of data packets that the sealing key has sealed.
    pub fn packets_sealed(&self) -> u32 {
        self.keys[self.sealing].sealed.0
    }

    /// Appends a sealed data packet of the server. Returns `false` if the key has sealed as many as
    /// it may; nothing is appended then.
    ///
    /// # Panics
    ///
    /// If a number of the header is out of the scheme's range.
    pub fn seal_packet(&mut self, header: DataHeader, symbol: &[u8], out: &mut Vec<u8>) -> bool {
        let live = &mut self.keys[self.sealing];
        let number = live.sealed.0;
        let Some(next) = number.checked_add(1) else { return false };
        live.sealed.0 = next;
        let header = SealedHeader { header, key: live.key.id, number };
        let head = header
            .emit()
            .expect("the partition numbers blocks and symbols within the scheme's fields");
        out.extend_from_slice(&head);
        live.data.append_sealed(nonce(SERVER, number), &head, symbol, out);
        true
    }

    /// Opens a data packet of the server into `scratch`, which the returned packet borrows.
    ///
    /// # Errors
    ///
    /// Says why it was not opened.
    pub fn open_packet<'s>(
        &mut self,
        packet: &[u8],
        scratch: &'s mut Vec<u8>,
    ) -> Result<DataPacket<'s>, NotOpened> {
        let packet = SealedPacket::parse(packet).map_err(|_| NotOpened::Forged)?;
        let SealedHeader { header, key, number } = packet.header;
        let (index, live) = self.find(key)?;
        if !live.data_window.is_fresh(number) {
            return Err(NotOpened::Replayed);
        }
        scratch.clear();
        scratch.extend_from_slice(packet.sealed);
        let symbol = live
            .data
            .open_in_place(nonce(SERVER, number), packet.associated, scratch)
            .ok_or(NotOpened::Forged)?;
        live.data_window.note(number);
        self.sealing = self.sealing.max(index);
        Ok(DataPacket { header, symbol })
    }

    /// Returns a sealed message of the control group. Returns `None` if the key has sealed as many
    /// as it may.
    pub fn seal_message(&mut self, sender: MemberId, message: &[u8]) -> Option<Vec<u8>> {
        let live = &mut self.keys[self.sealing];
        let number = live.sealed.1;
        live.sealed.1 = number.checked_add(1)?;
        let head = MessageHeader { key: live.key.id, sender, number }.emit();
        let mut out = head.to_vec();
        live.control.append_sealed(nonce(sender, number), &head, message, &mut out);
        Some(out)
    }

    /// Opens a message of the control group.
    ///
    /// # Errors
    ///
    /// Says why it was not opened.
    pub fn open_message(&mut self, payload: &[u8]) -> Result<Vec<u8>, NotOpened> {
        let message = SealedMessage::parse(payload).map_err(|_| NotOpened::Forged)?;
        let MessageHeader { key, sender, number } = message.header;
        let (index, live) = self.find(key)?;
        let window = live.control_windows.get(&sender);
        if window.is_some_and(|window| !window.is_fresh(number)) {
            return Err(NotOpened::Replayed);
        }
        let mut sealed = message.sealed.to_vec();
        let len = live
            .control
            .open_in_place(nonce(sender, number), message.associated, &mut sealed)
            .ok_or(NotOpened::Forged)?
            .len();
        sealed.truncate(len);
        let full = live.control_windows.len() >= MOST_SENDERS;
        if full && !live.control_windows.contains_key(&sender) {
            return Err(NotOpened::Forged);
        }
        let window = live.control_windows.entry(sender);
        window.or_insert_with(|| Window::new(CONTROL_WORDS)).note(number);
        if sender == SERVER {
            self.sealing = self.sealing.max(index);
        }
        Ok(sealed)
    }

    fn find(&mut self, key: u16) -> Result<(usize, &mut Live), NotOpened> {
        let mut keys = self.keys.iter_mut().enumerate();
        keys.find(|(_, live)| live.key.id == key).ok_or(NotOpened::UnknownKey)
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::{Scheme, Toi, Tsi};

    use super::*;

    const HEADER: DataHeader = DataHeader {
        tsi: Tsi(7),
        toi: Toi(1),
        transmission: 2,
        index: 3,
        stamp: umbel_wire::reception::ChannelStamp::new(1, 2, 3),
        scheme: Scheme::ReedSolomon,
        sbn: 4,
        esi: 5,
    };

    fn key(id: u16) -> GroupKey {
        GroupKey { id, secret: GroupSecret([id as u8; 32]) }
    }

    fn packet(server: &mut Keyring) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(server.seal_packet(HEADER, b"symbol", &mut out));
        out
    }

    fn open(client: &mut Keyring, packet: &[u8]) -> Result<Vec<u8>, NotOpened> {
        let mut scratch = Vec::new();
        let opened = client.open_packet(packet, &mut scratch)?;
        assert_eq!(opened.header, HEADER);
        Ok(opened.symbol.to_vec())
    }

    #[test]
    fn a_packet_is_opened_once_and_no_byte_of_it_can_be_altered() {
        let (mut server, mut client) = (Keyring::new(key(1)), Keyring::new(key(1)));
        let packet = packet(&mut server);
        assert_eq!(packet.len(), DataHeader::LEN + 6 + SealedHeader::OVERHEAD);
        for at in 0..packet.len() {
            let mut altered = packet.clone();
            altered[at] ^= 1;
            open(&mut client, &altered).unwrap_err();
            open(&mut client, &packet[..at]).unwrap_err();
        }
        assert_eq!(open(&mut client, &packet).unwrap(), b"symbol");
        assert_eq!(open(&mut client, &packet), Err(NotOpened::Replayed));
        let plain = [&HEADER.emit().unwrap()[..], b"symbol", &[0; 40]].concat();
        assert_eq!(open(&mut client, &plain), Err(NotOpened::Forged));
    }

    #[test]
    fn at_a_change_both_keys_open_and_later_the_old_one_does_not() {
        let (mut server, mut client) = (Keyring::new(key(1)), Keyring::new(key(1)));
        let early = packet(&mut server);
        server.add(key(2));
        client.add(key(2));
        let before = packet(&mut server);
        server.switch();
        let after = packet(&mut server);
        for packet in [&after, &before] {
            open(&mut client, packet).unwrap();
        }
        client.add(key(3));
        assert_eq!(open(&mut client, &early), Err(NotOpened::UnknownKey));
        open(&mut client, &packet(&mut server)).unwrap();
        // A client that has left holds the keys of its time.
        let mut former = Keyring::new(key(1));
        assert_eq!(open(&mut former, &after), Err(NotOpened::UnknownKey));
        let other = GroupKey { id: 2, secret: GroupSecret([9; 32]) };
        assert_eq!(open(&mut Keyring::new(other), &after), Err(NotOpened::Forged));
    }

    #[test]
    fn a_client_seals_with_the_key_that_the_server_uses() {
        let (mut server, mut client) = (Keyring::new(key(1)), Keyring::new(key(1)));
        for keyring in [&mut server, &mut client] {
            keyring.add(key(2));
        }
        let id = |sealed: &[u8]| SealedMessage::parse(sealed).unwrap().header.key;
        let of_client = client.seal_message(MemberId(5), b"hello").unwrap();
        assert_eq!(id(&of_client), 1);
        assert_eq!(server.open_message(&of_client).unwrap(), b"hello");
        assert_eq!(server.open_message(&of_client), Err(NotOpened::Replayed));
        server.switch();
        let of_server = server.seal_message(SERVER, b"hello").unwrap();
        client.open_message(&of_server).unwrap();
        assert_eq!(id(&client.seal_message(MemberId(5), b"hello").unwrap()), 2);
        // Another member's messages change nothing of that.
        let mut third = Keyring::new(key(1));
        third.add(key(2));
        third.open_message(&client.seal_message(MemberId(5), b"hello").unwrap()).unwrap();
        assert_eq!(id(&third.seal_message(MemberId(6), b"hello").unwrap()), 1);
    }

    #[test]
    fn a_key_never_seals_two_packets_with_one_number() {
        let mut server = Keyring::new(key(1));
        server.keys[0].sealed = (u32::MAX, u32::MAX);
        assert!(!server.seal_packet(HEADER, b"symbol", &mut Vec::new()));
        assert!(server.seal_message(SERVER, b"hello").is_none());
    }

    #[test]
    fn ten_times_as_many_senders_as_fit_take_no_more_memory() {
        let (mut insider, mut client) = (Keyring::new(key(1)), Keyring::new(key(1)));
        for sender in 0..10 * MOST_SENDERS as u64 {
            let message = insider.seal_message(MemberId(sender), b"hello").unwrap();
            let _ = client.open_message(&message);
        }
        assert_eq!(client.keys[0].control_windows.len(), MOST_SENDERS);
    }
}
