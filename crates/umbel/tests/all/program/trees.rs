//! Trees with links, which are kept as they are.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::support::{Place, Ran, Running, in_namespace, noise, run, umbel};

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
            if let Some((_, first)) = known {
                format!("= {first}")
            } else {
                first_names.push((metadata.ino(), name.clone()));
                let content = blake3::hash(&fs::read(entry.path()).unwrap());
                format!("{:o} {content}", metadata.mode())
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

    // A release at a time, of which the next links what has not changed.
    let current = place.path().join("current");
    let release = |url: &str| {
        let mut command = umbel();
        command.args(["get", url, "--atomic", "-o"]).arg(&current);
        Running::start(&mut command).finish().succeeded();
        described(&current.join(""))
    };
    assert_eq!(release(&server.url), described(&place.repo()));
    fs::remove_file(place.repo().join("to-file")).unwrap();
    symlink("z", place.repo().join("to-file")).unwrap();
    let again = place.serve(&[]);
    assert_eq!(release(&again.url), described(&place.repo()));

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

#[test]
fn what_patterns_leave_out_is_neither_listed_nor_served() {
    let place = Place::with(&[
        ("a.c", b"c"),
        ("a.o", b"o"),
        ("build/x", b"x"),
        ("d/keep.o", b"o"),
        ("d/.umbelignore", b"!keep.o\n"),
    ]);
    let repo = place.repo();
    let which = ["--exclude", "*.tmp", "--exclude", "build"];
    fs::write(repo.join("b.tmp"), "x").unwrap();
    fs::write(repo.join(".umbelignore"), "*.o\n").unwrap();
    for command in [&["serve"][..], &["send", "--name", "n"]] {
        let listed = run(command
            .iter()
            .copied()
            .chain([repo.to_str().unwrap()])
            .chain(which)
            .chain(["--dry-run"]));
        assert_eq!(listed.succeeded().stdout, "a.c\nd/\nd/keep.o\n");
        assert!(listed.stderr.contains("2 items, 2 B"), "{}", listed.stderr);
        let all = run(command.iter().copied().chain([repo.to_str().unwrap()]).chain([
            "--dry-run",
            "--include",
            "a.o",
        ]));
        assert!(all.succeeded().stdout.contains("a.o\nb.tmp\nbuild/\nbuild/x\n"), "{all:?}");
    }
    assert!(!place.path().join("state").exists(), "nothing is made by looking");
    let server = place.serve(&which);
    place.get(&server.url, &[]).succeeded();
    assert_eq!(place.received(), ["a.c", "d/keep.o"]);
    run(["serve", repo.to_str().unwrap(), "--exclude", "[z-a]"]).failed_with(&["[z-a]"]);
}

/// Puts things into the output directory that no source has.
fn add_others(place: &Place) {
    for name in ["mine", "d/mine", "other/deep/er", ".mine"] {
        let path = place.out().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "mine").unwrap();
    }
    symlink("/etc", place.out().join("etc")).unwrap();
}

