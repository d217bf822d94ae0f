//! Which files of directories are served or sent.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use umbel_engine::units::{ByteCount, counted};
use umbel_store::{Catalog, Patterns, Repository, RepositoryOptions};
use umbel_wire::repository::ItemKind;

use super::left_out;
use super::output::{Output, plain};
use crate::state;

/// Options that say which files of directories are taken.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FilesArgs {
    /// Leave out what matches, as `*.o`, `/build/` or `docs/**/*.pdf` in a `.gitignore`; relative
    /// to each directory that is named. `.umbelignore` in any directory has such patterns, too
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Do not leave out what matches, whatever --exclude and `.umbelignore` say; but nothing is
    /// looked for in a directory that is left out
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Take symbolic links to files of the directory as these files, and leave other links out
    /// [default: links are links]
    #[arg(long)]
    pub(super) follow_links: bool,
    /// Take files and directories, too, whose names begin with `.` in the directory itself;
    /// receivers need --hidden to write them
    #[arg(long)]
    pub(super) hidden: bool,
    /// List what would be taken, and end
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl FilesArgs {
    /// Returns the patterns.
    ///
    /// # Errors
    ///
    /// If one is none; before anything waits for the network.
    pub(super) fn patterns(&self) -> anyhow::Result<Patterns> {
        let patterns = Patterns { exclude: self.exclude.clone(), include: self.include.clone() };
        patterns.check().map_err(anyhow::Error::msg)?;
        Ok(patterns)
    }

    /// Lists what of these paths would be taken, and what is left out. Crawls are taken apart if
    /// `warc`.
    ///
    /// # Errors
    ///
    /// If a path cannot be read.
    pub(super) fn list(
        &self,
        paths: &[PathBuf],
        warc: bool,
        state_dir: Option<&Path>,
        output: &Output,
    ) -> anyhow::Result<ExitCode> {
        let options = RepositoryOptions {
            warc,
            own: state::own(state_dir),
            hidden: self.hidden,
            follow_links: self.follow_links,
            patterns: self.patterns()?,
            ..RepositoryOptions::default()
        };
        let repository = Repository::open_all(paths, options)?;
        list(repository.catalog(), output)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Lists the items of a catalog, and what is left out, for people and programs.
fn list(catalog: &Catalog, output: &Output) -> anyhow::Result<()> {
    let (mut cursor, mut bytes) = (Some(0), 0);
    while let Some(from) = cursor {
        let page = catalog.select(&[], from, 4096)?;
        for item in &page.items {
            bytes += item.sent_bytes();
            let (kind, leads) = described(item.kind());
            output.json(&json!({
                "event": "item", "name": item.name(), "bytes": item.sent_bytes(), "kind": kind,
            }));
            let slash = if item.kind().is_directory() { "/" } else { "" };
            output.result(format!("{}{slash}{leads}", plain(item.name())));
        }
        cursor = page.next;
    }
    let skipped = catalog.skipped();
    let items = catalog.len() as u64;
    output.json(&json!({
        "event": "done", "items": items, "bytes": bytes, "skipped": skipped.total(),
        "left_out": left_out::as_json(&skipped),
    }));
    for line in left_out::lines(&skipped) {
        output.note(line);
    }
    output.note(format!("{}, {}", counted(items, "item"), ByteCount(bytes)));
    Ok(())
}

/// Returns the word for a kind of item, and where it leads.
pub(super) fn described(kind: &ItemKind) -> (&'static str, String) {
    match kind {
        ItemKind::File => ("file", String::new()),
        ItemKind::Directory => ("directory", String::new()),
        ItemKind::Link(text) => ("link", format!(" -> {}", plain(text.as_str()))),
        ItemKind::HardLink(name) => ("hard-link", format!(" = {}", plain(name))),
    }
}
