//! The repository that is served.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use umbel_store::{Repository, RepositoryOptions};

use super::plan::Wanted;

/// Directories of the repository that is created: name, extension, number of items, and bounds of
/// their sizes in bytes.
const DIRECTORIES: [(&str, &str, u64, u64, u64); 4] = [
    ("docs/guide", "pdf", 5, 100_000, 300_000),
    ("images/photo", "jpg", 8, 400_000, 900_000),
    ("maps/region", "tiles", 8, 900_000, 1_500_000),
    ("video/clip", "mp4", 3, 1_300_000, 1_500_000),
];

/// Fills a new directory with 24 items of 0.1 to 1.5 MB, with the same bytes each time.
pub(super) fn make(dir: &Path) -> io::Result<()> {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(24);
    for (stem, ending, count, least, most) in DIRECTORIES {
        for number in 1..=count {
            let path = dir.join(format!("{stem}-{number:02}.{ending}"));
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            let bytes = least + generator.next_u64() % (most - least + 1);
            fill(&path, bytes, &mut generator)?;
        }
    }
    Ok(())
}

fn fill(path: &Path, bytes: u64, generator: &mut Xoshiro256PlusPlus) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut left = bytes as usize;
    while left > 0 {
        let word = generator.next_u64().to_le_bytes();
        let take = left.min(word.len());
        file.write_all(&word[..take])?;
        left -= take;
    }
    file.flush()
}

/// Returns the items that a server will offer of a directory.
pub(super) fn list(dir: &Path) -> anyhow::Result<Vec<Wanted>> {
    if !dir.is_dir() {
        bail!("{} is not a directory: name one, or none at all", dir.display());
    }
    let repository = Repository::open(dir, RepositoryOptions::default())
        .with_context(|| format!("cannot serve {}", dir.display()))?;
    let everything = repository.catalog().select(&[], 0, usize::MAX)?;
    let items = everything.items.iter().filter(|item| item.kind().is_file());
    let items: Vec<Wanted> =
        items.map(|item| Wanted { name: item.name().to_owned(), bytes: item.size() }).collect();
    if items.is_empty() {
        bail!("there is nothing to serve in {}", dir.display());
    }
    Ok(items)
}
