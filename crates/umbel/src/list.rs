//! Lists a server's items.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use umbel_net::session::{ClientEvent, ClientSession, ConnectOptions, Credentials, SessionUrl};
use umbel_wire::repository::{ClientMessage, ItemInfo, ServerMessage};

use crate::endpoint::{Asked, Failure};

/// Longest time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Items on a page.
const PAGE: u32 = 1024;

/// Result of listing.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Number of items that match, without directories.
    pub items: u64,
    /// Items that were asked for by name and are not on the server.
    pub missing: Vec<Failure>,
}

/// Calls `each` for every file of a server that matches any of the patterns, or for every one if
/// there are no patterns.
///
/// # Errors
///
/// One line that says why there is no list: no such server, wrong key, or no match.
pub fn list(
    url: &SessionUrl,
    credentials: Credentials,
    patterns: &[String],
    mut each: impl FnMut(&ItemInfo),
) -> anyhow::Result<Listing> {
    let mut count = 0;
    let missing = walk(url, credentials, patterns, |item| {
        if !item.kind.is_directory() {
            count += 1;
            each(item);
        }
    })?;
    Ok(Listing { items: count, missing })
}

/// Calls `each` as [`list`] does, and for every directory. Returns what is missing.
///
/// # Errors
///
/// As [`list`].
pub(crate) fn walk(
    url: &SessionUrl,
    credentials: Credentials,
    patterns: &[String],
    mut each: impl FnMut(&ItemInfo),
) -> anyhow::Result<Vec<Failure>> {
    let mut asked = Asked::new(patterns);
    let (events, inbox) = mpsc::channel();
    let options = ConnectOptions { credentials, ..ConnectOptions::default() };
    let session = ClientSession::start(url, &options, move |event| {
        // Nothing receives events any more once the list is complete.
        let _ = events.send(event);
    })?;
    let say = |message: &ClientMessage| {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        // If the session has ended, its last event says why.
        let _ = session.send(bytes.into());
    };
    let agent = concat!("umbel/", env!("CARGO_PKG_VERSION")).to_owned();
    say(&ClientMessage::Hello { agent, token: url.token.clone() });
    let ask =
        |cursor| ClientMessage::List { query: 0, patterns: patterns.to_vec(), cursor, limit: PAGE };
    say(&ask(0));
    loop {
        let event = inbox.recv_timeout(PATIENCE).context("the server does not answer")?;
        let bytes = match event {
            ClientEvent::Message(bytes) => bytes,
            ClientEvent::Disconnected { reason, .. } => return Err(anyhow!(reason)),
            _ => continue,
        };
        let parsed = ServerMessage::parse(&bytes).context(
            "the server sent something other than a message: use the same release on both sides",
        )?;
        match parsed.message() {
            Some(ServerMessage::Page { items, next, .. }) => {
                for item in &items {
                    asked.offered(&item.name);
                    each(item);
                }
                let Some(cursor) = next else {
                    session.close(Duration::from_millis(200));
                    return Ok(asked.missing().collect());
                };
                say(&ask(cursor));
            }
            // It reads nothing there, and says so that the server need not wait for it.
            Some(ServerMessage::Key(key)) => say(&ClientMessage::HasKey { key: key.id }),
            Some(ServerMessage::Failed { reason, .. } | ServerMessage::Refused { reason }) => {
                bail!(reason)
            }
            _ => {}
        }
    }
}
