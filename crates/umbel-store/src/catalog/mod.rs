//! The catalog: the items now on offer, and older versions that transmissions in progress still
//! use.

mod digest;
mod handles;
mod known;
mod pattern;
mod select;
mod stretches;
mod update;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use crossbeam_channel::Sender;
use parking_lot::{Mutex, RwLock};
use umbel_engine::symbols::BlockId;
use umbel_fec::{Code, Partition};
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Toi};

use crate::holes;
use crate::origin::{Body, Found, Origin, Place, Scan, SkipReason, Skipped};
use crate::{Fault, OpenError, PatternError, ReadError, RepositoryOptions};
use handles::Handles;
use known::KnownDigests;
pub use pattern::name_of;
pub use select::Selection;
use select::{Selector, Snapshot};
use update::Update;

/// One version of an item.
pub struct Item {
    toi: Toi,
    oti: Oti,
    found: Found,
    /// Source blocks that are holes; see [`ItemInfo::holes`].
    holes: Option<Vec<Range<u32>>>,
    digest: OnceLock<Digest>,
    /// What is known of the blocks of a device once it was read.
    of_device: OnceLock<DeviceBlocks>,
    /// Lock of the thread that computes the digest, so that no digest is computed twice.
    hashing: Mutex<()>,
}

/// The source blocks of a device. They are read once, since all receivers ask for their digests.
struct DeviceBlocks {
    digests: Box<[Digest]>,
    /// Blocks that have nothing but zeros, in ascending runs.
    zeros: Vec<Range<u32>>,
}

impl Item {
    fn new(toi: Toi, oti: Oti, found: Found) -> Item {
        let digest = OnceLock::new();
        // Where there is nothing to read.
        let text = match &found.kind {
            ItemKind::File | ItemKind::HardLink(_) => None,
            ItemKind::Directory => Some(""),
            ItemKind::Link(text) => Some(text.as_str()),
        };
        if let Some(text) = text {
            digest.get_or_init(|| Digest(*blake3::hash(text.as_bytes()).as_bytes()));
        }
        let holes = found.holes.as_ref().zip(Partition::new(&oti).ok());
        let holes = holes.map(|(holes, partition)| holes::blocks(holes, &partition));
        let of_device = OnceLock::new();
        Item { toi, oti, found, holes, digest, of_device, hashing: Mutex::new(()) }
    }

    /// Returns the object that carries this version and no other.
    pub fn toi(&self) -> Toi {
        self.toi
    }

    /// Returns the name: a path relative to the repository's root with `/` between its parts, or a
    /// URI.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// Returns what it is. A file that has an earlier name in the repository is another name of
    /// that.
    pub fn kind(&self) -> &ItemKind {
        &self.found.kind
    }

    /// Returns the number of bytes of the content.
    pub fn size(&self) -> u64 {
        self.found.size
    }

    /// Returns the modification time in nanoseconds since the Unix epoch, if it is known.
    pub fn modified_ns(&self) -> Option<i64> {
        self.found.modified_ns
    }

    /// Returns the media type; empty if it is not known.
    pub fn media_type(&self) -> &str {
        &self.found.media_type
    }

    /// Returns the object transmission information, which says how the content is split into
    /// symbols.
    pub fn oti(&self) -> Oti {
        self.oti
    }

    /// Returns the digest if it was computed already; see [`Catalog::digest`].
    pub fn known_digest(&self) -> Option<Digest> {
        self.digest.get().copied()
    }

    /// Returns the number of bytes that are sent of it, holes included: none of other names.
    pub fn sent_bytes(&self) -> u64 {
        if self.found.kind.is_file() { self.found.size } else { 0 }
    }

    /// Returns the item's description for clients. Its digest is zero until it is known, and so are
    /// the holes of a device unknown until then.
    pub fn info(&self) -> ItemInfo {
        self.info_as(self.found.kind.clone())
    }

    fn is_device(&self) -> bool {
        matches!(self.found.place, Place::Device(_))
    }

