//! The capabilities of this process.

use std::io;

/// A capability that a router needs, with its number in `linux/capability.h`.
const NEEDED: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)];

/// Returns the names of the capabilities that a router needs and this process lacks.
///
/// # Errors
///
/// If the system does not tell.
pub fn missing() -> io::Result<Vec<&'static str>> {
    missing_of(&std::fs::read_to_string("/proc/self/status")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no CapEff in /proc/self/status"))
}

fn missing_of(status: &str) -> Option<Vec<&'static str>> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(line.trim(), 16).ok()?;
    let lacks = |number: u32| effective >> number & 1 == 0;
    Some(NEEDED.iter().filter(|(_, number)| lacks(*number)).map(|(name, _)| *name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let of = |capabilities: &str| missing_of(&format!("Name:\tx\nCapEff:\t{capabilities}\n"));
        assert_eq!(of("0000000000000000").unwrap(), ["CAP_NET_ADMIN", "CAP_NET_RAW"]);
        assert_eq!(of("0000000000002000").unwrap(), ["CAP_NET_ADMIN"]);
        assert_eq!(of("000001ffffffffff").unwrap(), [""; 0]);
        assert_eq!(missing_of("Name:\tx\n"), None);
        assert!(missing().is_ok());
    }
}
