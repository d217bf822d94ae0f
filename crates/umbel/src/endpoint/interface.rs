//! Chooses the interface if the user does not, and waits until there is one.
//!
//! A command that is started with its machine may be there before the network. It never takes the
//! loopback interface instead, which leads to nobody: it waits, and says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use umbel_net::interface::{Family, Interface, InterfaceError};

/// Addresses for documentation [RFC 5737 §3, RFC 3849 §2], whose routes are the default routes.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// Interval between looks at the interfaces while none will do.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// Time for which a better address is awaited than a link-local IPv6 one, where the user names the
/// interface: it comes seconds before one by DHCP.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which an address may be gone before the user is told.
const LOST: Duration = Duration::from_secs(3);
/// Most interfaces on which announcements are heard.
const MOST: usize = 32;

/// Returns the interface that is asked for, that of the default route, or else any that is ready.
///
/// # Errors
///
/// If there is none, or the one that is asked for cannot be used.
pub(crate) fn choose(
    wanted: Option<&str>,
    family: Option<Family>,
) -> Result<Interface, InterfaceError> {
    if let Some(wanted) = wanted {
        return Interface::resolve(wanted);
    }
    let mut ready = heard()?;
    ready.retain(|interface| interface.is_ready(family));
    let default = ELSEWHERE.into_iter().filter_map(|peer| Interface::for_peer(peer).ok());
    let mut default = default.filter(|found| ready.iter().any(|one| one.index == found.index));
    let first = || {
        let lesser = |interface: &Interface| interface.v4.iter().all(Ipv4Addr::is_link_local);
        ready.iter().min_by_key(|interface| lesser(interface)).cloned()
    };
    default.next().or_else(first).ok_or(InterfaceError::NoneReady)
}

/// Returns the interfaces on which announcements are heard: all that do multicast but the loopback
/// one, in the order of their numbers. What comes by a port of a bridge is heard on the bridge.
///
/// # Errors
///
/// If the system does not list them.
pub(crate) fn heard() -> Result<Vec<Interface>, InterfaceError> {
    let mut all = Interface::list()?;
    all.retain(|one| (one.is_ready(None) || one.is_ready(Some(Family::V6))) && !is_port(one));
    all.truncate(MOST);
    Ok(all)
}

/// Returns whether the interface is a port of a bridge.
fn is_port(interface: &Interface) -> bool {
    Path::new("/sys/class/net").join(&interface.name).join("brport").exists()
}

/// The address that a command sends from, if it has one of its own. It may be gone for a while:
/// leases are renewed, and cables plugged in again.
#[derive(Debug)]
pub(crate) struct OwnAddress {
    address: Option<IpAddr>,
    patience: Duration,
    seen: Instant,
}

impl OwnAddress {
    /// Begins to watch an address, which may be gone for so long.
    pub(crate) fn new(address: Option<IpAddr>, patience: Duration) -> OwnAddress {
        OwnAddress { address, patience, seen: Instant::now() }
    }

    /// Returns whether no interface has had the address for longer than that.
    pub(crate) fn is_lost(&mut self) -> bool {
        let Some(address) = self.address else { return false };
        let has = |all: Vec<Interface>| all.iter().any(|interface| interface.has(address));
        if Interface::list().map_or(true, has) {
            self.seen = Instant::now();
        }
        self.seen.elapsed() >= self.patience
    }
}

/// Tells the user of a command that goes on while its address is gone, and when it is back. Ends when
/// it is dropped.
#[derive(Debug)]
pub(crate) struct AddressWatch {
    _alive: crossbeam_channel::Sender<()>,
}

impl AddressWatch {
    /// Begins to watch the address that a command sends from, on the interface of this name.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(crate) fn start(
        address: IpAddr,
        interface: String,
        note: impl Fn(&str) + Send + 'static,
    ) -> std::io::Result<AddressWatch> {
        let (alive, dropped) = crossbeam_channel::bounded::<()>(0);
        let run = move || {
            let (mut own, mut lost) = (OwnAddress::new(Some(address), LOST), false);
            while dropped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if std::mem::replace(&mut lost, own.is_lost()) != lost {
                    let all = if lost { Interface::list().unwrap_or_default() } else { Vec::new() };
                    note(&change_line(address, &interface, lost.then_some(&all[..])));
                }
            }
        };
        std::thread::Builder::new().name("umbel-address".to_owned()).spawn(run)?;
        Ok(AddressWatch { _alive: alive })
    }
}

