//! Trees with links, which are kept as they are.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::support::{Place, Ran, Running, in_namespace, noise, run};

/// Runs a script in the place's directory on a host that is alone in its network.
fn alone(place: &Place, script: &str) -> Option<Ran> {
    let script = format!("ip link set lo up multicast on; {script}");
    let mut command = in_namespace(&["--net"], &script)?;
    let state = place.path().join("state");
    Some(Running::start(command.current_dir(place.path()).env("XDG_STATE_HOME", state)).finish())
}

/// Makes a tree with links of all kinds, odd permissions, and an empty directory.
fn tree() -> Place {
    let place = Place::with(&[
        ("a", &noise(1, 300_000)),
        ("d/b", &noise(2, 5_000)),
        ("d/run", b"#!/bin/sh\n"),
    ]);
    let at = |name: &str| place.repo().join(name);
    fs::create_dir(at("empty")).unwrap();
    for (text, name) in [
        ("a", "to-file"),
        ("d", "to-dir"),
        ("../a", "d/up"),
        ("x", "y"),
        ("y", "x"),
        ("no", "d/no"),
    ] {
        symlink(text, at(name)).unwrap();
    }
    for name in ["d/a-again", "z"] {
        fs::hard_link(at("a"), at(name)).unwrap();
    }
    for (name, mode) in [("d/run", 0o511), ("a", 0o640), ("empty", 0o700), ("d", 0o755)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    place
}

/// Describes what is below a directory: kind, permissions, time, where links lead, and which names
/// are of one file.
fn described(root: &Path) -> Vec<String> {
    let mut first_names: Vec<(u64, String)> = Vec::new();
    let mut lines = Vec::new();
    for entry in walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name() {
        let entry = entry.unwrap();
        let name = entry.path().strip_prefix(root).unwrap().display().to_string();
        let metadata = entry.path().symlink_metadata().unwrap();
        let time = (metadata.mtime(), metadata.mtime_nsec());
        let what = if metadata.is_symlink() {
            format!("-> {}", fs::read_link(entry.path()).unwrap().display())
        } else if metadata.is_file() {
            let known = first_names.iter().find(|(inode, _)| *inode == metadata.ino());
            match known {
                Some((_, first)) => format!("= {first}"),
                None => {
                    first_names.push((metadata.ino(), name.clone()));
                    format!(
                        "{:o} {}",
                        metadata.mode(),
                        blake3::hash(&fs::read(entry.path()).unwrap())
                    )
                }
            }
        } else {
            format!("{:o}", metadata.mode())
        };
        lines.push(format!("{name} {what} {time:?}"));
    }
    lines
}

#[test]
fn a_tree_with_links_arrives_as_it_is_and_is_not_sent_again() {
    let place = tree();
    let server = place.serve(&[]);
    assert_eq!(server.serving["items"], 3 + 6 + 2);
    assert_eq!(server.serving["skipped"], 0);
    let got = place.get(&server.url, &["--json"]);
    let summary = got.succeeded().event("done")["summary"].clone();
    assert_eq!(summary["items"], 11, "{summary}");
    let bytes = summary["bytes"].as_u64().unwrap();
    assert_eq!(bytes, 300_000 + 5_000 + 10, "what has several names comes once");
    assert_eq!(described(&place.out()), described(&place.repo()));
    let again = place.get(&server.url, &["--json"]);
    let summary = again.succeeded().event("done")["summary"].clone();
    assert_eq!((&summary["items"], &summary["already_there"]), (&0.into(), &11.into()));
    assert_eq!(described(&place.out()), described(&place.repo()));

    let listed = run(["ls", &server.url]);
    let listed = &listed.succeeded().stdout;
    assert!(listed.contains("to-file -> a") && listed.contains("z = a"), "{listed}");

    // What the other names are of need not be asked for.
    fs::remove_dir_all(place.out()).unwrap();
    place.get(&server.url, &["z", "d/a-again", "d/up"]).succeeded();
    assert_eq!(place.received(), ["d/a-again", "d/up", "z"]);
    place.assert_received("z");
    place.assert_received("d/a-again");
}

#[test]
fn a_tree_with_links_arrives_as_it_is_by_a_feed() {
    let place = tree();
    let script = "\"$UMBEL\" recv n -o out --interface lo --wait 10min --json > recv.json & \
                  \"$UMBEL\" send repo --name n --interface lo -q; wait $!";
    let Some(sent) = alone(&place, script) else { return };
    sent.succeeded();
    let heard = fs::read_to_string(place.path().join("recv.json")).unwrap();
    assert!(heard.contains("\"items\":11"), "{heard}");
    assert_eq!(described(&place.out()), described(&place.repo()));
}

#[test]
fn links_that_lead_out_are_told_once_and_made_where_the_user_says_so() {
    let place = Place::with(&[("a", b"a")]);
    for (text, name) in [("/etc/passwd", "out"), ("../../b", "up"), ("a", "in")] {
        symlink(text, place.repo().join(name)).unwrap();
    }
    let server = place.serve(&[]);
    let got = place.get(&server.url, &[]);
    let told = got.succeeded().stderr.matches("2 symbolic links; --links all").count();
    assert_eq!(told, 1, "{}", got.stderr);
    assert_eq!(place.received(), ["a", "in"]);
    place.get(&server.url, &["--links", "all"]).succeeded();
    assert_eq!(described(&place.out()), described(&place.repo()));
    fs::remove_dir_all(place.out()).unwrap();
    let none = place.get(&server.url, &["--links", "none"]);
    assert!(!none.succeeded().stderr.contains("--links"), "{}", none.stderr);
    assert_eq!(place.received(), ["a"]);
    run(["get", &server.url, "--links", "some"]).misused(&["`inside`, `all` or `none`"]);
}

#[test]
fn links_can_be_served_as_the_files_that_they_lead_to() {
    let place = Place::with(&[("v2.iso", b"two")]);
    symlink("v2.iso", place.repo().join("latest.iso")).unwrap();
    let server = place.serve(&["--follow-links"]);
    place.get(&server.url, &["latest.iso"]).succeeded();
    let received = place.out().join("latest.iso").symlink_metadata().unwrap();
    assert!(received.is_file());
    place.assert_received("latest.iso");
}
