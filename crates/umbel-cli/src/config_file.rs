//! Options from a TOML file. They become arguments before those of the command line, so that the
//! command line wins.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::error::ErrorKind;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Inserts the options of `--config FILE`, if given, after the name of the subcommand. Skips
/// options that only other commands have, so that commands can share a file. Commands of another
/// program that shares it are `foreign`: their tables are skipped. If there are any, so are options
/// that stand in no table and that no command of this program has.
///
/// # Errors
///
/// One line with the file's line: the file cannot be read or is not TOML, an option is unknown, or
/// a value is invalid.
pub fn expand(
    args: Vec<OsString>,
    command: &clap::Command,
    foreign: &[&str],
) -> anyhow::Result<Vec<OsString>> {
    let Some(path) = config_path(&args) else { return Ok(args) };
    let path = Path::new(&path);
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = File { path, text: &text };
    let table = DeTable::parse(&text).map_err(|error| {
        let line = file.line(error.span().unwrap_or_default());
        anyhow!("{} is not TOML: line {line}: {}", path.display(), error.message())
    })?;
    let Some((position, outer, subcommand)) = find_subcommand(&args, command) else {
        return Ok(args);
    };
    if has_token(table.get_ref()) && is_open(path)? {
        bail!("{} has a token, and can be read by others: run `chmod 600` on it", path.display());
    }
    let may_be_foreign = !foreign.is_empty();
    let mut options = Vec::new();
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        match value.get_ref() {
            DeValue::Table(own) if name == outer.get_name() => {
                for (key, value) in own {
                    options.extend(file.options(outer, subcommand, key, value)?);
                }
            }
            // The table of another command.
            DeValue::Table(_) if command.find_subcommand(name).is_some() => {}
            DeValue::Table(_) if foreign.contains(&name) => {}
            option if may_be_foreign && !option.is_table() && !is_known(command, name) => {}
            _ => options.extend(file.options(command, subcommand, key, value)?),
        }
    }
    let mut expanded = args;
    expanded.splice(position + 1..=position, options);
    Ok(expanded)
}

/// Returns whether a table, or one within it, has a token.
fn has_token(table: &DeTable<'_>) -> bool {
    table.iter().any(|(key, value)| match value.get_ref() {
        DeValue::Table(inner) => has_token(inner),
        _ => key.get_ref() == "token",
    })
}

/// Returns whether others than its owner can read a file.
fn is_open(path: &Path) -> anyhow::Result<bool> {
    let metadata = std::fs::metadata(path);
    let metadata = metadata.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o077 != 0)
}

/// A configuration file, for the places of mistakes.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        self.text.get(..span.start).unwrap_or_default().matches('\n').count() + 1
    }

    fn mistake(&self, span: Range<usize>, message: &str) -> anyhow::Error {
        anyhow!("{} line {}: {message}", self.path.display(), self.line(span))
    }

    /// Returns the arguments of `command` for one key. Returns none if only another command below
    /// `family` has the option.
    fn options(
        &self,
        family: &clap::Command,
        command: &clap::Command,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> anyhow::Result<Vec<OsString>> {
        let name: &str = key.get_ref();
        let own = find_option(command, name);
        if own.is_none() && !GLOBAL.contains(&name) {
            if is_known(family, name) {
                return Ok(Vec::new());
            }
            let whose = match family.get_name() {
                "umbel" => "no command of umbel has".to_owned(),
                command => format!("`umbel {command}` does not have"),
            };
            return Err(self.mistake(key.span(), &format!("{whose} an option `{name}`")));
        }
        let takes_value = own.is_some_and(|option| option.get_action().takes_values());
        let arguments = arguments(name, value.get_ref(), takes_value)
            .map_err(|message| self.mistake(value.span(), &message))?;
        if let Some(wrong) = arguments.iter().find_map(|argument| refusal(command, argument)) {
            return Err(self.mistake(value.span(), &wrong));
        }
        Ok(arguments.into_iter().map(OsString::from).collect())
    }
}

/// Returns an option of a command by its long name.
fn find_option<'a>(command: &'a clap::Command, name: &str) -> Option<&'a clap::Arg> {
    let mut options = command.get_arguments().filter(|option| option.get_id() != "help");
    options.find(|option| option.get_long() == Some(name))
}

/// Returns whether a command, or one below it, has an option.
fn is_known(command: &clap::Command, name: &str) -> bool {
    find_option(command, name).is_some()
        || command.get_subcommands().any(|command| is_known(command, name))
}

