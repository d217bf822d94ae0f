//! A layered video codec for live multicast.
//!
//! A stream has any number of layers at any rates. Each receiver takes as many as its path carries,
//! from the base up, and each layer makes the picture better. Packets decode by themselves: what is
//! lost leaves its own blocks coarser or older, and nothing else. There are no key frames.
//!
//! ```text
//!  frame ─▶ what changed? ─▶ transform ─▶ in which layer does it start, how far does each go?
//!            ▲ change.rs      planes.rs    plan.rs, rate.rs         │
//!            │                                                     ▼
//!            └── what was sent, at each level ◀── packets of new content, run by run
//!                                             ◀── blocks that stand still: repeat, catch up,
//!                                                 refine (still.rs) with the bits that are left
//!
//!  packets ─▶ in order (decoder) ─▶ planes of each block ─▶ draw ─▶ smooth edges ─▶ picture
//! ```
//!
//! ```
//! use umbel_video::clips::{Clip, Kind};
//! use umbel_video::{Decoder, DecoderConfig, Encoder, EncoderConfig, FrameRate, Size};
//!
//! let size = Size::new(160, 96)?;
//! let clip = Clip::new(Kind::Head, size, 1);
//! let mut encoder = Encoder::new(size, FrameRate::new(30, 1)?, EncoderConfig::default())?;
//! let mut decoder = Decoder::new(size, DecoderConfig::default());
//! for number in 0..5 {
//!     for packet in encoder.encode(number, &clip.frame(number))? {
//!         // A receiver that takes the two lowest layers.
//!         if packet.layer < 2 {
//!             decoder.push(packet.layer, &packet.bytes)?;
//!         }
//!     }
//! }
//! decoder.flush();
//! assert!(decoder.known_share() > 0.99);
//! let picture = decoder.picture();
//! # assert_eq!(picture.size(), size);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Blocks, versions, levels
//!
//! The unit is the macroblock of 16×16 samples. Its content is a *version*, named by the frame that
//! it was taken from. A version is embedded: its numbers are coded plane by plane, from the highest
//! bit to the lowest, and each plane halves the error. *Level* l is what receivers of layers 0 to l
//! hold. For each macroblock and level the encoder knows which version is held, down to which
//! plane.
//!
//! - **Conditional replenishment**: only what changed beyond the noise gets a new version. The
//!   difference is taken from the source at the time of the last version, so nothing drifts.
//! - **Start layer**: a new version starts in the lowest layer that has bits for it. Lower levels
//!   keep the older version, and catch up when it stands still.
//! - **Refinement**: what stands still gets further planes, those with the fewest first.
//! - **Repeats**: the base layer repeats every macroblock within the refresh time. The other planes
//!   go round with the bits that nothing else needs. Both repeat the *same* version, so that a
//!   picture that is held already does not change: no pulse as with key frames.
//!
//! Nothing is predicted from a picture that was shown. So encoder and decoder need not agree on
//! one, and a receiver may smooth, lose and join as it likes.
//!
//! # Scope and limitations
//!
//! - No motion compensation: a camera that pans costs several times what other codecs need
//!   (`docs/concepts/codec.md`). It would make a packet depend on those of earlier frames.
//! - A level holds one version of a macroblock at a time. A packet that comes after those of
//!   `reorder_frames` later frames is of use only as far as its blocks have not changed since.
//! - Packets are not authenticated. Any host that can send into the channel can paint the picture.
//! - Numbers are computed in `f32` without contraction: equal on all platforms that round as IEEE
//!   754 demands.
//!
//! # Validation
//!
//! `tests/codec.rs` has what each layer, each loss and each join leads to; `tests/any_bytes.rs` and
//! the fuzz targets `video_packets` and `y4m` what malformed input does not. The example `measure`
//! prints quality and speed; `docs/concepts/codec.md` has its numbers.

#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type,
        clippy::print_stderr,
        clippy::print_stdout,
        reason = "what it does is a function of what it is given"
    )
)]

mod canvas;
pub mod clips;
mod decoder;
mod encoder;
mod frame;
mod models;
mod packet;
mod planes;
pub mod quality;
mod range;
mod transform;
pub mod y4m;

pub use decoder::{Counts, Decoder, DecoderConfig, PushError};
pub use encoder::{
    ConfigError, EncodeError, Encoder, EncoderConfig, Importance, MAX_PACKET_LEN, MIN_PACKET_LEN,
    Packet,
};
pub use frame::{
    Component, Frame, FrameRate, FrameRateError, MAX_SAMPLES, MAX_SIDE, Size, SizeError,
};
pub use packet::{FORMAT, MAX_LAYERS};
