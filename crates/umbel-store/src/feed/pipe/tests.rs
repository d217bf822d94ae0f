use proptest::prelude::*;
use std::sync::OnceLock;
use umbel_engine::symbols::SymbolSink;
use umbel_engine::tmtp::FEED;

use ring::signature::{Ed25519KeyPair, KeyPair};
use umbel_wire::{Digest, Tsi};

use super::*;
use crate::feed::seal::{OpenError, Opener, SecretKey, seal_head};

const SHAPE: BlockShape = BlockShape { symbol_len: 120, block_symbols: 8, sealed: false };

/// The same shape with room for seals.
const SEALED: BlockShape = BlockShape { symbol_len: 120 + SEAL_LEN as u16, sealed: true, ..SHAPE };

fn id(sbn: u32) -> BlockId {
    BlockId { toi: FEED, sbn }
}

fn ready(load: Load) -> Bytes {
    match load {
        Load::Ready(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Writes pieces, each as separate blocks. Returns the source symbols of each block.
fn write(writer: &mut PipeWriter, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut blocks = Vec::new();
    for piece in pieces {
        let mut input = &piece[..];
        while writer.read_from(&mut input).unwrap() > 0 {
            if writer.is_full() && writer.cut() {
                writer.sign(|symbols| blocks.push(symbols));
            }
        }
        writer.cut();
        writer.sign(|symbols| blocks.push(symbols));
    }
    blocks
}

/// Writes pieces, and says that they are all.
fn write_all(writer: &mut PipeWriter, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut blocks = write(writer, pieces);
    writer.end(None, |symbols| blocks.push(symbols));
    blocks
}

const ID: PipeId = PipeId { feed: Tsi(7), version: 5 };

fn keys() -> &'static Ed25519KeyPair {
    static KEYS: OnceLock<Ed25519KeyPair> = OnceLock::new();
    KEYS.get_or_init(|| Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap())
}

/// Returns the sender's key.
fn public() -> [u8; 32] {
    keys().public_key().as_ref().try_into().unwrap()
}

fn sign() -> Sign {
    Box::new(|run| keys().sign(run).as_ref().try_into().unwrap())
}

/// Stores the source symbols of a block of the feed, and has it restored.
fn receive(sink: &mut PipeSink, feed: &mut PipeFeed, sbn: u32, k: u8) {
    for esi in 0..u32::from(k) {
        assert!(sink.store(id(sbn), esi, &ready(feed.symbol(id(sbn), esi))));
    }
    sink.restore(id(sbn));
}

proptest! {
    #[test]
    fn what_is_written_is_read_whatever_is_lost_and_in_whatever_order(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..900), 1..6),
        shuffle in prop::collection::vec(any::<u32>(), 40),
        lost in any::<u8>(),
    ) {
        let (mut writer, mut feed) = pipe(ID, SHAPE, 1 << 20, None, sign()).unwrap();
        let blocks = write_all(&mut writer, &pieces);
        let damaged = Arc::new(Mutex::new(Vec::new()));
        let told = damaged.clone();
        let (mut sink, mut reader) = pipe_sink((ID, public()), SHAPE, 1 << 20, None, move |event| {
            told.lock().unwrap().push(event);
        })
        .unwrap();
        sink.begin(0);
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|place| shuffle[place % shuffle.len()]);
        for block in order {
            let (k, sbn) = (u32::from(blocks[block]), block as u32);
            // The first symbols are lost; repair symbols replace them.
            let lost = u32::from(lost) % (k + 1);
            for esi in lost..k + lost {
                prop_assert!(sink.store(id(sbn), esi, &ready(feed.symbol(id(sbn), esi))));
            }
            sink.restore(id(sbn));
        }
        let mut read = Vec::new();
        while let Some(bytes) = reader.read() {
            read.extend_from_slice(&bytes);
        }
        prop_assert_eq!(read, pieces.concat());
        prop_assert_eq!(reader.outcome(), Some(PipeOutcome::Whole));
        prop_assert_eq!(&damaged.lock().unwrap()[..], &[]);
    }
}