#[test]
fn what_the_server_does_not_offer_is_removed_only_if_asked_for_and_if_everything_came() {
    let place = tree();
    let server = place.serve(&[]);
    place.get(&server.url, &[]).succeeded();
    add_others(&place);
    place.get(&server.url, &[]).succeeded();
    assert!(place.out().join("mine").exists());
    run(["get", &server.url, "a", "--delete", "-o", "out"]).misused(&["--delete"]);
    // The working directory is mirrored only if it is named.
    run(["get", &server.url, "--delete"]).misused(&["--output"]);

    // What failed, or could not be read, leaves all as it was.
    fs::write(place.out().join("a"), "changed").unwrap();
    let failed = place.get(&server.url, &["--delete"]);
    failed.failed_with(&["exists and differs"]);
    assert!(failed.stderr.contains("nothing was removed"), "{}", failed.stderr);
    let bad = place.repo().join("a\nb");
    fs::write(&bad, "x").unwrap();
    let other = place.serve(&[]);
    let unread = place.get(&other.url, &["--delete", "--overwrite"]);
    assert!(unread.succeeded().stderr.contains("nothing was removed"), "{}", unread.stderr);
    assert!(unread.stderr.contains("could not read or name them: 1 file"), "{}", unread.stderr);
    assert!(place.out().join("other/deep/er").exists());
    fs::remove_file(bad).unwrap();

    let server = place.serve(&[]);
    let got = place.get(&server.url, &["--delete", "--json"]);
    let done = got.succeeded().event("done")["summary"].clone();
    assert_eq!(done["removed"], 6, "{done}");
    let removed = got.json().iter().filter(|value| value["event"] == "removed").count();
    assert_eq!(removed, 6);
    fs::remove_file(place.out().join(".mine")).unwrap();
    assert_eq!(described(&place.out()), described(&place.repo()));
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn what_a_feed_does_not_have_is_removed_if_asked_for() {
    let place = tree();
    add_others(&place);
    let script = "\"$UMBEL\" recv n -o out --interface lo --wait 10min --delete --json > recv.json & \
                  \"$UMBEL\" send repo --name n --interface lo -q; wait $!";
    let Some(sent) = alone(&place, script) else { return };
    sent.succeeded();
    let heard = fs::read_to_string(place.path().join("recv.json")).unwrap();
    assert!(heard.contains("\"removed\":6"), "{heard}");
    fs::remove_file(place.out().join(".mine")).unwrap();
    assert_eq!(described(&place.out()), described(&place.repo()));
}

#[test]
fn changes_are_told_beforehand_and_afterwards_and_a_copy_is_verified_without_receiving_it() {
    let place = tree();
    let server = place.serve(&[]);
    // Nothing is there, and nothing is made.
    let planned = place.get(&server.url, &["--dry-run"]);
    assert!(
        planned.succeeded().stderr.contains("to be changed: 13; already there: 0"),
        "{planned:?}"
    );
    assert!(planned.stdout.contains("new         d/a-again\n"), "{planned:?}");
    assert!(!place.out().exists());
    let got = place.get(&server.url, &["--itemize"]);
    assert_eq!(got.succeeded().stdout, planned.stdout);
    let verified = place.get(&server.url, &["--verify", "--delete"]);
    verified.succeeded();
    assert_eq!(verified.stdout, "");
    assert!(verified.stderr.contains("nothing differs"), "{verified:?}");

    // What differs is told, and stays as it is.
    let at = |name: &str| place.out().join(name);
    fs::write(at("d/b"), "changed").unwrap();
    fs::remove_file(at("d/up")).unwrap();
    fs::set_permissions(at("d/run"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(at("mine"), "mine").unwrap();
    let before = described(&place.out());
    let differing = place.get(&server.url, &["--verify", "--delete", "--json"]);
    assert_eq!(differing.code, Some(1), "{differing:?}");
    let changes: Vec<String> = differing
        .json()
        .iter()
        .filter(|value| value["event"] == "change")
        .map(|value| {
            format!("{} {}", value["change"].as_str().unwrap(), value["path"].as_str().unwrap())
        })
        .collect();
    assert_eq!(changes, ["attributes d", "replaced d/b", "attributes d/run", "new d/up"]);
    let done = differing.event("done");
    assert_eq!((&done["ok"], &done["summary"]["differing"]), (&false.into(), &4.into()));
    assert_eq!((&done["summary"]["removed"], &done["summary"]["packets"]), (&1.into(), &0.into()));
    assert_eq!(described(&place.out()), before);
    let told = place.get(&server.url, &["--verify", "--delete"]);
    told.failed_with(&["differs from the source: 5"]);
    assert!(told.stdout.ends_with("removed     mine\n"), "{told:?}");

    let mended = place.get(&server.url, &["--overwrite", "--delete", "--itemize"]);
    assert_eq!(mended.succeeded().stdout, told.stdout);
    assert_eq!(described(&place.out()), described(&place.repo()));
}

#[test]
fn a_copy_is_verified_with_the_list_of_a_feed() {
    let place = tree();
    let script = "feed() { \"$UMBEL\" recv n -o out --interface lo --wait 10min --json \"$@\" > $log & \
                  \"$UMBEL\" send repo --name n --interface lo -q > sent || true; wait $! || echo \"$log $?\"; }; \
                  log=1.json feed --itemize; log=2.json feed --verify; rm out/z; echo x > out/d/b; \
                  log=3.json feed --verify; log=4.json feed --dry-run";
    let Some(ran) = alone(&place, script) else { return };
    assert_eq!(ran.succeeded().stdout, "3.json 1\n", "{ran:?}");
    let said = |log: &str| fs::read_to_string(place.path().join(log)).unwrap();
    assert_eq!(said("1.json").matches("\"change\":\"new\"").count(), 13, "{}", said("1.json"));
    assert!(!said("2.json").contains("\"event\":\"change\""), "{}", said("2.json"));
    for log in ["3.json", "4.json"] {
        for (change, path) in [("new", "z"), ("replaced", "d/b")] {
            let said = said(log);
            let event = said.lines().find(|line| line.contains(&format!("\"path\":\"{path}\"")));
            assert!(event.is_some_and(|line| line.contains(&format!("\"{change}\""))), "{said}");
        }
    }
    assert!(!place.out().join("z").exists());
}

#[test]
fn a_run_that_is_to_remove_things_does_not_take_the_word_of_another_that_removed_nothing() {
    let place = tree();
    fs::create_dir(place.out()).unwrap();
    fs::write(place.out().join("mine"), "mine").unwrap();
    let script = "recv() { \"$UMBEL\" recv n -o out --interface lo --wait 10min --json \"$@\"; }; \
                  recv > 1.json & first=$!; \
                  \"$UMBEL\" send repo --name n --interface lo -q --rate 1M > sent & sent=$!; \
                  sleep 1; recv --delete > 2.json & second=$!; \
                  wait $first $sent; wait $second || echo $?";
    let Some(ran) = alone(&place, script) else { return };
    // The source may be gone by then, or not.
    let said = fs::read_to_string(place.path().join("2.json")).unwrap();
    let has_failed = ran.succeeded().stdout == "1\n";
    assert!(said.contains("\"removed\":1") || has_failed, "{ran:?} {said}");
    assert!(has_failed == place.out().join("mine").exists(), "{ran:?} {said}");
}
