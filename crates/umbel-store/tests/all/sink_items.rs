//! Receives items into a directory and checks its content afterwards.

use std::os::unix::fs::PermissionsExt;

use crate::sink_support::{Client, K, SYMBOL_LEN, Served, StoreBlock};
use umbel_engine::symbols::SymbolSink;
use umbel_store::sink::{Held, SinkEvent, SinkOptions, Unkept};
use umbel_wire::{Digest, Scheme};

#[test]
fn an_item_of_many_blocks_is_restored_from_any_symbols() {
    for (scheme, loss) in [(Scheme::NoCode, 0), (Scheme::ReedSolomon, 30), (Scheme::RaptorQ, 30)] {
        let served = Served::new(7, "dir/größe.bin", 100_003, scheme);
        let mut client = Client::new();
        client.add(&served);
        client.send_lossy(&served, loss, 42);
        client.wait_done(&served);
        assert_eq!(client.files(), ["dir/größe.bin"]);
    }
}

#[test]
fn an_empty_item_is_done_at_once() {
    let served = Served::new(1, "empty", 0, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    client.wait_done(&served);
    assert_eq!(client.files(), ["empty"]);
}

#[test]
fn an_item_that_is_there_is_not_received_again() {
    let served = Served::new(1, "a", 5_000, Scheme::ReedSolomon);
    let mut client = Client::with(SinkOptions { overwrite: true, ..SinkOptions::default() });
    std::fs::write(client.path().join("a"), &served.content).unwrap();
    assert!(matches!(client.add(&served), Held::AlreadyThere));
    let mut changed = served.content.clone();
    changed[77] ^= 1;
    std::fs::write(client.path().join("b"), changed).unwrap();
    assert!(matches!(client.add(&served.renamed(2, "b")), Held::Parts(_)));
}

#[test]
fn blocks_over_the_session_are_taken_too() {
    let served = Served::new(1, "a", 50_001, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    for sbn in 0..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait_done(&served);
}

#[test]
fn blocks_at_rest_are_completed_later() {
    let served = Served::new(1, "a", 60_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    for sbn in 0..served.partition.blocks() {
        let k = served.partition.block_symbols(sbn);
        for esi in (0..k / 2).chain(k..k + 2) {
            assert!(client.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
        }
        client.sink.rest(served.block(sbn));
    }
    for sbn in 0..served.partition.blocks() {
        let k = served.partition.block_symbols(sbn);
        for esi in k / 2..k - 2 {
            assert!(client.sink.store(served.block(sbn), esi, &served.symbol(sbn, esi)));
        }
        client.sink.restore(served.block(sbn));
    }
    client.wait_done(&served);
}

#[test]
fn blocks_that_all_had_their_digests_are_not_hashed_as_a_whole() {
    let mut served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    // No content has this digest, so that whoever computes it finds a difference.
    served.info.digest = Digest([7; 32]);
    let mut client = Client::new();
    client.add_with_digests(&served);
    let last = client.store_with_wrong_last(&served);
    let event = client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
    assert!(matches!(event, SinkEvent::BlocksDropped { blocks, .. } if blocks == [last]));
    assert!(!client.path().join("a").exists(), "nothing unverified gets the name");
    assert!(client.sink.store_block(served.block(last), served.block_bytes(last)));
    client.wait_done(&served);
}

#[test]
fn blocks_of_an_earlier_run_are_hashed_as_a_whole_although_all_digests_are_known() {
    let served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add_with_digests(&served);
    for sbn in 0..9 {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    let mut client = client.restart_damaged("a", 2_500);
    client.add_with_digests(&served);
    for sbn in 9..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait(|event| matches!(event, SinkEvent::DigestMismatch { .. }));
    assert!(!client.path().join("a").exists(), "nothing unverified gets the name");
}

#[test]
fn a_wrong_symbol_is_found_and_only_its_block_received_again() {
    for len in [900, 40_000] {
        let served = Served::new(1, "a", len, Scheme::ReedSolomon);
        let mut client = Client::new();
        client.add(&served);
        let last = client.store_with_wrong_last(&served);
        client.wait(|event| matches!(event, SinkEvent::DigestMismatch { .. }));
        client.sink.check_blocks(served.info.toi, served.block_digests());
        let event = client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
        assert!(matches!(event, SinkEvent::BlocksDropped { blocks, .. } if blocks == [last]));
        assert!(!client.path().join("a").exists(), "nothing unverified gets the name");
        assert!(client.sink.store_block(served.block(last), served.block_bytes(last)));
        client.wait_done(&served);
    }
}

#[test]
fn digests_that_come_early_drop_what_is_wrong_and_nothing_else() {
    let served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    let mut wrong = served.block_bytes(1).to_vec();
    wrong[0] ^= 1;
    assert!(client.sink.store_block(served.block(0), served.block_bytes(0)));
    assert!(client.sink.store_block(served.block(1), &wrong));
    client.sink.check_blocks(served.info.toi, served.block_digests());
    let event = client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
    assert!(matches!(event, SinkEvent::BlocksDropped { blocks, .. } if blocks == [1]));
    // Nothing is wrong now, which is no contradiction.
    client.sink.check_blocks(served.info.toi, served.block_digests());
    for sbn in 1..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait_done(&served);
}

#[test]
fn wrong_symbols_of_a_block_are_dropped_and_the_others_kept() {
    let served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    let (block, k) = (served.block(0), served.partition.block_symbols(0));
    let wrong = |esi| vec![7; served.symbol(0, esi).len()];
    for esi in 0..k - 1 {
        let symbol = if esi % 2 == 0 { served.symbol(0, esi) } else { wrong(esi) };
        assert!(client.sink.store(block, esi, &symbol));
    }
    assert!(
        client.sink.store(block, k, &wrong(k))
            && client.sink.store(block, k + 1, &served.symbol(0, k + 1))
    );
    assert!(client.sink.differs(block, 1, &served.symbol(0, 1)));
    assert!(client.sink.differs(block, k, &served.symbol(0, k)));
    assert!(!client.sink.differs(block, 0, &served.symbol(0, 0)));
    assert!(!client.sink.differs(block, k - 1, &wrong(k - 1)), "none is held");
    let is_right = |esi: u32, symbol: &[u8]| symbol == served.symbol(0, esi);
    let expected: Vec<u32> = (0..k - 1).filter(|esi| esi % 2 == 1).chain([k]).collect();
    assert_eq!(client.sink.retain(block, &is_right), Some(expected.clone()));
    for esi in expected.into_iter().filter(|&esi| esi < k) {
        assert!(client.sink.store(block, esi, &served.symbol(0, esi)));
    }
    client.sink.restore(block);
    // Symbols that rest on the disk cannot be checked so quickly: all of them go.
    let block = served.block(1);
    assert!(client.sink.store(block, 0, &vec![7; served.symbol(1, 0).len()]));
    client.sink.rest(block);
    assert_eq!(client.sink.retain(block, &is_right), None);
    for sbn in 1..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
    }
    client.wait_done(&served);
}

#[test]
fn once_the_digests_of_blocks_are_known_a_wrong_symbol_costs_its_block_alone() {
    let served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    let wrong = |sbn: u32| {
        let mut bytes = served.block_bytes(sbn).to_vec();
        bytes[0] ^= 1;
        bytes
    };
    for sbn in 0..served.partition.blocks() {
        assert!(client.sink.store_block(served.block(sbn), &wrong(sbn)));
    }
    client.wait(|event| matches!(event, SinkEvent::DigestMismatch { .. }));
    client.sink.check_blocks(served.info.toi, served.block_digests());
    client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
    // Ten forgeries of each block are found as they come, and the item is never read again.
    for sbn in 0..served.partition.blocks() {
        for _ in 0..10 {
            assert!(client.sink.store_block(served.block(sbn), &wrong(sbn)));
            let event = client.wait(|event| !matches!(event, SinkEvent::Progress { .. }));
            let SinkEvent::BlocksDropped { blocks, .. } = event else { panic!("{event:?}") };
            assert_eq!(blocks, [sbn]);
        }
        assert!(client.sink.store_block(served.block(sbn), served.block_bytes(sbn)));
        let restored = |event: &SinkEvent| matches!(event, SinkEvent::BlockRestored { .. });
        client.wait(restored);
    }
    client.wait_done(&served);
}

#[test]
fn of_a_wrong_block_what_is_right_is_kept() {
    let served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    let mut client = Client::new();
    client.add(&served);
    // The digests of the blocks are known.
    client.sink.check_blocks(served.info.toi, served.block_digests());
    for sbn in 0..served.partition.blocks() {
        let (block, k) = (served.block(sbn), served.partition.block_symbols(sbn));
        // The last source symbol is lost. One other is wrong, and so is the repair symbol.
        for esi in (0..k - 1).chain([k + 3]) {
            let mut symbol = served.symbol(sbn, esi);
            symbol[0] ^= u8::from(esi == sbn % 7 || esi == k + 3);
            assert!(client.sink.store(block, esi, &symbol));
        }
        client.sink.restore(block);
        let event = client.wait(|event| !matches!(event, SinkEvent::Progress { .. }));
        let SinkEvent::BlocksDropped { blocks, .. } = event else { panic!("{event:?}") };
        assert_eq!(blocks, [sbn]);
        let is_right = |esi, symbol: &[u8]| symbol == served.symbol(sbn, esi);
        assert_eq!(client.sink.retain(block, &is_right), Some(vec![sbn % 7, k + 3]));
        for esi in [sbn % 7, k + 1] {
            assert!(client.sink.store(block, esi, &served.symbol(sbn, esi)));
        }
        client.sink.restore(block);
        client.wait(|event| matches!(event, SinkEvent::BlockRestored { .. }));
    }
    client.wait_done(&served);
}

#[test]
fn symbols_of_a_wrong_block_that_nobody_asks_for_make_room() {
    // Room for three blocks.
    let memory = 3 * usize::from(K) * usize::from(SYMBOL_LEN);
    let served = Served::new(1, "a", 40_000, Scheme::ReedSolomon);
    let mut client = Client::with(SinkOptions { memory, ..SinkOptions::default() });
    client.add(&served);
    client.sink.check_blocks(served.info.toi, served.block_digests());
    for sbn in 0..served.partition.blocks() {
        for _ in 0..10 {
            let mut wrong = served.block_bytes(sbn).to_vec();
            wrong[0] ^= 1;
            // The first refusal makes room.
            let block = served.block(sbn);
            while !client.sink.store_block(block, &wrong) {}
            client.wait(|event| matches!(event, SinkEvent::BlocksDropped { .. }));
        }
    }
    for sbn in 0..served.partition.blocks() {
        while !client.sink.store_block(served.block(sbn), served.block_bytes(sbn)) {}
        client.wait(|event| matches!(event, SinkEvent::BlockRestored { .. }));
    }
    client.wait_done(&served);
}

#[test]
fn permissions_travel_as_far_as_the_umask_allows() {
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    let mut client = Client::new();
    // Its permissions show the umask of this process.
    let usual = client.path().join("usual");
    std::fs::write(&usual, b"").unwrap();
    let umask = 0o666 & !mode(&usual);
    for (toi, len) in (1..).zip([0, 5_000, 5_000_000]) {
        for (number, sent) in (toi * 100..).zip([0o755, 0o644, 0o600, 0o700, 0o444, 0o777, 0]) {
            let name = format!("{len}-{sent:o}");
            let mut served = Served::new(number, &name, len, Scheme::ReedSolomon);
            served.info.mode = Some(sent);
            client.add(&served);
            client.send_lossy(&served, 0, 1);
            client.wait_done(&served);
            let execute = u32::from(sent) & 0o111 & !(umask >> 2);
            let expected = u32::from(sent) & 0o666 & !umask | execute | 0o400;
            assert_eq!(mode(&client.path().join(&name)) & 0o7777, expected, "{name}");
        }
    }
}

#[test]
fn what_nobody_else_may_read_cannot_be_read_while_it_is_received() {
    let mut served = Served::new(1, "key", 50_000, Scheme::ReedSolomon);
    served.info.mode = Some(0o600);
    let mut client = Client::new();
    client.add(&served);
    client.sink.store_block(served.block(0), served.block_bytes(0));
    client.wait(|event| matches!(event, SinkEvent::BlockRestored { .. }));
    let part = client.path().join(".key.umbel-part");
    assert_eq!(std::fs::metadata(part).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn permissions_and_times_of_what_is_there_follow_the_source() {
    let mut served = Served::new(1, "tool", 5_000, Scheme::ReedSolomon);
    served.info.mode = Some(0o644);
    let mut client = Client::new();
    let path = client.path().join("tool");
    std::fs::write(&path, &served.content).unwrap();
    let look = || {
        let metadata = std::fs::metadata(&path).unwrap();
        let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        (metadata.permissions().mode() & 0o777, modified.as_nanos() as i64)
    };
    for (mode, time) in [(0o700, 1_234_567_890_123_456_789), (0o444, 5), (0o755, 1_000_000_000)] {
        (served.info.mode, served.info.modified_ns) = (Some(mode), Some(time));
        assert!(matches!(client.add(&served), Held::AlreadyThere));
        let (has, changed) = look();
        assert_eq!((has & 0o700, changed), (u32::from(mode) & 0o700, time));
        client = client.restart();
    }
    assert_eq!(client.sink.unkept(), Unkept::default());
    // A file whose content differs keeps all of its own.
    let before = look();
    let other = Served::new(2, "tool", 5_001, Scheme::ReedSolomon);
    client.sink.add(&other.info).unwrap_err();
    assert_eq!(look(), before);
}
