//! WARC files as repositories: whole, damaged and growing.

use std::fs;
use std::io::Write;

use crate::support::{self, Sender, names, open, pattern, read, select};
use data_encoding::BASE32;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use sha1::{Digest as _, Sha1};
use tempfile::TempDir;
use umbel_store::{ReaderOptions, Repository, RepositoryOptions, WarcContents, read_warc};

use crate::corpus;

/// Returns a record with a correct digest.
fn record(kind: &str, uri: &str, date: &str, media_type: &str, block: &[u8]) -> Vec<u8> {
    let digest = BASE32.encode(&Sha1::digest(block));
    let mut record = format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nWARC-Date: {date}\r\n\
         WARC-Record-ID: <urn:uuid:{date}-{uri}>\r\nWARC-Block-Digest: sha1:{digest}\r\n\
         Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
        block.len()
    )
    .into_bytes();
    record.extend_from_slice(block);
    record.extend_from_slice(b"\r\n\r\n");
    record
}

fn http(header: &str, body: &[u8]) -> Vec<u8> {
    [b"HTTP/1.1 200 OK\r\n", header.as_bytes(), b"\r\n", body].concat()
}

fn response(uri: &str, date: &str, header: &str, body: &[u8]) -> Vec<u8> {
    record("response", uri, date, "application/http;msgtype=response", &http(header, body))
}

const DAY: &str = "2024-05-06T07:08:09Z";

fn page(uri: &str, body: &[u8]) -> Vec<u8> {
    response(uri, DAY, "Content-Type: text/html\r\n", body)
}

fn gzip(record: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(record).unwrap();
    encoder.finish().unwrap()
}

/// Returns both forms of an archive.
fn both(records: &[Vec<u8>]) -> [Vec<u8>; 2] {
    [records.concat(), records.iter().flat_map(|record| gzip(record)).collect()]
}

fn contents(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let WarcContents { items, .. } = read_warc(file.to_vec());
    items.into_iter().map(|(name, content)| (name, content.unwrap())).collect()
}

fn left_out(file: &[u8]) -> Vec<(String, String)> {
    let skipped = read_warc(file.to_vec()).skipped;
    assert_eq!(skipped.total(), skipped.named().len() as u64);
    skipped.named().iter().map(|item| (item.name.clone(), item.reason.to_string())).collect()
}

#[test]
fn responses_and_resources_are_items_and_nothing_else_is() {
    let records = [
        record("warcinfo", "", DAY, "application/warc-fields", b"software: test\r\n"),
        record("request", "http://a/", DAY, "application/http", b"GET / HTTP/1.1\r\n\r\n"),
        page("http://a/", b"<html>"),
        record("metadata", "http://a/", DAY, "application/warc-fields", b"via: x\r\n"),
        record("revisit", "http://b/", DAY, "application/http", &http("", b"")),
        record("resource", "ftp://c/file", DAY, "image/png", b"not HTTP/1.1\r\n\r\n"),
        record("response", "dns:a", DAY, "text/dns", b"a 60 IN A 192.0.2.1\r\n"),
        page("<http://d/in brackets>", b""),
        record("conversion", "http://e/", DAY, "text/plain", b"x"),
    ];
    let expected = [
        ("dns:a", &b"a 60 IN A 192.0.2.1\r\n"[..]),
        ("ftp://c/file", b"not HTTP/1.1\r\n\r\n"),
        ("http://a/", b"<html>"),
        ("http://d/in brackets", b""),
    ];
    for file in both(&records) {
        let contents = contents(&file);
        let found: Vec<_> = contents.iter().map(|(name, body)| (&name[..], &body[..])).collect();
        assert_eq!(found, expected);
        let revisit = ("http://b/".into(), "a revisit of what another archive has".into());
        assert_eq!(left_out(&file), [revisit]);
    }
}

