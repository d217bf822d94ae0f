//! The archives of `wget --warc-file` as repositories.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Sender, names, open, pattern, read};
use tempfile::TempDir;
use umbel_store::ReaderOptions;

/// A page of the server below.
struct Page {
    path: &'static str,
    status: &'static str,
    media_type: &'static str,
    /// Last line of the HTTP header.
    framing: String,
    sent: Vec<u8>,
    content: Vec<u8>,
}

impl Page {
    fn new(path: &'static str, media_type: &'static str, content: Vec<u8>) -> Page {
        let framing = format!("Content-Length: {}", content.len());
        Page { path, status: "200 OK", media_type, framing, sent: content.clone(), content }
    }
}

fn site() -> [Page; 5] {
    let text = "grüße\n".repeat(1_000).into_bytes();
    let mut chunked = Vec::new();
    for chunk in text.chunks(1_234) {
        write!(chunked, "{:X}\r\n", chunk.len()).unwrap();
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    [
        Page::new("/", "text/html", b"<a href=\"/text.txt\">t</a>".to_vec()),
        Page::new("/text.txt", "text/plain; charset=utf-8", text.clone()),
        Page {
            framing: "Transfer-Encoding: chunked".to_owned(),
            sent: chunked,
            ..Page::new("/chunked", "text/plain", text)
        },
        Page::new("/binary", "image/png", pattern(300_000, 7)),
        Page { status: "404 Not Found", ..Page::new("/gone", "text/plain", b"gone".to_vec()) },
    ]
}

fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        request.extend_from_slice(&byte);
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split(' ').nth(1).unwrap_or_default();
    if let Some(page) = site().into_iter().find(|page| page.path == path) {
        let Page { status, media_type, framing, sent, .. } = page;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\n{framing}\r\n\
             Connection: close\r\n\r\n"
        );
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&sent));
    }
}

/// Serves the site as long as the test runs. Returns its address.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    format!("http://{address}")
}

/// Crawls the site with `wget`. Returns `None` if there is no `wget`.
fn crawl(base: &str, dir: &Path, options: &[&str]) -> Option<()> {
    let status = Command::new("wget")
        .args(["--quiet", "--no-config", "--no-proxy", "--tries=1", "--timeout=10"])
        .args(["--output-document=/dev/null", "--warc-file=crawl"])
        .args(options)
        .args(site().iter().map(|page| format!("{base}{}", page.path)))
        .current_dir(dir)
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) => {
            assert_eq!(status.code(), Some(8), "8: the server answered with an error, the 404");
            Some(())
        }
        Err(error) => {
            eprintln!("skipped: wget cannot be started: {error}");
            None
        }
    }
}

#[test]
fn what_wget_wrote_is_served_as_it_is() {
    let base = serve();
    for (options, name) in [(&["--no-warc-compression"][..], "crawl.warc"), (&[], "crawl.warc.gz")]
    {
        let dir = TempDir::new().unwrap();
        if crawl(&base, dir.path(), options).is_none() {
            return;
        }
        let path = dir.path().join(name);
        let repository = open(&path);
        assert_eq!(repository.catalog().skipped().named(), []);
        let served = names(&repository);
        let mut sender = Sender::new(&repository, &ReaderOptions::default());
        for Page { path, media_type, content, .. } in site() {
            let uri = format!("{base}{path}");
            assert!(served.contains(&uri), "{uri} of {served:?}");
            let item = repository.catalog().lookup(&uri).unwrap();
            assert!(read(&repository, &item) == content, "{uri}");
            assert!(sender.transmit(&item).unwrap() == content, "{uri}");
            assert_eq!(item.media_type(), media_type);
        }
        // After one byte of the picture is flipped, it is skipped and named, and all other items
        // are served.
        let mut file = fs::read(&path).unwrap();
        let middle = file.len() * 2 / 3;
        file[middle] ^= 1;
        fs::write(&path, file).unwrap();
        let repository = open(&path);
        let skipped = repository.catalog().skipped();
        assert_eq!(skipped.total(), 1, "{skipped:?}");
        assert!(skipped.named()[0].name.starts_with(&format!("{base}/binary (at byte ")));
        assert_eq!(names(&repository).len(), served.len() - 1);
    }
}
