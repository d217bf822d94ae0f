//! Files with holes.

#![expect(clippy::single_range_in_vec_init, reason = "a list of holes with one hole")]

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use tempfile::TempDir;
use umbel_engine::symbols::SymbolSink;
use umbel_store::sink::SinkEvent;
use umbel_store::{Repository, RepositoryOptions};
use umbel_wire::repository::ItemKind;
use umbel_wire::{Digest, Scheme};

use crate::sink_support::{Client, Served, StoreBlock};

const BLOCK: usize = 2_000;

/// Returns an item of 500 blocks, with these holes.
fn sparse(toi: u32, name: &str, holes: &[Range<u32>]) -> Served {
    let mut served = Served::new(toi, name, 500 * BLOCK, Scheme::ReedSolomon);
    for hole in holes {
        let range = served.partition.block_range(hole.start).start
            ..served.partition.block_range(hole.end - 1).end;
        served.content[range.start as usize..range.end as usize].fill(0);
    }
    served.info.digest = Digest(*blake3::hash(&served.content).as_bytes());
    served.info.holes = Some(holes.to_vec());
    served
}

#[test]
fn holes_are_there_without_being_sent_and_take_no_room() {
    let mut client = Client::new();
    let served = sparse(1, "image", &[0..100, 150..499]);
    let held = client.add_parts(&served);
    assert_eq!(held.restored_bytes(), 0, "nothing was received before");
    let missing: Vec<u32> = (0..500).filter(|&sbn| held.missing_symbols(sbn) > 0).collect();
    assert_eq!(missing, (100..150).chain(499..500).collect::<Vec<_>>());
    client.complete(&served, &held);
    let path = client.path().join("image");
    let allocated = fs::metadata(&path).unwrap().blocks() * 512;
    // On a file system without holes all is written.
    let probe = File::create(client.path().join("probe")).unwrap();
    probe.set_len(1_000_000).unwrap();
    if probe.metadata().unwrap().blocks() == 0 {
        assert!(allocated < 200_000, "{allocated}");
    }
    // All of it is a hole.
    let all = sparse(2, "all", &[0..500]);
    client.add_parts(&all);
    client.wait_done(&all);
}

#[test]
fn zeros_are_not_written_where_the_source_has_holes_smaller_than_a_block() {
    let mut client = Client::new();
    let mut served = Served::new(1, "one", 60_000, Scheme::ReedSolomon);
    served.content[5_000..55_000].fill(0);
    served.info.digest = Digest(*blake3::hash(&served.content).as_bytes());
    served.info.holes = Some(Vec::new());
    let held = client.add_parts(&served);
    client.complete(&served, &held);
    let mut dense = served.renamed(2, "two");
    dense.info.holes = None;
    let held = client.add_parts(&dense);
    client.complete(&dense, &held);
    let blocks = |name: &str| fs::metadata(client.path().join(name)).unwrap().blocks();
    assert!(blocks("one") <= blocks("two"));
    assert!(blocks("two") * 512 >= 60_000, "zeros that take room at the source take room here");
}

#[test]
fn a_file_with_holes_goes_on_where_it_was() {
    let mut client = Client::new();
    let served = sparse(1, "image", &[3..400]);
    client.add(&served);
    for sbn in [0, 1, 450] {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    // Some symbols of another one.
    for esi in [3, 25] {
        assert!(client.sink.store(served.block(460), esi, &served.symbol(460, esi)));
    }
    for _ in 0..3 {
        client.wait(|event| matches!(event, SinkEvent::BlockRestored { .. }));
    }
    let mut client = client.restart();
    let held = client.add_parts(&served);
    assert_eq!(held.restored_bytes(), 3 * BLOCK as u64);
    assert!((3..400).all(|sbn| held.is_restored(sbn)));
    assert_eq!(held.missing_symbols(460), 18);
    client.complete(&served, &held);
}

#[test]
fn a_hole_that_is_none_is_found_and_received() {
    let mut client = Client::new();
    let honest = sparse(1, "image", &[]);
    let mut lie = honest.clone();
    lie.info.holes = Some(vec![7..9]);
    let held = client.add_parts(&lie);
    for sbn in (0..500).filter(|&sbn| held.missing_symbols(sbn) > 0) {
        assert!(client.sink.store_block(lie.block(sbn), lie.block_bytes(sbn)));
    }
    client.wait(|event| matches!(event, SinkEvent::DigestMismatch { .. }));
    client.sink.check_blocks(lie.info.toi, lie.block_digests());
    let dropped = client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
    assert!(matches!(dropped, SinkEvent::BlocksDropped { blocks, .. } if blocks == [7, 8]));
    for sbn in [7, 8] {
        client.sink.store_block(lie.block(sbn), lie.block_bytes(sbn));
    }
    client.wait_done(&honest);
}

#[test]
fn a_source_tells_the_blocks_that_its_file_system_has_as_holes() {
    let dir = TempDir::new().unwrap();
    let file = File::create(dir.path().join("image")).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_all_at(&[1; 10_000], 1 << 20).unwrap();
    file.sync_all().unwrap();
    fs::write(dir.path().join("dense"), vec![0; 1 << 20]).unwrap();
    if file.metadata().unwrap().blocks() * 512 > 1 << 20 {
        eprintln!("SKIPPED: {} has no holes", dir.path().display());
        return;
    }
    let repository = Repository::open(dir.path(), RepositoryOptions::default()).unwrap();
    let item = repository.catalog().lookup("image").unwrap();
    let info = item.info();
    assert_eq!(info.kind, ItemKind::File);
    let partition = umbel_fec::Partition::new(&item.oti()).unwrap();
    let data: u64 = info
        .data_blocks()
        .into_iter()
        .flatten()
        .map(|sbn| partition.block_range(sbn))
        .map(|range| range.end - range.start)
        .sum();
    assert!((10_000..600_000).contains(&data), "{data}");
    let whole = repository.catalog().digest(item.toi()).unwrap();
    assert_eq!(whole.0, *blake3::hash(&fs::read(dir.path().join("image")).unwrap()).as_bytes());
    assert_eq!(repository.catalog().lookup("dense").unwrap().info().holes, None);
}
