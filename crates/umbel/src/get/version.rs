//! What tells one version of a server's list from another.

use umbel_wire::Digest;
use umbel_wire::repository::{ItemInfo, ItemKind};

/// Digest of the names, kinds and contents in a list, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct ListDigest(blake3::Hasher);

impl ListDigest {
    /// Adds the next item.
    pub(super) fn add(&mut self, info: &ItemInfo) {
        let (kind, leads) = match &info.kind {
            ItemKind::File => (0, ""),
            ItemKind::Directory => (1, ""),
            ItemKind::Link(text) => (2, text.as_str()),
            ItemKind::HardLink(name) => (3, name.as_str()),
        };
        for part in [&[kind][..], info.name.as_bytes(), leads.as_bytes(), &info.digest.0] {
            self.0.update(&(part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// Returns the digest of what was added.
    pub(super) fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::repository::LinkText;
    use umbel_wire::{Oti, Scheme, Toi};

    use super::*;

    fn of(items: &[(&str, u8, ItemKind)]) -> Digest {
        let mut list = ListDigest::default();
        for (name, content, kind) in items {
            list.add(&ItemInfo {
                toi: Toi(1),
                name: (*name).to_owned(),
                kind: kind.clone(),
                digest: Digest([*content; 32]),
                modified_ns: None,
                mode: None,
                holes: None,
                media_type: String::new(),
                oti: Oti {
                    scheme: Scheme::NoCode,
                    object_len: 1,
                    symbol_len: 1,
                    max_block_symbols: 1,
                    max_encoding_symbols: 1,
                },
            });
        }
        list.digest()
    }

    #[test]
    fn names_contents_and_kinds_make_the_version() {
        let file = |name, content| (name, content, ItemKind::File);
        let both = of(&[file("a", 1), file("b", 2)]);
        assert_eq!(both, of(&[file("a", 1), file("b", 2)]));
        let others = [
            &[file("a", 1)][..],
            &[file("a", 1), file("b", 3)],
            &[file("b", 1), file("a", 2)],
            &[],
        ];
        assert!(others.iter().all(|other| of(other) != both));
        let link = |text| ("a", 0, ItemKind::Link(LinkText::new(text).unwrap()));
        assert_ne!(of(&[link("b")]), of(&[link("c")]));
        assert_ne!(of(&[link("b")]), of(&[("a", 0, ItemKind::HardLink("b".to_owned()))]));
    }
}
