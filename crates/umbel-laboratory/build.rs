//! Passes the commit that it is built from, if there is one, to a release build of the program. A
//! debug build has none: otherwise each commit would compile the program and all its tests again.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("PROFILE").is_none_or(|profile| profile != "release") {
        return;
    }
    // In a copy of the sources inside of another repository, that one's commit says nothing.
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists());
        if let Some(path) = path {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    if let Some(commit) = git(&["rev-parse", "HEAD"]) {
        println!("cargo:rustc-env=UMBEL_COMMIT={commit}");
    }
}

/// Returns the output of a git command; `None` without git, or if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.trim().to_owned())
}
