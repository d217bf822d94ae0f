//! Names under which a server answers.
//!
//! A page of the web can make its own name stand for this machine (DNS rebinding), and a browser
//! then lets it read what is served here. It cannot change the name that the browser sends.

use std::net::IpAddr;

use hyper::http::uri::Authority;

/// Names of this machine. Addresses, and names that nobody can have on the Internet, always count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// Returns what this machine calls itself, and these.
    pub(crate) fn of_machine(further: &[String]) -> Names {
        let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let own = own.into_iter().flat_map(|name| [format!("{name}.local"), name]);
        Names(own.chain(further.iter().cloned()).map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Returns whether a host of a request, with or without a port, is this machine.
    pub(crate) fn has(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let Some(rest) = host.strip_prefix(authority.host()) else { return false };
        if !rest.strip_prefix(':').unwrap_or(rest).bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        let name = authority.host().to_ascii_lowercase();
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.unwrap_or(&name).parse::<IpAddr>().is_ok()
            || !name.contains('.')
            || name.ends_with(".localhost")
            || self.0.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_page_can_have_are_not_this_machine() {
        let names = Names::of_machine(&["Film.example.org".to_owned()]);
        for host in [
            "127.0.0.1:8081",
            "192.0.2.1",
            "[::1]:8081",
            "localhost",
            "LOCALHOST:80",
            "a.localhost",
            "server:8081",
            "film.example.org",
            "film.example.org:443",
        ] {
            assert!(names.has(host), "{host}");
        }
        for host in [
            "attacker.example",
            "127.0.0.1.attacker.example",
            "attacker.example:127",
            "film.example.org.attacker.example",
            "localhost.attacker.example",
            "localhost.",
            "[::1].attacker.example",
            "a b",
            "",
        ] {
            assert!(!names.has(host), "{host}");
        }
    }
}
