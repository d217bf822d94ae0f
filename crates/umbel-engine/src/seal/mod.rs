//! Sealing with keys: the cipher of feeds and repositories, and the group keys of a repository.
//!
//! A repository seals each packet when it leaves, below the erasure code
//! ([`sealed`](umbel_wire::sealed) has the format). Measured on one core
//! (`cargo bench -p umbel-engine --bench seal`), this is six times as fast as sealing symbols above
//! the code, as feeds do. Packets have numbers for nonces, so nothing needs to be hashed. It also
//! covers headers and repair symbols, and a receiver can drop a forged packet when it comes. A key
//! can change between any two packets. Feeds seal above the code because nodes on the way make
//! repairs without the key; in a repository only the server makes packets.
//!
//! No key is drawn here. Hosts draw them.

mod aead;
mod group;
mod window;

pub use aead::{Cipher, NONCE_LEN, TAG_LEN};
pub use group::{Keyring, NotOpened};
pub(crate) use window::Window;
