//! Recently sent files, for receivers that fetch what they lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use umbel_net::session::Signer;
use umbel_store::hls::FileName;
use umbel_wire::Digest;
use umbel_wire::rlm::signed::file_message;

use super::host::Item;
use crate::http::{Answer, Site};

/// Most bytes that are kept, and most files.
const BYTES: usize = 256 << 20;
const FILES: usize = 4096;

/// Keeps the last files that were sent, by name, and signs each.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    files: BTreeMap<FileName, File>,
    /// The source's key, and the version of its announcement.
    signer: Option<(Signer, u64)>,
    order: VecDeque<FileName>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct File {
    body: Bytes,
    digest: String,
    signature: Option<String>,
}

impl Recent {
    /// Signs the files that are kept from now on, for the stream of this announcement.
    pub(crate) fn sign(&self, signer: Signer, version: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).signer = Some((signer, version));
    }

    /// Keeps a file in place of an older one of its name.
    pub(crate) fn keep(&self, item: &Item) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.files.get(&item.name).is_some_and(|file| file.body == item.body) {
            return;
        }
        let hash = blake3::hash(&item.body);
        let signature = kept.signer.as_ref().map(|(signer, version)| {
            let message = file_message(*version, item.name.as_str(), &Digest(*hash.as_bytes()));
            BASE64URL_NOPAD.encode(&signer.sign(&message))
        });
        let digest = hash.to_hex().to_string();
        let file = File { body: item.body.clone(), digest, signature };
        kept.bytes += item.body.len();
        match kept.files.insert(item.name.clone(), file) {
            Some(old) => kept.bytes -= old.body.len(),
            None => kept.order.push_back(item.name.clone()),
        }
        while kept.bytes > BYTES || kept.order.len() > FILES {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(old) = kept.files.remove(&oldest) {
                kept.bytes -= old.body.len();
            }
        }
    }
}

impl Site for Recent {
    fn answer(&self, path: &str) -> Answer {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = path.strip_prefix('/').and_then(|name| FileName::parse(name).ok());
        match name.and_then(|name| kept.files.get(&name).cloned()) {
            Some(File { body, digest, signature }) => {
                let (media_type, etag) = ("application/octet-stream", Some(digest));
                Answer::Found { media_type, body, etag, signature }
            }
            None => Answer::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_they_were_sent_and_the_newest_counts() {
        let recent = Recent::default();
        let item = |body: &'static str| Item {
            name: FileName::parse("v0/a.m4s").unwrap(),
            body: Bytes::from_static(body.as_bytes()),
        };
        recent.keep(&item("old"));
        recent.keep(&item("new"));
        let Answer::Found { body, etag, .. } = recent.answer("/v0/a.m4s") else { panic!() };
        assert_eq!(body, "new");
        assert_eq!(etag, Some(blake3::hash(b"new").to_hex().to_string()));
        for path in ["/", "v0/a.m4s", "/v0/../v0/a.m4s", "//v0/a.m4s", "/v0/b.m4s"] {
            assert_eq!(recent.answer(path), Answer::NotFound, "{path}");
        }
    }
}
