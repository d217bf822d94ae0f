//! Sources of the bytes to serve: files or a pipe, read on their own thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use umbel_engine::host::Mailbox;

use super::http::request::Status;
use super::http::response::Document;

/// Name of the document in a directory.
const INDEX: &str = "index.html";

/// Number of a reading, given by the host.
pub(crate) type Reading = u64;

/// Source of bytes. It never blocks; what it finds and reads comes as input of the host.
pub(crate) trait Library {
    /// Opens a document for a reading. Answered by [`News::Found`].
    fn find(&mut self, reading: Reading, path: &str);

    /// Reads up to `len` bytes. Answered by [`News::Bytes`] or [`News::Failed`]. A host asks again
    /// only after the answer.
    fn read(&mut self, reading: Reading, from: u64, len: usize);

    /// Ends a reading. Answers that are under way may still come.
    fn close(&mut self, reading: Reading);
}

/// An answer of a library.
#[derive(Debug)]
pub(crate) enum News {
    /// A document is open, or why it is not.
    Found { reading: Reading, document: Result<Document, Status> },
    /// The next bytes; none at the end.
    Bytes { reading: Reading, bytes: Bytes },
    /// The stream goes on after a gap. The host asks again.
    Gap { reading: Reading },
    /// The document cannot be read on.
    Failed { reading: Reading, reason: String },
}

/// Work for a thread that reads.
#[derive(Debug)]
enum Job {
    Find { reading: Reading, path: String },
    Read { reading: Reading, from: u64, len: usize },
    Close { reading: Reading },
}

/// A thread that reads. It ends with its library.
#[derive(Debug)]
pub(crate) struct Clerk {
    jobs: Sender<Job>,
}

impl Clerk {
    /// Starts a thread that serves the files of a directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be opened.
    pub(crate) fn directory(path: &Path, news: Mailbox<News>) -> anyhow::Result<Clerk> {
        let root = File::open(path).with_context(|| format!("cannot serve {}", path.display()))?;
        if !root.metadata()?.is_dir() {
            anyhow::bail!("{} is no directory: serve a file with --file", path.display());
        }
        Clerk::start(Shelf { root: Root::Directory(root.into()), open: BTreeMap::new() }, news)
    }

    /// Starts a thread that serves one file under any path.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(crate) fn file(path: &Path, news: Mailbox<News>) -> anyhow::Result<Clerk> {
        let why = || format!("cannot serve {}", path.display());
        let file = File::open(path).with_context(why)?;
        if !file.metadata().with_context(why)?.is_file() {
            anyhow::bail!("{} is no file: serve a directory with --http", path.display());
        }
        Clerk::start(Shelf { root: Root::File(path.to_owned()), open: BTreeMap::new() }, news)
    }

    /// Starts a thread that reads a pipe or a connection. All readings are one.
    ///
    /// # Errors
    ///
    /// If the system starts no thread.
    pub(crate) fn pipe(
        input: impl io::Read + Send + 'static,
        news: Mailbox<News>,
    ) -> anyhow::Result<Clerk> {
        let (jobs, todo) = crossbeam_channel::unbounded();
        std::thread::Builder::new()
            .name("umbel-pipe".to_owned())
            .spawn(move || read_pipe(input, &todo, &news))?;
        Ok(Clerk { jobs })
    }

    fn start(mut shelf: Shelf, news: Mailbox<News>) -> anyhow::Result<Clerk> {
        let (jobs, todo) = crossbeam_channel::unbounded();
        let run = move || {
            for job in todo {
                if let Some(answer) = shelf.work(job) {
                    news.put(answer);
                }
            }
        };
        std::thread::Builder::new().name("umbel-librarian".to_owned()).spawn(run)?;
        Ok(Clerk { jobs })
    }

    fn give(&self, job: Job) {
        // The thread ends only with the library, or at the end of a pipe.
        let _ = self.jobs.send(job);
    }
}

impl Library for Clerk {
    fn find(&mut self, reading: Reading, path: &str) {
        self.give(Job::Find { reading, path: path.to_owned() });
    }

    fn read(&mut self, reading: Reading, from: u64, len: usize) {
        self.give(Job::Read { reading, from, len });
    }

