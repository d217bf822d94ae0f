//! `umbel ls`.

use std::process::ExitCode;

use serde_json::json;
use umbel_engine::units::{ByteCount, counted};
use umbel_net::session::SessionUrl;
use umbel_wire::repository::ItemKind;

use super::credentials::CredentialArgs;
use super::files::described;
use super::output::{Output, plain};
use super::token::TokenFileArgs;
use crate::list::{Listing, list};

/// Options of `umbel ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel ls 'umbel://192.0.2.2:7700/?pin=…'
  umbel ls 'umbel://192.0.2.2:7700/?pin=…' 'images/**' --json")]
pub(super) struct LsArgs {
    /// The URL that `umbel serve` printed
    url: SessionUrl,
    /// Items by name or pattern: `images/**`, `*.iso`, `notes.txt` [default: all]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    patterns: Vec<String>,
    /// Admission token, unless the URL has one
    #[arg(long)]
    token: Option<String>,
    #[command(flatten)]
    token_file: TokenFileArgs,
    #[command(flatten)]
    credentials: CredentialArgs,
}

/// Runs the command.
///
/// # Errors
///
/// If the server cannot be reached, nothing matches, or a named item is not there.
pub(super) fn run(args: LsArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let mut url = args.url;
    url.token = args.token_file.token(args.token, url.token)?;
    let mut bytes = 0;
    let Listing { items, missing } =
        list(&url, args.credentials.load()?, &args.patterns, |item| {
            // What has another name is counted once.
            bytes += if item.kind.is_file() { item.oti.object_len } else { 0 };
            let link = match &item.kind {
                ItemKind::Link(text) => Some(text.as_str()),
                _ => None,
            };
            let same_as = match &item.kind {
                ItemKind::HardLink(name) => Some(name.as_str()),
                _ => None,
            };
            let (_, leads) = described(&item.kind);
            let digest = (item.digest.0 != [0; 32]).then(|| item.digest.to_string());
            output.json(&json!({
                "event": "item",
                "name": item.name,
                "bytes": item.oti.object_len,
                "digest": digest,
                "media_type": item.media_type,
                "modified_ns": item.modified_ns,
                "link": link,
                "same_as": same_as,
            }));
            output.result(format!(
                "{:>10}  {:<24} {}{leads}",
                ByteCount(item.oti.object_len).to_string(),
                plain(&item.media_type),
                plain(&item.name)
            ));
        })?;
    output.note(format!("{}, {}", counted(items, "item"), ByteCount(bytes)));
    match missing.as_slice() {
        [] => {}
        [one] => anyhow::bail!("{} is not there", plain(&one.name)),
        [first, ..] => anyhow::bail!(
            "{} of those asked for are not there; the first is {}",
            missing.len(),
            plain(&first.name)
        ),
    }
    Ok(ExitCode::SUCCESS)
}
