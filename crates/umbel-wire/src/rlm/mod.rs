//! Receiver-driven layered multicast [RLM §1].
//!
//! - [`Message`]: what receivers tell each other in the control group.
//! - [`ObjectHead`]: what stands at the head of an object of a simulcast layer.
//! - [`signed`]: how the source signs each packet.
//!
//! The packets of layers are data packets of the Small Block Systematic scheme
//! ([`small_block`](crate::small_block)), with these fields:
//!
//! | field | content |
//! |---|---|
//! | `tsi` | the stream |
//! | `toi` | 0, or the number of the object |
//! | `transmission` | time at which the source sent the packet, in µs, wrapping |
//! | `index` | number of the packet among those of its layer, repairs included, wrapping |
//! | `sbn`, `block_symbols`, `esi` | the FEC block within the layer or object, its k, the symbol |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Channel;

mod message;
mod object;
pub mod signed;

pub use message::{Loss, Message, MessageType};
pub use object::{MAX_NAME, ObjectHead};
pub use signed::{SignedHeader, SignedPacket};

/// Returns the channels of a stream's layers: the base layer's group and those that follow it.
/// Returns `None` if one of them would not be a multicast group.
pub fn channels(base: Channel, layers: u8) -> Option<Vec<Channel>> {
    (0..layers).map(|layer| Some(Channel { group: nth(base.group, layer)?, ..base })).collect()
}

fn nth(group: IpAddr, n: u8) -> Option<IpAddr> {
    let group = match group {
        IpAddr::V4(group) => Ipv4Addr::from(u32::from(group).checked_add(n.into())?).into(),
        IpAddr::V6(group) => Ipv6Addr::from(u128::from(group).checked_add(n.into())?).into(),
    };
    Some(group).filter(IpAddr::is_multicast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_on_consecutive_groups() {
        let source = Some([192, 0, 2, 1].into());
        let base = Channel { source, group: [232, 0, 1, 255].into(), port: 7704 };
        let groups = channels(base, 3).unwrap().into_iter().map(|channel| channel.group);
        let expected: [IpAddr; 3] =
            [[232, 0, 1, 255].into(), [232, 0, 2, 0].into(), [232, 0, 2, 1].into()];
        assert!(groups.eq(expected));
        let last = Channel { group: [239, 255, 255, 255].into(), ..base };
        assert_eq!((channels(last, 1).is_some(), channels(last, 2)), (true, None));
    }
}
