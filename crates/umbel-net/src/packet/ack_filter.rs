//! Drops acknowledgements that a source can do without, by a program in the kernel:
//! `bpf/acks.bpf.c`.
//!
//! The rule is that of [`umbel_engine::smo::AckFilter`]. The program is attached to the server's
//! interface by a link, so that it goes with the process, however that ends. It never takes the
//! place of another program. In the driver, where that can, it sees a frame before the kernel makes
//! a packet of it; elsewhere the kernel runs it (generic XDP).

use std::fmt;
use std::net::SocketAddr;

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use nix::errno::Errno;
use umbel_engine::smo::{AckFilterChange, AckRule};

use crate::classifier::{ClassifierError, cause, padded, refused};
use crate::interface::Interface;

/// The compiled program: see `bpf/build.sh`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/acks.bpf.o");

/// Names of the program and of what is in it.
const PROGRAM: &str = "umbel_smo_acks";
const SETTINGS: &str = "SETTINGS";
const RULES: &str = "RULES";
const WANTED: &str = "WANTED";
const DROPPED: &str = "DROPPED";

/// Bit of a number in `WANTED` that says that it is known.
const KNOWN: u64 = 1 << 32;

/// Where a program sees frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckFilterMode {
    /// In the interface's driver.
    Driver,
    /// In the kernel, after it has made a packet of the frame.
    Generic,
}

impl fmt::Display for AckFilterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AckFilterMode::Driver => "in the driver",
            AckFilterMode::Generic => "in the kernel (generic XDP)",
        })
    }
}

/// Reason for which acknowledgements are not dropped.
#[derive(Debug, thiserror::Error)]
pub enum AckFilterError {
    /// The program does not run.
    #[error(transparent)]
    Program(#[from] ClassifierError),
    /// Another XDP program is there.
    #[error("{0} has an XDP program of someone else")]
    Occupied(String),
    /// The kernel cannot tie the program to this process.
    #[error("the kernel has no links of XDP programs to {0}")]
    NoLink(String),
}

/// A program that is attached to an interface until it is dropped.
pub struct AckFilter {
    maps: Maps,
    mode: AckFilterMode,
    /// The link goes first.
    _link: FdLink,
    _ebpf: Ebpf,
}

impl AckFilter {
    /// Attaches the program to an interface. It drops nothing until a rule is told.
    ///
    /// # Errors
    ///
    /// If the kernel is too old or does not take it, the process may not do this, or another
    /// program is there.
    pub fn open(server: SocketAddr, interface: &Interface) -> Result<AckFilter, AckFilterError> {
        let mut ebpf = load(server)?;
        let (link, mode) = attach(program(&mut ebpf)?, interface)?;
        let maps = Maps::take(&mut ebpf)?;
        Ok(AckFilter { maps, mode, _link: link, _ebpf: ebpf })
    }

    /// Takes a change. What the maps have no room for passes.
    pub fn apply(&mut self, change: AckFilterChange) {
        if let Err(error) = self.maps.apply(change) {
            tracing::debug!("{change:?}: {error}");
        }
    }

    /// Returns where the program sees frames.
    pub fn mode(&self) -> AckFilterMode {
        self.mode
    }

    /// Returns the number of acknowledgements that were dropped.
    pub fn dropped(&self) -> u64 {
        self.maps.dropped()
    }
}

impl fmt::Debug for AckFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckFilter").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// What the program is told, and what it tells.
struct Maps {
    rules: HashMap<MapData, [u8; 20], [u8; 32]>,
    wanted: Array<MapData, u64>,
    dropped: PerCpuArray<MapData, u64>,
}

impl Maps {
    fn take(ebpf: &mut Ebpf) -> Result<Maps, AckFilterError> {
        let mut take = |name| ebpf.take_map(name).ok_or_else(|| missing(name));
        let (rules, wanted, dropped) = (take(RULES)?, take(WANTED)?, take(DROPPED)?);
        Ok(Maps {
            rules: rules.try_into().map_err(|error| refused(&error))?,
            wanted: wanted.try_into().map_err(|error| refused(&error))?,
            dropped: dropped.try_into().map_err(|error| refused(&error))?,
        })
    }