/// Returns the arguments for a key and its value, or why there are none.
fn arguments(name: &str, value: &DeValue<'_>, takes_value: bool) -> Result<Vec<String>, String> {
    let flag = format!("--{name}");
    let text = match (value, takes_value) {
        (DeValue::Boolean(true), false) => return Ok(vec![flag]),
        (DeValue::Boolean(false), false) => return Ok(Vec::new()),
        // `verbose = 2` is `-vv`.
        (DeValue::Integer(times), false) if name == "verbose" => {
            let times = times.as_str().parse().unwrap_or(0_usize);
            return Ok(vec![flag; times.min(3)]);
        }
        (_, false) => return Err(format!("`{name}` is true or false")),
        (DeValue::Array(values), true) => {
            let all = values.iter().map(|value| arguments(name, value.get_ref(), true));
            return Ok(all.collect::<Result<Vec<_>, _>>()?.concat());
        }
        (DeValue::String(text), true) => text.to_string(),
        (DeValue::Integer(number), true) => match number.radix() {
            10 => number.as_str().to_owned(),
            radix => i128::from_str_radix(number.as_str(), radix)
                .map_err(|_| format!("`{name}` is too large"))?
                .to_string(),
        },
        (DeValue::Float(number), true) => number.as_str().to_owned(),
        (DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Table(_), true) => {
            return Err(format!("`{name}` takes a text or a number"));
        }
    };
    Ok(vec![format!("{flag}={text}")])
}

/// Returns why a command refuses an argument, if the reason is its value.
fn refusal(command: &clap::Command, argument: &str) -> Option<String> {
    let alone = command.clone().no_binary_name(true).mut_args(|option| option.required(false));
    let error = alone.try_get_matches_from([argument]).err()?;
    let value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let text = value.then(|| error.to_string())?;
    let first = text.lines().next().unwrap_or_default();
    Some(first.strip_prefix("error: ").unwrap_or(first).to_owned())
}

fn config_path(args: &[OsString]) -> Option<OsString> {
    let mut args = args.iter().take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().cloned();
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(path.into());
        }
    }
    None
}

/// Returns the position for the options of the subcommand, the subcommand, and the innermost one.
/// The options of `umbel sim run` belong behind `run`.
fn find_subcommand<'a>(
    args: &[OsString],
    command: &'a clap::Command,
) -> Option<(usize, &'a clap::Command, &'a clap::Command)> {
    let next = |from: usize, command: &'a clap::Command| {
        args.iter()
            .enumerate()
            .skip(from)
            .find_map(|(position, arg)| Some((position, command.find_subcommand(arg.to_str()?)?)))
    };
    let (mut position, outer) = next(1, command)?;
    let mut innermost = outer;
    while let Some((further, inner)) = next(position + 1, innermost) {
        (position, innermost) = (further, inner);
    }
    Some((position, outer, innermost))
}

