//! Too few file descriptors, which is a matter of settings and no bug.

use std::fs::File;
use std::io;

use nix::sys::resource::{Resource, getrlimit};

/// Descriptors that libraries want at once.
const AT_ONCE: usize = 4;
/// Code of the error, as the standard library writes it.
const CODE: &str = "os error 24";

/// Returns what to do if a message is about too many open files.
pub(super) fn advice(message: &str) -> Option<String> {
    let says_so = [CODE, "code: 24,", "EMFILE", "Too many open files"];
    says_so.iter().any(|part| message.contains(part)).then(limit)
}

/// Returns what to do if the process can open no more files now.
pub(super) fn advice_if_short() -> Option<String> {
    let opened: io::Result<Vec<File>> = (0..AT_ONCE).map(|_| File::open("/dev/null")).collect();
    let is_short =
        opened.is_err_and(|error| error.raw_os_error() == Some(nix::Error::EMFILE as i32));
    is_short.then(limit)
}

fn limit() -> String {
    let most = getrlimit(Resource::RLIMIT_NOFILE)
        .map_or_else(|_| "too few".to_owned(), |(most, _)| most.to_string());
    format!("the limit is {most} open files: raise it, such as by `ulimit -n 1024`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_too_many_files_name_the_limit_and_others_do_not() {
        let error = io::Error::from_raw_os_error(nix::Error::EMFILE as i32);
        for text in [format!("cannot listen: {error}"), format!("{error:?}")] {
            assert!(advice(&text).unwrap().contains("open files"), "{text}");
        }
        assert_eq!(advice("cannot listen: Address already in use (os error 98)"), None);
        assert_eq!(advice_if_short(), None);
    }
}
