//! Chooses the interface if the user does not, and waits until there is one.
//!
//! A command that is started with its machine may be there before the network. It never takes the
//! loopback interface instead, which leads to nobody: it waits, and says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

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
