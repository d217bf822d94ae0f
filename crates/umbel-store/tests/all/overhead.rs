//! What trust costs on the wire: bytes that sealing, signing and digests add, counted with the real
//! encoders. `docs/security.md` has the table; this test compares it.

use std::io::repeat;

use umbel_store::feed::seal::{PublicKey, SEAL_LEN, SecretKey, seal_head};
use umbel_store::feed::{BlockShape, Manifest, PipeId, pipe};
use umbel_wire::alc::DataHeader;
use umbel_wire::repository::{ItemInfo, ItemKind, SymbolDigest};
use umbel_wire::sealed::{MessageHeader, SealedHeader, TAG_LEN};
use umbel_wire::signed;
use umbel_wire::tmtp::{SignedStamp, Stamp};
use umbel_wire::{Digest, Oti, Scheme, SmallBlockHeader, Toi, Tsi};

/// UDP payload of a full packet on an Ethernet with IPv4.
const PAYLOAD: usize = 1_472;
/// Source symbols in a full block of a feed.
const BLOCK_SYMBOLS: u8 = 64;
const FEED: Tsi = Tsi(7);

/// Returns the shape of blocks in full packets.
fn shape(sealed: bool) -> BlockShape {
    let symbol_len = (PAYLOAD - SmallBlockHeader::LEN) as u16;
    BlockShape { symbol_len, block_symbols: BLOCK_SYMBOLS, sealed }
}

/// Returns the bytes of a full block, and how many of them are not content, in a pipe.
fn pipe_block(shape: BlockShape) -> (usize, usize) {
    let id = PipeId { feed: FEED, version: 1 };
    let (mut writer, _feed) = pipe(id, shape, 1 << 20, None, Box::new(|_| [0; 64])).unwrap();
    let mut room = 0;
    while !writer.is_full() {
        room += writer.read_from(&mut repeat(1)).unwrap();
    }
    let len = usize::from(shape.content_len()) * usize::from(shape.block_symbols);
    (len, len - room)
}

/// Returns the length of a manifest of one file of so many blocks.
fn manifest_len(blocks: usize) -> usize {
    let oti = Oti {
        scheme: Scheme::ReedSolomon,
        object_len: (blocks * usize::from(BLOCK_SYMBOLS) * 1_000) as u64,
        symbol_len: 1_000,
        max_block_symbols: BLOCK_SYMBOLS.into(),
        max_encoding_symbols: 255,
    };
    let item = ItemInfo {
        toi: Toi(1),
        name: "file".to_owned(),
        digest: Digest([0; 32]),
        modified_ns: None,
        mode: None,
        kind: ItemKind::File,
        holes: None,
        media_type: String::new(),
        oti,
    };
    let blocks = vec![Digest([0; 32]); blocks];
    Manifest { items: vec![item], left_out: 0, blocks }.emit().unwrap().len()
}

/// Returns the length of the head of a sealed pipe for so many receivers.
fn head_len(receivers: u8) -> usize {
    let list: Vec<PublicKey> = (1..=receivers).map(|n| SecretKey::new([n; 32]).public()).collect();
    seal_head(FEED, &[9; 32], &SecretKey::new([99; 32]), &list, &[]).unwrap().len()
}

/// Returns a share in per cent.
fn share(part: usize, whole: usize) -> String {
    format!("{:.2} %", 100.0 * part as f64 / whole as f64)
}

#[test]
fn the_table_of_the_documents_is_what_the_encoders_add() {
    let data = PAYLOAD - SealedHeader::LEN - TAG_LEN;
    let (block, pipe_head) = pipe_block(shape(false));
    let (sealed_block, sealed_pipe_head) = pipe_block(shape(true));
    let sealed_head = sealed_pipe_head + usize::from(BLOCK_SYMBOLS) * SEAL_LEN;
    let digest = manifest_len(1_001) - manifest_len(1_000);
    let symbol = usize::from(shape(false).symbol_len);
    let symbol_digest = size_of::<SymbolDigest>();
    let wrapped = head_len(2) - head_len(1);
    let (none, of_block) = ("–".to_owned(), "block of 64 symbols");
    let rows = [
        (
            ("repository, sealed", "packet"),
            format!("{} bytes (key, number, tag)", SealedHeader::OVERHEAD),
            share(SealedHeader::OVERHEAD, data),
        ),
        (
            ("repository, sealed", "message of the control group"),
            format!("{} bytes", MessageHeader::LEN + TAG_LEN),
            none.clone(),
        ),
        (
            ("repository, open", "symbol, for a client that is attacked"),
            format!("{symbol_digest} bytes on its session"),
            share(symbol_digest, PAYLOAD - DataHeader::LEN),
        ),
        (
            ("feed, files", of_block),
            format!("{digest} bytes (digest, in the head)"),
            share(digest, block),
        ),
        (
            ("feed, pipe", of_block),
            format!("{pipe_head} bytes (signature of 16 blocks, 16 digests, length)"),
            share(pipe_head, block),
        ),
        (
            ("feed, sealed", "symbol"),
            format!("{SEAL_LEN} bytes (nonce, tag)"),
            share(SEAL_LEN, symbol - SEAL_LEN),
        ),
        (
            ("feed, sealed pipe", of_block),
            format!("{sealed_head} bytes, with the seals of its symbols"),
            share(sealed_head, sealed_block),
        ),
        (
            ("feed, sealed", "receiver on the list"),
            format!("{wrapped} bytes (hint, wrapped key, in the head)"),
            "once".to_owned(),
        ),
        (
            ("feed with a token or a list", "message of the tree"),
            format!("{} bytes (key, number, code)", Stamp::LEN),
            none.clone(),
        ),
        (
            ("open feed", "message between child and parent"),
            format!("{} bytes (key, number, code)", Stamp::LEN),
            none.clone(),
        ),
        (
            ("open feed", "other message of the tree"),
            format!("{} bytes (keys, number, signature)", SignedStamp::LEN),
            none.clone(),
        ),
        (("feed", "announcement"), format!("{} bytes (key, signature)", signed::LINE_LEN), none),
    ];
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
    let document = std::fs::read_to_string(document).unwrap();
    let lines =
        rows.map(|((what, each), added, part)| format!("| {what} | {each} | {added} | {part} |"));
    let wrong: Vec<&String> = lines.iter().filter(|line| !document.contains(*line)).collect();
    assert!(wrong.is_empty(), "docs/security.md lacks {wrong:#?}");
}