#[test]
fn what_an_archive_has_and_is_not_served_as_it_was_is_counted() {
    let answer = |uri: &str, date: &str, status: &str, body: &str| {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\n\r\n{body}");
        let media_type = "application/http;msgtype=response";
        record("response", uri, date, media_type, answer.as_bytes())
    };
    let later = "2025-05-06T07:08:09Z";
    let records = [
        answer("http://a/", DAY, "404 Not Found", "sorry"),
        answer("http://a/", later, "200 OK", "new"),
        answer("http://b/", later, "200", "new"),
        answer("http://b/", DAY, "404 Not Found", "sorry"),
        answer("http://c/", DAY, "301 Moved Permanently", ""),
        answer("http://d/", DAY, "503 Service Unavailable", "later"),
        record("revisit", "http://a/", later, "application/http", &http("", b"")),
        record("revisit", "http://e/", later, "application/http", &http("", b"")),
    ];
    for file in both(&records) {
        let contents = read_warc(file.clone());
        assert_eq!(contents.items.len(), 4);
        assert_eq!(contents.other_status, 2);
        assert_eq!(contents.skipped.failures(), 0);
        let older = |uri: &str| (uri.to_owned(), "an older capture of its URL".to_owned());
        let revisit = ("http://e/".into(), "a revisit of what another archive has".into());
        assert_eq!(left_out(&file), [older("http://a/"), older("http://b/"), revisit]);
    }
}

#[test]
fn chunks_are_put_together_and_other_codings_left_alone() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let records = [
        response("http://a/1", DAY, chunked, b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"),
        response("http://a/2", DAY, chunked, b"abc: the crawler did it already"),
        response("http://a/3", DAY, "Content-Encoding: gzip\r\n", b"\x1f\x8bstill packed"),
        response("http://a/4", DAY, chunked, b"3\r\nabc\r\n9\r\nde"),
        response("http://a/5", DAY, chunked, b""),
        response("http://a/6", DAY, chunked, b"abc"),
    ];
    for file in both(&records) {
        let expected: [(&str, &[u8]); 5] = [
            ("http://a/1", b"abcde"),
            ("http://a/2", b"abc: the crawler did it already"),
            ("http://a/3", b"\x1f\x8bstill packed"),
            ("http://a/5", b""),
            ("http://a/6", b"abc"),
        ];
        assert_eq!(contents(&file), expected.map(|(name, body)| (name.to_owned(), body.to_vec())));
        let left_out = left_out(&file);
        assert_eq!(left_out.len(), 1);
        assert!(left_out[0].0.starts_with("http://a/4 (at byte "), "{left_out:?}");
        assert_eq!(left_out[0].1, "damaged: its chunks are broken");
    }
}

#[test]
fn of_several_records_of_a_url_the_latest_is_served() {
    let at = |date: &str, body: &[u8]| response("http://a/", date, "", body);
    let records = [
        at("2024-01-02T00:00:00Z", b"second"),
        at("2024-01-02T00:00:00.5Z", b"third"),
        at("2024-01-01T00:00:00Z", b"first"),
        at("some day", b"when?"),
    ];
    for file in both(&records) {
        assert_eq!(contents(&file), [("http://a/".to_owned(), b"third".to_vec())]);
    }
}

