//! Socket buffers that hold the datagrams that arrive while a thread is busy.

use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use umbel_engine::units::Rate;

/// Time at the rate that a buffer holds.
const HOLD: Duration = Duration::from_millis(100);
/// Minimum size requested, in bytes.
const MIN_BYTES: usize = 1 << 20;
/// Maximum size requested, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The buffer of a socket: the size requested, and the size granted by the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSize {
    /// Bytes requested.
    pub wanted: usize,
    /// Bytes of payload that the buffer holds by the system's own count. It is half of the size
    /// that the system reports, since the other half is for its book-keeping.
    pub got: usize,
    direction: Direction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Receive,
    Send,
}

/// Returns the size of the buffer for a rate: 100 ms of it, at least 1 MiB, at most 64 MiB. An
/// unlimited rate (`None`) gets 16 MiB.
pub fn bytes_for(rate: Option<Rate>) -> usize {
    let Some(rate) = rate else { return 16 << 20 };
    usize::try_from(rate.bytes_in(HOLD)).unwrap_or(MAX_BYTES).clamp(MIN_BYTES, MAX_BYTES)
}

/// Sets the socket's receive buffer to `wanted` bytes, or to as much as this process may have.
///
/// # Errors
///
/// If the system refuses even that.
pub fn set_receive_buffer(socket: &impl AsFd, wanted: usize) -> std::io::Result<BufferSize> {
    let _ = setsockopt(socket, sockopt::RcvBuf, &wanted);
    if getsockopt(socket, sockopt::RcvBuf)? / 2 < wanted {
        // Only a privileged process may exceed the limit; another keeps what it has.
        let _ = setsockopt(socket, sockopt::RcvBufForce, &wanted);
    }
    let got = getsockopt(socket, sockopt::RcvBuf)? / 2;
    Ok(BufferSize { wanted, got, direction: Direction::Receive })
}

/// Sets the socket's send buffer to `wanted` bytes, or to as much as this process may have.
///
/// # Errors
///
/// If the system refuses even that.
pub fn set_send_buffer(socket: &impl AsFd, wanted: usize) -> std::io::Result<BufferSize> {
    let _ = setsockopt(socket, sockopt::SndBuf, &wanted);
    if getsockopt(socket, sockopt::SndBuf)? / 2 < wanted {
        let _ = setsockopt(socket, sockopt::SndBufForce, &wanted);
    }
    let got = getsockopt(socket, sockopt::SndBuf)? / 2;
    Ok(BufferSize { wanted, got, direction: Direction::Send })
}

impl BufferSize {
    /// Returns whether the system granted less than requested.
    pub fn is_short(&self) -> bool {
        self.got < self.wanted
    }
}

impl fmt::Display for BufferSize {
    /// Writes one line. If the buffer is short, it includes the command that lets it grow.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = match self.direction {
            Direction::Receive => ("receive", "net.core.rmem_max"),
            Direction::Send => ("send", "net.core.wmem_max"),
        };
        write!(f, "{name} buffer of {} KiB", self.got / 1024)?;
        if self.is_short() {
            let (wanted, bytes) = (self.wanted / 1024, self.wanted);
            write!(f, " instead of {wanted} KiB: `sysctl -w {limit}={bytes}`")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_buffer_holds_a_tenth_of_a_second_within_bounds() {
        for (bits_per_s, bytes) in
            [(64_000, 1 << 20), (1_000_000_000, 12_500_000), (100_000_000_000, 64 << 20)]
        {
            assert_eq!(bytes_for(Rate::from_bits_per_s(bits_per_s)), bytes);
        }
    }

    #[test]
    fn a_socket_tells_what_it_got() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let small = set_receive_buffer(&socket, 100_000).unwrap();
        assert!(!small.is_short(), "{small}");
        assert_eq!(small.to_string(), "receive buffer of 97 KiB");
        let small = set_send_buffer(&socket, 100_000).unwrap();
        assert!(!small.is_short(), "{small}");
    }

    #[test]
    fn a_short_buffer_names_the_limit() {
        let short = BufferSize { wanted: 1 << 20, got: 208 << 10, direction: Direction::Receive };
        assert_eq!(
            short.to_string(),
            "receive buffer of 208 KiB instead of 1024 KiB: `sysctl -w net.core.rmem_max=1048576`"
        );
    }
}
