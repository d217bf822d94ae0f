//! A client that leaves and goes on listening, with all keys that it was given.

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::seal::Keyring;
use umbel_sim::{App, Context, NodeId, Packet};
use umbel_wire::control::Parsed;
use umbel_wire::repository::{ClientMessage, GroupKey, ServerMessage};

use super::server::{CONTROL, DATA};
use super::sessions::Frame;

/// The leaver client.
#[derive(Debug)]
pub(super) struct Leaver {
    server: NodeId,
    leaves: Instant,
    has_left: bool,
    keys: Vec<GroupKey>,
    /// Packets that it read while it was a client.
    pub(super) read_before: u64,
    /// Time of the last packet that it read.
    pub(super) last_read: Option<Instant>,
    /// Packets that it could not read after it had left.
    pub(super) unreadable: u64,
}

impl Leaver {
    /// Creates a client of a server that leaves at a time.
    pub(super) fn new(server: NodeId, leaves: Instant) -> Leaver {
        Leaver {
            server,
            leaves,
            has_left: false,
            keys: Vec::new(),
            read_before: 0,
            last_read: None,
            unreadable: 0,
        }
    }

    fn say(&self, context: &mut Context<'_>, message: &ClientMessage) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        context.send_message(self.server, Frame::Message(bytes.into()).emit(0));
    }

    /// Returns whether any of its keys opens a packet of either channel.
    fn reads(&self, payload: &[u8]) -> bool {
        self.keys.iter().any(|key| {
            let packet = Keyring::new(key.clone()).open_packet(payload, &mut Vec::new()).is_ok();
            packet || Keyring::new(key.clone()).open_message(payload).is_ok()
        })
    }
}

impl App for Leaver {
    fn start(&mut self, context: &mut Context<'_>) {
        let server = self.server;
        for (source, number) in [(Some(server), DATA), (None, CONTROL + server.0)] {
            let group = context.group(source, number);
            context.join(group);
        }
        context.send_message(server, Frame::Open.emit(0));
        let agent = String::new();
        self.say(context, &ClientMessage::Hello { agent, token: None });
        context.wake_at(Some(self.leaves));
    }

    fn message(&mut self, context: &mut Context<'_>, _from: NodeId, message: Bytes) {
        let (_, Frame::Message(message)) = Frame::parse(&message) else { return };
        match ServerMessage::parse(&message).ok().and_then(Parsed::message) {
            Some(ServerMessage::Welcome { keys, .. }) => self.keys.extend(keys),
            Some(ServerMessage::Key(key)) => {
                let id = key.id;
                self.keys.push(key);
                self.say(context, &ClientMessage::HasKey { key: id });
            }
            _ => {}
        }
    }

    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet) {
        if self.reads(&packet.payload) {
            self.last_read = Some(context.now());
            self.read_before += u64::from(!self.has_left);
        } else {
            self.unreadable += u64::from(self.has_left);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.has_left = true;
        context.send_message(self.server, Frame::Close(String::new()).emit(0));
    }
}
