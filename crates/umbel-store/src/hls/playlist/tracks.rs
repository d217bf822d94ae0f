//! Which renditions can take each other's place.
//!
//! A receiver goes from one to another while a player decodes. A player that began with picture and
//! sound goes on with nothing else, and hardly any changes its decoder.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Rendition;

/// Beginnings of names of codecs of pictures [RFC 6381].
const PICTURES: [&str; 13] = [
    "av01", "avc1", "avc2", "avc3", "avc4", "dva1", "dvav", "dvh1", "dvhe", "hev1", "hvc1", "mp4v",
    "vp",
];

/// A rendition as the playlist lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    pub(super) rendition: Rendition,
    /// Group of the sound that goes with it.
    pub(super) audio: Option<String>,
}

/// What a player needs for a rendition, as far as its playlist says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tracks {
    picture: bool,
    /// Formats; `None` if the playlist does not say.
    formats: Option<BTreeSet<String>>,
    /// Whether the sound is apart.
    apart: bool,
}

impl Tracks {
    fn of(listed: &Listed, apart: &BTreeSet<String>) -> Tracks {
        let Listed { rendition, audio } = listed;
        let codecs = rendition.codecs.as_deref().map(|codecs| codecs.split(',').map(str::trim));
        let formats = codecs.map(|codecs| codecs.map(format).collect::<BTreeSet<_>>());
        let named = |formats: &BTreeSet<String>| {
            formats.iter().any(|format| PICTURES.iter().any(|of| format.starts_with(of)))
        };
        Tracks {
            picture: rendition.resolution.is_some() || formats.as_ref().is_some_and(named),
            formats,
            apart: audio.as_ref().is_some_and(|group| apart.contains(group)),
        }
    }
}

/// Returns the format of a codec, without its profile. Names that differ in where the parameters
/// are stand for one format.
fn format(codec: &str) -> String {
    let codec = codec.to_ascii_lowercase();
    let (name, profile) = codec.split_once('.').unwrap_or((&codec, ""));
    match (name, profile) {
        ("avc3", _) => "avc1".to_owned(),
        ("hev1", _) => "hvc1".to_owned(),
        ("dvhe", _) => "dvh1".to_owned(),
        ("mp4a", "40.34" | "69" | "6b") => "mp3".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// Returns the renditions of the largest set whose tracks and formats are the same, and the others.
/// Sets with pictures come before those without.
pub(super) fn consistent(
    listed: Vec<Listed>,
    apart: &BTreeSet<String>,
) -> (Vec<Rendition>, Vec<Rendition>) {
    let tracks: Vec<Tracks> = listed.iter().map(|one| Tracks::of(one, apart)).collect();
    let rank = |tracks_of: &Tracks| {
        let same = || tracks.iter().zip(&listed).filter(|(other, _)| *other == tracks_of);
        let best = same().map(|(_, one)| one.rendition.bandwidth).max();
        let formats = tracks_of.formats.as_ref().map_or(0, BTreeSet::len);
        (tracks_of.picture, same().count(), formats, best)
    };
    let Some(chosen) = tracks.iter().min_by_key(|tracks| Reverse(rank(tracks))).cloned() else {
        return (Vec::new(), Vec::new());
    };
    let (kept, left): (Vec<_>, Vec<_>) =
        listed.into_iter().zip(&tracks).partition(|(_, tracks)| **tracks == chosen);
    let renditions = |all: Vec<(Listed, &Tracks)>| {
        let mut all: Vec<Rendition> = all.into_iter().map(|(one, _)| one.rendition).collect();
        all.sort_by_key(|rendition| rendition.bandwidth);
        all
    };
    (renditions(kept), renditions(left))
}
