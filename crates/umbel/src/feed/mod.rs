//! Feeds: one source sends files or a pipe to whoever listens, by TMTP.
//!
//! ```text
//! send   files ─▶ BlockReader ─┐                        ┌─▶ data channel (SSM)
//!        pipe  ─▶ PipeWriter ──┴▶ Source ── driver ─────┤
//!        directory::Announcer                           └─▶ domain group, unicast (net::domain)
//!
//! recv   directory::Station ─▶ which feed
//!        data channel, domain group, unicast ─▶ driver ─ Receiver ─┬▶ DiskSink ─▶ files
//!                                                                   └▶ PipeReader ─▶ output
//! ```
//!
//! Who may receive what is the matter of [`admission`].
//!
//! [`send()`] and [`recv()`] run one engine each until all is done; [`tree()`] looks at a feed's
//! control tree from outside.

pub mod admission;
pub mod recv;
pub mod send;
mod tree;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, bail};
use umbel_engine::tmtp::NodeId;
use umbel_net::interface::{Family, Interface};
use umbel_store::feed::BlockShape;
use umbel_wire::feed::Feed;
use umbel_wire::{Channel, Tsi};

pub use recv::{RecvOptions, recv};
pub use send::{SendOptions, send};
pub use tree::{TreeSnapshot, tree};

use crate::serve::channel;
use crate::serve::control::random;

/// UDP port of data channels.
pub const DATA_PORT: u16 = 7702;
/// UDP port of domain groups.
pub const DOMAIN_PORT: u16 = 7703;

/// Which interface is meant if nobody says: that of the default route, or another that does
/// multicast.
///
/// # Errors
///
/// There is no such interface.
pub fn interface(wanted: Option<&str>) -> anyhow::Result<Interface> {
    Ok(channel::choose_interface(wanted)?)
}

/// The data channel and the domain group of a feed: those asked for, or such as follow from its
/// number, so that two feeds of one network hardly share them.
fn channels(
    feed: Tsi,
    source: IpAddr,
    wanted: Option<IpAddr>,
) -> anyhow::Result<(Channel, Channel)> {
    let hash = *blake3::hash(&feed.0.to_be_bytes()).as_bytes();
    let pair = |at: usize| u16::from_be_bytes([hash[at], hash[at + 1]]);
    let (data, domain): (IpAddr, IpAddr) = match source {
        // 232.0.0.0/24 is reserved [RFC 4607 §9]; the highest addresses of 239.255.0.0/16 have
        // fixed meanings [RFC 2365 §9].
        IpAddr::V4(_) => (
            Ipv4Addr::new(232, hash[0].max(1), hash[1], hash[2]).into(),
            Ipv4Addr::new(239, 255, hash[4] % 255, hash[5]).into(),
        ),
        // Above 0x8000_0000 for dynamic use; site-local scope [RFC 4607 §9, RFC 4291 §2.7].
        IpAddr::V6(_) => (
            Ipv6Addr::new(0xFF35, 0, 0, 0, 0, 0, 0x8000 | pair(0), pair(2)).into(),
            Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x8000 | pair(4), pair(6)).into(),
        ),
    };
    let data = wanted.unwrap_or(data);
    if !data.is_multicast() {
        bail!("{data} is no multicast address: take one of 232.0.0.0/8, 239.0.0.0/8 or ff30::/12");
    }
    if data == domain {
        bail!("{data} is taken by the feed's domain group: take another group");
    }
    let specific = channel::is_source_specific(data).then_some(source);
    Ok((
        Channel { source: specific, group: data, port: DATA_PORT },
        Channel { source: None, group: domain, port: DOMAIN_PORT },
    ))
}

/// How a feed is cut.
///
/// # Errors
///
/// In a way that makes no sense.
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

/// The key that a token stands for.
fn admission(token: Option<&str>) -> Option<[u8; 32]> {
    token.map(|token| blake3::derive_key("umbel 2026 admission to a feed", token.as_bytes()))
}

/// What this host calls itself in reports.
pub(crate) fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_default()
}

/// A node's number, and the seed of its draws.
fn node() -> anyhow::Result<(NodeId, u64)> {
    Ok((NodeId(u64::from_be_bytes(random()?)), u64::from_be_bytes(random()?)))
}

/// The family of a channel.
fn family(channel: &Channel) -> Family {
    Family::of(channel.group)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(any.0.source, None);
        let error = channels(Tsi(1), source, Some(source)).unwrap_err();
        assert!(error.to_string().contains("no multicast address"), "{error}");
    }

    #[test]
    fn a_token_is_a_key_and_no_token_is_none() {
        assert_eq!(admission(None), None);
        assert_ne!(admission(Some("a")), admission(Some("b")));
    }
}
