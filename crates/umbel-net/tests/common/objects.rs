//! Programs for the kernel are checked in as they were compiled: these compare with their sources.

use std::path::Path;
use std::process::Command;

use super::namespaces::say_skipped;

/// Checks that a source in the `bpf` of a crate compiles to this object. Without the compiler it is
/// skipped, which fails where `UMBEL_LAB=required`, as in `.ci/run`.
#[track_caller]
pub(crate) fn assert_object_is_made_of(source: &str, crate_folder: &str, object: &[u8]) {
    let works = |tool: &&str| {
        Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success())
    };
    if let Some(missing) = ["clang-16", "llvm-strip-16"].iter().find(|tool| !works(tool)) {
        return say_skipped(source, &format!("it is not compiled: no {missing} here"));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../umbel-net/bpf/build.sh");
    let source = Path::new(crate_folder).join("bpf").join(source);
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made.o");
    assert!(Command::new(script).arg(&source).arg(&made).status().unwrap().success());
    let is_same = std::fs::read(made).unwrap() == object;
    let source = source.display();
    assert!(is_same, "{source} compiles to something else: `{script} {source}`, and commit it");
}
