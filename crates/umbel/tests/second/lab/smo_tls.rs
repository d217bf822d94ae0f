//! `umbel smo serve --tls` with plain `curl`, and with clients that do not speak TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockType, SockaddrStorage, connect};

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{Site, clients, end, have};
use crate::support::{files, lab};

const PROGRAMS: [&str; 2] = ["curl", "nft"];
/// More than the buffer of the server's connection holds.
const LEN: u64 = 3 << 20;

/// Serves the directory of a site by TLS. Returns the server, and the pin of its key.
#[track_caller]
fn serve(site: &Site<'_>, options: &[&str]) -> (Process, String) {
    let tls = ["--tls", "--buffer", "65536"];
    let command = site.serve(&["--http", "www"], &[&tls[..], options].concat());
    let server = Process::start("server", command, &site.logs);
    let serving = server.wait_for_event("serving", SOON);
    let pin = serving["pin"].as_str().unwrap_or_default().to_owned();
    assert!(pin.starts_with("sha256//"), "{serving}");
    (server, pin)
}

/// Runs `curl` on `h2`.
fn curl(site: &Site<'_>, options: &[&str], url: &str) -> Output {
    let mut command = site.host("h2").command("curl");
    command.args(["--silent", "--show-error", "--max-time", "60"]).args(options).arg(url);
    command.stdin(Stdio::null()).output().unwrap()
}

fn url(site: &Site<'_>, path: &str) -> String {
    format!("https://{}:8080/{path}", site.address("h1"))
}

/// Opens a connection from `h2`.
fn open(site: &Site<'_>) -> TcpStream {
    let socket =
        site.host("h2").socket(AddressFamily::Inet as i32, SockType::Stream as i32, 0).unwrap();
    let server = SocketAddr::from((site.host("h1").addr4(), 8080));
    connect(socket.as_raw_fd(), &SockaddrStorage::from(server)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

#[test]
fn curl_gets_files_and_ranges_by_tls_and_nothing_is_multicast() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN), ("small", 1_000)]);
    let whole = std::fs::read(site.www().join("big")).unwrap();
    let (server, pin) = serve(&site, &["--state-dir", "state"]);
    let _helper = site.join("h2", &[]);
    let trust = ["--tlsv1.3", "--insecure", "--pinnedpubkey", &pin];
    let got = curl(&site, &trust, &url(&site, "big"));
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert!(got.stdout == whole, "{} bytes", got.stdout.len());
    let range = [&trust[..], &["--range", "1000000-1299999"]].concat();
    assert!(curl(&site, &range, &url(&site, "big")).stdout == whole[1_000_000..1_300_000]);
    // Two on one connection, and none that exists.
    let small = url(&site, "small");
    let two = [&trust[..], &[&small]].concat();
    assert_eq!(curl(&site, &two, &small).stdout.len(), 2_000);
    let none = [&trust[..], &["--fail"]].concat();
    assert_eq!(curl(&site, &none, &url(&site, "none")).status.code(), Some(22), "404");
    // Another key, an older version.
    let other =
        ["--insecure", "--pinnedpubkey", "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="];
    assert_eq!(curl(&site, &other, &url(&site, "small")).status.code(), Some(90));
    let old = ["--insecure", "--tls-max", "1.2"];
    assert_eq!(curl(&site, &old, &url(&site, "small")).status.code(), Some(35));
    let summary = end(server);
    assert_eq!(summary["traffic"]["multicast_bytes"], 0, "{summary}");
    assert_eq!((&summary["together"], &summary["answers"]), (&0.into(), &5.into()), "{summary}");
}

#[test]
fn curl_gets_a_file_by_tls_over_ipv6_too() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01])) else { return };
    let site = Site::over_ipv6(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let (server, pin) = serve(&site, &["--state-dir", "state"]);
    let trust = ["--globoff", "--tlsv1.3", "--insecure", "--pinnedpubkey", &pin];
    let got = curl(&site, &trust, &url(&site, "big"));
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert!(got.stdout == std::fs::read(site.www().join("big")).unwrap());
    assert_eq!(end(server)["traffic"]["multicast_bytes"], 0);
}

#[test]
fn curl_trusts_a_certificate_that_is_given() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("file", 100_000)]);
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let names = vec![site.host("h1").addr4().to_string()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    std::fs::write(site.path("cert.pem"), certificate.pem()).unwrap();
    write_secret(&site.path("key.pem"), &key.serialize_pem());
    let (server, _) = serve(&site, &["--cert", "cert.pem", "--key", "key.pem"]);
    let authority = site.path("cert.pem");
    let trust = ["--tlsv1.3", "--cacert", authority.to_str().unwrap()];
    let got = curl(&site, &trust, &url(&site, "file"));
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert!(got.stdout == std::fs::read(site.www().join("file")).unwrap());
    // Without it, nobody vouches for the key.
    assert_eq!(curl(&site, &[], &url(&site, "file")).status.code(), Some(60));
    end(server);
    // A key that everybody could download, and a stream that is one for all.
    write_secret(&site.www().join("key.pem"), &key.serialize_pem());
    for (what, options, why) in [
        ("--http", &["--cert", "cert.pem", "--key", "www/key.pem"][..], "directory that is served"),
        ("--file", &[], "--tls needs --http"),
    ] {
        let path = if what == "--http" { "www" } else { "www/file" };
        let refused = site.serve(&[what, path], &[&["--tls"], options].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(why), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}

fn write_secret(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn who_does_not_speak_tls_gets_an_alert_and_the_end() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("file", 100_000)]);
    let (server, pin) = serve(&site, &["--state-dir", "state"]);
    // One connects and is silent, one stalls in the handshake. Both are ended after a while.
    let mut silent = open(&site);
    let mut stalling = open(&site);
    // The head of a record with a ClientHello of 512 bytes, and its beginning.
    stalling.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).unwrap();
    for text in
        [&b"GET /file HTTP/1.1\r\nHost: s\r\n\r\n"[..], &[0; 5000], &[22, 3, 1, 0, 4, 9, 0, 0, 0]]
    {
        let mut stream = open(&site);
        stream.write_all(text).unwrap();
        let mut got = Vec::new();
        // Its further segments may be answered by a reset.
        let _ = stream.read_to_end(&mut got);
        // A fatal alert, and nothing else.
        assert_eq!((got.len(), got.first(), got.get(5)), (7, Some(&21), Some(&2)), "{got:?}");
    }
    let plain = url(&site, "file").replace("https", "http");
    let got = curl(&site, &["--http0.9"], &plain);
    assert!(got.stdout.len() <= 7, "{} bytes", got.stdout.len());
    // Others are served meanwhile.
    let trust = ["--insecure", "--pinnedpubkey", &pin];
    assert_eq!(curl(&site, &trust, &url(&site, "file")).stdout.len(), 100_000);
    let mut got = Vec::new();
    assert_eq!(silent.read_to_end(&mut got).unwrap(), 0);
    let _ = stalling.read_to_end(&mut got);
    assert!(got.is_empty() || got[0] == 21, "{got:?}");
    let noted = |event: &serde_json::Value| {
        event["progress"]["drops"].as_str().is_some_and(|drops| drops.contains("LateHandshake 1"))
    };
    let report = server.wait_for("a late handshake", SOON, noted);
    let drops = report["progress"]["drops"].as_str().unwrap();
    assert!(drops.contains("NoTls 4"), "{drops}");
    end(server);
}