    fn close(&mut self, reading: Reading) {
        self.give(Job::Close { reading });
    }
}

/// Open files.
struct Shelf {
    root: Root,
    open: BTreeMap<Reading, File>,
}

enum Root {
    Directory(OwnedFd),
    File(PathBuf),
}

impl Shelf {
    fn work(&mut self, job: Job) -> Option<News> {
        match job {
            Job::Find { reading, path } => {
                let document = self.find(&path).map(|(file, document)| {
                    self.open.insert(reading, file);
                    document
                });
                Some(News::Found { reading, document })
            }
            Job::Read { reading, from, len } => Some(match self.read(reading, from, len) {
                Ok(bytes) => News::Bytes { reading, bytes },
                Err(error) => News::Failed { reading, reason: error.to_string() },
            }),
            Job::Close { reading } => {
                self.open.remove(&reading);
                None
            }
        }
    }

    fn find(&self, path: &str) -> Result<(File, Document), Status> {
        let (name, file) = match &self.root {
            Root::File(file) => (file.display().to_string(), File::open(file)),
            Root::Directory(root) => {
                let name = name_below(path).ok_or(Status::NotFound)?;
                let file = open_below(root, &name);
                (name, file)
            }
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(code) if code == nix::Error::EMFILE as i32 => Status::Unavailable,
            _ => Status::NotFound,
        })?;
        let data = file.metadata().map_err(|_| Status::NotFound)?;
        if let Root::Directory(root) = &self.root
            && data.is_dir()
            && open_below(root, &format!("{name}/{INDEX}")).is_ok()
        {
            return Err(Status::MovedPermanently);
        }
        if !data.is_file() {
            return Err(Status::NotFound);
        }
        let media_type = mime_guess2::from_path(&name).first_raw();
        let document = Document {
            len: data.len(),
            media_type: media_type.unwrap_or("application/octet-stream").to_owned(),
            etag: format!("\"{:x}-{:x}-{:x}\"", data.mtime(), data.mtime_nsec(), data.len()),
            modified: data.modified().ok(),
        };
        Ok((file, document))
    }

    fn read(&self, reading: Reading, from: u64, len: usize) -> io::Result<Bytes> {
        let Some(file) = self.open.get(&reading) else { return Ok(Bytes::new()) };
        let mut bytes = Vec::with_capacity(len);
        let mut file: &File = file;
        file.seek(SeekFrom::Start(from))?;
        file.take(len as u64).read_to_end(&mut bytes)?;
        Ok(bytes.into_boxed_slice().into())
    }
}

/// Returns the name of a file below the root. No part of it is hidden or leads upwards.
fn name_below(path: &str) -> Option<String> {
    let name = path.strip_prefix('/')?;
    let name = match name {
        "" => INDEX.to_owned(),
        directory if directory.ends_with('/') => format!("{directory}{INDEX}"),
        file => file.to_owned(),
    };
    let sound = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\0');
    name.split('/').all(sound).then_some(name)
}

/// Opens a file below a directory. Links that lead out of it, or to what is hidden, are not
/// followed.
fn open_below(root: &OwnedFd, name: &str) -> io::Result<File> {
    // A pipe would make the thread wait for a writer.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).resolve(within);
    let file: File = openat2(root, name, how)?.into();
    // The name says nothing about where links led. This is about the file that is open.
    if is_hidden(&path_of(root)?, &path_of(&file)?) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(file)
}

