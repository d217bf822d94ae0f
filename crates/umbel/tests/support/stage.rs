//! Runs the commands of a page as they stand there, in a lab of four hosts. Output that the page
//! shows must come, with other numbers.
//!
//! A block of commands has, after `console`, the machine where it is run: `source` (192.0.2.2),
//! `receiver1`, `receiver2` (`receiver` is the first), `r1` (a router), or `here`, outside of the
//! lab. `no-run` leaves a block out; `root` is for readers. A comment `<!-- source: COMMAND -->` is
//! run without being shown.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use umbel_lab::{Lab, Topology, testing};

use super::documents::{self, Page};
use super::process::BUSY;

const NETWORK: &str = r#"
[[host]]
name = "source"
[[host]]
name = "receiver1"
[[host]]
name = "receiver2"
[[router]]
name = "r1"
[[host]]
name = "far"
[[switch]]
name = "sw"
[[link]]
a = "sw"
b = "source"
b_addresses = ["192.0.2.2/24"]
[[link]]
a = "sw"
b = "receiver1"
b_addresses = ["192.0.2.11/24"]
[[link]]
a = "sw"
b = "receiver2"
b_addresses = ["192.0.2.12/24"]
[[link]]
a = "sw"
b = "r1"
b_addresses = ["192.0.2.1/24"]
[[link]]
a = "r1"
b = "far"
"#;
/// The pin in all documents, in whose place the server's own is taken.
const PIN: &str = "Ax6leuJ4aCIpsKefqa82TVFCe-xoiqpmS3exl9HcWMk";
/// What runs until it is ended, or until others are there.
const SERVICES: [&str; 7] =
    ["serve", "smo serve", "smo join", "router", "gateway", "stream", "send"];
/// How long a command may take on a machine that does nothing else.
const LIMIT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a service has to say something, if the page does not show what.
const FIRST_WORD: Duration = Duration::from_millis(1500);

/// Ends what a shell has started in the background. What is here may be a lab of its own, which a
/// page that fails does not take down.
const END: &str = "kill $(jobs -p) 2>/dev/null\nexit\n";
const END_HERE: &str = "umbel lab down >/dev/null 2>&1\nkill $(jobs -p) 2>/dev/null\nexit\n";

/// A page's machines, files and processes.
struct Stage<'lab> {
    lab: &'lab Lab,
    /// They end before the place, which says what is to be ended.
    shells: BTreeMap<String, Shell>,
    place: TempDir,
    pin: String,
    count: usize,
    /// Services with their output, and whether they have to end well.
    services: Vec<(String, PathBuf)>,
}

/// A shell of a machine, which keeps its variables from block to block.
struct Shell {
    child: Child,
    input: ChildStdin,
    /// Commands that end what it may have left running.
    end: &'static str,
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.input.write_all(self.end.as_bytes());
        let _ = self.child.wait();
    }
}

