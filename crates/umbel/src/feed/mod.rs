//! Feeds: one source sends files or a pipe to all receivers, by TMTP.
//!
//! [`Recovery`](umbel_wire::feed::Recovery) says who repairs what was lost.
//!
//! ```text
//! send   files ─▶ BlockReader ─┐                        ┌─▶ data channel (SSM)
//!        pipe  ─▶ PipeWriter ──┴▶ Source ── driver ─────┤
//!        directory::Announcer                           └─▶ domain group, unicast
//!
//! recv   directory::Station ─▶ which feed
//!        data channel, domain group, unicast ─▶ driver ─ Receiver ─┬▶ DiskSink ─▶ files
//!                                                                   └▶ PipeReader ─▶ output
//! ```
//!
//! [`admission`] decides which receivers may have which feed.
//!
//! [`send()`] and [`recv()`] each run one engine until all is done. [`tree()`] looks at a feed's
//! control tree from outside.

pub mod admission;
pub mod recv;
pub mod send;
mod tree;

use std::net::IpAddr;

use anyhow::{Context, anyhow, bail};
use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::BASE32_NOPAD;
use umbel_engine::tmtp::{Authentication, Draws, HoldUp, List, NodeId, Shape, node_id};
use umbel_net::interface::Family;
use umbel_store::feed::BlockShape;
use umbel_wire::feed::{Feed, FeedContent};
use umbel_wire::{Channel, Tsi, tmtp};

pub use recv::{RecvOptions, recv};
pub use send::{SendOptions, send};
pub use tree::{TreeSnapshot, tree};

use crate::endpoint::ports::{DATA_PORT, DOMAIN_PORT};
use crate::endpoint::{channel, random};

/// Returns the data channel and the domain group of a feed. Unless they are asked for, they are
/// derived from the feed's number, so that two feeds of one network hardly ever share them.
fn channels(
    feed: Tsi,
    source: IpAddr,
    wanted: Option<IpAddr>,
) -> anyhow::Result<(Channel, Channel)> {
    let family = Family::of(source);
    let data =
        wanted.unwrap_or_else(|| channel::specific_group(family, &format!("feed {}", feed.0)));
    let domain = channel::any_source_group(family, &format!("domain {}", feed.0));
    if data == domain {
        bail!("{data} is taken by the feed's domain group: take another group");
    }
    Ok((
        channel::data_channel(data, DATA_PORT, source),
        Channel { source: None, group: domain, port: DOMAIN_PORT },
    ))
}

/// Returns how the feed is divided into blocks.
///
/// # Errors
///
/// If the announcement is inconsistent.
fn cut_of(feed: &Feed) -> anyhow::Result<BlockShape> {
    let block_symbols =
        u8::try_from(feed.block_symbols).context("more than 255 symbols a block")?;
    let sealed = feed.sealed.is_some();
    let cut = BlockShape { symbol_len: feed.symbol_len, block_symbols, sealed };
    if cut.content_len() == 0 {
        bail!("symbols of {} bytes have no room for a seal", cut.symbol_len);
    }
    Ok(cut)
}

/// Returns what the engines need to know of a feed.
///
/// # Errors
///
/// If the announcement is inconsistent.
fn shape_of(feed: &Feed) -> anyhow::Result<Shape> {
    let cut = cut_of(feed)?;
    let manifest = match feed.head() {
        None => None,
        Some((len, digest)) => {
            let blocks = cut.partition(len)?.blocks();
            if blocks == 0 {
                bail!("the feed has no list of what is sent");
            }
            Some(tmtp::Manifest { blocks, len, digest })
        }
    };
    Ok(Shape {
        id: feed.node,
        source: feed.source,
        symbol_len: feed.symbol_len,
        block_symbols: cut.block_symbols,
        fec: feed.fec,
        manifest,
    })
}

/// Returns for how long children may hold up a feed. Where anyone can become one, it is not much. A
/// pipe is not kept for those who fall behind.
fn hold_up(feed: &Feed) -> Option<HoldUp> {
    let kept = matches!(feed.content, FeedContent::Files { .. });
    (kept && feed.is_open()).then(HoldUp::default)
}

