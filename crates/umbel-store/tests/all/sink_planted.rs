//! What somebody else has put into a shared directory, under the names that parts and journals have:
//! nothing waits for it, nothing wrong is delivered, and other items go on.

use std::fs::{self, File};
use std::path::Path;

use crate::sink_support::{Client, Served, StoreBlock};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use umbel_store::sink::{Held, SinkError, SinkEvent, SinkOptions};
use umbel_wire::Scheme;

const LEN: usize = 5_000;

fn item(toi: u32, name: &str) -> Served {
    Served::new(toi, name, LEN, Scheme::ReedSolomon)
}

fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRWXU).unwrap();
}

/// Makes a file with a hole of this length and noise before it.
fn long(path: &Path, length: u64) {
    fs::write(path, item(9, "noise").content).unwrap();
    File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Receives an item as far as it is possible.
fn receive(client: &mut Client, served: &Served) -> Result<(), SinkError> {
    if let Held::AlreadyThere = client.sink.add(&served.info)? {
        panic!("{} was never there", served.info.name);
    }
    for sbn in 0..served.partition.blocks() {
        client.sink.store_block(served.block(sbn), served.block_bytes(sbn));
    }
    loop {
        match client.wait_any() {
            SinkEvent::ItemDone { toi, path, .. } if toi == served.info.toi => {
                assert!(path.symlink_metadata().unwrap().is_file());
                served.assert_is_at(&path);
                return Ok(());
            }
            SinkEvent::ItemFailed { toi, error } if toi == served.info.toi => return Err(error),
            _ => {}
        }
    }
}

/// Plants something at one of an item's names. The item arrives or is refused; another one arrives.
#[track_caller]
fn plant(name: &str, plant: impl Fn(&Path)) -> Result<(), SinkError> {
    let mut client = Client::with(SinkOptions { overwrite: true, ..SinkOptions::default() });
    plant(&client.path().join(name));
    let end = receive(&mut client, &item(1, "f"));
    receive(&mut client, &item(2, "other")).unwrap();
    end
}

#[test]
fn what_is_no_file_at_the_name_of_a_part_or_a_journal_is_refused_or_replaced() {
    for name in [".f.umbel-part", ".f.umbel-part.journal", "f"] {
        for make in [fifo, |path: &Path| fs::create_dir(path).unwrap()] {
            if let Err(error) = plant(name, make) {
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }
}

#[test]
fn parts_and_journals_of_any_length_are_no_reason_to_fail() {
    for (name, length) in [(".f.umbel-part", 1 << 40), (".f.umbel-part.journal", 1 << 28)] {
        plant(name, |path| long(path, length)).unwrap();
    }
}

#[test]
fn a_part_that_is_there_with_a_journal_of_noise_is_not_believed() {
    plant(".f.umbel-part", |path| {
        fs::write(path, vec![7; LEN]).unwrap();
        fs::write(path.with_file_name(".f.umbel-part.journal"), item(9, "noise").content).unwrap();
    })
    .unwrap();
}
