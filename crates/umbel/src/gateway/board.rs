//! State that the engine's thread and the HTTP server share: the shelf and the status.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use umbel_wire::session::SessionName;

use super::GatewaySnapshot;
use super::shelf::Shelf;
use crate::http::{Answer, Site};

/// The page for people.
const PAGE: &str = include_str!("page.html");

/// The shelf and the status of a stream, as a site:
///
/// | path | answer |
/// |---|---|
/// | `/` | a page with the link for players, and the status |
/// | `/status.json` | the status |
/// | `/NAME/master.m3u8` | for players |
/// | `/NAME/live.m3u8`, `/NAME/segment/…`, `/NAME/init/…` | what it leads to |
#[derive(Debug)]
pub(crate) struct Board {
    name: SessionName,
    shelf: Mutex<Shelf>,
    status: Mutex<GatewaySnapshot>,
}

impl Board {
    /// Creates the board of a stream that was not found yet.
    pub(crate) fn new(name: SessionName) -> Board {
        let (shelf, status) = (Mutex::new(Shelf::new(0)), Mutex::default());
        Board { name, shelf, status }
    }

    /// Returns the shelf, for a moment.
    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the status.
    pub(crate) fn report(&self, snapshot: GatewaySnapshot) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    /// Returns what is below the stream's name in a path.
    fn media<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix('/')?.strip_prefix(self.name.as_str())?.strip_prefix('/')
    }

    fn status(&self) -> Bytes {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let json = serde_json::json!({ "name": self.name.as_str(), "status": status });
        json.to_string().into()
    }
}

impl Site for Board {
    fn answer(&self, path: &str) -> Answer {
        let found =
            |media_type, body| Answer::Found { media_type, body, etag: None, signature: None };
        match path {
            "/" => found("text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes())),
            "/status.json" => found("application/json", self.status()),
            _ => {
                let below = self.media(path);
                below.map_or(Answer::NotFound, |path| self.shelf().answer(path))
            }
        }
    }

    fn is_for_any_page(&self, path: &str) -> bool {
        self.media(path).is_some()
    }
}
