//! `umbel sim`, `umbel repro` and `umbel lab`: commands of another program, to which they are handed
//! over. Tests of that program run it through this one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use umbel_cli::testing::program::clean;

use super::support::{Ran, Running};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A folder with `umbel` alone, and one on the path.
struct Folders(tempfile::TempDir);

impl Folders {
    fn new() -> Folders {
        let folders = Folders(tempfile::tempdir().unwrap());
        fs::create_dir(folders.beside()).unwrap();
        fs::create_dir(folders.on_path()).unwrap();
        let program = folders.beside().join("umbel");
        if fs::hard_link(env!("CARGO_BIN_EXE_umbel"), &program).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_umbel"), &program).unwrap();
        }
        folders
    }

    fn beside(&self) -> PathBuf {
        self.0.path().join("beside")
    }

    fn on_path(&self) -> PathBuf {
        self.0.path().join("path")
    }

    /// Writes a laboratory of a version, which tells its place and arguments, and exits with 7.
    fn laboratory(folder: &Path, version: &str, mode: u32) {
        let file = folder.join("umbel-laboratory");
        let script = format!(
            "#!/bin/sh\n[ \"$*\" = --version ] && exec echo \"{version}\"\n\
             echo \"$0\"\nfor word; do echo \"<$word>\"; done\nexit 7\n"
        );
        // A child of another test might inherit a script that is open for writing, and then nobody
        // can run it.
        let made = std::process::Command::new("sh")
            .args(["-c", "printf %s \"$2\" > \"$1\"", "sh"])
            .arg(&file)
            .arg(script)
            .status();
        assert!(made.unwrap().success());
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = clean(self.beside().join("umbel"));
        let path = format!("{}:/usr/bin:/bin", self.on_path().display());
        Running::start(command.env("PATH", path).args(args)).finish()
    }
}

fn version(of: &str) -> String {
    format!("umbel-laboratory {of}")
}

#[test]
fn the_help_lists_them() {
    let folders = Folders::new();
    let help = folders.run(&["--help"]);
    for name in ["sim", "repro", "lab"] {
        assert!(help.succeeded().stdout.contains(&format!("\n  {name} ")), "{}", help.stdout);
    }
}

#[test]
fn where_the_other_program_is_missing_one_line_says_how_to_get_it() {
    let folders = Folders::new();
    let words = ["umbel-laboratory", "`cargo install --path crates/umbel-laboratory`"];
    for args in [
        &["sim", "run", "x.toml"][..],
        &["sim", "--help"],
        &["help", "lab"],
        &["-q", "repro", "lms", "--out", "x"],
        &["--config", "none.toml", "lab", "down"],
    ] {
        let ran = folders.run(args);
        ran.failed_with(&words);
        assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{args:?}");
    }
    let ran = folders.run(&["sim", "run", "x.toml", "--json"]);
    assert!(ran.event("error")["message"].as_str().unwrap().contains(words[1]));
}

#[test]
fn arguments_and_exit_code_are_passed_through() {
    let folders = Folders::new();
    Folders::laboratory(&folders.on_path(), &version(VERSION), 0o755);
    let of = |ran: &Ran| ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>();
    let args = ["-v", "sim", "run", "a b", "--seeds=3", "--", "--help", ""];
    let ran = folders.run(&args);
    let place = folders.on_path().join("umbel-laboratory").display().to_string();
    let mut expected = vec![place];
    expected.extend(args.map(|word| format!("<{word}>")));
    assert_eq!((ran.code, of(&ran)), (Some(7), expected), "{ran:?}");

    // The one beside it counts first.
    Folders::laboratory(&folders.beside(), &version(VERSION), 0o755);
    let ran = folders.run(&["lab", "--help"]);
    assert!(of(&ran)[0].contains("/beside/") && ran.code == Some(7), "{ran:?}");
    assert_eq!(of(&ran)[1..], ["<lab>", "<--help>"]);
}

#[test]
fn what_cannot_be_the_other_program_is_not_run() {
    let folders = Folders::new();
    Folders::laboratory(&folders.beside(), &version("99.1.2"), 0o755);
    let line = folders.run(&["sim"]).failed_with(&["99.1.2", VERSION, "/beside/"]).to_owned();
    assert!(line.contains("cargo install"), "{line}");

    Folders::laboratory(&folders.beside(), "a laboratory", 0o755);
    folders.run(&["sim"]).failed_with(&["/beside/umbel-laboratory is not the"]);

    Folders::laboratory(&folders.beside(), &version(VERSION), 0o644);
    folders.run(&["sim"]).failed_with(&["/beside/", "may not be executed", "chmod +x"]);
    // Then one on the path is as good.
    Folders::laboratory(&folders.on_path(), &version(VERSION), 0o755);
    assert_eq!(folders.run(&["sim"]).code, Some(7));

    let file = folders.beside().join("umbel-laboratory");
    fs::write(&file, "no program").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    folders.run(&["sim"]).failed_with(&["/beside/umbel-laboratory cannot be run"]);
}
