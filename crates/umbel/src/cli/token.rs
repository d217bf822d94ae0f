//! Sources of a command's token: its arguments, a file, or the environment.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use umbel_wire::repository::limits::TOKEN_LEN;

/// Variable of the environment that holds a token.
const VARIABLE: &str = "UMBEL_TOKEN";
/// Word for a token that the program draws.
const AUTO: &str = "auto";

/// A file that holds a token.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct TokenFileArgs {
    /// File whose first line is the token, readable by its owner alone; other users see a --token
    /// in the list of processes [default: UMBEL_TOKEN of the environment]
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

impl TokenFileArgs {
    /// Returns the token of the command line or its file, otherwise `other`, otherwise that of the
    /// environment.
    ///
    /// # Errors
    ///
    /// One line: the file cannot be read, others can read it, or what it holds is no token.
    pub(super) fn token(
        &self,
        given: Option<String>,
        other: Option<String>,
    ) -> anyhow::Result<Option<String>> {
        if given.is_some() {
            return Ok(given);
        }
        if let Some(path) = &self.token_file {
            return read(path).map(Some);
        }
        if other.is_some() {
            return Ok(other);
        }
        match std::env::var(VARIABLE) {
            Ok(token) if token.is_empty() => Ok(None),
            Ok(token) => Ok(Some(token)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => bail!("{VARIABLE} is no text"),
        }
    }

    /// Returns the token of a command that makes others show it; `auto` draws one.
    ///
    /// # Errors
    ///
    /// As [`token`](Self::token), or the system gives no randomness.
    pub(super) fn demanded(&self, given: Option<String>) -> anyhow::Result<Option<String>> {
        match self.token(given, None)? {
            Some(token) if token == AUTO => crate::feed::new_token().map(Some),
            token => Ok(token),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let cannot = || format!("cannot read the token in {shown}");
    let file = File::open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("{shown} can be read by others: run `chmod 600` on it, or take another token");
    }
    let mut text = String::new();
    file.take(TOKEN_LEN as u64 + 2).read_to_string(&mut text).with_context(cannot)?;
    let token = text.lines().next().unwrap_or_default();
    match token.len() {
        0 => Err(anyhow!("the first line of {shown} is empty: it should be the token")),
        len if len > TOKEN_LEN => {
            Err(anyhow!("the token in {shown} is longer than {TOKEN_LEN} bytes"))
        }
        _ => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use super::*;

    #[test]
    fn a_token_is_the_first_line_of_a_file_that_its_owner_alone_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let args = TokenFileArgs { token_file: Some(path.clone()) };
        let other = || Some("other".to_owned());
        let wrong = |word: &str| {
            let error = format!("{:#}", args.token(None, other()).unwrap_err());
            assert!(error.contains(word) && error.contains("/token"), "{error}");
        };
        wrong("cannot read");
        for (content, word) in
            [("", "is empty"), ("\nx", "is empty"), (&"x".repeat(4_097), "longer")]
        {
            write(&path, content).unwrap();
            set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            wrong(word);
        }
        write(&path, "sesame\nnotes\n").unwrap();
        for mode in [0o640, 0o604, 0o620] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            wrong("chmod 600");
        }
        set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(args.token(None, other()).unwrap().as_deref(), Some("sesame"));
        let given = args.token(Some("given".to_owned()), other());
        assert_eq!(given.unwrap().as_deref(), Some("given"));
        let none = TokenFileArgs { token_file: None };
        assert_eq!(none.token(None, other()).unwrap(), other());
    }

    #[test]
    fn a_token_is_drawn_for_who_asks_for_it() {
        let none = TokenFileArgs { token_file: None };
        let drawn = || none.demanded(Some(AUTO.to_owned())).unwrap().unwrap();
        let (one, other) = (drawn(), drawn());
        assert!(one.len() == 26 && one != other, "{one}, {other}");
    }
}
