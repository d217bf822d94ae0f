//! Several directories, files and block devices as one repository, each under its own name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::source::{self, DeviceOrigin};
use crate::directory::Directory;
use crate::origin::{Body, Found, Origin, Scan};
use crate::{Fault, OpenError, RepositoryOptions};

/// Several paths, each with its items.
#[derive(Debug)]
pub(crate) struct Several {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// Prefix of the names of its items: `name/` for a directory, empty otherwise.
    prefix: String,
    /// First part of the names of its items.
    name: String,
    origin: PartOrigin,
}

#[derive(Debug)]
enum PartOrigin {
    /// A directory, or a file.
    Directory(Directory),
    Device(DeviceOrigin),
}

impl PartOrigin {
    fn get(&self) -> &dyn Origin {
        match self {
            PartOrigin::Directory(directory) => directory,
            PartOrigin::Device(device) => device,
        }
    }

    /// Returns the item of this name that a directory itself is.
    fn as_item(&self, name: &str) -> Option<Found> {
        match self {
            PartOrigin::Directory(directory) => directory.as_item(name),
            PartOrigin::Device(_) => None,
        }
    }
}

impl Several {
    pub(crate) fn new(
        paths: &[PathBuf],
        options: &RepositoryOptions,
    ) -> Result<Several, OpenError> {
        let parts: Vec<Part> =
            paths.iter().map(|path| Part::new(path, options)).collect::<Result<_, _>>()?;
        let mut names = BTreeSet::new();
        match parts.iter().find(|part| !names.insert(&part.name)) {
            Some(part) => Err(OpenError::Twice(part.name.clone())),
            None => Ok(Several { parts }),
        }
    }

    /// Returns the part that an item of this name belongs to, and the item's name there.
    fn part<'a>(&self, name: &'a str) -> Option<(&Part, &'a str)> {
        self.parts.iter().find_map(|part| {
            let inner = name.strip_prefix(&part.prefix)?;
            (!part.prefix.is_empty() || name == part.name).then_some((part, inner))
        })
    }
}

impl Part {
    fn new(path: &Path, options: &RepositoryOptions) -> Result<Part, OpenError> {
        let io = |error| OpenError::Io { path: path.to_owned(), error };
        let metadata = std::fs::metadata(path).map_err(io)?;
        let named = if let Some(name) = path.file_name() {
            name.to_owned()
        } else {
            // A path such as `..`, whose name only the system knows.
            let whole = path.canonicalize().map_err(io)?;
            whole.file_name().unwrap_or("root".as_ref()).to_owned()
        };
        let name = named.to_string_lossy().into_owned();
        if !options.hidden && name.starts_with('.') {
            return Err(OpenError::Hidden(name));
        }
        if metadata.is_dir() {
            let prefix = format!("{name}/");
            let origin = PartOrigin::Directory(Directory::new(path, options)?);
            return Ok(Part { prefix, name, origin });
        }
        if source::is_one(&metadata) {
            let origin = PartOrigin::Device(DeviceOrigin::new(path)?);
            return Ok(Part { prefix: String::new(), name, origin });
        }
        if !metadata.is_file() {
            return Err(OpenError::Kind(path.to_owned()));
        }
        let origin = PartOrigin::Directory(Directory::of_file(path, options)?);
        Ok(Part { prefix: String::new(), name, origin })
    }
}

impl Origin for Several {
    fn scan(&self) -> Result<Option<Scan>, OpenError> {
        let mut all = Scan::default();
        for part in &self.parts {
            let Some(scan) = part.origin.get().scan()? else { continue };
            all.items.extend(part.origin.as_item(&part.name));
            all.items.extend(
                scan.items
                    .into_iter()
                    .map(|found| Found { name: format!("{}{}", part.prefix, found.name), ..found }),
            );
            all.other_status += scan.other_status;
            all.skipped.add_all(&part.prefix, &scan.skipped);
        }
        Ok(Some(all))
    }

    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault> {
        let (part, name) = self.part(&item.name).ok_or(Fault::Vanished)?;
        part.origin.get().open(&Found { name: name.to_owned(), ..item.clone() })
    }
}