/// Returns the key that a token stands for in one feed.
///
/// Argon2id [RFC 9106] makes each guess at a token that was overheard cost 19 MiB and two passes.
/// The feed in the salt makes a guess good for one feed only.
///
/// # Errors
///
/// If there is no memory for it.
fn admission(token: Option<&str>, feed: Tsi) -> anyhow::Result<Option<[u8; 32]>> {
    let Some(token) = token else { return Ok(None) };
    let salt = [b"umbel 2026 admission to a feed".as_slice(), &feed.0.to_be_bytes()].concat();
    let mut key = [0; 32];
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT);
    let stretched = argon2.hash_password_into(token.as_bytes(), &salt, &mut key);
    stretched.map_err(|error| anyhow!("the token cannot be stretched: {error}"))?;
    Ok(Some(key))
}

/// Returns a token that nobody can guess: 16 random bytes.
pub(crate) fn new_token() -> anyhow::Result<String> {
    Ok(BASE32_NOPAD.encode(&random::<16>()?).to_lowercase())
}

/// Returns this host's name in reports.
pub(crate) fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_default()
}

/// Returns the number of a new node of a feed, and what it stamps its messages with. With neither a
/// token nor a list the feed is open, and the number is the digest of the node's own keys.
fn new_node(
    feed: Tsi,
    token: Option<[u8; 32]>,
    list: Option<List>,
) -> anyhow::Result<(NodeId, Authentication)> {
    let authentication = match (token, list) {
        (token, Some(list)) => Authentication::List { list, token },
        (Some(token), None) => Authentication::Token(token),
        (None, None) => {
            let seed = random()?;
            return Ok((node_id(feed, &seed), Authentication::Keys(seed)));
        }
    };
    Ok((NodeId(u64::from_be_bytes(random()?)), authentication))
}

/// Creates the generators of a node.
fn draws() -> anyhow::Result<Draws> {
    Ok(Draws::from_seed(u64::from_be_bytes(random()?)))
}

/// Returns the address family of a channel.
fn family(channel: &Channel) -> Family {
    Family::of(channel.group)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn the_channels_follow_from_the_feed() {
        for source in ["10.0.0.1".parse().unwrap(), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let (data, domain) = channels(Tsi(1), source, None).unwrap();
            assert_eq!((data.source, domain.source), (Some(source), None));
            assert!(data.group.is_multicast() && domain.group.is_multicast());
            assert_ne!(channels(Tsi(2), source, None).unwrap().0, data);
        }
        let source = "10.0.0.1".parse().unwrap();
        let any = channels(Tsi(1), source, Some("239.1.2.3".parse().unwrap())).unwrap();
        assert_eq!(any.0.source, Some(source), "its group may be one of any source");
    }

    #[test]
    fn no_node_of_a_feed_is_without_stamps() {
        let token = Some([1; 32]);
        let of = |token, list| new_node(Tsi(1), token, list).unwrap();
        let (id, open) = of(None, None);
        assert!(matches!(open, Authentication::Keys(seed) if id == node_id(Tsi(1), &seed)));
        assert_ne!(of(None, None).0, id, "keys are for one node");
        assert_eq!(of(token, None).1, Authentication::Token([1; 32]));
        for token in [None, token] {
            let list = List::On([2; 32]);
            assert_eq!(of(token, Some(list.clone())).1, Authentication::List { list, token });
        }
    }

    #[test]
    fn a_token_is_a_key_and_no_token_is_none() {
        let key = |token, feed| admission(token, Tsi(feed)).unwrap();
        assert_eq!(key(None, 1), None);
        assert_eq!(key(Some("a"), 1), key(Some("a"), 1));
        assert_ne!(key(Some("a"), 1), key(Some("b"), 1));
        assert_ne!(key(Some("a"), 1), key(Some("a"), 2), "a token is another key in each feed");
        assert_eq!(new_token().unwrap().len(), 26);
    }
}
