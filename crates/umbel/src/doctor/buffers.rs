//! Checks whether a receive buffer can hold the packets that arrive while a process does not run.

use std::net::UdpSocket;
use std::time::Duration;

use umbel_engine::units::{ByteCount, Rate};
use umbel_net::buffers;

use super::Finding;

pub(super) const CHECK: &str = "buffers";

/// Rate to prepare for if the server's is unknown.
const COMMON_BITS_PER_S: u64 = 100_000_000;

/// Requests the buffer that a receiver would have at this rate.
pub(super) fn check(rate: Option<Rate>) -> Finding {
    let rate = rate.or(Rate::from_bits_per_s(COMMON_BITS_PER_S));
    let wanted = buffers::bytes_for(rate);
    let socket = match UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0))) {
        Ok(socket) => socket,
        Err(error) => return Finding::unknown(CHECK, format!("cannot open a UDP socket: {error}")),
    };
    match buffers::set_receive_buffer(&socket, wanted) {
        Ok(buffer) => judge(buffer.got, wanted, rate),
        Err(error) => Finding::unknown(CHECK, format!("cannot set a receive buffer: {error}")),
    }
}

/// Judges whether a buffer of `got` bytes is enough where `wanted` would be right.
fn judge(got: usize, wanted: usize, rate: Option<Rate>) -> Finding {
    let at_rate = rate.map_or_else(String::new, |rate| {
        let held = rate.time_for(got as u64);
        let held = Duration::from_millis(held.as_millis() as u64);
        format!(", {held:?} of {rate}")
    });
    let what = format!("a receive buffer may hold {}{at_rate}", ByteCount(got as u64));
    if got >= wanted {
        return Finding::ok(CHECK, what);
    }
    let what = format!("{what}: packets are lost when the machine is busy for longer");
    Finding::warning(CHECK, what).mend(format!("sysctl -w net.core.rmem_max={wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_small_limit_is_named_with_the_command_that_raises_it() {
        let rate = Rate::from_bits_per_s(1_000_000_000);
        let finding = judge(212_992, 12_500_000, rate);
        assert_eq!(finding.verdict, Verdict::Warning);
        assert!(finding.what.contains("213.0 kB, 1ms of 1.00 Gbit/s"), "{finding}");
        assert_eq!(finding.mend.as_deref(), Some("sysctl -w net.core.rmem_max=12500000"));
    }

    #[test]
    fn an_ample_limit_is_well() {
        assert_eq!(judge(2 << 20, 1 << 20, Rate::from_bits_per_s(1_000_000)).verdict, Verdict::Ok);
    }
}
