//! What shells and packages want of the program: completions and man pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use umbel_cli::testing::program::clean;
use umbel_lab::testing::skip;

use super::support::{Running, run};

/// Writes the completions for a shell into a directory.
fn completions(shell: &str, directory: &Path) -> PathBuf {
    let ran = run(["completions", shell]);
    assert_eq!(ran.succeeded().stderr, "");
    let file = directory.join(shell);
    fs::write(&file, &ran.stdout).unwrap();
    file
}

/// Returns whether a program is there; says so if it is not.
fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    let is_there = asked.is_ok_and(|status| status.success());
    if !is_there {
        skip(&format!("there is no `{program}`"));
    }
    is_there
}

#[test]
fn bash_completes_commands_options_and_values() {
    if !is_there("bash") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = completions("bash", directory.path());
    // As bash does when the user presses the tabulator.
    let press = ". \"$1\" && complete -p umbel > /dev/null || exit; shift
        COMP_WORDS=(umbel \"$@\"); COMP_CWORD=$#
        _umbel umbel \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    for (line, expected) in [
        (&["se"][..], &["serve", "send"][..]),
        (&["serve", "--state"], &["--state-dir"]),
        (&["router", "--fast-path", "au"], &["auto"]),
        (&["smo", "jo"], &["join"]),
        (&["smo", "join", "--inter"], &["--interface"]),
        (&["completions", ""], &["bash", "zsh", "fish"]),
    ] {
        let mut bash = clean("bash");
        bash.args(["--norc", "--noprofile", "-c", press, "bash"]).arg(&script).args(line);
        let ran = Running::start(&mut bash).finish();
        let words: Vec<&str> = ran.succeeded().stdout.lines().collect();
        assert!(expected.iter().all(|word| words.contains(word)), "{line:?}: {ran:?}");
        let begun = line.last().unwrap();
        assert!(words.iter().all(|word| word.starts_with(begun)), "{line:?}: {ran:?}");
    }
}

#[test]
fn zsh_and_fish_read_what_is_made_for_them() {
    let directory = tempfile::tempdir().unwrap();
    let zsh = completions("zsh", directory.path());
    let fish = completions("fish", directory.path());
    assert!(fs::read_to_string(&zsh).unwrap().starts_with("#compdef umbel\n"));
    for (shell, option, file) in [("zsh", "-n", &zsh), ("fish", "--no-execute", &fish)] {
        if is_there(shell) {
            let ran = Running::start(clean(shell).arg(option).arg(file)).finish();
            assert_eq!(ran.succeeded().stderr, "", "{shell}");
        }
    }
}

#[test]
fn a_shell_that_is_not_known_is_bad_usage() {
    run(["completions", "tcsh"]).misused(&["tcsh", "bash, zsh, fish"]);
    run(["completions"]).misused(&["SHELL"]);
}

#[test]
fn man_pages_are_written_and_can_be_shown() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("share/man/man1");
    let ran = run(["man", "--json", pages.to_str().unwrap()]);
    let told = ran.succeeded().event("man");
    let mut files: Vec<String> = told["pages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|page| page.as_str().unwrap().into())
        .collect();
    files.sort_unstable();
    let there = fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name());
    let mut there: Vec<String> = there.map(|name| name.into_string().unwrap()).collect();
    there.sort_unstable();
    assert_eq!(files, there);
    for name in ["umbel.1", "umbel-serve.1", "umbel-smo-join.1"] {
        assert!(files.iter().any(|file| file == name), "{name} is not in {files:?}");
    }
    if !is_there("groff") {
        return;
    }
    for file in &files {
        let mut groff = clean("groff");
        groff
            .args(["-Kutf8", "-man", "-ww", "-rLL=100n", "-Tutf8", "-P-cbou"])
            .arg(pages.join(file));
        let ran = Running::start(&mut groff).finish();
        assert_eq!(ran.succeeded().stderr, "", "{file}");
        for heading in ["NAME", "SYNOPSIS", "OPTIONS OF EVERY COMMAND"] {
            assert!(ran.stdout.lines().any(|line| line == heading), "{file}: {}", ran.stdout);
        }
    }
}

#[test]
fn man_pages_that_cannot_be_written_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    run(["man", file]).failed_with(&["cannot make", file]);
    fs::create_dir(directory.path().join("umbel.1")).unwrap();
    let place = directory.path().to_str().unwrap();
    run(["man", place]).failed_with(&["cannot write", "umbel.1"]);
}
