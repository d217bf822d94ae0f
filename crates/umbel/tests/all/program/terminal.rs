//! What a terminal shows while a command runs, and what stays on it.
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};

use super::support::{Place, in_namespace, noise, umbel, wait_until};

/// Rows of the terminal: more than a command prints, so that nothing scrolls away.
const ROWS: u16 = 60;

/// A command on a terminal of its own, which is killed when dropped.
struct Terminal {
    child: Child,
    keyboard: File,
    seen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
}

struct Seen {
    screen: vt100::Parser,
    /// All that the screen ever was, once each.
    moments: Vec<String>,
}

impl Terminal {
    fn start(command: &mut Command, columns: u16) -> Terminal {
        let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).unwrap();
        let stdio = || Stdio::from(pair.slave.try_clone().unwrap());
        command.env("TERM", "xterm").stdin(stdio()).stdout(stdio()).stderr(stdio());
        let child = command.spawn().expect("a child");
        // Only the child holds the slave from now on, so that its end is the end of the output.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(pair.slave);
        let [rows, columns] = [ROWS, columns].map(|cells| NonZero::new(cells).unwrap());
        let screen = vt100::Parser::new(rows, columns, 0);
        let seen = Arc::new(Mutex::new(Seen { screen, moments: Vec::new() }));
        let keyboard = File::from(pair.master);
        let mut output = keyboard.try_clone().unwrap();
        let all = seen.clone();
        let reader = std::thread::spawn(move || {
            let mut buf = [0; 4096];
            // A terminal without programs gives an error.
            while let Ok(read @ 1..) = output.read(&mut buf) {
                let mut seen = all.lock().unwrap();
                seen.screen.process(&buf[..read]);
                let now = seen.screen.screen().contents();
                if seen.moments.last() != Some(&now) {
                    seen.moments.push(now);
                }
            }
        });
        Terminal { child, keyboard, seen, reader: Some(reader) }
    }

    fn shows(&self) -> String {
        self.seen.lock().unwrap().screen.screen().contents()
    }

    /// Waits for the end. Returns the exit code, what stays, and what was shown meanwhile.
    fn finish(mut self) -> (Option<i32>, String, Vec<String>) {
        let code = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        let seen = self.seen.lock().unwrap();
        (code, seen.screen.screen().contents(), seen.moments.clone())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a line is one that moves, and neither a summary nor a log.
fn moves(line: &str) -> bool {
    let is_log = [" INFO ", " DEBUG "].iter().any(|level| line.contains(level));
    let is_bar = line.contains(['█', '░']) || line.contains("B of ");
    is_bar && !is_log || line.starts_with(is_spinner)
}

fn is_spinner(c: char) -> bool {
    ('\u{2800}'..='\u{28ff}').contains(&c)
}

/// Asserts that no more than one line moved at a time, and that none stays.
#[track_caller]
fn assert_clean(stays: &str, moments: &[String]) {
    assert_clean_but_for(0, stays, moments);
}

/// Asserts that no more than one line and so many remnants were there at a time, and that none
/// stays.
#[track_caller]
fn assert_clean_but_for(remnants: usize, stays: &str, moments: &[String]) {
    for moment in moments {
        let moving = moment.lines().filter(|line| moves(line)).count();
        assert!(moving <= 1 + remnants, "remnants: {moment}");
    }
    assert!(!stays.lines().any(moves), "remnants: {stays}");
}

#[test]
fn a_sender_shows_neither_content_nor_time_while_it_waits_and_nothing_stays() {
    let place = Place::with(&[("a.bin", &noise(1, 1_500_000)), ("b.bin", &noise(2, 500_000))]);
    let script = "ip link set lo up; cd \"$DIR\"; export HOME=\"$DIR\"
                  (sleep 1.5; \"$UMBEL\" recv n -o out --interface lo --wait 10min) >recv 2>&1 &
                  \"$UMBEL\" send repo --name n --interface lo --rate 4M; wait";
    let Some(mut command) = in_namespace(&["--net"], script) else { return };
    let terminal = Terminal::start(command.env("DIR", place.path()), 120);
    let (code, stays, moments) = terminal.finish();
    if stays.contains("ip: not found") {
        return umbel_lab::testing::skip("there is no `ip` here");
    }
    assert_eq!(code, Some(0), "{stays}");
    assert_clean(&stays, &moments);
    let lines: Vec<&str> = stays.lines().collect();
    let &[sending, command, sent] = &lines[..] else { panic!("not three lines: {stays}") };
    assert!(sending.starts_with("sending 2 files, 2.0 MB as `n`"), "{stays}");
    assert!(command.starts_with("umbel recv 'umbel-feed://n?pin="), "{stays}");
    assert!(sent.starts_with("2.0 MB in ") && sent.contains("to 1 receiver; "), "{stays}");

    let moving = |what: &str| {
        let lines = moments.iter().flat_map(|moment| moment.lines()).filter(|line| moves(line));
        lines.filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>()
    };
    let waiting = moving("waiting; ");
    assert!(!waiting.is_empty(), "{moments:#?}");
    for line in waiting {
        assert!(!line.contains(['█', '░']) && !line.contains("MB") && !line.contains("left"));
    }
    // 2 MB at 4 Mbit/s take 4 s, and the wait for the receiver does not count.
    let left = moving(" s left");
    assert!(!left.is_empty(), "{moments:#?}");
    assert!(left.iter().all(|line| line.contains(" of 2.0 MB, ") && line.contains("bit/s · ")));
}

#[test]
fn enter_begins_what_waits_for_more_once_somebody_is_there() {
    let place = Place::with(&[("a.bin", &noise(6, 100_000))]);
    // In a session of its own the terminal is the command's, as in a shell.
    let script = "ip link set lo up; cd \"$DIR\"; export HOME=\"$DIR\"
                  \"$UMBEL\" recv n -o out --interface lo --wait 10min >recv 2>&1 </dev/null &
                  \"$UMBEL\" send repo --name n --interface lo --wait-for 2; wait";
    let Some(command) = in_namespace(&["--net"], script) else { return };
    let mut own = Command::new("setsid");
    own.arg("--ctty").arg(command.get_program()).args(command.get_args());
    own.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut terminal = Terminal::start(own.env("DIR", place.path()), 120);
    // What is typed before somebody is there does not count.
    terminal.keyboard.write_all(b"\r").unwrap();
    let waits = "1 of 2 receivers there; beginning on Enter";
    wait_until("a receiver", || {
        let shown = terminal.shows();
        shown.contains(waits) || shown.contains("ip: not found")
    });
    if terminal.shows().contains("ip: not found") {
        return umbel_lab::testing::skip("there is no `ip` here");
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(terminal.shows().contains(waits), "{}", terminal.shows());
    terminal.keyboard.write_all(b"\r").unwrap();
    let (code, stays, moments) = terminal.finish();
    assert_eq!(code, Some(0), "{stays}");
    // The echo of the key moves the cursor some moments before the command reads the key.
    assert_clean_but_for(1, &stays, &moments);
    assert!(stays.contains("to 1 receiver; "), "{stays}");
}

#[test]
fn a_narrow_terminal_shows_one_line_and_logs_stand_above_it() {
    for (columns, more) in [(40, &[][..]), (40, &["-vv"]), (60, &[]), (80, &["-vv"])] {
        let place = Place::with(&[("a.bin", &noise(3, 600_000))]);
        let server = place.serve(&["--rate", "2M"]);
        let mut command = place.get_command(&server.url, more);
        let (code, stays, moments) = Terminal::start(&mut command, columns).finish();
        assert_eq!(code, Some(0), "{stays}");
        assert_clean(&stays, &moments);
        assert!(stays.contains("1 item, 600.0 kB in "), "{stays}");
        assert_eq!(stays.contains("INFO"), !more.is_empty(), "{stays}");
        let moving = || moments.iter().flat_map(|moment| moment.lines()).filter(|line| moves(line));
        assert!(moving().any(|line| line.contains("kB of 600.0 kB, ")), "{moments:#?}");
        // What does not fit is cut off, and room is left for `^C`.
        assert!(moving().all(|line| line.chars().count() <= usize::from(columns) - 2));
    }
}

#[test]
fn an_interrupted_command_leaves_its_last_words_alone() {
    let place = Place::with(&[("a.bin", &noise(4, 2_000_000))]);
    let server = place.serve(&["--rate", "2M"]);
    let get = place.get_command(&server.url, &[]);
    // The terminal is the one that controls the command, so that it sends signals for keys.
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(get.get_program()).args(get.get_args());
    let mut terminal = Terminal::start(&mut command, 50);
    wait_until("progress", || terminal.shows().contains("B of 2.0 MB"));
    terminal.keyboard.write_all(b"\x03").unwrap();
    let (code, stays, moments) = terminal.finish();
    assert_eq!(code, Some(130), "{stays}");
    assert_clean(&stays, &moments);
    assert!(stays.contains("umbel: interrupted; the same command goes on"), "{stays}");
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_shows_lines_alone() {
    let place = Place::with(&[("a.bin", &noise(5, 300_000))]);
    let server = place.serve(&["--rate", "4M"]);
    let script =
        format!("TERM=dumb exec \"$UMBEL\" get '{}' -o {}", server.url, place.out().display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("UMBEL", umbel().get_program());
    let (code, stays, moments) = Terminal::start(&mut command, 80).finish();
    assert_eq!(code, Some(0), "{stays}");
    assert_eq!(stays.lines().count(), 1, "{stays}");
    assert!(!moments.iter().any(|moment| moment.lines().any(moves)), "{moments:#?}");
}
