//! Bounds of what strangers can fill at a command, and those of all crates together.

use umbel_engine::bounds::{Bound, Row, Share, WhenFull};

/// Sessions that were heard.
pub(crate) const ANNOUNCEMENTS: Bound = Bound {
    what: "announcements that a directory remembers, of 8 KiB each, 128 of one key",
    all: 2_048,
    of_host: Share::Of(128),
    full: WhenFull::Told("the network with most gives one up, there the host with most"),
    test: "directory::table::a_host_with_all_addresses_of_its_network_pushes_nothing_out",
};

/// Hosts whose interfaces are known.
pub(crate) const HEARD: Bound = Bound {
    what: "hosts of which a directory notes the interfaces; for others the route decides",
    all: 4_096,
    of_host: Share::None("a host has one for each address that it takes"),
    full: WhenFull::Refused,
    test: "",
};

/// Connections of a small HTTP server. One host may have them all while nobody else wants any,
/// since it may be a proxy.
pub(crate) const HTTP: Bound = Bound {
    what: "HTTP connections of `gateway`, `stream --repair-listen`, `router --http`; 10 min each",
    all: 256,
    of_host: Share::All,
    full: WhenFull::Greediest,
    test: "http::server::a_host_that_holds_all_connections_gives_them_up_for_others_and_for_nobody_else",
};

/// Bursts of probes that wait.
pub(crate) const PROBES: Bound = Bound {
    what: "bursts of probes that wait at `serve`",
    all: 256,
    of_host: Share::AsMuchAsIsLeft,
    full: WhenFull::Refused,
    test: "serve::prober::one_host_does_not_fill_the_line",
};

/// Documents that are open.
pub(crate) const SMO_DOCUMENTS: Bound = Bound {
    what: "documents that `smo serve` has open",
    all: 1_000,
    of_host: Share::All,
    full: WhenFull::Greediest,
    test: "attacks::smo::downloads_of_one_host_that_reads_nothing_keep_nobody_out",
};

/// Streams that are multicast.
pub(crate) const SMO_STREAMS: Bound = Bound {
    what: "streams of `smo serve`",
    all: 256,
    of_host: Share::All,
    full: WhenFull::Told("one that a host receives alone ends for one that several want"),
    test: "attacks::smo::downloads_of_one_host_that_reads_nothing_keep_nobody_out",
};

/// Connections of `smo relay` to its server.
pub(crate) const SMO_UPSTREAM: Bound = Bound {
    what: "connections of `smo relay` to its server",
    all: 256,
    of_host: Share::None("one for each path that is asked for, whoever asks"),
    full: WhenFull::Refused,
    test: "",
};

/// The bounds of all crates.
pub fn rows() -> Vec<Row> {
    let places =
        [&ANNOUNCEMENTS, &HEARD, &HTTP, &PROBES, &SMO_DOCUMENTS, &SMO_STREAMS, &SMO_UPSTREAM];
    let mut rows: Vec<Row> = places.map(Row::from).into();
    rows.extend(umbel_engine::bounds::rows());
    rows.extend(umbel_net::bounds::rows());
    rows.extend(umbel_router::bounds::rows());
    rows.sort_by_key(|row| row.what);
    rows
}

/// Returns the page of the reference.
#[cfg(test)]
fn page() -> String {
    use std::fmt::Write as _;

    let mut page = HEAD.to_owned();
    let (shared, others): (Vec<Row>, Vec<Row>) =
        rows().into_iter().partition(|row| row.of_host.is_ok());
    for row in &shared {
        let of_host = row.of_host.as_deref().unwrap_or_default();
        let _ = writeln!(
            page,
            "| {} | {} | {of_host} | {} | {} |",
            row.what,
            row.all,
            row.full,
            test_of(row)
        );
    }
    page += OTHERS;
    for row in &others {
        let reason = row.of_host.as_ref().err().copied().unwrap_or_default();
        let _ = writeln!(page, "| {} | {} | {reason} | {} |", row.what, row.all, row.full);
    }
    page
}

/// Returns the name of a row's test, which is in the code's words.
#[cfg(test)]
fn test_of(row: &Row) -> String {
    let (of, name) = row.test.rsplit_once("::").unwrap_or_default();
    format!("`{of}`: {}", name.replace('_', " "))
}

#[cfg(test)]
const HEAD: &str = "\
# Bounds, and the share of one host

Whatever strangers send has bounds. A bound that is one number for everybody is itself an attack:
who fills it locks the others out. So a host has at most its share, and the last column names the
test in which one tries ten times as much while another is served. This page is made from the code.

A *host* is an IPv4 address, or the first 64 bits of an IPv6 address, which has four times as many
places and the same rates. On a link, where all have the same first bits, it is one address. What is
bounded for each session, message or file is in [Security](../security.md#limits).

| what | of all | of a host | when all is taken | test |
|---|---|---|---|---|
";

#[cfg(test)]
const OTHERS: &str = "
## One number for everybody

Who can fill these keeps others from them, as far as the reason in the third column permits.

| what | of all | why no host has a share | when all is taken |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_reference_of_bounds_is_that_of_the_code() {
        let file = root().join("docs/reference/bounds.md");
        if std::env::var_os("UMBEL_BLESS").is_some() {
            fs::write(&file, page()).unwrap();
        }
        let is_current = fs::read_to_string(&file).is_ok_and(|text| text == page());
        assert!(is_current, "UMBEL_BLESS=1 writes docs/reference/bounds.md from the code");
    }

    /// Returns the names of all tests.
    fn tests() -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![root().join("crates")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() && entry.file_name() != "target" {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let after = text.split("#[test]").skip(1);
                    let name = after
                        .filter_map(|after| Some(after.split_once("fn ")?.1.split_once('(')?.0));
                    names.extend(name.map(str::to_owned));
                }
            }
        }
        names
    }

    #[test]
    fn every_share_has_a_test() {
        let tests = tests();
        for row in rows() {
            let name = row.test.rsplit("::").next().unwrap_or_default();
            let is_tried = tests.iter().any(|test| test == name);
            assert!(is_tried || (row.of_host.is_err() && name.is_empty()), "{}: {name}", row.what);
        }
    }
}