#[test]
fn a_repository_of_a_warc_file_is_served_like_any_other() {
    let dir = TempDir::new().unwrap();
    let body = pattern(1_000_000, 1);
    let mut chunked = Vec::new();
    for chunk in body.chunks(9_999) {
        write!(chunked, "{:x}\r\n", chunk.len()).unwrap();
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let records = [
        page("http://site/dir/page?id=1&x=[1]", b"page"),
        response("http://site/dir/large", DAY, "Content-Type: image/png\r\n", &body),
        response("http://site/dir/chunked", DAY, "Transfer-Encoding: CHUNKED\r\n", &chunked),
        page("http://site/", b"index"),
        page("http://other/", b"other"),
    ];
    for (file, name) in both(&records).into_iter().zip(["crawl.warc", "crawl.WARC.gz"]) {
        let path = dir.path().join(name);
        fs::write(&path, file).unwrap();
        let repository = open(&path);
        let expected = [
            "http://other/",
            "http://site/",
            "http://site/dir/chunked",
            "http://site/dir/large",
            "http://site/dir/page?id=1&x=[1]",
        ];
        assert_eq!(names(&repository), expected);
        assert_eq!(select(&repository, &["http://site/dir"]), expected[2..]);
        assert_eq!(select(&repository, &["http://site/**"]), expected[1..]);
        assert_eq!(select(&repository, &["http://site/"]), expected[1..2]);
        assert_eq!(select(&repository, &[expected[4]]), expected[4..]);
        for name in ["http://site/dir/chunked", "http://site/dir/large"] {
            let item = repository.catalog().lookup(name).unwrap();
            assert_eq!(item.modified_ns(), Some(1_714_979_289_000_000_000));
            assert!(read(&repository, &item) == body);
            let mut sender = Sender::new(&repository, &ReaderOptions::default());
            assert!(sender.transmit(&item).unwrap() == body);
            let digest = repository.catalog().digest(item.toi()).unwrap();
            assert_eq!(digest.0, *blake3::hash(&body).as_bytes());
            // Backwards, and in parts that do not end with a buffer.
            let content = repository.content();
            for start in (0..body.len() - 7_000).rev().step_by(99_991) {
                let mut part = vec![0; 7_000];
                content.read_at(item.toi(), start as u64, &mut part).unwrap();
                assert!(part == body[start..start + 7_000]);
            }
        }
        let large = repository.catalog().lookup("http://site/dir/large").unwrap();
        assert_eq!(large.media_type(), "image/png");
    }
    assert_eq!(names(&open(dir.path())), ["crawl.WARC.gz", "crawl.warc"], "files in a directory");
    let options = RepositoryOptions { warc: false, ..support::small_options() };
    let repository = Repository::open(dir.path().join("crawl.warc"), options).unwrap();
    assert_eq!(names(&repository), ["crawl.warc"]);
}

#[test]
fn more_items_than_streams_can_be_read_side_by_side() {
    let dir = TempDir::new().unwrap();
    let bodies: Vec<_> = (0..100).map(|i| pattern(20_000, i)).collect();
    let records: Vec<_> =
        bodies.iter().enumerate().map(|(i, body)| page(&format!("u:{i}"), body)).collect();
    let path = dir.path().join("crawl.warc.gz");
    fs::write(&path, both(&records)[1].clone()).unwrap();
    let repository = open(&path);
    let content = repository.content();
    for start in [0, 15_000, 5_000] {
        for (i, body) in bodies.iter().enumerate() {
            let toi = support::toi(&repository, &format!("u:{i}"));
            let mut part = vec![0; 5_000];
            content.read_at(toi, start, &mut part).unwrap();
            assert!(part == body[start as usize..][..5_000]);
        }
    }
}

#[test]
fn a_file_that_grows_keeps_the_objects_of_what_it_had() {
    let dir = TempDir::new().unwrap();
    for gz in [false, true] {
        let path = dir.path().join(if gz { "crawl.warc.gz" } else { "crawl.warc" });
        let pack = |record: Vec<u8>| if gz { gzip(&record) } else { record };
        fs::write(&path, pack(page("u:1", b"one"))).unwrap();
        let repository = open(&path);
        let before = support::toi(&repository, "u:1");
        assert!(repository.refresh().unwrap().is_empty());
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&pack(page("u:2", b"two"))).unwrap();
        let changes = repository.refresh().unwrap();
        assert_eq!((changes.added.len(), changes.replaced.len()), (1, 0));
        assert_eq!(support::toi(&repository, "u:1"), before);
        // A new file replaces the old one. The old one is still served.
        let other = dir.path().join("other");
        fs::write(&other, pack(page("u:1", b"new"))).unwrap();
        fs::rename(&other, &path).unwrap();
        let changes = repository.refresh().unwrap();
        assert_eq!((changes.replaced.len(), changes.removed.len()), (1, 1));
        let mut old = [0; 3];
        repository.content().read_at(before, 0, &mut old).unwrap();
        assert_eq!(&old, b"one");
        let item = repository.catalog().lookup("u:1").unwrap();
        assert_eq!(read(&repository, &item), b"new");
    }
}