impl<'lab> Stage<'lab> {
    fn new(lab: &'lab Lab) -> Stage<'lab> {
        let place = tempfile::tempdir().unwrap();
        let mut stage = Stage {
            lab,
            place,
            pin: String::new(),
            shells: BTreeMap::new(),
            count: 0,
            services: Vec::new(),
        };
        stage.make_files();
        stage.pin = stage.find_pin();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Makes what pages serve, send and play, and programs that stand for players.
    fn make_files(&self) {
        let noise = |bytes: usize| (0..bytes).map(|at| (at * at / 7) as u8).collect::<Vec<_>>();
        for (name, bytes) in [
            ("source/repo/images/one.jpg", 3_000_000),
            ("source/repo/images/two.jpg", 5_000_000),
            ("source/backup/a", 3_000_000),
            ("source/backup/b", 5_000_000),
            ("source/backup/c", 6),
            ("source/dir/big.iso", 2_000_000),
            ("source/disk.img", 2_000_000),
            ("here/file", 3_000_000),
        ] {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, noise(bytes)).unwrap();
        }
        fs::write(self.path("source/repo/notes.txt"), "notes\n").unwrap();
        std::os::unix::fs::symlink(documents::root().join("examples"), self.path("here/examples"))
            .unwrap();
        std::os::unix::fs::symlink(self.path("source/repo"), self.path("here/repo")).unwrap();
        for name in ["receiver1", "receiver2", "r1", "far", "state", "logs", "bin", "lab"] {
            fs::create_dir_all(self.path(name)).unwrap();
        }
        let player = "#!/bin/sh\n# Stands for a player: reads a pipe, or plays nothing.\n\
                      case \"$*\" in *-) exec cat > /dev/null ;; esac\n";
        for name in ["ffplay", "vlc"] {
            fs::write(self.path("bin").join(name), player).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(self.path("bin").join(name), executable).unwrap();
        }
    }

    /// Makes videos of some seconds, with sound. Returns `false` where there is no ffmpeg.
    fn make_videos(&self) -> bool {
        let make = |folder: &str, file: &str, options: &[&str]| {
            let mut command = Command::new("ffmpeg");
            command.args(["-v", "error", "-f", "lavfi", "-i", "testsrc=s=320x180:r=30:d=40"]);
            command.args(["-f", "lavfi", "-i", "sine=d=40"]).args(options);
            command.arg(self.path(folder).join(file)).stdin(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        make("source", "talk.mp4", &["-preset", "ultrafast", "-pix_fmt", "yuv420p"])
            && make("here", "talk.y4m", &["-an", "-pix_fmt", "yuv420p", "-t", "5"])
    }

    /// Returns the environment that all commands have.
    fn prepare(&self, command: &mut Command, machine: &str) {
        let program = Path::new(env!("CARGO_BIN_EXE_umbel"));
        let directory = program.parent().unwrap().display();
        let path = format!(
            "{directory}:{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("HOME", self.path(machine));
        command.env("XDG_STATE_HOME", self.path("state")).env("UMBEL_LAB_DIR", self.path("lab"));
        command.env("URL", format!("umbel://192.0.2.2:7700/?pin={}", self.pin));
        command.current_dir(self.path(machine));
    }

    /// Asks a server of an instant for the pin of the key that all share.
    fn find_pin(&self) -> String {
        let mut command = self.lab.host("source").unwrap().command("bash");
        self.prepare(&mut command, "source");
        command.args(["-c", "exec umbel serve repo --port 0 2>&1"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let pin = lines.map_while(Result::ok).find_map(|line| {
            line.split_once("pin=").map(|(_, pin)| pin.trim_end_matches('\'').to_owned())
        });
        server.kill().unwrap();
        server.wait().unwrap();
        pin.expect("a server prints its URL")
    }

    /// Starts a machine's shell where it has none.
    fn shell(&mut self, machine: &str) -> &mut Shell {
        if !self.shells.contains_key(machine) {
            let host = |host| self.lab.host(host).unwrap().command("bash");
            let (mut command, end) = match machine {
                "here" => (Command::new("bash"), END_HERE),
                machine => (host(machine), END),
            };
            self.prepare(&mut command, machine);
            command.arg("--norc").stdin(Stdio::piped()).stdout(Stdio::null());
            command.stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let input = child.stdin.take().unwrap();
            self.shells.insert(machine.to_owned(), Shell { child, input, end });
        }
        self.shells.get_mut(machine).unwrap()
    }

    /// Runs a command line of a page. Fails unless it ends well and prints what the page shows.
    fn run(&mut self, machine: &str, line: &str, expected: &[String]) {
        let line = line.replace(PIN, &self.pin);
        let in_background = line.trim_end().strip_suffix('&');
        let is_service = in_background.is_some() || is_service(&line);
        let line = in_background.unwrap_or(&line).trim_end();
        self.count += 1;
        let log = self.path("logs").join(format!("{:02}", self.count));
        let code = log.with_extension("code");
        let (log_name, code_name) = (log.display(), code.display());
        let mut script = format!("{{ {line}\n}} > {log_name} 2>&1; echo $? > {code_name}");
        if is_service {
            script = format!("{{ {script}; }} &");
        }
        self.shell(machine).input.write_all(format!("{script}\n").as_bytes()).unwrap();
        let begin = Instant::now();
        let found = || fs::read_to_string(&log).unwrap_or_default();
        if is_service {
            let patience = if expected.is_empty() { FIRST_WORD } else { LIMIT * BUSY };
            let is_ready = || {
                let found = found();
                missing(expected, &found).is_none() && !(expected.is_empty() && found.is_empty())
            };
            while !is_ready() && exit_code(&code).is_none() && begin.elapsed() < patience {
                std::thread::sleep(PAUSE);
            }
            self.services.push((line.to_owned(), log.clone()));
        } else {
            while exit_code(&code).is_none() {
                assert!(begin.elapsed() < LIMIT * BUSY, "never ends: {line}\n{}", found());
                std::thread::sleep(PAUSE);
            }
            let ended = exit_code(&code).unwrap();
            let permitted = if line.starts_with("umbel doctor") { 0..=1 } else { 0..=0 };
            assert!(permitted.contains(&ended), "exit code {ended} of {line}\n{}", found());
        }
        if let Some(line_of_page) = missing(expected, &found()) {
            panic!("`{line}` does not print `{line_of_page}`:\n{}", found());
        }
    }

    /// Waits for what has to end by itself, and looks at what ended.
    fn finish(self) {
        let begin = Instant::now();
        for (line, log) in &self.services {
            let code = log.with_extension("code");
            let ends = line.split_whitespace().collect::<Vec<_>>().starts_with(&["umbel", "send"])
                || line.contains("umbel recv") && !line.contains("--follow");
            while ends && exit_code(&code).is_none() {
                assert!(begin.elapsed() < LIMIT * BUSY, "never ends: {line}\n{}", self.logs());
                std::thread::sleep(PAUSE);
            }
            // What `umbel lab down` has killed ended as it should.
            let ended = exit_code(&code).unwrap_or(0);
            let permitted: &[i32] = if ends { &[0] } else { &[0, 137, 143] };
            assert!(permitted.contains(&ended), "{ended} of {line}\n{}", self.logs());
        }
    }

    fn logs(&self) -> String {
        let text = |(line, log): &(String, PathBuf)| {
            format!("{line}:\n{}", fs::read_to_string(log).unwrap_or_default())
        };
        self.services.iter().map(text).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the exit code of a command, if it has ended and its file is whole.
fn exit_code(file: &Path) -> Option<i32> {
    fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Returns whether a command goes on while others run.
fn is_service(line: &str) -> bool {
    let commands = documents::simple_commands(line);
    let words = commands.last().map(Vec::as_slice).unwrap_or_default();
    let Some(("umbel", rest)) = words.split_first().map(|(first, rest)| (first.as_str(), rest))
    else {
        return false;
    };
    let rest = rest.join(" ");
    let is = |service: &&&str| {
        rest == ***service || rest.strip_prefix(**service).is_some_and(|more| more.starts_with(' '))
    };
    SERVICES.iter().any(|service| is(&service)) && !rest.contains("status")
}

/// Returns the first line of a page that output does not have. Numbers, pins and the prefixes of
/// units may be others; `…` stands for anything.
fn missing<'line>(expected: &'line [String], found: &str) -> Option<&'line String> {
    let found: Vec<String> = found.lines().map(plain).collect();
    expected.iter().find(|line| {
        let line = plain(line);
        let parts: Vec<&str> = line.split('…').map(str::trim).collect();
        !found.iter().any(|found| {
            let mut rest = found.as_str();
            parts.iter().all(|part| match rest.find(part) {
                Some(at) => {
                    rest = &rest[at + part.len()..];
                    true
                }
                None => false,
            })
        })
    })
}

/// Returns a line with `0` for each number, without prefixes of units, pins and repeated spaces.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    for word in line.split_whitespace() {
        let word = match word.split_once("pin=") {
            Some((before, pin)) => {
                let pin = pin.trim_start_matches(|c: char| c.is_alphanumeric() || "-_".contains(c));
                format!("{before}pin={pin}")
            }
            None => word.to_owned(),
        };
        let mut digits = false;
        for c in word.chars() {
            let is_digit = c.is_ascii_digit() || (digits && ".,".contains(c));
            if is_digit && !digits {
                plain.push('0');
            } else if !is_digit {
                plain.push(c);
            }
            digits = is_digit;
        }
        plain.push(' ');
    }
    for unit in ["B", "bit/s", "B/s", "bytes"] {
        for prefix in ["k", "M", "G"] {
            plain = plain.replace(&format!(" {prefix}{unit}"), &format!(" {unit}"));
            plain = plain.replace(&format!("({prefix}{unit}"), &format!("({unit}"));
        }
    }
    plain.trim_end().to_owned()
}

/// Runs the commands of a page.
pub(crate) fn play(name: &str) {
    let topology = Topology::from_toml(NETWORK).unwrap();
    let Some(lab) = testing::lab(&topology) else { return };
    let page = Page::read(name);
    if page.blocks().iter().any(|block| block.words.contains(&"r1".to_owned())) {
        lab.release_multicast();
    }
    let mut stage = Stage::new(&lab);
    if page.text.contains("talk.") && !stage.make_videos() {
        return testing::skip("there is no ffmpeg");
    }
    let laboratory = Command::new(env!("CARGO_BIN_EXE_umbel")).args(["sim", "--help"]).output();
    let has_laboratory = laboratory.is_ok_and(|output| output.status.success());
    for block in page.blocks() {
        let machine = block.words.iter().find(|word| !["root", "no-run"].contains(&&***word));
        let machine = match machine.map(String::as_str) {
            Some("receiver") => "receiver1",
            Some(machine) => machine,
            // What builds and installs: other tests run it.
            None => continue,
        };
        if block.words.contains(&"no-run".to_owned()) {
            continue;
        }
        if machine == "here" && !has_laboratory {
            testing::skip("umbel-laboratory is not built");
            continue;
        }
        for command in &block.commands {
            stage.run(machine, &command.line, &command.output);
        }
    }
    stage.finish();
}