    fn info_as(&self, kind: ItemKind) -> ItemInfo {
        // Before the holes, which are known when it is.
        let digest = self.known_digest().unwrap_or(Digest([0; 32]));
        let zeros = || self.of_device.get().map(|blocks| blocks.zeros.clone());
        ItemInfo {
            toi: self.toi,
            name: self.found.name.clone(),
            digest,
            modified_ns: self.found.modified_ns,
            mode: self.found.mode,
            holes: self.holes.clone().or_else(zeros).filter(|_| kind.is_file()),
            kind,
            media_type: self.found.media_type.clone().into_owned(),
            oti: self.oti,
        }
    }

    fn gone(&self, fault: Fault) -> ReadError {
        ReadError::Gone { name: self.found.name.clone(), fault }
    }

    fn no_part(&self, part: String) -> ReadError {
        ReadError::Range { name: self.found.name.clone(), part }
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("toi", &self.toi)
            .field("name", &self.found.name)
            .field("size", &self.found.size)
            .finish_non_exhaustive()
    }
}

/// Changes that a refresh found, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Items that are new.
    pub added: Vec<Toi>,
    /// Items with a new version, as pairs of the old object and the new one.
    pub replaced: Vec<(Toi, Toi)>,
    /// Items that no longer exist.
    pub removed: Vec<Toi>,
}

impl Changes {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.replaced.is_empty() && self.removed.is_empty()
    }
}

/// The set of items on offer. All methods can be called from any thread at any time. Methods that
/// read content block until it is read.
pub struct Catalog {
    origin: Box<dyn Origin>,
    options: RepositoryOptions,
    state: RwLock<State>,
    /// The next identifier. Locked while a refresh runs, so that refreshes do not overlap.
    next_toi: Mutex<u32>,
    handles: Handles,
    selector: Selector,
    block_digests: Mutex<KnownDigests>,
    /// Wakes the hashing thread after a refresh. Dropping it ends the thread.
    hasher: OnceLock<Sender<()>>,
}

struct State {
    snapshot: Arc<Snapshot>,
    by_toi: HashMap<Toi, Arc<Item>>,
    /// Versions that are no longer on offer but can still be read, oldest first.
    withdrawn: VecDeque<Toi>,
    skipped: Skipped,
    other_status: u64,
}

/// Number of withdrawn versions that are kept for transmissions in progress.
const WITHDRAWN: usize = 4_096;

impl Catalog {
    pub(crate) fn new(
        origin: Box<dyn Origin>,
        options: RepositoryOptions,
    ) -> Result<Catalog, OpenError> {
        let open_files = NonZeroUsize::new(options.open_files).unwrap_or(NonZeroUsize::MIN);
        let catalog = Catalog {
            origin,
            options,
            state: RwLock::new(State {
                snapshot: Arc::new(Snapshot::default()),
                by_toi: HashMap::new(),
                withdrawn: VecDeque::new(),
                skipped: Skipped::default(),
                other_status: 0,
            }),
            next_toi: Mutex::new(1),
            handles: Handles::new(open_files),
            selector: Selector::default(),
            block_digests: Mutex::default(),
            hasher: OnceLock::new(),
        };
        catalog.refresh()?;
        Ok(catalog)
    }

