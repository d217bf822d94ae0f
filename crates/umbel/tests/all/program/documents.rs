//! The documents hold together: pages, links, commands. `support/stage.rs` runs the commands.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use umbel_lab::testing::skip;

use super::support::run;
use crate::support::documents::{Page, pages, root, simple_commands};

/// What `$URL` stands for in the documents.
const URL: &str = "umbel://192.0.2.2:7700/?pin=Ax6leuJ4aCIpsKefqa82TVFCe-xoiqpmS3exl9HcWMk";

/// Resolves `..` in a path of the repository.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(normal.pop(), "{}", path.display()),
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn links_and_anchors_lead_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    for page in &pages {
        for link in page.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let directory = Path::new(&page.name).parent().unwrap();
            let target = normal(&directory.join(file));
            let target = if file.is_empty() { PathBuf::from(&page.name) } else { target };
            // The book has its own pages only.
            let leaves_book = page.name.starts_with("docs/") && !target.starts_with("docs");
            let anchors = || {
                let page = pages.iter().find(|page| Path::new(&page.name) == target);
                page.map(Page::anchors).unwrap_or_default()
            };
            if leaves_book
                || !root().join(&target).exists()
                || (!anchor.is_empty() && !anchors().contains(&anchor.to_owned()))
            {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let listed: Vec<String> = Page::read("docs/SUMMARY.md").links();
    let set: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(set.len(), listed.len(), "a page is listed twice: {listed:?}");
    let pages = pages();
    let there = pages.iter().filter_map(|page| page.name.strip_prefix("docs/"));
    let there: BTreeSet<String> =
        there.filter(|name| *name != "SUMMARY.md").map(str::to_owned).collect();
    assert_eq!(there.iter().collect::<BTreeSet<_>>(), set);
}

/// Returns the words of each call of a program of ours in a line.
fn ours(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for words in simple_commands(line) {
        let built = words.starts_with(&["cargo".to_owned(), "run".to_owned()]);
        if words[0] == "umbel" || built {
            // What stands behind `--` is a command of its own.
            for part in words.split(|word| word == "--") {
                match part.split_first() {
                    Some((first, _)) if first == "cargo" => {}
                    Some((first, rest)) if first == "umbel" => found.push(rest.to_vec()),
                    Some(_) if built => found.push(part.to_vec()),
                    _ => {}
                }
            }
        }
    }
    found
}

#[test]
fn blocks_of_commands_name_machines_of_the_lab() {
    let known = ["source", "receiver", "receiver1", "receiver2", "r1", "here", "root", "no-run"];
    for page in pages() {
        for word in page.blocks().iter().flat_map(|block| &block.words) {
            assert!(known.contains(&word.as_str()), "{}: {word}", page.name);
        }
    }
}

/// Options that are not there, and commands that are not, come to light when a page is changed.
#[test]
fn every_command_line_of_the_documents_is_one() {
    let laboratory = run(["sim", "--help"]).code == Some(0);
    if !laboratory {
        skip("umbel-laboratory is not built: its command lines are not looked at");
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for command in page.blocks().iter().flat_map(|block| &block.commands) {
            for words in ours(&command.line) {
                let is_there = laboratory || !["sim", "repro", "lab"].contains(&&*words[0]);
                if is_there {
                    count += 1;
                    let words = words.iter().map(|word| word.replace("$URL", URL));
                    let words: Vec<String> = words.chain(["--help".to_owned()]).collect();
                    let ran = run(&words);
                    if ran.code != Some(0) {
                        wrong.push(format!("{}: {words:?}: {}", page.name, ran.stderr));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} were found");
}

#[test]
fn a_line_of_shell_is_split_as_the_shell_does() {
    let line = "X=1 umbel recv 'a b' -o - | tar x & for h in e1 e2; do umbel lab exec $h -- \\\n umbel \
                get \"$URL\" > out 2>&1; done # and so on";
    assert_eq!(
        ours(line),
        [vec!["recv", "a b", "-o", "-"], vec!["lab", "exec", "$h"], vec!["get", "$URL"],]
    );
}
