//! The length of data packets.

use anyhow::bail;
use umbel_engine::MTU_RESERVE;
use umbel_net::interface::{Family, Interface};

/// Smallest MTU. Smaller packets would be little more than headers.
const MIN_MTU: u16 = 256;

/// MTU of most networks.
const USUAL_MTU: u16 = 1500;

/// Returns the UDP payload of a full data packet, in bytes, on a path of this MTU. Without one, the
/// interface's MTU counts, at most 1,500.
///
/// # Errors
///
/// If the MTU is too small, or exceeds the interface's.
pub(crate) fn packet_len(
    mtu: Option<u16>,
    interface: &Interface,
    family: Family,
) -> anyhow::Result<u16> {
    let carried = u16::try_from(interface.mtu).unwrap_or(u16::MAX);
    let mtu = mtu.unwrap_or_else(|| carried.min(USUAL_MTU));
    if mtu < MIN_MTU {
        bail!("--mtu {mtu} is too small: give at least {MIN_MTU}");
    }
    let len = mtu - MTU_RESERVE;
    if usize::from(len) + family.header_bytes() > interface.mtu {
        bail!(
            "--mtu {mtu} is more than interface {} carries: its MTU is {}",
            interface.name,
            interface.mtu
        );
    }
    Ok(len)
}