/// Returns where an open file is.
fn path_of(file: &impl AsRawFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns whether a file is hidden below a directory, or no longer below it.
fn is_hidden(root: &Path, file: &Path) -> bool {
    let hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
    file.strip_prefix(root).map_or(true, |below| below.components().any(hidden))
}

/// Returns the first `len` bytes, and lets go of the memory behind them. A stream's buffer counts
/// bytes, so that it would hold many times as much as it may where a pipe gives little at a time.
pub(crate) fn beginning(mut bytes: Vec<u8>, len: usize) -> Bytes {
    bytes.truncate(len);
    bytes.into_boxed_slice().into()
}

fn read_pipe(mut input: impl io::Read, todo: &Receiver<Job>, news: &Mailbox<News>) {
    for job in todo {
        let Job::Read { reading, len, .. } = job else { continue };
        let mut bytes = vec![0; len];
        let answer = loop {
            match input.read(&mut bytes) {
                Ok(read) => break News::Bytes { reading, bytes: beginning(bytes, read) },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break News::Failed { reading, reason: error.to_string() },
            }
        };
        news.put(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a library and what it says.
    fn library(path: &Path) -> (Clerk, Receiver<News>) {
        let (put, news) = crossbeam_channel::unbounded();
        let mailbox = Mailbox::new(move |answer| drop(put.send(answer)));
        (Clerk::directory(path, mailbox).unwrap(), news)
    }

    fn found(clerk: &mut Clerk, news: &Receiver<News>, path: &str) -> Result<Document, Status> {
        clerk.find(1, path);
        match news.recv().unwrap() {
            News::Found { document, .. } => document,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_below_the_directory_are_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("secret"));
        std::fs::create_dir_all(root.join("sub")).unwrap();
        for (name, text) in [("a.txt", "0123456789"), ("sub/index.html", "x"), (".hidden", "x")] {
            std::fs::write(root.join(name), text).unwrap();
        }
        std::fs::write(&outside, "secret").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("out")).unwrap();
        std::os::unix::fs::symlink("a.txt", root.join("in")).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(root.join(".git/config"), "x").unwrap();
        std::os::unix::fs::symlink(".hidden", root.join("to-hidden")).unwrap();
        std::os::unix::fs::symlink(".git", root.join("git")).unwrap();
        let (mut clerk, news) = library(&root);
        for path in [
            "/../secret",
            "/sub/../../secret",
            "/out",
            "/.hidden",
            "/to-hidden",
            "/git/config",
            "//a.txt",
            "/",
            "/none",
            "/./a.txt",
            "/a.txt/",
            "/a\0",
            "/proc/self/environ",
        ] {
            assert_eq!(found(&mut clerk, &news, path), Err(Status::NotFound), "{path}");
        }
        assert_eq!(found(&mut clerk, &news, "/sub"), Err(Status::MovedPermanently));
        let document = found(&mut clerk, &news, "/a.txt").unwrap();
        assert_eq!((document.len, document.media_type.as_str()), (10, "text/plain"));
        assert!(document.etag.starts_with('"') && document.etag.ends_with('"'));
        for (from, len, expected) in [(2, 3, "234"), (8, 5, "89"), (10, 1, "")] {
            clerk.read(1, from, len);
            match news.recv().unwrap() {
                News::Bytes { bytes, .. } => assert_eq!(bytes, expected),
                other => panic!("{other:?}"),
            }
        }
        assert!(found(&mut clerk, &news, "/in").is_ok());
        assert_eq!(found(&mut clerk, &news, "/sub/").unwrap().media_type, "text/html");
    }

    #[test]
    fn what_is_read_takes_no_more_memory_than_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "0123456789").unwrap();
        let (mut files, of_file) = library(dir.path());
        found(&mut files, &of_file, "/a").unwrap();
        let (put, of_pipe) = crossbeam_channel::unbounded();
        let mailbox = Mailbox::new(move |answer| drop(put.send(answer)));
        let mut pipe = Clerk::pipe(&b"abcdef"[..], mailbox).unwrap();
        files.read(1, 0, 1 << 18);
        pipe.read(0, 0, 1 << 18);
        for news in [of_file, of_pipe] {
            let News::Bytes { bytes, .. } = news.recv().unwrap() else { panic!("no bytes") };
            let len = bytes.len();
            assert_eq!(Vec::from(bytes).capacity(), len);
        }
    }

    #[test]
    fn a_pipe_is_read_to_its_end_as_it_is_asked_for() {
        let (put, news) = crossbeam_channel::unbounded();
        let mailbox = Mailbox::new(move |answer| drop(put.send(answer)));
        let mut clerk = Clerk::pipe(&b"abcdef"[..], mailbox).unwrap();
        let mut read = Vec::new();
        loop {
            clerk.read(0, 0, 4);
            match news.recv().unwrap() {
                News::Bytes { bytes, .. } if bytes.is_empty() => break,
                News::Bytes { bytes, .. } => read.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(read, b"abcdef");
    }
}
