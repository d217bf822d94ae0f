//! Animation of a run: one self-contained HTML file.
//!
//! - `recording.rs`: the events of the run that the page shows, and their limits.
//! - `layout/`: the places of the nodes.
//! - `page/`: the page, `page.html` with `style.css` and the scripts, which are inserted in the
//!   order of [`SCRIPTS`].

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use umbel_engine::Instant;

use super::output::Output;
use super::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};
use crate::network::Network;
use recording::Recording;

mod layout;
mod recording;
#[cfg(test)]
mod tests;

/// Parts of the page.
const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 8] = [
    include_str!("page/format.js"),
    include_str!("page/run.js"),
    include_str!("page/replay.js"),
    include_str!("page/shapes.js"),
    include_str!("page/stage.js"),
    include_str!("page/timeline.js"),
    include_str!("page/panel.js"),
    include_str!("page/main.js"),
];

/// Writes a page that shows the network and plays the run: packets on their links, losses, joins,
/// notes.
///
/// The page holds the first part of a run, up to [`MAX_PACKETS`](HtmlTracer::MAX_PACKETS) packets
/// on links or the same number of other events. It shows a notice if the run went on. It is written
/// by [`finish`](Tracer::finish); nothing else is kept in memory.
///
/// The first value of a note named `outstanding` is taken as the number of items that a node still
/// waits for. It is shown at the node. The reader of the page can choose another note.
#[derive(Debug)]
pub struct HtmlTracer {
    title: String,
    output: Output,
    recording: Recording,
}

impl HtmlTracer {
    /// Largest number of packets on links that a page shows.
    pub const MAX_PACKETS: usize = 100_000;
    /// Largest number of nodes that a page shows.
    pub const MAX_NODES: usize = 2_000;

    /// Creates the file, or empties it. The title of the page is the name of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created, or if the network has more than
    /// [`MAX_NODES`](HtmlTracer::MAX_NODES) nodes.
    pub fn create(path: &Path, network: &Network) -> Result<HtmlTracer, TraceError> {
        let (nodes, limit) = (network.node_count(), HtmlTracer::MAX_NODES);
        if nodes > limit {
            return Err(TraceError::TooManyNodes { path: path.to_owned(), nodes, limit });
        }
        let title = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Ok(HtmlTracer {
            title: title.unwrap_or_default(),
            output: Output::create(path)?,
            recording: Recording::new(network.clone(), HtmlTracer::MAX_PACKETS),
        })
    }

    /// Sets the title of the page.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> HtmlTracer {
        HtmlTracer { title: title.into(), ..self }
    }

    /// Sets the limit on packets on links, and on other events. Default
    /// [`MAX_PACKETS`](HtmlTracer::MAX_PACKETS). A page grows by some 20 bytes with each packet.
    #[must_use]
    pub fn max_packets(self, packets: usize) -> HtmlTracer {
        HtmlTracer { recording: self.recording.limit(packets), ..self }
    }
}

impl Tracer for HtmlTracer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        self.recording.packet(record);
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        self.recording.note(record);
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        self.recording.message(record);
    }

    fn membership(&mut self, record: &MembershipRecord) {
        self.recording.membership(record);
    }

    fn failed(&self) -> bool {
        self.output.failed()
    }

    fn finish(&mut self, end: Instant) -> Result<(), TraceError> {
        let HtmlTracer { title, output, recording } = self;
        output.write(|file| write_page(file, title, recording, end));
        output.finish()
    }
}

/// Writes the page, with the places that are named `{{…}}` filled in.
fn write_page(
    file: &mut BufWriter<File>,
    title: &str,
    recording: &Recording,
    end: Instant,
) -> io::Result<()> {
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else { break };
        file.write_all(before.as_bytes())?;
        match name {
            "title" => file.write_all(escape(title).as_bytes())?,
            "style" => file.write_all(STYLE.as_bytes())?,
            "scripts" => file.write_all(SCRIPTS.concat().as_bytes())?,
            // Within a script element `<` could begin its end. In JSON it is only found in texts.
            _ => {
                let json = recording.to_json(title, end)?.replace('<', "\\u003c");
                file.write_all(json.as_bytes())?;
            }
        }
        rest = after;
    }
    file.write_all(rest.as_bytes())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
