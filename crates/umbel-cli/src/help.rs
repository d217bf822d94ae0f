//! The help of a program: its commands in groups, the options that matter most for `-h`, and the
//! options of every command at the end.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

/// Heading of the options that every command has.
pub const EVERY_COMMAND: &str = "Options of every command";
/// Most columns that help fills, and those where the terminal does not tell its own; clap's, too.
const COLUMNS: usize = 100;

/// Commands of a program that serve one purpose.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub title: &'static str,
    /// Names of the commands.
    pub commands: &'static [&'static str],
}

/// Arrangement of the help of a program.
#[derive(Clone, Copy, Debug)]
pub struct Arrangement {
    /// The commands, each in one group.
    pub groups: &'static [Group],
    /// Options that matter most, without `--`, by the path of their command, such as `smo serve`.
    /// `-h` leaves out the others. Of a command that is not listed it has all options.
    pub shortlists: &'static [(&'static str, &'static [&'static str])],
}

impl Arrangement {
    /// Arranges the help of a program for the terminal.
    pub fn arrange(&self, program: Command) -> Command {
        let columns = terminal_size::terminal_size().map_or(COLUMNS, |(width, _)| width.0.into());
        self.arrange_for(program, columns)
    }

    /// Arranges the help of a program for this number of columns.
    pub fn arrange_for(&self, program: Command, columns: usize) -> Command {
        let header = program.get_styles().get_header();
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n\
             {header}{EVERY_COMMAND}:{header:#}\n{{options}}{{after-help}}",
            self.listed(&program, columns.min(COLUMNS))
        );
        let help = Arg::new("help").short('h').long("help").action(ArgAction::Help).global(true);
        let help = help.help_heading(EVERY_COMMAND).help("Print help: --help all, -h less of it");
        self.shorten(program, "").help_template(template).arg(help.display_order(usize::MAX))
    }

    /// Returns the commands with what they do, group by group.
    fn listed(&self, program: &Command, columns: usize) -> String {
        let names = || self.groups.iter().flat_map(|group| group.commands);
        let indent = names().map(|name| name.len()).max().unwrap_or_default() + 4;
        let header = program.get_styles().get_header();
        let literal = program.get_styles().get_literal();
        let mut text = String::new();
        for Group { title, commands } in self.groups {
            let _ = writeln!(text, "{header}{title}:{header:#}");
            for name in *commands {
                let about = program.find_subcommand(name).and_then(Command::get_about);
                let about = about.map(ToString::to_string).unwrap_or_default();
                let about = wrapped(&about, columns, indent);
                let padding = " ".repeat(indent - name.len() - 2);
                let _ = writeln!(text, "  {literal}{name}{literal:#}{padding}{about}");
            }
        }
        text
    }

    /// Shortens `-h` of a command and of those below it; `--help` stays as it is.
    fn shorten(&self, command: Command, path: &str) -> Command {
        let shortlist = self.shortlists.iter().find(|(of, _)| *of == path).map(|(_, names)| *names);
        let matters = |arg: &Arg| match (shortlist, arg.get_long()) {
            (Some(names), Some(name)) => names.contains(&name),
            _ => true,
        };
        let command = command.disable_help_flag(true).mut_args(|arg| {
            let is_short = matters(&arg);
            if is_short { arg } else { arg.hide_short_help(true) }
        });
        let command = match command.get_after_help().cloned() {
            None => command,
            Some(text) => {
                let name = command.get_name().to_owned();
                let name = if path.is_empty() { name } else { format!("umbel {path}") };
                let what =
                    if shortlist.is_some() { "all options, and examples" } else { "examples" };
                command.after_long_help(text).after_help(format!("`{name} --help` has {what}"))
            }
        };
        command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            self.shorten(below, path.trim_start())
        })
    }
}

/// Breaks a text at spaces into lines that end at a column. All but the first are indented, which
/// begins behind as much.
fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let (mut lines, mut used) = (String::new(), indent);
    for word in text.split(' ') {
        let width = word.chars().count();
        if used > indent && used + 1 + width > columns {
            let _ = write!(lines, "\n{:indent$}", "");
            used = indent;
        }
        if used > indent {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += width;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_spaces() {
        assert_eq!(wrapped("one two three four", 15, 4), "one two\n    three four");
        assert_eq!(
            wrapped("a-word-that-is-longer than it", 8, 2),
            "a-word-that-is-longer\n  than\n  it"
        );
        assert_eq!(wrapped("", 8, 2), "");
    }

    fn program() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name).help(name);
        let below = Command::new("go").about("Goes as far as there is something before it");
        let below = below.args([option("far"), option("slowly")]).arg(Arg::new("where"));
        let below = below.after_help("Examples:\n  umbel go");
        Command::new("p")
            .about("A program")
            .subcommand(below)
            .arg(option("json").action(ArgAction::SetTrue).global(true).help_heading(EVERY_COMMAND))
    }

    const ARRANGEMENT: Arrangement = Arrangement {
        groups: &[Group { title: "Travel", commands: &["go"] }],
        shortlists: &[("go", &["far"])],
    };

    fn help(columns: usize, words: &[&str]) -> String {
        let arranged = ARRANGEMENT.arrange_for(program(), columns).term_width(columns);
        let error = arranged.try_get_matches_from(words).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp);
        error.to_string()
    }

    #[test]
    fn commands_stand_in_groups_and_options_of_all_at_the_end() {
        let text = "\
A program

Usage: p [OPTIONS] [COMMAND]

Travel:
  go  Goes as far as there is something
      before it

Options of every command:
      --json  json
  -h, --help  Print help: --help all, -h
              less of it
";
        assert_eq!(help(40, &["p", "--help"]), text);
    }

    #[test]
    fn short_help_has_the_options_that_matter() {
        let [short, long] = ["-h", "--help"].map(|flag| help(80, &["p", "go", flag]));
        assert!(short.contains("--far") && !short.contains("--slowly"), "{short}");
        assert!(short.contains("[where]") && short.contains("--json"), "{short}");
        assert!(short.ends_with("`umbel go --help` has all options, and examples\n"), "{short}");
        assert!(long.contains("--far") && long.contains("--slowly"), "{long}");
        assert!(long.ends_with("Examples:\n  umbel go\n"), "{long}");
    }
}