#[test]
fn a_damaged_block_or_one_of_another_place_is_not_passed_on() {
    let (mut writer, mut feed) = pipe(ID, SHAPE, 1 << 20, None, sign()).unwrap();
    assert_eq!(write(&mut writer, &[vec![1; 30], vec![2; 30]]), [2, 2]);
    let (told, events) = crossbeam_channel::unbounded();
    let (mut sink, _reader) = pipe_sink((ID, public()), SHAPE, 1 << 20, None, move |event| {
        told.send(event).unwrap();
    })
    .unwrap();
    sink.begin(0);
    let mut symbols = [0, 1].map(|esi| ready(feed.symbol(id(0), esi)).to_vec());
    symbols[1][3] ^= 1;
    for (esi, symbol) in (0..).zip(&symbols) {
        assert!(sink.store(id(0), esi, symbol));
    }
    sink.restore(id(0));
    assert_eq!(events.try_recv(), Ok(PipeEvent::Damaged { block: 0 }));
    for esi in 0..2 {
        assert!(sink.store(id(0), esi, &ready(feed.symbol(id(1), esi))));
    }
    sink.restore(id(0));
    assert_eq!(events.try_recv(), Ok(PipeEvent::Damaged { block: 0 }));
}

#[test]
fn a_reader_that_does_not_read_makes_the_sink_refuse_and_hears_of_nothing_lost() {
    let (mut writer, mut feed) = pipe(ID, SHAPE, 1 << 20, None, sign()).unwrap();
    let pieces: Vec<_> = (0..20).map(|n| vec![n; 400]).collect();
    let blocks = write_all(&mut writer, &pieces);
    let (told, events) = crossbeam_channel::unbounded();
    let (mut sink, mut reader) = pipe_sink((ID, public()), SHAPE, 2_000, None, move |event| {
        told.send(event).unwrap();
    })
    .unwrap();
    sink.begin(0);
    let mut read = Vec::new();
    let mut refused = 0;
    for (sbn, &k) in (0..).zip(&blocks) {
        for esi in 0..u32::from(k) {
            let symbol = ready(feed.symbol(id(sbn), esi));
            while !sink.store(id(sbn), esi, &symbol) {
                refused += 1;
                read.extend_from_slice(&reader.read().unwrap());
            }
        }
        sink.restore(id(sbn));
    }
    assert!(refused > 0);
    while let Some(bytes) = reader.read() {
        read.extend_from_slice(&bytes);
    }
    assert_eq!(read, pieces.concat());
    assert_eq!(events.try_recv(), Ok(PipeEvent::Room));
}

#[test]
fn the_first_missing_block_has_room_when_everything_after_it_has_taken_all() {
    let (mut writer, mut feed) = pipe(ID, SHAPE, 1 << 20, None, sign()).unwrap();
    let blocks = write(&mut writer, &vec![vec![9; 400]; 10]);
    let (mut sink, mut reader) = pipe_sink((ID, public()), SHAPE, 1_300, None, |_| {}).unwrap();
    sink.begin(0);
    let mut store = |sink: &mut PipeSink, sbn: u32| {
        let whole = (0..u32::from(blocks[sbn as usize]))
            .all(|esi| sink.store(id(sbn), esi, &ready(feed.symbol(id(sbn), esi))));
        if whole {
            sink.restore(id(sbn));
        }
        whole
    };
    assert!(store(&mut sink, 1) && store(&mut sink, 2));
    assert!(!store(&mut sink, 3));
    assert!(store(&mut sink, 0));
    assert_eq!(reader.read().unwrap().len(), 400);
}

