//! The Markdown of the repository: its pages, their links, and the commands in them.

use std::fs;
use std::path::{Path, PathBuf};

/// A page, named by its path in the repository.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A block of commands as a terminal shows them.
#[derive(Debug)]
pub(crate) struct Block {
    /// Words behind `console`: the machine, and how the block is run.
    pub(crate) words: Vec<String>,
    pub(crate) commands: Vec<Command>,
}

/// A command line, and what it prints as far as the page shows it.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) line: String,
    pub(crate) output: Vec<String>,
}

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all pages, in order.
pub(crate) fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    collect(&root(), "", &mut pages);
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    pages
}

/// Adds the pages below a directory. Directories that builds and other tools fill are left out.
fn collect(directory: &Path, name: &str, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let file = entry.file_name().into_string().unwrap();
        let name = if name.is_empty() { file.clone() } else { format!("{name}/{file}") };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !file.starts_with('.') && !["target", "node_modules"].contains(&&*file)
        {
            collect(&entry.path(), &name, pages);
        } else if kind.is_file() && entry.path().extension().is_some_and(|kind| kind == "md") {
            pages.push(Page { text: fs::read_to_string(entry.path()).unwrap(), name });
        }
    }
}

impl Page {
    /// Returns a page of the repository.
    pub(crate) fn read(name: &str) -> Page {
        let text = fs::read_to_string(root().join(name));
        Page { name: name.to_owned(), text: text.unwrap_or_else(|error| panic!("{name}: {error}")) }
    }

    /// Returns its lines outside of fenced blocks.
    pub(crate) fn prose(&self) -> String {
        let mut inside = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    /// Returns the targets of its links, without those to other sites.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let spans = prose.split('`').step_by(2).collect::<String>();
        let targets = spans.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
    }

    /// Returns the anchors of its headings, as code hosts and mdBook make them.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
    }

    /// Returns its blocks of commands, and as such the comments `<!-- MACHINE: COMMAND -->`.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut fence: Option<bool> = None;
        for line in self.text.lines() {
            if let Some(info) = line.trim_start().strip_prefix("```") {
                let mut words = info.split_whitespace().map(str::to_owned);
                fence = match fence {
                    Some(_) => None,
                    None => Some(words.next().as_deref() == Some("console")),
                };
                if fence == Some(true) {
                    blocks.push(Block { words: words.collect(), commands: Vec::new() });
                }
            } else if fence == Some(true) {
                blocks.last_mut().unwrap().add(line);
            } else if let Some((machine, line)) = hidden(line) {
                let command = Command { line: line.to_owned(), output: Vec::new() };
                blocks.push(Block { words: vec![machine.to_owned()], commands: vec![command] });
            }
        }
        blocks
    }
}

impl Block {
    /// Adds a line: a command behind its prompt, more of it behind a `\`, or output.
    fn add(&mut self, line: &str) {
        let open = self
            .commands
            .last_mut()
            .filter(|last| last.output.is_empty() && last.line.ends_with('\\'));
        let begins = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
        if let Some(last) = open {
            last.line = format!("{}\n{line}", last.line);
        } else if let Some(command) = begins {
            self.commands.push(Command { line: command.to_owned(), output: Vec::new() });
        } else if let Some(last) = self.commands.last_mut() {
            last.output.push(line.to_owned());
        } else {
            panic!("output before a command: {line}");
        }
    }
}

/// Returns the machine and the command of a comment that readers do not see.
fn hidden(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the words of each simple command of a shell line: without pipes, lists, redirections,
/// assignments before a command, and comments.
pub(crate) fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut is_file = false;
    for word in words(line) {
        match word {
            Word::Separator => {
                commands.push(Vec::new());
                is_file = false;
            }
            Word::Redirection => is_file = true,
            Word::Text(_) if std::mem::take(&mut is_file) => {}
            Word::Text(text) => {
                let words = commands.last_mut().unwrap();
                let keyword = ["do", "done", "for", "then", "{", "}"].contains(&&*text);
                if !words.is_empty() || !(keyword || text.contains('=')) {
                    words.push(text);
                }
            }
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

enum Word {
    Text(String),
    Separator,
    Redirection,
}

/// Splits a line of shell into words; quotes are taken off.
fn words(line: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut text: Option<String> = None;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let is_end = c.is_whitespace() || ";&|<>()".contains(c) || (c == '#' && text.is_none());
        if is_end {
            // `2>` redirects as `>` does.
            let ended = text.take().filter(|text| c != '>' || text.parse::<u8>().is_err());
            found.extend(ended.map(Word::Text));
        }
        match c {
            '#' if is_end => break,
            '\'' | '"' => {
                let text = text.get_or_insert_default();
                text.extend(characters.by_ref().take_while(|next| *next != c));
            }
            '\\' => {
                if let Some(next) = characters.next().filter(|next| *next != '\n') {
                    text.get_or_insert_default().push(next);
                }
            }
            '<' | '>' => {
                characters.next_if(|next| ">&".contains(*next));
                found.push(Word::Redirection);
            }
            _ if is_end && !c.is_whitespace() => found.push(Word::Separator),
            _ if is_end => {}
            _ => text.get_or_insert_default().push(c),
        }
    }
    found.extend(text.map(Word::Text));
    found
}