#[test]
fn a_file_cut_short_or_overwritten_while_it_is_served_is_noticed() {
    let dir = TempDir::new().unwrap();
    let records = [page("u:1", &pattern(1_000, 1)), page("u:2", &pattern(1_000, 2))];
    for (file, name) in both(&records).into_iter().zip(["crawl.warc", "crawl.warc.gz"]) {
        let path = dir.path().join(name);
        fs::write(&path, &file).unwrap();
        let repository = open(&path);
        let target = fs::OpenOptions::new().write(true).open(&path).unwrap();
        target.set_len(file.len() as u64 - 100).unwrap();
        let second = repository.catalog().lookup("u:2").unwrap();
        let mut sender = Sender::new(&repository, &ReaderOptions::default());
        assert_eq!(sender.transmit(&second).unwrap_err(), "u:2: it changed while it was on offer");
        let first = repository.catalog().lookup("u:1").unwrap();
        assert_eq!(sender.transmit(&first).unwrap(), pattern(1_000, 1));
        drop(target);
        fs::write(&path, both(&[page("u:3", &pattern(2_000, 3))])[0].clone()).unwrap();
        let mut sender = Sender::new(&open(&path), &ReaderOptions::default());
        sender.symbol(umbel_wire::Toi(1), 0, 0).unwrap();
        let error = repository.catalog().digest(second.toi()).unwrap_err().to_string();
        assert_eq!(error, "u:2: it changed while it was on offer");
    }
}

#[test]
fn a_damaged_record_is_left_out_and_the_rest_is_served() {
    let records: Vec<_> = (0..5)
        .map(|i| page(&format!("u:{i}"), &[b"text ".repeat(200), pattern(100, i)].concat()))
        .collect();
    let names = ["u:0", "u:1", "u:3", "u:4"];
    for (gz, file) in both(&records).into_iter().enumerate() {
        let pack = |record: &Vec<u8>| if gz == 1 { gzip(record) } else { record.clone() };
        let start: usize = records[..2].iter().map(|record| pack(record).len()).sum();
        let len = pack(&records[2]).len();
        // Flipped bytes anywhere in the record are detected, except in its last line ends.
        for at in (start..start + len - 4).step_by(7) {
            let mut file = file.clone();
            file[at] ^= 0x55;
            file[at + 1] ^= 0x55;
            let found = contents(&file);
            let found: Vec<_> = found.iter().map(|(name, _)| &name[..]).collect();
            let left_out = left_out(&file);
            if found.len() == 5 || left_out.is_empty() {
                // Undetected bytes: the time in the member's header or, in the plain form, the
                // header of the record, which no digest protects.
                let unprotected = [400, 10][gz];
                assert!(at < start + unprotected, "at {} of {len}", at - start);
                continue;
            }
            assert_eq!(found, names, "at {} of {len}", at - start);
            let at_byte = format!("at byte {start}");
            assert!(left_out.len() <= 2 && left_out[0].0.contains(&at_byte), "{left_out:?}");
            assert!(left_out[0].1.starts_with("damaged: "), "{left_out:?}");
        }
    }
}

#[test]
fn what_a_damaged_record_contains_is_not_taken_for_a_record() {
    let inner = page("http://forged/", b"forged");
    let mut records = [page("u:1", b"1"), page("u:2", &inner), page("u:3", b"3")];
    let end = records[1].len() - 8;
    records[1][end] ^= 1;
    for file in both(&records) {
        let names: Vec<_> = contents(&file).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["u:1", "u:3"]);
        assert_eq!(left_out(&file).len(), 1);
    }
}

#[test]
fn a_truncated_file_serves_what_is_whole() {
    let records = [page("u:1", &pattern(500, 1)), page("u:2", &pattern(500, 2))];
    for (gz, file) in both(&records).into_iter().enumerate() {
        let second = if gz == 1 { gzip(&records[0]).len() } else { records[0].len() };
        for len in second + 1..file.len() - 4 {
            let names: Vec<_> = contents(&file[..len]).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["u:1"], "{len} of {}", file.len());
            assert_eq!(left_out(&file[..len]).len(), 1, "{len} of {}", file.len());
        }
        for len in 0..second - 4 {
            assert!(contents(&file[..len]).is_empty());
        }
    }
}

#[test]
fn a_whole_archive_in_one_member_is_read_too() {
    let records = [page("u:1", &pattern(5_000, 1)), page("u:2", &pattern(5_000, 2))];
    let file = gzip(&records.concat());
    assert_eq!(contents(&file), contents(&records.concat()));
}

#[test]
fn what_is_no_warc_file_serves_nothing() {
    for file in [&b""[..], b"\n", b"hello", b"\x1f\x8b\x08", b"WARC/", b"WARC/1.0\r\n\r\n"] {
        assert!(contents(file).is_empty());
    }
    assert_eq!(
        left_out(b"hello")[0],
        ("record at byte 0".into(), "damaged: no record begins here".into())
    );
}