    /// Scans the origin again and assigns a new object to every item that is new or has changed.
    /// Withdrawn versions can still be read while they exist. A transmission in progress continues
    /// with the version with which it began.
    ///
    /// # Errors
    ///
    /// Returns an error if the repository's path cannot be read or no object identifier is left.
    /// The catalog is then unchanged.
    pub fn refresh(&self) -> Result<Changes, OpenError> {
        let mut next_toi = self.next_toi.lock();
        let Some(Scan { mut items, mut skipped, other_status }) = self.origin.scan()? else {
            return Ok(Changes::default());
        };
        items.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let before = self.snapshot();
        let mut update = Update::new(*next_toi, &before.items, &items);
        for found in items {
            let Some(oti) = self.options.oti(found.size) else {
                skipped.add(found.name, SkipReason::TooLarge);
                continue;
            };
            update.add(found, oti, &mut skipped)?;
        }
        update.finish();
        *next_toi = update.next_toi;
        let changes = update.changes;
        let failures = skipped.failures();
        // Without a change, the pages of a list go on.
        let is_same = before.generation > 0
            && changes.is_empty()
            && update.fresh.is_empty()
            && (before.items.len(), before.failures) == (update.items.len(), failures);
        let generation = before.generation.wrapping_add(u32::from(!is_same));
        let snapshot = Snapshot { generation, items: update.items, failures };
        self.state.write().apply(snapshot, update.fresh, &changes, (skipped, other_status));
        if let Some(hasher) = self.hasher.get() {
            // A full channel has already woken the thread.
            let _ = hasher.try_send(());
        }
        Ok(changes)
    }

    /// Returns the number of items on offer, without directories.
    pub fn len(&self) -> usize {
        self.snapshot().items.iter().filter(|item| !item.kind().is_directory()).count()
    }

    /// Returns whether no item is on offer.
    pub fn is_empty(&self) -> bool {
        self.snapshot().items.is_empty()
    }

    /// Returns the paths and records that the last scan left out.
    pub fn skipped(&self) -> Skipped {
        self.state.read().skipped.clone()
    }

    /// Returns the number of items of an archive that are HTTP responses with a status other than
    /// 200, such as redirections and error pages. Clients receive their content like that of any
    /// other item.
    pub fn other_status(&self) -> u64 {
        self.state.read().other_status
    }

    /// Returns the item that an object carries, including one that was recently replaced or
    /// removed.
    pub fn get(&self, toi: Toi) -> Option<Arc<Item>> {
        self.state.read().by_toi.get(&toi).cloned()
    }

    /// Returns the item now on offer under a name.
    pub fn lookup(&self, name: &str) -> Option<Arc<Item>> {
        let snapshot = self.snapshot();
        snapshot.position(name).map(|index| Arc::clone(&snapshot.items[index]))
    }

    /// Returns a page of the items that match any of `patterns`, sorted by name. Without patterns,
    /// all items match.
    ///
    /// A pattern that is the name of a file matches only that file. A pattern without wildcards that
    /// names a directory matches the directory and all items below it. Otherwise `*` matches any
    /// bytes and `?` one byte within one part of a path. `**` matches any number of parts, `[a-z]`
    /// one ASCII character of a set, and `{a,b}` either alternative. `\` escapes the next character.
    /// Wildcards do not match directories, but for those below `directory/**`.
    ///
    /// Another name of a file is offered as such if the file's first name matches, too, and as a
    /// file of its own if not: see [`Selection::info`].
    ///
    /// `cursor` is 0, or [`Selection::next`] of the previous page. The pages of one selection show
    /// one state of the catalog. A page has at least one
    /// item if any are left, and at most `limit`.
    ///
    /// Costs a binary search for each pattern without wildcards. A pattern with wildcards is
    /// matched against the items that share the prefix before its first wildcard. Later pages reuse
    /// the result.
    ///
    /// # Errors
    ///
    /// Returns an error if a pattern is not a glob or is too long, if too many patterns have
    /// wildcards, or if the catalog changed since the page before and many other queries came
    /// between.
    pub fn select(
        &self,
        patterns: &[String],
        cursor: u64,
        limit: usize,
    ) -> Result<Selection, PatternError> {
        self.selector.select(&self.snapshot(), patterns, cursor, limit)
    }

    /// Returns the digest of an item's content. Computes it now if it is not known.
    ///
    /// # Errors
    ///
    /// Returns an error if the item is unknown or can no longer be read.
    pub fn digest(&self, toi: Toi) -> Result<Digest, ReadError> {
        let item = self.item(toi)?;
        if let Some(digest) = item.digest.get() {
            return Ok(*digest);
        }
        let _only_one = item.hashing.lock();
        if let Some(digest) = item.digest.get() {
            return Ok(*digest);
        }
        let digest = if let Some(digest) = self.digest_of_first_name(&item) {
            digest
        } else if item.is_device() {
            self.hash_blocks(&item)?.0
        } else {
            digest::of_item(&*self.peek(&item)?, item.size()).map_err(|fault| item.gone(fault))?
        };
        Ok(*item.digest.get_or_init(|| digest))
    }