#[test]
fn the_writer_waits_for_room_until_blocks_are_forgotten() {
    let (mut writer, mut feed) = pipe(ID, SHAPE, 2 * 960, None, sign()).unwrap();
    let (told, heard) = crossbeam_channel::unbounded();
    let thread = std::thread::spawn(move || {
        for n in 0..4 {
            let mut input = &[n; 10][..];
            writer.read_from(&mut input).unwrap();
            writer.cut();
            let mut passed = None;
            writer.sign(|symbols| passed = Some(symbols));
            told.send(passed).unwrap();
        }
    });
    let wait = std::time::Duration::from_mins(2);
    assert_eq!(heard.recv_timeout(wait), Ok(Some(1)));
    assert_eq!(heard.recv_timeout(wait), Ok(Some(1)));
    assert!(heard.recv_timeout(std::time::Duration::from_millis(50)).is_err());
    feed.keeper().forget(1);
    assert_eq!(heard.recv_timeout(wait), Ok(Some(1)));
    assert!(matches!(feed.symbol(id(0), 0), Load::Gone(_)));
    assert!(matches!(feed.symbol(id(1), 0), Load::Ready(_)));
    drop(feed);
    assert_eq!(heard.recv_timeout(wait), Ok(None));
    thread.join().unwrap();
}

/// Returns a sealed pipe for the receiver with this key, and the announced length and digest of its
/// head.
fn sealed_pipe(receiver: &SecretKey) -> (PipeWriter, PipeFeed, (u64, Digest), Opener) {
    let (secret, ephemeral) = ([3; 32], SecretKey::new([4; 32]));
    let head = seal_head(Tsi(7), &secret, &ephemeral, &[receiver.public()], b"").unwrap();
    let about = (head.len() as u64, Digest(*blake3::hash(&head).as_bytes()));
    let seal = Seal { key: FeedKey::new(Tsi(7), &secret), head };
    let (writer, feed) = pipe(ID, SEALED, 1 << 20, Some(seal), sign()).unwrap();
    (writer, feed, about, Opener::new(Tsi(7), receiver.clone(), ephemeral.public()))
}

proptest! {
    #[test]
    fn a_sealed_pipe_is_read_whatever_comes_first(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..900), 1..6),
        shuffle in prop::collection::vec(any::<u32>(), 40),
        lost in any::<u8>(),
        late in any::<bool>(),
    ) {
        let (mut writer, mut feed, about, opener) = sealed_pipe(&SecretKey::new([1; 32]));
        let head: Vec<u8> = feed
            .head_runs()
            .into_iter()
            .flat_map(|(count, k)| std::iter::repeat_n(k, count as usize))
            .collect();
        let first = head.len() as u32;
        let blocks = [head, write_all(&mut writer, &pieces)].concat();
        let (mut sink, mut reader) =
            pipe_sink((ID, public()), SEALED, 1 << 20, Some((about, opener)), |event| panic!("{event:?}"))
                .unwrap();
        // Some receivers choose the first block only later.
        if !late {
            sink.begin(0);
        }
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|place| shuffle[place % shuffle.len()]);
        for block in order {
            let (k, sbn) = (u32::from(blocks[block]), block as u32);
            let lost = u32::from(lost) % (k + 1);
            for esi in lost..k + lost {
                let symbol = ready(feed.symbol(id(sbn), esi));
                prop_assert!(sink.store(id(sbn), esi, &symbol));
            }
            sink.restore(id(sbn));
        }
        sink.begin(first);
        let mut read = Vec::new();
        while let Some(bytes) = reader.read() {
            read.extend_from_slice(&bytes);
        }
        prop_assert_eq!(read, pieces.concat());
    }
}

