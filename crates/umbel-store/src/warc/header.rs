//! What the header of a record says, in both formats.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use data_encoding::{BASE32, HEXLOWER_PERMISSIVE};
use sha1::{Digest as _, Sha1};

use super::arc::Line;
use super::fields::{field, text};

/// Maximum bytes of an item's name.
const MAX_URI: usize = 16 * 1024;
/// Maximum bytes of a media type that is passed on.
const MAX_MEDIA_TYPE: usize = 255;

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Warc,
    Arc,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An HTTP response, with its header.
    Http,
    /// Content without an HTTP header.
    Resource,
    /// A capture whose content is in another record.
    Revisit,
    /// A record that is not served.
    Other,
}

/// The header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Bytes of the block, if they can be read.
    pub(super) len: Option<u64>,
    /// The item's name, if it can be read.
    pub(super) uri: Option<String>,
    /// Date in nanoseconds since the Unix epoch.
    pub(super) date_ns: Option<i64>,
    /// Media type of a block that is no HTTP response.
    pub(super) media_type: Cow<'static, str>,
    /// SHA-1 of the block.
    pub(super) digest: Option<[u8; 20]>,
    /// Names the content of this record, and of all that have the same: the SHA-1 that the crawler
    /// gives, or one of the digest that it gives.
    pub(super) payload: Option<[u8; 20]>,
    /// Whether the crawler cut the content.
    pub(super) cut: bool,
}

impl Header {
    pub(super) fn warc(header: &[u8]) -> Header {
        let payload = text(header, "WARC-Payload-Digest");
        Header {
            kind: Kind::of(header),
            len: text(header, "Content-Length").and_then(|len| len.parse().ok()),
            uri: text(header, "WARC-Target-URI").and_then(name),
            date_ns: text(header, "WARC-Date").and_then(parse_date),
            media_type: media_type(header),
            digest: text(header, "WARC-Block-Digest").and_then(sha1_digest),
            payload: payload.map(|digest| {
                let of_text = || Sha1::digest(digest.to_ascii_lowercase()).into();
                sha1_digest(digest).unwrap_or_else(of_text)
            }),
            cut: field(header, "WARC-Truncated").is_some(),
        }
    }

    pub(super) fn arc(line: &[u8]) -> Option<Header> {
        let line = Line::parse(line)?;
        let scheme = line.url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        let kind = match scheme.as_deref() {
            Some("filedesc") => Kind::Other,
            Some("http" | "https") => Kind::Http,
            _ => Kind::Resource,
        };
        Some(Header {
            kind,
            len: Some(line.len),
            uri: name(line.url),
            date_ns: line.date_ns(),
            media_type: brief(line.media_type),
            digest: None,
            payload: None,
            cut: false,
        })
    }
}

impl Kind {
    fn of(header: &[u8]) -> Kind {
        let http = || {
            let media_type = field(header, "Content-Type").unwrap_or_default();
            media_type.to_ascii_lowercase().starts_with(b"application/http")
        };
        match field(header, "WARC-Type") {
            Some(b"response") if http() => Kind::Http,
            Some(b"response" | b"resource") => Kind::Resource,
            Some(b"revisit") => Kind::Revisit,
            _ => Kind::Other,
        }
    }
}

/// Returns a digest that is given as SHA-1.
fn sha1_digest(text: &str) -> Option<[u8; 20]> {
    let (algorithm, digest) = text.split_once(':')?;
    if !algorithm.eq_ignore_ascii_case("sha1") {
        return None;
    }
    let digest = match digest.len() {
        40 => HEXLOWER_PERMISSIVE.decode(digest.as_bytes()).ok()?,
        _ => BASE32.decode(digest.to_ascii_uppercase().as_bytes()).ok()?,
    };
    digest.try_into().ok()
}

/// Returns the item's name. Some programs write it in angle brackets, as in the grammar of WARC
/// 1.0.
fn name(uri: &str) -> Option<String> {
    let uri = uri.strip_prefix('<').and_then(|uri| uri.strip_suffix('>')).unwrap_or(uri);
    // A reference without scheme or host would be an absolute path.
    let uri = uri.trim_start_matches('/');
    let good = !uri.is_empty() && uri.len() <= MAX_URI && !uri.contains(char::is_control);
    good.then(|| uri.to_owned())
}

/// Returns a date in nanoseconds since the Unix epoch.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    let date = humantime::parse_rfc3339(text).ok()?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// Returns the media type that a header gives.
pub(super) fn media_type(header: &[u8]) -> Cow<'static, str> {
    text(header, "Content-Type").map_or(Cow::Borrowed(""), brief)
}

fn brief(media_type: &str) -> Cow<'static, str> {
    if media_type.len() <= MAX_MEDIA_TYPE && !media_type.contains(char::is_control) {
        Cow::Owned(media_type.to_owned())
    } else {
        Cow::Borrowed("")
    }
}
