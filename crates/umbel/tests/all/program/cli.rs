//! The rules that every command keeps: help, exit codes, where output goes, the configuration.
use super::support::{FOREIGN_PIN, Place, run};

const COMMANDS: [&str; 7] = ["serve", "get", "ls", "stream", "watch", "demo", "doctor"];

#[test]
fn help_has_examples_and_is_a_success() {
    let top = run(["--help"]);
    assert!(top.succeeded().stdout.contains("Examples:"), "{top:?}");
    for command in COMMANDS {
        assert!(top.stdout.contains(command), "`{command}` is not in {}", top.stdout);
        for args in [[command, "--help"], ["help", command]] {
            let help = run(args);
            assert!(help.succeeded().stdout.contains("Examples:"), "{args:?}: {}", help.stdout);
            assert!(help.stdout.contains(&format!("umbel {command}")), "{}", help.stdout);
            assert_eq!(help.stderr, "");
        }
    }
    assert!(run(["--version"]).succeeded().stdout.starts_with("umbel "));
}

#[test]
fn bad_usage_exits_with_2() {
    for (args, words) in [
        (&[][..], "Usage"),
        (&["fetch"], "fetch"),
        (&["serve"], "PATH"),
        (&["get"], "URL"),
        (&["ls"], "URL"),
        (&["ls", "umbel://127.0.0.1/", "--colour"], "--colour"),
        (&["serve", ".", "--port", "65536"], "65536"),
        (&["serve", ".", "--ttl", "256"], "256"),
        (&["serve", ".", "--code", "magic"], "raptorq"),
        (&["serve", ".", "--policy", "often"], "often"),
        (&["serve", ".", "--scheduler", "random"], "random"),
        (&["serve", ".", "--rescan", "-1"], "-1"),
        (&["get", "umbel://127.0.0.1/", "--fallback-after", "soon"], "soon"),
        (
            &["get", "umbel://127.0.0.1/", "--fallback-after", "1", "--no-fallback"],
            "cannot be used",
        ),
    ] {
        run(args).misused(&[words]);
    }
    for seconds in ["-1", "nan", "inf"] {
        let fallback = format!("--fallback-after={seconds}");
        run(["get", "umbel://127.0.0.1/", &fallback]).misused(&["--fallback-after"]);
    }
}

#[test]
fn json_is_all_there_is_on_standard_output() {
    let place = Place::with(&[("a.txt", b"alpha"), ("b/c.bin", &[7; 5000])]);
    let server = place.serve(&[]);
    assert_eq!(server.serving["items"], 2);

    let list = run(["ls", &server.url, "--json"]);
    let names: Vec<_> = list.succeeded().json().iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["a.txt", "b/c.bin"]);
    assert_eq!(list.stderr, "");

    let got = place.get(&server.url, &["--json"]);
    assert_eq!(got.succeeded().stderr, "");
    let done = got.event("done");
    assert_eq!((&done["ok"], &done["summary"]["items"]), (&true.into(), &2.into()));
    assert_eq!(got.json().iter().filter(|value| value["event"] == "item").count(), 2);

    let nothing = run(["ls", &server.url, "*.png", "--json"]);
    nothing.failed_with(&["*.png"]);
    assert!(nothing.event("error")["message"].as_str().unwrap().contains("*.png"));

    // The report is that of the last tick.
    std::thread::sleep(std::time::Duration::from_secs(2));
    server.running.interrupt();
    let served = server.running.finish();
    assert_eq!(served.succeeded().event("stopped")["report"]["delivered"], 2);
    assert_eq!(served.stderr, "");
}

#[test]
fn people_read_standard_error_and_a_pipe_sees_no_progress() {
    let place = Place::with(&[("a.bin", &super::support::noise(1, 400_000))]);
    let server = place.serve(&["--rate", "8M"]);
    let got = place.get(&server.url, &[]);
    assert_eq!(got.succeeded().stdout, "");
    assert!(!got.stderr.contains(['\r', '\u{1b}']), "{:?}", got.stderr);
    let lines: Vec<&str> = got.stderr.lines().collect();
    assert!(matches!(lines.as_slice(), [line] if line.starts_with("1 item, ")), "{lines:?}");

    // Logs have no colours either.
    let logged = place.get(&server.url, &["-vvv"]);
    assert!(logged.succeeded().stderr.contains("TRACE"), "{logged:?}");
    assert!(!logged.stderr.contains('\u{1b}'), "{:?}", logged.stderr);

    let quiet = place.get(&server.url, &["--quiet"]);
    assert_eq!((quiet.succeeded().stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    // A list can be piped on.
    assert!(run(["ls", &server.url]).succeeded().stdout.contains("a.bin"));
}

#[test]
fn a_configuration_file_gives_options_and_the_command_line_wins() {
    let place = Place::with(&[("a", b"a"), ("b", b"b")]);
    let config = place.path().join("umbel.toml");
    let text = "json = true\n[serve]\nrate = \"3M\"\nmtu = 1400\n[get]\noutput = \"nowhere\"\nno-sync = true\n";
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();

    let by_file = place.serve(&["--config", config]);
    assert_eq!(by_file.serving["most_bits_per_s"], 3_000_000);
    let by_hand = place.serve(&["--config", config, "--rate", "5M"]);
    assert_eq!(by_hand.serving["most_bits_per_s"], 5_000_000);

    // `-o` stands on the command line, `json` in the file.
    let got = place.get(&by_file.url, &["--config", config, "a"]);
    assert_eq!(got.succeeded().event("done")["summary"]["items"], 1);
    assert_eq!(place.received(), ["a"]);
    assert!(!std::path::Path::new("nowhere").exists());
}

#[test]
fn a_bad_configuration_file_is_bad_usage() {
    let place = Place::with(&[("a", b"a")]);
    let config = place.path().join("umbel.toml");
    for (text, word) in [
        ("colour = 3", "colour"),
        ("[serve]\ncolour = 3", "colour"),
        ("[sreve]\nrate = \"3M\"", "sreve"),
        ("[serve]\nrate = \"fast\"", "fast"),
        ("[serve]\nrate = { no = 1 }", "rate"),
        ("[serve\n", "TOML"),
    ] {
        std::fs::write(&config, text).unwrap();
        let mut command = place.serve_command(&place.repo(), &[]);
        let ran = super::support::Running::start(command.arg("--config").arg(&config)).finish();
        ran.misused(&[word]);
        assert!(ran.stderr.lines().count() <= 3, "{ran:?}");
    }
    let gone = place.path().join("gone.toml");
    run(["serve", ".", "--config", gone.to_str().unwrap()]).misused(&["gone.toml"]);
}

#[test]
fn what_is_no_block_device_is_not_written_to() {
    let url = format!("umbel://127.0.0.1:1/?pin={FOREIGN_PIN}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for command in [["get", &url], ["recv", "feed"]] {
        let with = |options: &[&str]| run([&command[..], options].concat());
        with(&["--device", path]).failed_with(&["is not a block device", "-o"]);
        with(&["--device", "/dev/null"]).failed_with(&["/dev/null is not a block device"]);
        with(&["--device", "/dev/none"]).failed_with(&["/dev/none", "No such file"]);
        with(&["--force"]).misused(&["--device"]);
        with(&["--device", path, "-o", "out"]).misused(&["--device", "--output"]);
    }
    assert_eq!(std::fs::read(path).unwrap(), b"");
}