/// Checks that all items found can be read, as the fuzz target does.
fn serves_what_it_found(file: Vec<u8>) -> WarcContents {
    let contents = read_warc(file);
    for (name, content) in &contents.items {
        assert!(content.is_ok(), "{name} was found but cannot be read: {content:?}");
    }
    contents
}

#[test]
fn the_corpus_of_warc_replays() {
    let mut items = 0;
    corpus::replay("warc", 1, |file| items += serves_what_it_found(file.to_vec()).items.len());
    assert!(items > 0);
}

#[test]
fn pages_are_served_in_the_forms_that_servers_and_crawlers_write() {
    let text = b"the text of the page ".repeat(20);
    let chunks =
        |data: &[u8]| [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n0\r\n\r\n"].concat();
    let coded = chunks(&gzip(&text));
    let long = format!("HTTP/1.1 200 OK\r\nSet-Cookie: {}\r\n\r\n", "x".repeat(100_000));
    let twice =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, body, content) in [
        ("http/1.1 200 OK\r\n\r\n", &text[..], &text[..]),
        ("HTTP 200 Document follows\r\n\r\n", &text, &text),
        ("HTTP/2 200 \r\n\r\n", &text, &text),
        ("ICY 200 OK\r\nicy-name: radio\r\n\r\n", &text, &text),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", &text, &text),
        ("HTTP/1.1 204 No Content", b"", b""),
        ("HTTP/1.1 301 Moved\r\nLocation: /b", b"", b""),
        (&long, &text, &text),
        (twice, &chunks(&text), &text),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", &coded, &text),
    ] {
        let block = [head.as_bytes(), body].concat();
        let one = record("response", "http://a/", DAY, "application/http", &block);
        for file in both(&[one, page("http://b/", b"b")]) {
            let expected =
                [("http://a/".into(), content.to_vec()), ("http://b/".into(), b"b".into())];
            assert!(contents(&file) == expected, "{head:.60}");
            assert_eq!(
                read_warc(file).other_status,
                u64::from(head.contains(" 204 ") || head.contains(" 301 "))
            );
        }
    }
    let unknown = response("http://a/", DAY, "Transfer-Encoding: br\r\n", &text);
    let reason = "damaged: it has a transfer coding other than chunked and gzip";
    assert_eq!(left_out(&unknown)[0].1, reason);
}

#[test]
fn records_are_found_whatever_is_between_them() {
    let records: Vec<_> = (0..4).map(|i| page(&format!("u:{i}"), &pattern(300, i))).collect();
    for end in ["", "\n", "\r\n", "\r\n\r\n\r\n\r\n"] {
        let file: Vec<u8> = records
            .iter()
            .flat_map(|record| [&record[..record.len() - 4], end.as_bytes()].concat())
            .collect();
        let names: Vec<_> = contents(&file).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["u:0", "u:1", "u:2", "u:3"], "{end:?}");
        assert!(left_out(&file).is_empty());
    }
    // Bytes that are no record cost what they are, not the record before them.
    let file = [&records[0][..], &[0; 5_000], b"\n", &records[1]].concat();
    assert_eq!(contents(&file).len(), 2);
}

#[test]
fn names_that_browsers_crawlers_give_are_served() {
    let names = [
        "https://h/",
        "urn:pageinfo:https://h/",
        "urn:thumbnail:https://h/a//b?c=1",
        "screenshot:https://h/",
        "urn:text:https://h/",
        "metadata://h/warc/MANIFEST.txt",
        "data:text/plain,//",
    ];
    let mut records: Vec<_> = names.map(|name| page(name, name.as_bytes())).into();
    records.push(page("//h/x", b"without a scheme"));
    records.push(page("/index.html", b"nor a host"));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("crawl.warc");
    fs::write(&path, records.concat()).unwrap();
    let repository = open(&path);
    assert_eq!(repository.catalog().len(), records.len());
    assert_eq!(repository.catalog().skipped().total(), 0);
}

