//! What the tests of both programs share: checks of command lines, and programs under test.

pub mod program;

/// Asserts that a terminal of 100 columns breaks no line of the texts after the help of a command
/// and its subcommands.
///
/// # Panics
///
/// If it would, with the lines.
pub fn assert_texts_fit(command: &clap::Command) {
    let mut found = Vec::new();
    long_lines(command, &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

fn long_lines(command: &clap::Command, found: &mut Vec<String>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let long = text.lines().filter(|line| line.chars().count() > 100);
    found.extend(long.map(|line| format!("{}: {line}", command.get_name())));
    command.get_subcommands().for_each(|command| long_lines(command, found));
}
