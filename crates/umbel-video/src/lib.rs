//! A layered video codec for live multicast.

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