    fn apply(&mut self, change: AckFilterChange) -> Result<(), MapError> {
        match change {
            AckFilterChange::Set { peer, rule } => self.rules.insert(key(peer), value(&rule), 0),
            AckFilterChange::Clear { peer } => self.rules.remove(&key(peer)),
            AckFilterChange::Wanted { master, from } => {
                self.wanted.set(master, KNOWN | u64::from(from.0), 0)
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped.get(&0, 0).map_or(0, |counts| counts.iter().sum())
    }
}

/// Loads the program into the kernel.
fn load(server: SocketAddr) -> Result<Ebpf, AckFilterError> {
    if KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(6, 6, 0)) {
        return Err(ClassifierError::OldKernel.into());
    }
    let settings = settings(server);
    let loaded = EbpfLoader::new().override_global(SETTINGS, &settings[..], true).load(OBJECT);
    let mut ebpf = loaded.map_err(|error| refused(&error))?;
    program(&mut ebpf)?.load().map_err(|error| refused(&error))?;
    Ok(ebpf)
}

fn program(ebpf: &mut Ebpf) -> Result<&mut Xdp, AckFilterError> {
    let found = ebpf.program_mut(PROGRAM).ok_or_else(|| missing(PROGRAM))?;
    Ok(found.try_into().map_err(|error: ProgramError| refused(&error))?)
}

fn missing(name: &str) -> AckFilterError {
    ClassifierError::Refused(format!("there is no {name} in it")).into()
}

/// Attaches a program to an interface, in the driver if that can.
fn attach(
    program: &mut Xdp,
    interface: &Interface,
) -> Result<(FdLink, AckFilterMode), AckFilterError> {
    let occupied =
        |error: &ProgramError| matches!(cause(error), Some(Errno::EBUSY | Errno::EEXIST));
    let in_driver = program.attach_to_if_index(interface.index, XdpMode::Driver);
    let (attached, mode) = match in_driver {
        Err(error) if !occupied(&error) => {
            tracing::debug!("{} has no XDP in its driver: {error}", interface.name);
            let attached = program.attach_to_if_index(interface.index, XdpMode::Skb);
            (attached, AckFilterMode::Generic)
        }
        attached => (attached, AckFilterMode::Driver),
    };
    let id = attached.map_err(|error| {
        if occupied(&error) {
            AckFilterError::Occupied(interface.name.clone())
        } else {
            refused(&error).into()
        }
    })?;
    let link = program.take_link(id).map_err(|error| refused(&error))?;
    // Without one it is detached here, and would stay after a crash.
    let link = link.try_into().map_err(|_| AckFilterError::NoLink(interface.name.clone()))?;
    Ok((link, mode))
}

/// Lays out `struct settings`.
fn settings(server: SocketAddr) -> [u8; 24] {
    let mut out = [0; 24];
    out[..16].copy_from_slice(&padded(server.ip()));
    out[16..20].copy_from_slice(&u32::from(server.is_ipv6()).to_ne_bytes());
    out[20..22].copy_from_slice(&server.port().to_be_bytes());
    out
}

/// Lays out `struct peer`.
fn key(peer: SocketAddr) -> [u8; 20] {
    let mut out = [0; 20];
    out[..16].copy_from_slice(&padded(peer.ip()));
    out[16..18].copy_from_slice(&peer.port().to_be_bytes());
    out
}

/// Lays out `struct rule`.
fn value(rule: &AckRule) -> [u8; 32] {
    let period = u64::try_from(rule.period.as_nanos()).unwrap_or(u64::MAX >> 1);
    let mut out = [0; 32];
    out[..8].copy_from_slice(&period.to_ne_bytes());
    let numbers = [rule.master, rule.seq.0, rule.last.0, rule.step];
    for (place, number) in out[16..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    out
}

#[cfg(test)]
mod tests;
