//! Options from a TOML file: turned into arguments that stand before those of the command line,
//! so that the command line wins.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow, bail};

/// Puts the options of `--config FILE`, if it is given, behind the name of the subcommand.
///
/// # Errors
///
/// If the file cannot be read, is not TOML, or names an option that the command does not have.
pub fn expand(args: Vec<OsString>, command: &clap::Command) -> anyhow::Result<Vec<OsString>> {
    let Some(path) = config_path(&args) else { return Ok(args) };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", Path::new(&path).display()))?;
    let table = parse(&text, Path::new(&path))?;
    let Some((position, outer, subcommand)) = find_subcommand(&args, command) else {
        return Ok(args);
    };
    let mut options = Vec::new();
    for (key, value) in &table {
        match value {
            toml::Value::Table(own) if key == outer.get_name() => {
                for (key, value) in own {
                    options.extend(option(subcommand, key, value)?);
                }
            }
            // The table of another command.
            toml::Value::Table(_) if command.find_subcommand(key).is_some() => {}
            value => options.extend(option(subcommand, key, value)?),
        }
    }
    let mut expanded = args;
    expanded.splice(position + 1..=position, options);
    Ok(expanded)
}

fn parse(text: &str, path: &Path) -> anyhow::Result<toml::Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        anyhow!("{} is not TOML: line {line}: {}", path.display(), error.message())
    })
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

/// Where the options of the subcommand belong, the subcommand, and the innermost one: those of
/// `umbel sim run` stand behind `run`.
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

/// The arguments for one key of the file.
fn option(
    command: &clap::Command,
    key: &str,
    value: &toml::Value,
) -> anyhow::Result<Vec<OsString>> {
    let own = command.get_arguments().filter_map(clap::Arg::get_long).any(|long| long == key);
    let known = own || GLOBAL.contains(&key);
    if !known {
        bail!(
            "the configuration names `{key}`, which `umbel {}` does not have",
            command.get_name()
        );
    }
    let flag = OsString::from(format!("--{key}"));
    let text = match value {
        toml::Value::Boolean(true) => return Ok(vec![flag]),
        toml::Value::Boolean(false) => return Ok(Vec::new()),
        // `verbose = 2` is `-vv`.
        toml::Value::Integer(times) if key == "verbose" => {
            return Ok(vec![flag; usize::try_from(*times).unwrap_or(0).min(3)]);
        }
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                all.extend(option(command, key, value)?);
            }
            return Ok(all);
        }
        toml::Value::Integer(_) | toml::Value::Float(_) => value.to_string(),
        _ => bail!("`{key}` in the configuration must be text, a number, true or false"),
    };
    Ok(vec![OsString::from(format!("--{key}={text}"))])
}

/// Options that every command has.
const GLOBAL: [&str; 3] = ["json", "quiet", "verbose"];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn expand_with(config: &str, args: &[&str]) -> anyhow::Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("umbel.toml");
        std::fs::write(&path, config).unwrap();
        let mut all: Vec<OsString> = args.iter().map(Into::into).collect();
        all.push("--config".into());
        all.push(path.into());
        let expanded = expand(all, &super::super::Cli::command())?;
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
    fn an_unknown_option_is_an_error() {
        let error = expand_with("colour = 3", &["umbel", "serve", "dir"]).unwrap_err();
        assert!(error.to_string().contains("colour"), "{error}");
    }
}
