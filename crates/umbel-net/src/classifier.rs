//! Programs in the kernel that see packets where they arrive, before the kernel's IP does (tc).
//!
//! A program is attached by links of TCX, so that it goes with the process. It comes after the
//! programs of others.

use std::io;
use std::net::IpAddr;

use aya::maps::{Map, MapError};
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions, TcAttachType};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use nix::errno::Errno;

/// Reason for which a program does not run.
#[derive(Debug, thiserror::Error)]
pub enum ClassifierError {
    /// The kernel has no links between programs and interfaces.
    #[error("it needs Linux 6.6 or later")]
    OldKernel,
    /// The process may not do this.
    #[error("it needs the capabilities CAP_BPF and CAP_NET_ADMIN")]
    NotPermitted,
    /// The kernel does not take the program.
    #[error("the kernel does not take it: {0}")]
    Refused(String),
}

/// A program in the kernel, which sees the packets of the interfaces that it is attached to.
#[derive(Debug)]
pub struct Classifier {
    ebpf: Ebpf,
    program: &'static str,
}

/// The tie between a program and an interface. It lasts as long as the program if it is dropped.
#[derive(Debug)]
pub struct Attachment(SchedClassifierLinkId);

impl Classifier {
    /// Loads a compiled object, of which `program` is the entry, into the kernel. `globals` are the
    /// values of constants in it.
    ///
    /// # Errors
    ///
    /// If the kernel is too old or does not take it, or the process may not do this.
    pub fn load(
        object: &[u8],
        program: &'static str,
        globals: &[(&str, &[u8])],
    ) -> Result<Classifier, ClassifierError> {
        if KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(6, 6, 0)) {
            return Err(ClassifierError::OldKernel);
        }
        let mut loader = EbpfLoader::new();
        for &(name, value) in globals {
            loader.override_global(name, value, true);
        }
        let ebpf = loader.load(object).map_err(|error| refused(&error))?;
        let mut classifier = Classifier { ebpf, program };
        classifier.program()?.load().map_err(|error| refused(&error))?;
        Ok(classifier)
    }

    /// Returns the program itself.
    ///
    /// # Errors
    ///
    /// If the object has none of its name.
    pub fn program(&mut self) -> Result<&mut SchedClassifier, ClassifierError> {
        let found = self.ebpf.program_mut(self.program).ok_or_else(|| missing(self.program))?;
        found.try_into().map_err(|error: ProgramError| refused(&error))
    }

    /// Shows it the packets that arrive on an interface.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn attach(&mut self, interface: &str) -> Result<Attachment, ClassifierError> {
        let last = TcAttachOptions::TcxOrder(LinkOrder::last());
        let program = self.program()?;
        let link = program.attach_with_options(interface, TcAttachType::Ingress, last);
        link.map(Attachment).map_err(|error| refused(&error))
    }

    /// Shows it the packets of an interface no longer.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, which it does not do while the interface exists.
    pub fn detach(&mut self, attachment: Attachment) -> Result<(), ClassifierError> {
        self.program()?.detach(attachment.0).map_err(|error| refused(&error))
    }

    /// Returns one of its maps.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.ebpf.map(name)
    }

    /// Takes one of its maps out, which the program goes on to use.
    ///
    /// # Errors
    ///
    /// If there is none of this name and these types.
    pub fn take<T: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &'static str,
    ) -> Result<T, ClassifierError> {
        let map = self.ebpf.take_map(name).ok_or_else(|| missing(name))?;
        map.try_into().map_err(|error| refused(&error))
    }
}

/// Returns the number of the system's error among the causes of one of `aya`, and its words.
fn system(error: &(dyn std::error::Error + 'static)) -> Option<(Option<i32>, String)> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(system) = error.downcast_ref::<io::Error>() {
            return Some((system.raw_os_error(), system.to_string()));
        }
        cause = error.source();
    }
    None
}

/// Returns the system's error among the causes of one of `aya`.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> Option<Errno> {
    Some(Errno::from_raw(system(error)?.0?))
}

/// Says why the kernel does not take a program.
pub(crate) fn refused(error: &(dyn std::error::Error + 'static)) -> ClassifierError {
    // The verifier refuses in words, and with the error for what is not permitted.
    if let Some(ProgramError::LoadError { verifier_log, .. }) = error.downcast_ref()
        && let Some(last) = verifier_log.to_string().lines().rev().nth(1)
    {
        return ClassifierError::Refused(last.to_owned());
    }
    if let Some(Errno::EPERM | Errno::EACCES) = cause(error) {
        return ClassifierError::NotPermitted;
    }
    let words = system(error).map_or_else(|| error.to_string(), |(_, words)| words);
    // The verifier's words would be pages.
    ClassifierError::Refused(words.lines().next().unwrap_or_default().to_owned())
}

fn missing(name: &str) -> ClassifierError {
    ClassifierError::Refused(format!("there is no {name} in it"))
}

/// Returns the octets of an address, as programs in the kernel have it: zeros after those of
/// IPv4.
pub(crate) fn padded(address: IpAddr) -> [u8; 16] {
    let mut out = [0; 16];
    match address {
        IpAddr::V4(v4) => out[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out = v6.octets(),
    }
    out
}