#[test]
fn a_sealed_pipe_is_nothing_to_a_stranger_and_damage_to_it_is_seen() {
    let admitted = SecretKey::new([1; 32]);
    for (key, error) in
        [(SecretKey::new([2; 32]), Some(OpenError::NotAdmitted)), (admitted.clone(), None)]
    {
        let (mut writer, mut feed, about, opener) = sealed_pipe(&admitted);
        let opener = if error.is_some() {
            Opener::new(Tsi(7), key, SecretKey::new([4; 32]).public())
        } else {
            opener
        };
        assert_eq!(write(&mut writer, &[vec![7; 30]]), [2]);
        let (told, events) = crossbeam_channel::unbounded();
        let (mut sink, reader) =
            pipe_sink((ID, public()), SEALED, 1 << 20, Some((about, opener)), move |event| {
                told.send(event).unwrap();
            })
            .unwrap();
        sink.begin(0);
        let first = feed.head_runs().iter().map(|(count, _)| count).sum::<u32>();
        // The data comes before the head, so it has to wait.
        for sbn in (0..=first).rev() {
            for esi in 0..2 {
                let mut symbol = ready(feed.symbol(id(sbn), esi)).to_vec();
                assert!(!symbol.windows(8).any(|part| part == [7; 8]), "it is readable");
                if sbn == first && esi == 1 {
                    symbol[20] ^= 1;
                }
                assert!(sink.store(id(sbn), esi, &symbol));
            }
            sink.restore(id(sbn));
        }
        let expected = match error {
            Some(error) => PipeEvent::Unreadable(error),
            None => PipeEvent::Damaged { block: first },
        };
        assert_eq!((events.try_recv(), reader.is_empty()), (Ok(expected), true));
    }
}

#[test]
fn a_sealed_pipe_tells_forged_symbols_and_forgets_a_block_of_another_length() {
    let (mut writer, mut feed, about, opener) = sealed_pipe(&SecretKey::new([1; 32]));
    assert_eq!(write(&mut writer, &[vec![7; 30]]), [2]);
    let head = feed.head_runs();
    let (mut sink, mut reader) =
        pipe_sink((ID, public()), SEALED, 1 << 20, Some((about, opener)), |event| {
            panic!("{event:?}")
        })
        .unwrap();
    let blocks = head.into_iter().flat_map(|(count, k)| std::iter::repeat_n(k, count as usize));
    let mut first = 0;
    for k in blocks {
        assert_eq!(sink.source_symbols(id(first)), Some(k));
        for esi in 0..k.into() {
            assert!(sink.store(id(first), esi, &ready(feed.symbol(id(first), esi))));
        }
        sink.restore(id(first));
        first += 1;
    }
    sink.begin(first);
    assert_eq!(sink.source_symbols(id(first)), None);
    let symbols: Vec<Bytes> = (0..2).map(|esi| ready(feed.symbol(id(first), esi))).collect();
    let mut forged = symbols[1].to_vec();
    forged[20] ^= 1;
    for esi in 0..2 {
        assert!(sink.is_genuine(id(first), 2, esi, &symbols[esi as usize]));
    }
    assert!(!sink.is_genuine(id(first), 2, 1, &forged));
    for esi in 0..5 {
        assert!(sink.store(id(first), esi, &forged));
    }
    sink.forget(id(first));
    for (esi, symbol) in (0..).zip(&symbols) {
        assert!(sink.store(id(first), esi, symbol));
    }
    sink.restore(id(first));
    assert_eq!(reader.read(), Some(vec![7; 30].into()));
}

