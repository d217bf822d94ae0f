//! Items that a server offers.

use std::collections::BTreeMap;

use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi};

/// Items of a repository, numbered from 1.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    items: Vec<ItemInfo>,
    by_name: BTreeMap<String, Toi>,
}

impl Catalog {
    /// Creates a catalog of these items. Each has its own name.
    pub fn new(items: impl IntoIterator<Item = (String, Oti)>) -> Catalog {
        let mut catalog = Catalog::default();
        for (name, oti) in items {
            let toi = Toi(catalog.items.len() as u32 + 1);
            catalog.by_name.insert(name.clone(), toi);
            catalog.items.push(ItemInfo {
                toi,
                name,
                digest: Digest([0; 32]),
                modified_ns: None,
                mode: None,
                kind: ItemKind::File,
                holes: None,
                media_type: String::new(),
                oti,
            });
        }
        catalog
    }

    /// Creates `count` items of `symbols` symbols each. An item is one block as long as the scheme
    /// has blocks of that size: 255 encoding symbols for Reed–Solomon codes.
    pub fn uniform(count: u32, symbols: u16, symbol_len: u16, scheme: Scheme) -> Catalog {
        let oti = Oti {
            scheme,
            object_len: u64::from(symbols) * u64::from(symbol_len),
            symbol_len,
            max_block_symbols: symbols,
            max_encoding_symbols: 255,
        };
        Catalog::new((1..=count).map(|number| (number.to_string(), oti)))
    }

    /// Returns all items in the order of their numbers.
    pub fn items(&self) -> &[ItemInfo] {
        &self.items
    }

    /// Returns an item by its number.
    pub fn item(&self, toi: Toi) -> Option<&ItemInfo> {
        self.items.get((toi.0 as usize).checked_sub(1)?)
    }

    /// Returns an item by its name.
    pub fn find(&self, name: &str) -> Option<&ItemInfo> {
        self.item(*self.by_name.get(name)?)
    }
}
