//! The programs under test.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use umbel_cli::testing::program::clean;
pub(crate) use umbel_cli::testing::program::{Ran, Running, wait_until};

/// Place of the program under test.
pub(crate) const LABORATORY: &str = env!("CARGO_BIN_EXE_umbel-laboratory");

/// Returns the program under test.
pub(crate) fn laboratory() -> Command {
    clean(LABORATORY)
}

/// Runs `umbel-laboratory` with arguments.
#[track_caller]
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Running::start(laboratory().args(args)).finish()
}

/// Returns the place of `umbel`, which is built beside the program under test.
#[track_caller]
pub(crate) fn product() -> PathBuf {
    let path = PathBuf::from(LABORATORY).with_file_name("umbel");
    assert!(path.exists(), "this test needs the other program, too: `cargo build -p umbel`");
    path
}
