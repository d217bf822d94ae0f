//! Opening of packets of the data channel.

use umbel_wire::Toi;
use umbel_wire::alc::DataPacket;

use crate::repository::drops::DropReason;
use crate::seal::{Keyring, NotOpened};

/// Opens a packet of the data channel if the server seals. Probes are not sealed; they carry
/// nothing but the client's own number.
#[inline]
pub(super) fn open<'p>(
    ring: Option<&mut Keyring>,
    bytes: &'p [u8],
    scratch: &'p mut Vec<u8>,
) -> Result<DataPacket<'p>, DropReason> {
    let plain = || DataPacket::parse(bytes).map_err(|_| DropReason::Malformed);
    let Some(ring) = ring else { return plain() };
    match ring.open_packet(bytes, scratch) {
        Ok(packet) => Ok(packet),
        Err(NotOpened::Forged) => {
            plain().ok().filter(|packet| packet.header.toi == Toi::PROBE).ok_or(DropReason::Forged)
        }
        Err(NotOpened::UnknownKey) => Err(DropReason::UnknownKey),
        Err(NotOpened::Replayed) => Err(DropReason::Replayed),
    }
}
