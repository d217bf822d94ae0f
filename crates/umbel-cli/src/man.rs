//! Man pages of a program, one a command.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use serde_json::json;
use umbel_engine::units::counted;

use crate::Program;
use crate::output::Output;
use crate::programs::{RESEARCH, Umbel};

/// Options of `man`, for packages.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel man /usr/local/share/man/man1
  umbel-laboratory man /usr/local/share/man/man1    those of the other program")]
pub struct ManArgs {
    /// Directory for the pages, which is made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the man pages of a program.
///
/// # Errors
///
/// If one cannot be written.
pub fn run<P: Program>(args: &ManArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let shown = args.directory.display();
    std::fs::create_dir_all(&args.directory).with_context(|| format!("cannot make {shown}"))?;
    let pages = pages::<P>()?;
    for page in &pages {
        let file = args.directory.join(&page.file);
        std::fs::write(&file, &page.text)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let files: Vec<&str> = pages.iter().map(|page| &*page.file).collect();
    output.json(&json!({ "event": "man", "pages": files }));
    output.note(format!("wrote {} to {shown}", counted(pages.len(), "page")));
    Ok(ExitCode::SUCCESS)
}

/// A page.
#[derive(Debug)]
pub(crate) struct ManPage {
    pub(crate) file: String,
    /// Its source.
    pub(crate) text: String,
}

/// Returns the page of a program, and of each of its commands. Those of the laboratory are called
/// `umbel-sim` and so on, as they are run; `umbel` leaves them to it.
pub(crate) fn pages<P: Program>() -> io::Result<Vec<ManPage>> {
    let program = P::at_length().disable_help_subcommand(true);
    let name = program.get_name().to_owned();
    let is_laboratory = name == Umbel::Laboratory.name();
    let mut program = program.display_name(Umbel::Product.name());
    program.build();
    let named = program.clone().display_name(name.clone()).bin_name(name);
    let mut pages = vec![page(&program, &named)?];
    for command in shown(&program) {
        let is_research = RESEARCH.iter().any(|(research, _)| *research == command.get_name());
        if is_research == is_laboratory {
            collect(command, &mut pages)?;
        }
    }
    Ok(pages)
}

/// Adds the page of a command, and of each below it.
fn collect(command: &Command, pages: &mut Vec<ManPage>) -> io::Result<()> {
    pages.push(page(command, command)?);
    shown(command).try_for_each(|below| collect(below, pages))
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

/// Writes the page of a command. `named` is the same with the name that it has there.
fn page(command: &Command, named: &Command) -> io::Result<ManPage> {
    let version = concat!("Umbel ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(named.clone()).source(version).manual("Umbel");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if shown(command).next().is_some() {
        Man::new(command.clone()).render_subcommands_section(&mut text)?;
    }
    if let Some(after) = command.get_after_long_help().map(ToString::to_string) {
        let examples = after.strip_prefix("Examples:\n");
        let mut roff = Roff::new();
        roff.control("SH", [if examples.is_some() { "EXAMPLES" } else { "NOTES" }]);
        // Lines stay lines.
        roff.control("nf", []);
        for line in examples.unwrap_or(&after).lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut text)?;
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(ManPage { file: page.get_filename(), text })
}
