//! TCP segments as TCP-SMO sends and receives them: TCP header and payload, without the IP header
//! [RFC 9293 §3.1]. [`Packet`] is the IP packet around one.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------------------------------+-------------------------------+
//! |          source port          |       destination port        |
//! +-------------------------------+-------------------------------+
//! |                        sequence number                        |
//! +---------------------------------------------------------------+
//! |                    acknowledgement number                     |
//! +-------+-------+---------------+-------------------------------+
//! | words |   0   |     flags     |            window             |
//! +-------+-------+---------------+-------------------------------+
//! |       checksum (the port's)   |     urgent pointer (0)        |
//! +-------------------------------+-------------------------------+
//! |          options ([`Options`]), padded to 32-bit words        |
//! +---------------------------------------------------------------+
//! |                            payload                            |
//! +---------------------------------------------------------------+
//! ```
//!
//! Parsing and emitting leave the checksum alone. It is the port's, which has the addresses of the
//! pseudo header, and a kernel or network card that helps. Urgent data is treated
//! as ordinary data [RFC 6093 §5].

mod options;
mod packet;
mod segment;
mod seq;

pub use options::{Membership, Options, SackBlocks};
pub use packet::{Packet, ip_len, pseudo_header};
pub use segment::{Flags, Head, Segment};
pub use seq::Seq;
