//! Pages of the reference, made from the definitions of a program's commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command};

/// Compares the pages of a program's commands with `docs/reference`. Writes them if `UMBEL_BLESS`
/// is set.
///
/// # Panics
///
/// If a page is missing, or is another.
pub fn assert_current<'name>(program: &Command, names: impl IntoIterator<Item = &'name str>) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let bless = std::env::var_os("UMBEL_BLESS").is_some();
    let mut program = program.clone();
    program.build();
    let mut old = Vec::new();
    for name in names {
        let command = program.find_subcommand(name).expect("a command of the program");
        let page = page(command);
        let file = directory.join(name).with_extension("md");
        if bless {
            fs::write(&file, page).expect("a page of the reference is written");
        } else if fs::read_to_string(&file).ok() != Some(page) {
            old.push(name);
        }
    }
    assert!(old.is_empty(), "UMBEL_BLESS=1 writes the pages that are not the program's: {old:?}");
}

/// Returns the page of a command.
fn page(command: &Command) -> String {
    let mut page = String::new();
    describe(&mut page, "#", &format!("umbel {}", command.get_name()), command, &[]);
    page
}

/// Adds a command and its subcommands. Options that are described already are left out.
fn describe(page: &mut String, level: &str, name: &str, command: &Command, known: &[String]) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().bin_name(name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let _ = write!(page, "{level} {name}\n\n{about}.\n\n```text\n{usage}\n```\n");
    let items = own_items(command).into_iter().filter(|(_, item)| !known.contains(item));
    list(page, items);
    let shared = shared_items(command);
    for (names, items) in &shared {
        let _ = write!(page, "\n**Options of {names}**\n");
        list(page, items.iter().map(|item| (None, item.clone())));
    }
    let known: Vec<String> = shared.into_values().flatten().collect();
    for sub in shown_subcommands(command) {
        page.push('\n');
        let name = format!("{name} {}", sub.get_name());
        describe(page, &format!("{level}#"), &name, sub, &known);
    }
}

fn shown_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Adds options under their headings; those without one come first.
fn list(page: &mut String, items: impl Iterator<Item = (Option<String>, String)>) {
    let mut groups: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    items.for_each(|(heading, item)| groups.entry(heading).or_default().push(item));
    for (heading, items) in groups {
        if let Some(heading) = heading {
            let _ = write!(page, "\n**{heading}**\n");
        }
        let _ = write!(page, "\n{}\n", items.join("\n"));
    }
}

/// Returns the options of a command that not every command has, with their headings.
fn own_items(command: &Command) -> Vec<(Option<String>, String)> {
    let options = command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set());
    let options = options.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()));
    options.map(|arg| (arg.get_help_heading().map(str::to_owned), item(arg))).collect()
}

/// Returns the options that several subcommands have, by the names of these.
fn shared_items(command: &Command) -> BTreeMap<String, Vec<String>> {
    let mut owners: Vec<(String, Vec<&str>)> = Vec::new();
    for sub in shown_subcommands(command) {
        for (_, item) in own_items(sub) {
            match owners.iter_mut().find(|(known, _)| *known == item) {
                Some((_, names)) => names.push(sub.get_name()),
                None => owners.push((item, vec![sub.get_name()])),
            }
        }
    }
    let mut shared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (item, names) in owners.into_iter().filter(|(_, names)| names.len() > 1) {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        shared.entry(names).or_default().push(item);
    }
    shared
}

/// Returns the line of an option: names and value, help, default, choices.
fn item(arg: &Arg) -> String {
    let names = [
        arg.get_short().map(|short| format!("-{short}")),
        arg.get_long().map(|long| format!("--{long}")),
    ];
    let mut name = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let takes_value = arg.get_num_args().is_none_or(|count| count.takes_values());
    if takes_value {
        let values = arg.get_value_names().unwrap_or_default().iter();
        let values = values.map(|value| format!("<{value}>")).collect::<Vec<_>>().join(" ");
        let space = if name.is_empty() { "" } else { " " };
        let _ = write!(name, "{space}{values}");
    }
    let help = arg.get_help().or(arg.get_long_help()).map(ToString::to_string);
    // What stands in angle brackets would be taken for HTML.
    let help = help.unwrap_or_default().replace('<', "&lt;").replace('\n', " ");
    let mut item = format!("- `{name}`: {help}");
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let defaults = defaults.collect::<Vec<_>>().join(",");
    if takes_value && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let _ = write!(item, " [default: {defaults}]");
    }
    let choices = arg.get_possible_values();
    let choices = choices.iter().filter(|choice| !choice.is_hide_set());
    let choices = choices.map(|choice| match choice.get_help() {
        Some(help) => format!("{} ({help})", choice.get_name()),
        None => choice.get_name().to_owned(),
    });
    let choices = choices.collect::<Vec<_>>().join(", ");
    if takes_value && !choices.is_empty() && !arg.is_hide_possible_values_set() {
        let _ = write!(item, " [{choices}]");
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &'static str) -> Command {
        let rate = Arg::new("rate").long("rate").value_name("RATE").help("Highest < rate");
        Command::new(name).about("Sends").arg(rate)
    }

    #[test]
    fn a_page_has_each_option_once_and_those_of_several_subcommands_before_them() {
        let flag = Arg::new("keep").long("keep").action(clap::ArgAction::SetTrue).help("Goes on");
        let both = Command::new("smo").about("Serves").subcommand(parsed("relay"));
        let mut both = both.subcommand(parsed("serve").arg(flag));
        both.build();
        let page = page(&both);
        assert_eq!(page.matches("Highest &lt; rate").count(), 1, "{page}");
        assert!(page.contains("**Options of `relay`, `serve`**\n\n- `--rate <RATE>`: "), "{page}");
        let own = page.split("## umbel smo serve\n").nth(1).unwrap_or_default();
        assert!(own.contains("- `--keep`: Goes on\n") && !own.contains("Highest"), "{page}");
    }
}
