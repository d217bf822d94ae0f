//! Senders and receivers: the common part of most protocols' sections.

use toml::Spanned;
use umbel_topology::Mistake;

use super::hosts::Hosts;
use super::protocol::Section;
use crate::generate::SOURCE;
use crate::network::NodeId;

/// Reads the hosts of a source and its receivers: by default the host `source`, and all others.
pub(super) fn read(
    section: &Section<'_>,
    source: Option<&Spanned<String>>,
    receivers: Option<&Spanned<Vec<Spanned<String>>>>,
) -> Result<(NodeId, Vec<NodeId>), Mistake> {
    let (text, span) = (section.text, section.span());
    let usual = Spanned::new(span.clone(), SOURCE.to_owned());
    let source = source.unwrap_or(&usual);
    if source.span() == span && section.topology.node_index(SOURCE).is_none() {
        let message = format!("`source` is missing: there is no host `{SOURCE}` to be it");
        return Err(text.mistake(span, message));
    }
    let hosts = Hosts::new(section, source, ["source", "receiver"])?;
    let found = match receivers {
        Some(patterns) => hosts.matching(patterns.get_ref())?,
        None => hosts.matching(&[Spanned::new(span.clone(), "*".to_owned())])?,
    };
    if found.is_empty() {
        let span = receivers.map_or(span, Spanned::span);
        return Err(text.mistake(span, "expected at least one receiver"));
    }
    let receivers = found.into_iter().map(|node| NodeId(node as u32)).collect();
    Ok((NodeId(hosts.server() as u32), receivers))
}
