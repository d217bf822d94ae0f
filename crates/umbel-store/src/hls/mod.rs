//! A ladder of HTTP Live Streaming: the same content in renditions of several rates, each a list of
//! segments, as `ffmpeg -f hls` writes it.
//!
//! ```text
//! master.m3u8 ──▶ v180p/index.m3u8 ──▶ v180p/init_0.mp4, v180p/seg_00000.m4s, …
//!             └─▶ v360p/index.m3u8 ──▶ v360p/init_1.mp4, v360p/seg_00000.m4s, …
//! ```
//!
//! - [`FileName`]: names in playlists, none of which leaves the directory.
//! - [`Playlist`]: reads and writes playlists; [`Follower`]: what is new in one.
//! - [`LadderFiles`], [`LadderWatch`]: the directory, and news of it.
//!
//! # Scope and limitations
//!
//! Tracks apart from the renditions (audio, subtitles), encryption, parts of files and low-latency
//! parts are not understood. Segments of one number must be the same time of all renditions, as
//! ffmpeg writes them.

mod files;
mod follow;
mod name;
mod playlist;
mod watch;

pub use files::{FileError, LadderFiles};
pub use follow::{FollowError, Follower, Fresh};
pub use name::{FileName, MAX_NAME, NameError};
pub use playlist::{
    MAX_DURATION, MAX_PLAYLIST, MAX_RENDITIONS, MAX_SEGMENTS, Master, Media, Playlist,
    PlaylistError, Rendition, Segment,
};
pub use watch::LadderWatch;