    /// Returns the digest of another name of a file, if the first one still has this content.
    fn digest_of_first_name(&self, item: &Item) -> Option<Digest> {
        let ItemKind::HardLink(name) = item.kind() else { return None };
        let first = self.lookup(name)?;
        let is_same = first.kind().is_file() && first.found.is_same_version(&item.found);
        is_same.then(|| self.digest(first.toi()).ok()).flatten()
    }

    /// Computes the digests of all of an item's source blocks that are sent, and remembers that of
    /// its content, which they take no second reading.
    ///
    /// # Errors
    ///
    /// Returns an error if the item is unknown or can no longer be read.
    pub fn digests(&self, toi: Toi) -> Result<Vec<Digest>, ReadError> {
        let item = self.item(toi)?;
        if !item.kind().is_file() {
            return self.digest(toi).map(|_| Vec::new());
        }
        let (whole, blocks) = self.hash_blocks(&item)?;
        item.digest.get_or_init(|| whole);
        Ok(blocks)
    }

    /// Computes the digest of an item's content, and those of all its source blocks. Finds the
    /// blocks of a device that are zeros.
    fn hash_blocks(&self, item: &Item) -> Result<(Digest, Vec<Digest>), ReadError> {
        let partition = Partition::new(&item.oti);
        let partition = partition.map_err(|_| item.no_part("source blocks".to_owned()))?;
        let digests = stretches::of_item_and_blocks(&*self.peek(item)?, &partition);
        let (whole, blocks) = digests.map_err(|fault| item.gone(fault))?;
        if item.is_device() {
            item.of_device.get_or_init(|| DeviceBlocks {
                digests: blocks.as_slice().into(),
                zeros: holes::of_zeros(&blocks, &partition),
            });
        }
        Ok((whole, blocks))
    }

    /// Returns the digests of some of an item's source blocks. Computes those that are not known.
    ///
    /// # Errors
    ///
    /// Returns an error if the item is unknown, can no longer be read, or does not have these
    /// blocks.
    pub fn block_digests(&self, toi: Toi, blocks: Range<u32>) -> Result<Vec<Digest>, ReadError> {
        let item = self.item(toi)?;
        let no_such = || item.no_part(format!("source blocks {blocks:?}"));
        let partition = Partition::new(&item.oti).map_err(|_| no_such())?;
        if blocks.start > blocks.end || blocks.end > partition.blocks() {
            return Err(no_such());
        }
        if let Some(of_device) = item.of_device.get() {
            return Ok(of_device.digests[blocks.start as usize..blocks.end as usize].to_vec());
        }
        if let Some(digests) = self.block_digests.lock().get(toi, blocks.clone()) {
            return Ok(digests);
        }
        let body = self.peek(&item)?;
        let digests =
            blocks.clone().map(|sbn| digest::of_range(&*body, partition.block_range(sbn)));
        let digests: Vec<Digest> =
            digests.collect::<Result<_, _>>().map_err(|fault| item.gone(fault))?;
        self.block_digests.lock().put(toi, blocks.start, &digests);
        Ok(digests)
    }

