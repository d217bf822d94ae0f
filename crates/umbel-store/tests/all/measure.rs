//! Not tests but measurements, which print the speed of this machine. Run with `--release --ignored
//! --nocapture`.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use crate::support::{Sender, open, pattern, write};
use tempfile::TempDir;
use umbel_engine::symbols::{BlockId, SymbolSource};
use umbel_store::feed::seal::FeedKey;
use umbel_store::{ReaderOptions, Repository, RepositoryOptions};

#[test]
#[ignore = "measures"]
fn blocks_from_the_page_cache() {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "item", pattern(256 << 20, 1));
    let repository = Repository::open(dir.path(), RepositoryOptions::default()).unwrap();
    let item = repository.catalog().lookup("item").unwrap();
    let partition = umbel_fec::Partition::new(&item.oti()).unwrap();
    for repairs in [0, 13] {
        let mut sender = Sender::new(&repository, &ReaderOptions::default());
        for round in 0..4 {
            let start = Instant::now();
            let (mut symbols, mut bytes, mut prefetched) = (0_u64, 0_u64, 0);
            for sbn in 0..partition.blocks() {
                while prefetched < partition.blocks().min(sbn + 16) {
                    let block = BlockId { toi: item.toi(), sbn: prefetched };
                    sender.reader.prefetch(block, 0..partition.block_symbols(prefetched) + repairs);
                    prefetched += 1;
                }
                for esi in 0..partition.block_symbols(sbn) + repairs {
                    bytes += sender.symbol(item.toi(), sbn, esi).unwrap().len() as u64;
                    symbols += 1;
                }
                sender.reader.release(BlockId { toi: item.toi(), sbn });
            }
            let time = start.elapsed();
            let gigabytes = bytes as f64 / time.as_secs_f64() / 1e9;
            let ns = time.as_nanos() / u128::from(symbols);
            println!("{repairs} repairs, round {round}: {gigabytes:.2} GB/s, {ns} ns a symbol");
        }
    }
}

#[test]
#[ignore = "measures"]
fn symbols_sealed_and_opened() {
    const SYMBOLS: u32 = 200_000;
    let key = FeedKey::new(umbel_wire::Tsi(1), &[1; 32]);
    let content = pattern(1_348, 1);
    let rate = |start: Instant| {
        let bytes = f64::from(SYMBOLS) * content.len() as f64;
        bytes / start.elapsed().as_secs_f64() / 1e9
    };
    for round in 0..3 {
        let (start, mut sealed) = (Instant::now(), Vec::new());
        for esi in 0..SYMBOLS {
            sealed.clear();
            key.seal(7, esi, &content, &mut sealed);
        }
        let sealing = rate(start);
        let last = sealed.clone();
        let start = Instant::now();
        for _ in 0..SYMBOLS {
            sealed.copy_from_slice(&last);
            assert_eq!(key.open(7, SYMBOLS - 1, &mut sealed).map(<[u8]>::len), Some(content.len()));
        }
        println!("round {round}: {sealing:.2} GB/s sealed, {:.2} GB/s opened", rate(start));
    }
}

#[test]
#[ignore = "measures"]
fn twenty_thousand_items_of_a_block_each() {
    let dir = TempDir::new().unwrap();
    for i in 0..20_000_u32 {
        write(dir.path(), &format!("{}/{i}", i % 100), i.to_le_bytes().repeat(250));
    }
    let start = Instant::now();
    let repository = Repository::open(dir.path(), RepositoryOptions::default()).unwrap();
    println!("opened in {:?}", start.elapsed());
    let start = Instant::now();
    repository.refresh().unwrap();
    println!("refreshed in {:?}", start.elapsed());
    let items = repository.catalog().select(&[], 0, usize::MAX).unwrap().items;
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    let start = Instant::now();
    for (at, item) in items.iter().enumerate() {
        if let Some(ahead) = items.get(at + 16) {
            sender.reader.prefetch(BlockId { toi: ahead.toi(), sbn: 0 }, 0..1);
        }
        assert_eq!(sender.symbol(item.toi(), 0, 0).unwrap().len(), 1_000);
        sender.reader.release(BlockId { toi: item.toi(), sbn: 0 });
    }
    println!("read in {:?}", start.elapsed());
    let start = Instant::now();
    for item in &items {
        repository.catalog().digest(item.toi()).unwrap();
    }
    println!("digests in {:?}", start.elapsed());
}

#[test]
#[ignore = "measures"]
fn a_million_items_in_a_catalog() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("million.warc");
    let mut file = String::new();
    for i in 0..1_000_000 {
        let (a, b) = (i % 997, i % 101);
        write!(
            file,
            "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n\
             WARC-Target-URI: http://site/{a}/{b}/item{i}.jpeg\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
        )
        .unwrap();
    }
    fs::write(&path, &file).unwrap();
    let start = Instant::now();
    let repository = open(&path);
    println!("{} MB opened in {:?}", file.len() / 1_000_000, start.elapsed());
    let memory = fs::read_to_string("/proc/self/status").unwrap();
    drop(file);
    println!("{}", memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
    for pattern in [
        "http://site/7/66/item46865.jpeg",
        "http://site/7",
        "http://site/7/**",
        "http://site/*/7/*",
        "**/*7777*",
        "**",
    ] {
        let patterns = [pattern.to_owned()];
        let start = Instant::now();
        let first = repository.catalog().select(&patterns, 0, 100).unwrap();
        let time = start.elapsed();
        let start = Instant::now();
        repository.catalog().select(&patterns, first.next.unwrap_or(0), 100).unwrap();
        println!("{pattern}: {} in {time:?}, next page {:?}", first.total, start.elapsed());
    }
}

#[test]
#[ignore = "measures"]
fn compressed_records() {
    use std::io::Write;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("large.warc.gz");
    // About as compressible as pages.
    let body: Vec<u8> = pattern(8 << 20, 1).iter().map(|byte| byte % 16 + b'a').collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let len = body.len() * 16;
    write!(encoder, "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: u:large\r\n").unwrap();
    write!(encoder, "Content-Length: {len}\r\n\r\n").unwrap();
    for _ in 0..16 {
        encoder.write_all(&body).unwrap();
    }
    encoder.write_all(b"\r\n\r\n").unwrap();
    fs::write(&path, encoder.finish().unwrap()).unwrap();
    let start = Instant::now();
    let repository = Repository::open(&path, RepositoryOptions::default()).unwrap();
    let rate = |start: Instant| len as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("scanned at {:.0} MB/s", rate(start));
    let item = repository.catalog().lookup("u:large").unwrap();
    let mut sender = Sender::new(&repository, &ReaderOptions::default());
    let start = Instant::now();
    assert_eq!(sender.transmit(&item).unwrap().len(), len);
    println!("transmitted at {:.0} MB/s", rate(start));
}
