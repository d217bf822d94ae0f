//! Ends the program when one of its threads panics.
//!
//! The other threads would wait forever for the thread that is gone.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::PanicHookInfo;

use super::descriptors::{advice, advice_if_short};

/// Exit code after a panic, the usual one of Rust programs.
const EXIT_CODE: i32 = 101;

/// Installs a hook that ends the program when any of its threads panics, with one line and
/// exit code 101; with one that names the limit and 1 if there are too few descriptors. Received data of a transfer stays on the disk. `RUST_BACKTRACE=1` also shows the
/// backtrace.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        super::screen::abandon();
        let mut stderr = std::io::stderr().lock();
        // Libraries panic where they cannot open what they need.
        let line = line(info);
        if let Some(advice) = advice_if_short().or_else(|| advice(&line)) {
            let _ = writeln!(stderr, "umbel: too many open files: {advice}");
            std::process::exit(1);
        }
        let _ = writeln!(stderr, "{line}");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            let _ = writeln!(stderr, "{backtrace}");
        }
        // Flushes standard output, unless a stopped thread holds it.
        std::process::exit(EXIT_CODE);
    }));
}

fn line(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let what = info.payload_as_str().unwrap_or("no message").replace('\n', " ");
    let place = info.location().map_or(String::new(), |at| format!(" ({at})"));
    format!("umbel: this is a bug, please report it: thread {name}: {what}{place}")
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    /// Environment variable that names the place where this test binary panics.
    const VARIABLE: &str = "UMBEL_TEST_PANIC_IN";

    #[test]
    #[ignore = "run by the test below"]
    fn child_panics() {
        let Ok(place) = std::env::var(VARIABLE) else { return };
        end_on_panic();
        print!("what was said before");
        assert!(place != "main", "on\npurpose");
        let helper = std::thread::Builder::new().name("umbel-helper".to_owned());
        // Dropped, as the thread is never joined.
        drop(helper.spawn(|| panic!("on\npurpose")).unwrap());
        loop {
            std::thread::sleep(Duration::from_hours(1));
        }
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_program_with_one_line() {
        for (place, thread) in [("helper", "umbel-helper"), ("main", "tests::child_panics")] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "--nocapture", "panics::tests::child_panics"])
                .env(VARIABLE, place)
                .env_remove("RUST_BACKTRACE")
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(101), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            let lines: Vec<&str> = said.lines().collect();
            let &[line] = &lines[..] else { panic!("not one line: {said}") };
            assert!(line.starts_with("umbel: this is a bug"), "{line}");
            for word in [thread, "on purpose", "panics.rs:"] {
                assert!(line.contains(word), "{word}: {line}");
            }
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert!(stdout.contains("what was said before"), "{stdout}");
        }
    }
}