    /// Returns the digests of encoding symbols of a block, as `digest` makes them of their numbers
    /// and bytes; fewer if the block has no more.
    ///
    /// # Errors
    ///
    /// Returns an error if the item is unknown, can no longer be read, or does not have this block.
    pub fn symbol_digests<D>(
        &self,
        block: BlockId,
        esis: Range<u32>,
        mut digest: impl FnMut(u32, &[u8]) -> D,
    ) -> Result<Vec<D>, ReadError> {
        let BlockId { toi, sbn } = block;
        let item = self.item(toi)?;
        let no_such = || item.no_part(format!("source block {sbn}"));
        let partition = Partition::new(&item.oti).map_err(|_| no_such())?;
        if sbn >= partition.blocks() {
            return Err(no_such());
        }
        let (k, symbol_len) = (partition.block_symbols(sbn), usize::from(item.oti.symbol_len));
        let range = partition.block_range(sbn);
        let mut source = vec![0; k as usize * symbol_len];
        let len = (range.end - range.start) as usize;
        self.read_item(&item, range.start, &mut source[..len])?;
        let end = esis.end.min(partition.max_encoding_symbols(sbn));
        let start = esis.start.min(end);
        let repairs = start.max(k)..end.max(k);
        let mut made = vec![0; repairs.len() * symbol_len];
        Code::new(item.oti.scheme)
            .encode(k, symbol_len, &source, repairs.clone(), &mut made)
            .map_err(|_| no_such())?;
        let place = |esi: u32| esi as usize * symbol_len;
        let of_source = (start..end.min(k))
            .map(|esi| digest(esi, &source[place(esi)..place(esi + 1).min(len)]));
        let mut digests: Vec<D> = of_source.collect();
        let of_repairs = repairs.clone().zip(made.chunks_exact(symbol_len));
        digests.extend(of_repairs.map(|(esi, symbol)| digest(esi, symbol)));
        Ok(digests)
    }

    pub(crate) fn start_hashing(catalog: &Arc<Catalog>) {
        let (wake, woken) = crossbeam_channel::bounded(1);
        if catalog.hasher.set(wake).is_err() {
            return;
        }
        let weak: Weak<Catalog> = Arc::downgrade(catalog);
        let thread = std::thread::Builder::new().name("umbel-digests".to_owned());
        if let Err(error) = thread.spawn(move || digest::run(&weak, &woken)) {
            tracing::warn!("digests are only computed when asked for: no thread: {error}");
        }
    }

    /// Fills `buf` with the item's bytes from `offset` on.
    pub(crate) fn read_at(&self, toi: Toi, offset: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let item = self.item(toi)?;
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > item.size()) {
            return Err(item.no_part(format!("{} bytes at {offset}", buf.len())));
        }
        if buf.is_empty() {
            return Ok(());
        }
        self.read_item(&item, offset, buf)
    }

    /// Reads an item as `read_at` does, for a part that is known to exist.
    pub(crate) fn read_item(
        &self,
        item: &Item,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        self.handles
            .get_or_open(item.toi, || self.origin.open(&item.found))
            .and_then(|body| body.read_at(offset, buf))
            .map_err(|fault| item.gone(fault))
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state.read().snapshot)
    }

    fn item(&self, toi: Toi) -> Result<Arc<Item>, ReadError> {
        self.get(toi).ok_or(ReadError::Unknown(toi))
    }

    /// Returns the content of an item for one pass over it. Leaves the cache of open descriptors
    /// unchanged.
    fn peek(&self, item: &Item) -> Result<Arc<dyn Body>, ReadError> {
        match self.handles.peek(item.toi) {
            Some(body) => Ok(body),
            None => self.origin.open(&item.found).map_err(|fault| item.gone(fault)),
        }
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("origin", &self.origin)
            .field("items", &self.len())
            .finish_non_exhaustive()
    }
}

impl State {
    fn apply(
        &mut self,
        snapshot: Snapshot,
        fresh: Vec<Arc<Item>>,
        changes: &Changes,
        (skipped, other_status): (Skipped, u64),
    ) {
        self.by_toi.extend(fresh.into_iter().map(|item| (item.toi, item)));
        self.withdrawn.extend(changes.replaced.iter().map(|(old, _)| *old));
        self.withdrawn.extend(&changes.removed);
        while self.withdrawn.len() > WITHDRAWN
            && let Some(toi) = self.withdrawn.pop_front()
        {
            self.by_toi.remove(&toi);
        }
        self.snapshot = Arc::new(snapshot);
        self.skipped = skipped;
        self.other_status = other_status;
    }
}
