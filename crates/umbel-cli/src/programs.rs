//! Umbel's programs, as they start each other: the one beside the running program, or else the one
//! on the path.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of all programs of a build.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A program of Umbel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Umbel {
    /// The product: what delivers data.
    Product,
    /// The laboratory: what simulates, emulates, and repeats the papers' experiments.
    Laboratory,
}

/// Commands of the product.
pub const PRODUCT: [&str; 15] = [
    "serve", "get", "ls", "send", "recv", "key", "stream", "watch", "gateway", "groups", "tree",
    "demo", "doctor", "smo", "router",
];

/// Commands of the laboratory, with what each does. `umbel` lists them, and hands them over.
pub const RESEARCH: [(&str, &str); 3] = [
    ("sim", "Simulate servers, clients and the network between them"),
    ("repro", "Repeat the experiments of a paper and compare the numbers"),
    ("lab", "Emulate hosts, routers and impaired links on this machine"),
];

impl Umbel {
    /// Returns the name of the program's file, which is that of its package.
    pub fn name(self) -> &'static str {
        match self {
            Umbel::Product => "umbel",
            Umbel::Laboratory => "umbel-laboratory",
        }
    }

    /// Finds the program, and checks that its version is that of this one.
    ///
    /// # Errors
    ///
    /// If there is none, it cannot be run, or it is of another version.
    pub fn find(self) -> Result<PathBuf, Lack> {
        let beside = std::env::current_exe().ok();
        let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = self.look(beside.into_iter().chain(std::env::split_paths(&path)))?;
        let asked = Command::new(&found).arg("--version").output();
        let said =
            asked.map_err(|error| self.lack(Why::NotRun(found.clone(), error.to_string())))?;
        let said = String::from_utf8_lossy(&said.stdout);
        let said = said.lines().next().unwrap_or_default().trim();
        match said.strip_prefix(self.name()).map(str::trim) {
            Some(VERSION) => Ok(found),
            Some(other) if !other.is_empty() => {
                Err(self.lack(Why::Version(found, other.chars().take(40).collect())))
            }
            _ => Err(self.lack(Why::Stranger(found))),
        }
    }

    /// Returns the first file of the program's name in these directories. One that cannot be
    /// executed counts where there is no other.
    fn look(self, directories: impl Iterator<Item = PathBuf>) -> Result<PathBuf, Lack> {
        let files = directories.map(|directory| directory.join(self.name()));
        let mut closed = None;
        for file in files.filter(|file| file.is_file()) {
            let mode = file.metadata().map_or(0, |metadata| metadata.permissions().mode());
            if mode & 0o111 != 0 {
                return Ok(file);
            }
            closed.get_or_insert(file);
        }
        Err(self.lack(closed.map_or(Why::Missing, Why::NotExecutable)))
    }

    /// Runs the program in the place of this one, with these arguments. Returns only if it cannot.
    pub fn take_over(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Lack {
        match self.find() {
            Err(lack) => lack,
            Ok(file) => {
                let error = Command::new(&file).args(arguments).exec();
                self.lack(Why::NotRun(file, error.to_string()))
            }
        }
    }

    fn lack(self, why: Why) -> Lack {
        Lack { program: self, why }
    }
}

/// Reason why another program cannot be started.
#[derive(Clone, Debug)]
pub struct Lack {
    program: Umbel,
    why: Why,
}

#[derive(Clone, Debug)]
enum Why {
    Missing,
    NotExecutable(PathBuf),
    NotRun(PathBuf, String),
    /// Its version.
    Version(PathBuf, String),
    /// It is some other program.
    Stranger(PathBuf),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.program.name();
        let install = format!("`cargo install --path crates/{name}`");
        match &self.why {
            Why::Missing => {
                if self.program == Umbel::Laboratory {
                    f.write_str("sim, repro and lab are commands of another program: ")?;
                }
                write!(f, "`{name}` is neither beside this one nor on the path; {install} gets it")
            }
            Why::NotExecutable(file) => {
                let file = file.display();
                write!(f, "{file} may not be executed: run `chmod +x` on it, or {install}")
            }
            Why::NotRun(file, error) => {
                write!(f, "{} cannot be run: {error}; {install} gets another", file.display())
            }
            Why::Version(file, version) => write!(
                f,
                "{} is version {version}, and this program is {VERSION}: {install} gets the \
                 same, from the same sources",
                file.display()
            ),
            Why::Stranger(file) => {
                write!(f, "{} is not the `{name}` of Umbel: {install} gets that", file.display())
            }
        }
    }
}

impl std::error::Error for Lack {}

/// Returns whether a command line asks for a command of the laboratory, or for its help. Options of
/// every command may precede the name.
pub fn is_research(args: &[OsString]) -> bool {
    let mut words = args.iter().skip(1);
    let mut may_be_help = true;
    while let Some(word) = words.next() {
        if word == "--config" {
            words.next();
        } else if word == "help" && may_be_help {
            may_be_help = false;
        } else if !word.to_string_lossy().starts_with('-') {
            return RESEARCH.iter().any(|(name, _)| word == name);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_laboratory_are_known_behind_options_of_every_command() {
        let is = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(Into::into).collect();
            is_research(&args)
        };
        for line in [
            "umbel sim",
            "umbel repro lms --out x",
            "umbel -v --json --config serve lab up x",
            "umbel --config=x sim --help",
            "umbel help sim",
        ] {
            assert!(is(line), "{line}");
        }
        for line in [
            "umbel",
            "umbel serve sim",
            "umbel help",
            "umbel help serve",
            "umbel help help sim",
            "umbel --config sim",
            "umbel --help",
            "umbel simulate",
        ] {
            assert!(!is(line), "{line}");
        }
    }

    #[test]
    fn a_file_that_may_be_executed_counts_first() {
        let folder = tempfile::tempdir().unwrap();
        let place = |directory: &str, mode| {
            let directory = folder.path().join(directory);
            std::fs::create_dir(&directory).unwrap();
            let file = directory.join("umbel");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            directory
        };
        let (closed, open, empty) = (place("a", 0o644), place("b", 0o755), folder.path().join("c"));
        let look = |directories: &[&PathBuf]| {
            let directories: Vec<PathBuf> = directories.iter().map(|&path| path.clone()).collect();
            Umbel::Product.look(directories.into_iter()).map_err(|lack| lack.to_string())
        };
        assert_eq!(look(&[&empty, &closed, &open]), Ok(open.join("umbel")));
        assert!(look(&[&closed, &empty]).unwrap_err().contains("chmod +x"));
        assert!(look(&[&empty]).unwrap_err().contains("cargo install --path crates/umbel`"));
    }
}