#[test]
fn a_block_that_another_has_made_is_never_passed_on() {
    let (mut writer, mut feed) = pipe(ID, SHAPE, 1 << 20, None, sign()).unwrap();
    let blocks = write_all(&mut writer, &[vec![1; 700], vec![2; 30]]);
    let others = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
    let other: Sign = Box::new(move |run| others.sign(run).as_ref().try_into().unwrap());
    let earlier = PipeId { version: 4, ..ID };
    for (pipe_id, sign) in [(ID, other), (earlier, sign())] {
        let (told, events) = crossbeam_channel::unbounded();
        let (mut sink, mut reader) =
            pipe_sink((ID, public()), SHAPE, 1 << 20, None, move |event| {
                told.send(event).unwrap();
            })
            .unwrap();
        sink.begin(0);
        // The same content and the same place.
        let (mut writer, mut forged) = pipe(pipe_id, SHAPE, 1 << 20, None, sign).unwrap();
        let same = write_all(&mut writer, &[vec![1; 700], vec![2; 30]]);
        assert_eq!(same, blocks);
        receive(&mut sink, &mut forged, 0, blocks[0]);
        assert_eq!(events.try_recv(), Ok(PipeEvent::Damaged { block: 0 }));
        assert!(reader.is_empty());
        for (sbn, &k) in (0..).zip(&blocks) {
            receive(&mut sink, &mut feed, sbn, k);
        }
        let mut read = Vec::new();
        while let Some(bytes) = reader.read() {
            read.extend_from_slice(&bytes);
        }
        assert_eq!((read.len(), reader.outcome()), (730, Some(PipeOutcome::Whole)));
    }
}

#[test]
fn a_pipe_without_its_last_block_is_cut_short_and_one_that_failed_says_why() {
    for failed in [None, Some("the disk is gone")] {
        let (mut writer, mut feed) = pipe(ID, SHAPE, 1 << 20, None, sign()).unwrap();
        let mut blocks = write(&mut writer, &[vec![1; 700], vec![2; 30]]);
        writer.end(failed, |symbols| blocks.push(symbols));
        for all in [true, false] {
            let (mut sink, mut reader) =
                pipe_sink((ID, public()), SHAPE, 1 << 20, None, |event| panic!("{event:?}"))
                    .unwrap();
            sink.begin(0);
            let sent = if all { &blocks[..] } else { &blocks[..blocks.len() - 1] };
            for (sbn, &k) in (0..).zip(sent) {
                receive(&mut sink, &mut feed, sbn, k);
            }
            if !all {
                sink.abort();
            }
            let mut read = Vec::new();
            while let Some(bytes) = reader.read() {
                read.extend_from_slice(&bytes);
            }
            assert_eq!(read.len(), 730);
            let outcome = match (all, failed) {
                (false, _) => PipeOutcome::Cut,
                (true, None) => PipeOutcome::Whole,
                (true, Some(reason)) => PipeOutcome::Failed(reason.to_owned()),
            };
            assert_eq!(reader.outcome(), Some(outcome));
        }
    }
}

#[test]
fn one_signature_serves_for_a_run_of_blocks_that_come_in_any_order() {
    let shape = BlockShape { symbol_len: 1_000, ..SHAPE };
    let signed = Arc::new(Mutex::new(0));
    let count = signed.clone();
    let sign: Sign = Box::new(move |run| {
        *count.lock().unwrap() += 1;
        keys().sign(run).as_ref().try_into().unwrap()
    });
    let (mut writer, mut feed) = pipe(ID, shape, 1 << 20, None, sign).unwrap();
    let blocks = write_all(&mut writer, &[vec![5; 100_000]]);
    let signatures = *signed.lock().unwrap();
    assert!(blocks.len() > 12 && signatures <= 3, "{} blocks, {signatures}", blocks.len());
    let (mut sink, mut reader) =
        pipe_sink((ID, public()), shape, 1 << 20, None, |event| panic!("{event:?}")).unwrap();
    sink.begin(0);
    for (sbn, &k) in blocks.iter().enumerate().rev() {
        receive(&mut sink, &mut feed, sbn as u32, k);
    }
    let mut read = 0;
    while let Some(bytes) = reader.read() {
        read += bytes.len();
    }
    assert_eq!((read, reader.outcome()), (100_000, Some(PipeOutcome::Whole)));
}

proptest! {
    #[test]
    fn any_bytes_are_a_block_of_the_sender_or_are_dropped(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        number in any::<u32>(),
    ) {
        let mut verifier = run::Verifier::new(ID, public());
        prop_assert_eq!(verifier.check(number, &bytes), None);
    }
}