/// Options that every command has.
const GLOBAL: [&str; 3] = ["json", "quiet", "verbose"];

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser, Subcommand};

    use super::*;
    use crate::Global;

    #[derive(Parser)]
    #[command(name = "umbel")]
    struct Cli {
        #[command(flatten)]
        _global: Global,
        #[command(subcommand)]
        _command: Command,
    }

    #[derive(Subcommand)]
    enum Command {
        Serve {
            _dir: String,
            #[arg(long, value_parser = rate)]
            rate: Option<String>,
            #[arg(long)]
            port: Option<u16>,
            #[arg(long)]
            ipv6: bool,
            #[arg(long)]
            token: Option<String>,
        },
        Get {
            _url: String,
            #[arg(long)]
            token: Option<String>,
            #[arg(long)]
            fallback_after: Option<f64>,
        },
        Ls {
            _url: String,
            _pattern: String,
        },
        Groups {
            #[arg(long)]
            wait: bool,
        },
        #[command(subcommand)]
        Sim(Sim),
    }

    #[derive(Subcommand)]
    enum Sim {
        Run {
            _scenario: String,
            #[arg(long)]
            seeds: Option<u32>,
        },
        Check {
            _scenario: String,
        },
    }

    fn rate(text: &str) -> Result<String, String> {
        match text.parse::<u64>() {
            Ok(_) => Err(format!("`{text}` has no unit")),
            Err(_) if text.starts_with(|c: char| c.is_ascii_digit()) => Ok(text.to_owned()),
            Err(_) => Err(format!("`{text}` is no rate")),
        }
    }

    fn expand_with(config: &str, args: &[&str]) -> anyhow::Result<Vec<String>> {
        expand_with_mode(0o600, config, args)
    }

    fn expand_with_mode(mode: u32, config: &str, args: &[&str]) -> anyhow::Result<Vec<String>> {
        expand_beside(&[], mode, config, args)
    }

    fn expand_beside(
        foreign: &[&str],
        mode: u32,
        config: &str,
        args: &[&str],
    ) -> anyhow::Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("umbel.toml");
        std::fs::write(&path, config).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut all: Vec<OsString> = args.iter().map(Into::into).collect();
        all.push("--config".into());
        all.push(path.into());
        let expanded = expand(all, &Cli::command(), foreign)?;
        Ok(expanded
            .into_iter()
            .take(expanded_len(args))
            .map(|a| a.into_string().unwrap())
            .collect())
    }

    fn expanded_len(args: &[&str]) -> usize {
        args.len() + 1
    }

    #[test]
    fn options_of_the_file_stand_before_those_of_the_command_line() {
        let args = expand_with("[serve]\nrate = \"5M\"", &["umbel", "serve", "dir"]).unwrap();
        assert_eq!(args, ["umbel", "serve", "--rate=5M", "dir"]);
    }

    #[test]
    fn flags_are_given_as_often_as_the_file_says() {
        let args =
            expand_with("verbose = 2\njson = true\nquiet = false", &["umbel", "ls", "u", "p"]);
        assert_eq!(args.unwrap(), ["umbel", "ls", "--json", "--verbose", "--verbose"]);
    }

    #[test]
    fn tables_of_other_commands_are_left_out() {
        let args = expand_with("[get]\noutput = \"x\"\n", &["umbel", "serve", "dir"]).unwrap();
        assert_eq!(args[..3], ["umbel", "serve", "dir"]);
    }

    #[test]
    fn options_of_a_command_within_a_command_stand_behind_it() {
        let config = "[sim]\nseeds = 4\n[serve]\nrate = \"5M\"";
        let args = expand_with(config, &["umbel", "sim", "run", "x.toml"]).unwrap();
        assert_eq!(args, ["umbel", "sim", "run", "--seeds=4", "x.toml"]);
    }

    #[test]
    fn commands_share_a_file_and_leave_out_what_only_others_have() {
        let config = "rate = \"50M\"\ntoken = \"x\"\nfallback-after = 1\nseeds = 3\n";
        let args = expand_with(config, &["umbel", "get", "u"]).unwrap();
        assert_eq!(args, ["umbel", "get", "--fallback-after=1", "--token=x", "u"][..4]);
        let args = expand_with(config, &["umbel", "groups", "--wait"]).unwrap();
        assert_eq!(args[..3], ["umbel", "groups", "--wait"]);
        // In a command's own table only options of that command, or of one below it, are allowed.
        let args = expand_with("[sim]\nseeds = 3\n", &["umbel", "sim", "check", "x"]).unwrap();
        assert_eq!(args[..4], ["umbel", "sim", "check", "x"]);
        let error = expand_with("[get]\nrate = \"5M\"\n", &["umbel", "get", "u"]).unwrap_err();
        assert!(error.to_string().contains("line 2: `umbel get` does not have"), "{error}");
    }

    #[test]
    fn what_another_program_knows_is_left_out_and_a_table_that_none_knows_is_not() {
        let config = "colour = 3\nwait = true\n[paint]\ncolour = 4\n";
        let args = &["umbel", "groups"];
        assert!(expand_with(config, args).is_err());
        let expanded = expand_beside(&["paint"], 0o600, config, args);
        assert_eq!(expanded.unwrap(), ["umbel", "groups", "--wait"]);
        for config in ["[pint]\ncolour = 4", "[groups]\ncolour = 3"] {
            assert!(expand_beside(&["paint"], 0o600, config, args).is_err(), "{config}");
        }
    }

    #[test]
    fn a_file_with_a_token_that_others_can_read_is_refused() {
        for config in ["token = \"x\"", "[get]\ntoken = \"x\""] {
            let error = expand_with_mode(0o644, config, &["umbel", "get", "u"]).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
            assert!(expand_with_mode(0o600, config, &["umbel", "get", "u"]).is_ok());
        }
        assert!(expand_with_mode(0o644, "rate = \"5M\"", &["umbel", "serve", "d"]).is_ok());
    }

    #[test]
    fn what_is_wrong_is_one_line_with_its_place() {
        for (config, words) in [
            ("\ncolour = 3", "line 2: no command of umbel has an option `colour`"),
            ("[colour]\na = 1", "line 1: no command of umbel has an option `colour`"),
            ("rate = true", "line 1: `rate` takes a text or a number"),
            ("port = 1\nrate = { a = 1 }", "line 2: `rate` takes a text or a number"),
            ("rate = 50", "line 1: invalid value '50' for '--rate <RATE>': `50` has no unit"),
            ("rate = \"fast\"", "line 1: invalid value 'fast'"),
            ("[serve]\n\nport = 99999", "line 3: invalid value '99999'"),
            ("port = -1", "line 1: invalid value '-1'"),
            ("ipv6 = \"yes\"", "line 1: `ipv6` is true or false"),
            ("json = 1", "line 1: `json` is true or false"),
            ("rate = ", "is not TOML: line 1: "),
        ] {
            let error = expand_with(config, &["umbel", "serve", "dir"]).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains('\n'), "{config}: {error}");
        }
        let args = expand_with("port = 0x1F90", &["umbel", "serve", "dir"]).unwrap();
        assert_eq!(args[2], "--port=8080");
    }
}