fn zstd(record: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(record, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn archives_of_zstd_frames_are_read_like_those_of_gzip_members() {
    let records: Vec<_> = (0..3).map(|i| page(&format!("u:{i}"), &pattern(99_000, i))).collect();
    let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc"].concat();
    let frames: Vec<_> = records.iter().map(|record| zstd(record)).collect();
    let file = [&skippable[..], &frames[0], &frames[1], &skippable, &frames[2]].concat();
    assert_eq!(contents(&file), contents(&records.concat()));
    assert!(left_out(&file).is_empty());
    // A damaged frame costs its record.
    let mut damaged = file.clone();
    damaged[skippable.len() + frames[0].len() + 5_000] ^= 0x40;
    let names: Vec<_> = contents(&damaged).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["u:0", "u:2"]);
    for len in (0..file.len()).step_by(997) {
        serves_what_it_found(file[..len].to_vec());
    }
}

#[test]
fn a_dictionary_at_the_start_of_an_archive_is_used() {
    // Made with `zstd --train`: a compressed dictionary, and two records that need it.
    let file = include_bytes!("dictionary.warc.zst");
    let contents = contents(file);
    assert_eq!(contents.len(), 2, "{:?}", left_out(file));
    assert!(contents.iter().all(|(_, text)| text.starts_with(b"re") || text.contains(&b' ')));
    let (_, frames) =
        file.split_at(8 + u32::from_le_bytes(file[4..8].try_into().unwrap()) as usize);
    assert_eq!(left_out(frames).len(), 1, "without it they cannot be read");
}

/// Returns a ZIP file with these files, stored.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in files {
        let stored = zip::CompressionMethod::Stored;
        let options = zip::write::SimpleFileOptions::default().compression_method(stored);
        zip.start_file(*name, options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn several_archives_are_one_crawl_whatever_holds_them() {
    let dir = TempDir::new().unwrap();
    let named = |kind: &str, uri: &str, date: &str, body: &[u8]| {
        let digest = BASE32.encode(&Sha1::digest(b"the content"));
        let record = record(kind, uri, date, "application/http", &http("", body));
        let header = format!("WARC-Payload-Digest: sha1:{digest}\r\nWARC-Date");
        let text = String::from_utf8(record).unwrap();
        text.replacen("WARC-Date", &header, 1).into_bytes()
    };
    let later = "2025-05-06T07:08:09Z";
    let first = [
        named("revisit", "http://h/again", later, b""),
        page("http://h/old", b"old"),
        named("revisit", "http://h/", later, b""),
    ];
    let second = [named("response", "http://h/", DAY, b"the content")];
    let third = [response("http://h/old", later, "", b"new"), b"rubbish".to_vec()];
    let plain = dir.path().join("1.warc");
    fs::write(&plain, first.concat()).unwrap();
    let wacz = dir.path().join("2.wacz");
    let packed = gzip(&second[0]);
    fs::write(&wacz, zip(&[("archive/a.warc.gz", &packed), ("pages/pages.jsonl", b"{}")])).unwrap();
    let zst = dir.path().join("3.warc.zst");
    fs::write(&zst, [zstd(&third[0]), zstd(&third[1])].concat()).unwrap();
    let paths = [plain.clone(), wacz, zst];
    let repository = Repository::open_all(&paths, support::small_options()).unwrap();
    assert_eq!(names(&repository), ["http://h/", "http://h/again", "http://h/old"]);
    let content = |name: &str| {
        let item = repository.catalog().lookup(name).unwrap();
        (read(&repository, &item), item.modified_ns())
    };
    let (day, next) = (Some(1_714_979_289_000_000_000), Some(1_746_515_289_000_000_000));
    assert_eq!(content("http://h/"), (b"the content".to_vec(), next));
    assert_eq!(content("http://h/again"), (b"the content".to_vec(), next));
    assert_eq!(content("http://h/old"), (b"new".to_vec(), next));
    assert!(day < next);
    let skipped = repository.catalog().skipped();
    let named: Vec<_> = skipped.named().iter().map(|item| item.name.clone()).collect();
    assert!(named[0].starts_with("3.warc.zst: record at byte "), "{named:?}");
    assert_eq!(named[1..], ["http://h/old"]);
    // One of them grows.
    assert!(repository.refresh().unwrap().is_empty());
    let mut file = fs::OpenOptions::new().append(true).open(&plain).unwrap();
    file.write_all(&page("http://h/more", b"more")).unwrap();
    let changes = repository.refresh().unwrap();
    assert_eq!((changes.added.len(), changes.replaced.len(), changes.removed.len()), (1, 0, 0));
    // Beside another file, archives are files.
    fs::write(dir.path().join("notes.txt"), b"text").unwrap();
    let mixed = [plain, dir.path().join("notes.txt")];
    let repository = Repository::open_all(&mixed, support::small_options()).unwrap();
    assert_eq!(names(&repository), ["1.warc", "notes.txt"]);
}

#[test]
fn a_wacz_with_compressed_archives_says_so_and_one_that_is_none_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("crawl.WACZ");
    let mut file = zip(&[("archive/a.warc", &page("u:1", b"one")), ("archive/b.warc", b"")]);
    // The method of compression of the first file, in its entry of the directory.
    let entry = file.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    file[entry + 10] = 8;
    fs::write(&path, file).unwrap();
    let repository = open(&path);
    let skipped = repository.catalog().skipped();
    assert_eq!((repository.catalog().len(), skipped.failures()), (0, 1));
    assert_eq!(skipped.named()[0].name, "archive/a.warc");
    fs::write(&path, b"no zip").unwrap();
    let error = Repository::open(&path, support::small_options()).unwrap_err().to_string();
    assert!(error.contains("crawl.WACZ: "), "{error}");
}

#[test]
fn arc_files_are_crawls_too() {
    let document = |line: &str, body: &[u8]| {
        [format!("{line} {}\n", body.len()).as_bytes(), body, b"\n"].concat()
    };
    let about = b"1 0 Heritrix\nURL IP-address Archive-date Content-type Archive-length\n";
    let records = [
        document("filedesc://x.arc 0.0.0.0 20010203040506 text/plain", about),
        document("http://h/ 192.0.2.1 20010203040506 text/html", &http("A: b\r\n", b"page")),
        document("dns:h 192.0.2.1 20010203040506 text/dns", b"h A 192.0.2.1"),
        document("http://h/2 192.0.2.1 20010203040507 text/html", b"HTTP/1.0 404 No\n\nsorry"),
    ];
    let expected =
        [("dns:h", &b"h A 192.0.2.1"[..]), ("http://h/", b"page"), ("http://h/2", b"sorry")]
            .map(|(name, body)| (name.to_owned(), body.to_vec()));
    for file in both(&records) {
        assert_eq!(contents(&file), expected);
        assert_eq!(read_warc(file).other_status, 1);
    }
    // A wrong length costs one document.
    let mut wrong = records.concat();
    let at = wrong.windows(8).position(|bytes| bytes == b"text/dns").unwrap() + 10;
    wrong[at] += 3;
    let names: Vec<_> = contents(&wrong).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["http://h/", "http://h/2"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_the_parser_panic(file in prop::collection::vec(any::<u8>(), 0..2_000)) {
        serves_what_it_found(file);
    }

    #[test]
    fn no_damage_makes_the_parser_panic_or_hurts_records_before_it(
        packing in 0..3_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let chunked = b"5\r\nabcde\r\n40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n0\r\n\r\n";
        let records = [
            page("u:1", &pattern(300, 1)),
            response("u:2", DAY, "Transfer-Encoding: chunked\r\n", chunked),
            record("resource", "u:3", DAY, "a/b", &pattern(300, 3)),
        ];
        let pack = |record: &Vec<u8>| match packing {
            0 => record.clone(),
            1 => gzip(record),
            _ => zstd(record),
        };
        let mut file: Vec<u8> = records.iter().flat_map(pack).collect();
        let first = pack(&records[0]).len();
        let start = file.len() - first;
        for (index, byte) in edits {
            file[first + index.index(start)] = byte;
        }
        file.truncate(first + cut.index(start));
        let contents = serves_what_it_found(file);
        let item = contents.items.iter().find(|(name, _)| name == "u:1");
        prop_assert_eq!(item.unwrap().1.as_ref().unwrap(), &pattern(300, 1));
    }

    #[test]
    fn no_damage_to_a_dictionary_makes_the_parser_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut file = include_bytes!("dictionary.warc.zst").to_vec();
        for (index, byte) in edits {
            // The header stays, or there would be no dictionary.
            let at = 8 + index.index(file.len() - 8);
            file[at] = byte;
        }
        serves_what_it_found(file);
    }
}
