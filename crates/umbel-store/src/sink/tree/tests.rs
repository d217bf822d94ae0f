use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi};

use super::super::{DiskSink, SinkEvent, SinkOptions};
use super::*;

/// Paths of the directories that tests of this process have synced.
static SYNCED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

pub(super) fn note_sync(directory: &OwnedFd) {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    SYNCED.lock().unwrap().insert(path.unwrap());
}

#[test]
fn a_name_that_a_file_system_does_not_take_is_said_with_its_character() {
    let error = |name: &str, errno| {
        let path = Path::new("out").join(name);
        let last = name.rsplit('/').next().unwrap();
        unnameable(&path, last, errno).map(|it| it.to_string())
    };
    for errno in [Errno::ENOENT, Errno::EINVAL] {
        let said = error("d/a:b?.txt", errno).unwrap();
        assert!(said.contains("out/d/a:b?.txt") && said.contains("`:`"), "{said}");
        assert_eq!(error("d/plain.txt", errno), None);
    }
    assert_eq!(error("a:b", Errno::ENOSPC), None);
}

#[test]
fn a_durable_sink_syncs_every_directory_in_which_it_made_another() {
    let outer = tempfile::tempdir().unwrap();
    let receive = |out: &str, durable: bool| {
        let (give, take) = crossbeam_channel::unbounded();
        let options = SinkOptions { durable, ..SinkOptions::default() };
        let tell = move |event| drop(give.send(event));
        let sink = DiskSink::open(&outer.path().join(out), options, tell).unwrap();
        let empty = ItemInfo {
            toi: Toi(1),
            name: "a/b/empty".to_owned(),
            digest: Digest(*blake3::hash(b"").as_bytes()),
            modified_ns: None,
            mode: None,
            kind: ItemKind::File,
            holes: None,
            media_type: String::new(),
            oti: Oti {
                scheme: Scheme::NoCode,
                object_len: 0,
                symbol_len: 8,
                max_block_symbols: 1,
                max_encoding_symbols: 1,
            },
        };
        sink.add(&empty).unwrap();
        while !matches!(take.recv().unwrap(), SinkEvent::ItemDone { .. }) {}
        // Its threads have ended afterwards.
        sink.close();
    };
    let synced = || -> Vec<PathBuf> {
        let root = outer.path().canonicalize().unwrap();
        let all = SYNCED.lock().unwrap();
        all.iter().filter_map(|path| Some(path.strip_prefix(&root).ok()?.to_owned())).collect()
    };
    receive("hasty/out", false);
    assert_eq!(synced(), [""; 0].map(PathBuf::from));
    receive("new/out", true);
    assert_eq!(synced(), ["", "new", "new/out", "new/out/a", "new/out/a/b"].map(PathBuf::from));
}

#[test]
fn the_names_of_new_directories_are_to_be_synced_and_of_old_ones_not() {
    let outer = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(outer.path().join("old/out/there")).unwrap();
    let unsynced = |out: &Path, item: &str| {
        let tree = Tree::open(out).unwrap();
        let place = Place::new(out, RelativePath::of_item(item).unwrap(), None);
        tree.directory(&place, true).unwrap().unwrap();
        let parents = tree.take_parents().into_keys();
        let below = |path: PathBuf| path.strip_prefix(outer.path()).unwrap().to_owned();
        let parents: Vec<String> =
            parents.map(|path| below(path).to_str().unwrap().to_owned()).collect();
        tree.sync_new_directories();
        parents
    };
    let old = outer.path().join("old/out");
    assert_eq!(unsynced(&old, "item"), [""; 0]);
    assert_eq!(unsynced(&old, "there/item"), [""; 0]);
    assert_eq!(unsynced(&old, "there/a/b/item"), ["old/out/there", "old/out/there/a"]);
    let new = outer.path().join("new/out");
    assert_eq!(unsynced(&new, "a/item"), ["", "new", "new/out"]);
}