/// Returns the line about an address that is gone, given the interfaces that there are, or back.
fn change_line(address: IpAddr, name: &str, gone: Option<&[Interface]>) -> String {
    let Some(all) = gone else { return format!("{name} has {address} again: it goes on") };
    let family = Family::of(address);
    let other = all.iter().find(|one| one.name == name).and_then(|one| one.address(family).ok());
    let next = match other {
        Some(other) => format!("start it again to send from {other}, which {name} has now"),
        None => "it goes on when the address is back".to_owned(),
    };
    format!("{name} has lost the address {address}, so nothing leaves: {next}")
}

/// Waits until there is an interface as the user wants it, and tells `note` why it waits. `pause`
/// waits for a while and returns whether to give up; `None` is returned then.
///
/// # Errors
///
/// If no interface is the wanted one, though others have addresses.
pub(crate) fn wait(
    wanted: Option<&str>,
    family: Option<Family>,
    note: impl FnOnce(&str),
    pause: impl Fn(Duration) -> bool,
) -> Result<Option<Interface>, InterfaceError> {
    let (mut note, start) = (Some(note), Instant::now());
    loop {
        let why = match choose(wanted, family) {
            Ok(found) if found.loopback || found.is_ready(family) => return Ok(Some(found)),
            Ok(found)
                if family.is_none() && !found.v6.is_empty() && start.elapsed() >= PATIENCE =>
            {
                return Ok(Some(found));
            }
            Ok(found) => {
                let family = family.map_or_else(String::new, |family| format!("{family} "));
                format!("{} has no {family}address yet", found.name)
            }
            Err(error) if may_come(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        if let Some(note) = note.take() {
            note(&format!("{why}; waiting"));
        }
        if pause(LOOK) {
            return Ok(None);
        }
    }
}

/// Returns whether time may mend what keeps an interface from being used. An address that no
/// interface has is a mistake once the network is there, and a name that none has is one at once.
pub(crate) fn may_come(error: &InterfaceError) -> bool {
    match error {
        InterfaceError::Down(_) | InterfaceError::NoneReady | InterfaceError::NoAddress { .. } => {
            true
        }
        InterfaceError::NoSuchAddress { .. } => {
            heard().is_ok_and(|all| !all.iter().any(|one| one.is_ready(None)))
        }
        _ => false,
    }
}

/// Returns a line for a user who has named no interface, if there are others than the one taken.
pub(crate) fn others(taken: &Interface, wanted: Option<&str>) -> Option<String> {
    if wanted.is_some() {
        return None;
    }
    let all = heard().ok()?.into_iter();
    let others: Vec<String> = all
        .filter(|one| one.index != taken.index && one.is_ready(None))
        .map(|one| one.to_string())
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "{} leads to the default route or comes first; --interface takes another: {}",
            taken.name,
            others.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_address_is_told_with_what_to_do() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let interface = |v4: &[&str]| Interface {
            v4: v4.iter().map(|address| address.parse().unwrap()).collect(),
            ..Interface::resolve("lo").unwrap()
        };
        let line = |v4: &[&str], name| change_line(address, name, Some(&[interface(v4)]));
        let begins = "lo has lost the address 10.0.0.1, so nothing leaves: ";
        let to_other = line(&["10.0.0.9"], "lo");
        assert_eq!(
            to_other,
            format!("{begins}start it again to send from 10.0.0.9, which lo has now")
        );
        assert_eq!(line(&[], "lo"), format!("{begins}it goes on when the address is back"));
        assert!(line(&["10.0.0.9"], "eth0").ends_with("when the address is back"));
        assert_eq!(change_line(address, "lo", None), "lo has 10.0.0.1 again: it goes on");
    }
}
