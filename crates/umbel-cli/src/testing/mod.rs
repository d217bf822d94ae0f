//! What the tests of both programs share: checks of command lines, and programs under test.

pub mod program;
pub mod reference;

use std::collections::BTreeSet;

use clap::ValueEnum as _;

use crate::completions::{self, Shell};
use crate::help::{EVERY_COMMAND, Group};
use crate::{Program, man};

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

/// Calls `visit` with the path and the definition of each command of a program that is shown.
fn walk(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
    visit(path, command);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let path = format!("{path} {}", below.get_name());
        walk(below, path.trim_start(), visit);
    }
}

/// Most options of a command that `-h` has, besides those that every command has.
const SHORT: usize = 5;

/// Asserts that the help of all commands of a program is arranged: each command stands in one
/// group, `-h` has few options and all that are required, and the options of every command are the
/// last ones. No option stands under a heading but these and `headings`, which have the options
/// that they should.
///
/// # Panics
///
/// If it is not.
pub fn assert_arranged<P: Program>(headings: &[(&str, &[&str])]) {
    let mut program = P::arranged().disable_help_subcommand(true);
    program.build();
    let listed = P::ARRANGEMENT.groups.iter().flat_map(|group: &Group| group.commands);
    let mut listed: Vec<&str> = listed.copied().collect();
    let shown = program.get_subcommands().filter(|below| !below.is_hide_set());
    let mut shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
    listed.sort_unstable();
    shown.sort_unstable();
    assert_eq!(listed, shown, "each command stands in one group");

    let mut paths = BTreeSet::new();
    walk(&program, "", &mut |path, command| {
        paths.insert(path.to_owned());
        assert_options(path, command, headings);
    });
    for (path, names) in P::ARRANGEMENT.shortlists {
        assert!(paths.contains(*path), "there is no command `{path}`");
        let mut command = &program;
        for name in path.split(' ') {
            command = command.find_subcommand(name).expect("it is among the paths");
        }
        for name in *names {
            let found = command.get_arguments().any(|arg| arg.get_long() == Some(name));
            assert!(found, "`{path}` has no option --{name}");
        }
    }
}

/// Asserts that the options of a command stand where they should.
fn assert_options(path: &str, command: &clap::Command, headings: &[(&str, &[&str])]) {
    let named = |arg: &clap::Arg| arg.get_long().unwrap_or_default().to_owned();
    let of_all = |arg: &&clap::Arg| arg.get_help_heading() == Some(EVERY_COMMAND);
    let mut all: Vec<String> = command.get_arguments().filter(of_all).map(named).collect();
    all.sort_unstable();
    assert_eq!(all, ["config", "help", "json", "progress", "quiet", "verbose"], "`{path}`");
    let own = || command.get_arguments().filter(|arg| !arg.is_positional() && !of_all(arg));
    for arg in own() {
        let Some(heading) = arg.get_help_heading() else { continue };
        let known = headings.iter().find(|(name, _)| *name == heading);
        let known = known.is_some_and(|(_, names)| names.contains(&&*named(arg)));
        assert!(known, "`{path}` has --{} under {heading}", named(arg));
    }
    let is_short = |arg: &&clap::Arg| !arg.is_hide_set() && !arg.is_hide_short_help_set();
    let short = own().filter(is_short).filter(|arg| named(arg) != "version").count();
    assert!(short <= SHORT, "`{path} -h` has {short} options");
    for arg in own().filter(|arg| arg.is_required_set()) {
        assert!(is_short(&arg), "`{path} -h` lacks --{}, which is required", named(arg));
    }
    let long = command.clone().render_long_help().to_string();
    let last = long.find(EVERY_COMMAND).expect("it has options of every command");
    for arg in own().filter(|arg| !arg.is_hide_set() && named(arg) != "version") {
        let found = long.find(&format!("--{}", named(arg)));
        assert!(found.is_some_and(|at| at < last), "`{path} --help`: --{}", named(arg));
    }
}

/// Asserts that the help of all commands of a program fits a narrow and an ordinary terminal.
///
/// # Panics
///
/// If it does not, with the lines.
pub fn assert_fits<P: Program>() {
    for columns in [40, 80, 100] {
        let program = P::ARRANGEMENT.arrange_for(P::command(), columns).term_width(columns);
        let mut program = program.disable_help_subcommand(true);
        program.build();
        walk(&program, "", &mut |path, command| {
            let mut command = command.clone();
            for text in [command.render_help(), command.render_long_help()] {
                for line in text.to_string().lines() {
                    // A word alone cannot be broken, and nobody breaks the line of usage.
                    let fits = line.chars().count() <= columns
                        || line.starts_with("Usage: ")
                        || !line.trim().contains(' ');
                    assert!(fits, "{columns} columns, `{path}`: {line}");
                }
            }
        });
    }
}

/// Asserts that the shells complete all commands of a program and all their options.
///
/// # Panics
///
/// If one does not, or there is no command.
pub fn assert_completed<P: Program>() {
    let mut program = P::arranged().disable_help_subcommand(true);
    program.build();
    for shell in Shell::value_variants() {
        let script = completions::script::<P>(*shell);
        let words: BTreeSet<&str> = script.split([' ', '"', '|', '\n']).collect();
        let mut count = 0;
        walk(&program, "", &mut |path, command| {
            let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
            for name in options.filter_map(clap::Arg::get_long) {
                count += 1;
                let is_there = match shell {
                    Shell::Bash => words.contains(&*format!("--{name}")),
                    Shell::Zsh => script.contains(&format!("--{name}")),
                    Shell::Fish => script.lines().any(|line| {
                        let words: Vec<&str> = line.split([' ', '"', ';']).collect();
                        words.windows(2).any(|pair| pair == ["-l", name])
                            && path.split_terminator(' ').all(|word| words.contains(&word))
                    }),
                };
                assert!(is_there, "{}: `{path}` --{name}", shell.name());
            }
        });
        assert!(count > 10, "{count} options");
    }
}

/// Asserts that each command of a program has a man page, `elsewhere` excepted, which shows all of
/// its options and says what they do.
///
/// # Panics
///
/// If one does not.
pub fn assert_paged<P: Program>(elsewhere: &[&str]) {
    let mut program = P::arranged().disable_help_subcommand(true);
    program.build();
    let pages = man::pages::<P>().expect("memory takes them");
    let mut expected = BTreeSet::new();
    walk(&program, "", &mut |path, command| {
        if path.split(' ').next().is_some_and(|first| elsewhere.contains(&first)) {
            return;
        }
        let file = match path {
            "" => format!("{}.1", program.get_name()),
            path => format!("umbel-{}.1", path.replace(' ', "-")),
        };
        let page = pages.iter().find(|page| page.file == file);
        let page = page.unwrap_or_else(|| panic!("there is no {file}"));
        let text = page.text.replace(r"\-", "-").replace(r"\*(Aq", "'").replace(r"\(aq", "'");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let name = arg.get_long().map_or(String::new(), |name| format!("--{name}"));
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let first = help.lines().next().unwrap_or_default();
            assert!(!first.is_empty(), "{file}: {name} has no help");
            assert!(text.contains(&name) && text.contains(first), "{file} lacks {name}: {first}");
        }
        expected.insert(file);
    });
    let files: Vec<&str> = pages.iter().map(|page| &*page.file).collect();
    assert_eq!(files.len(), expected.len(), "{files:?}");
}
