//! The rules that every command keeps, whether it is run as `umbel-laboratory sim` or as `umbel sim`.

use crate::support::{Ran, Running, product, run};

/// Runs `umbel`, which hands the command over.
#[track_caller]
fn through_umbel(args: &[&str]) -> Ran {
    Running::start(umbel_cli::testing::program::clean(product()).args(args)).finish()
}

#[test]
fn help_has_examples_and_is_a_success() {
    let top = run(["--help"]);
    assert!(top.succeeded().stdout.contains("Examples:"), "{top:?}");
    for command in ["sim", "repro", "lab"] {
        assert!(top.stdout.contains(command), "`{command}` is not in {}", top.stdout);
        for args in [[command, "--help"], ["help", command]] {
            let help = run(args);
            assert!(help.succeeded().stdout.contains("Examples:"), "{args:?}: {}", help.stdout);
            assert!(help.stdout.contains(&format!("umbel {command}")), "{}", help.stdout);
            assert_eq!(help.stderr, "");
        }
    }
    let version = concat!("umbel-laboratory ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(run(["--version"]).succeeded().stdout, version);
}

#[test]
fn bad_usage_exits_with_2() {
    for (args, word) in [
        (&[][..], "Usage"),
        (&["serve", "."], "serve"),
        (&["sim"], "Usage"),
        (&["sim", "run", "x", "--colour"], "--colour"),
        (&["lab", "exec", "a"], "COMMAND"),
    ] {
        run(args).misused(&[word]);
    }
}

#[test]
fn umbel_hands_its_commands_over_with_arguments_output_and_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone.toml");
    let gone = gone.to_str().unwrap();
    for args in [
        &["sim", "topology", "star", "receivers=2"][..],
        &["--json", "sim", "topology", "star"],
        &["sim", "--help"],
        &["help", "repro"],
        &["lab", "--help"],
        &["sim", "run", gone],
        &["sim", "run", "--colour"],
    ] {
        let (direct, handed) = (run(args), through_umbel(args));
        let of = |ran: &Ran| (ran.code, ran.stdout.clone(), ran.stderr.clone());
        assert_eq!(of(&direct), of(&handed), "{args:?}");
        assert!(direct.code.is_some_and(|code| code <= 2), "{direct:?}");
    }
}

#[test]
fn a_configuration_file_is_shared_with_umbel() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        let config = folder.path().join("umbel.toml");
        std::fs::write(&config, text).unwrap();
        config.to_str().unwrap().to_owned()
    };
    let config = write("rate = \"50M\"\njson = true\n[serve]\nmtu = 1400\n");
    let ran = run(["sim", "topology", "star", "--config", &config]);
    assert_eq!(ran.succeeded().event("topology")["nodes"], 3);
    for (text, word) in [
        ("[siim]\nseeds = 3", "siim"),
        ("[sim]\ncolour = 3", "`umbel sim` does not have an option `colour`"),
        ("[sim]\nseeds = 0", "seeds"),
    ] {
        run(["sim", "run", "x.toml", "--config", &write(text)]).misused(&[word]);
    }
}
