//! The layers of a stream: their rates on the wire, their codes, and what the encoder has of them.

use std::time::Duration;

use anyhow::bail;
use umbel_engine::units::Rate;
use umbel_net::interface::Family;
use umbel_wire::stream::{FrameRate, LayerFec};

/// Number of layers by default.
const LAYERS: u32 = 6;
/// Rate of the base layer by default, for 640×360 at 30 pictures a second, in kbit/s. Each further
/// layer has twice the rate of the one below it [RLM §4].
const BASE_KBIT: f64 = 128.0;
/// Luma samples a second for which `BASE_KBIT` is meant. Others get a base in proportion to the
/// square root, since larger pictures have less detail per sample.
const BASE_SAMPLES: f64 = 640.0 * 360.0 * 30.0;
/// Rates by default are multiples of this many kbit/s.
const STEP_KBIT: f64 = 16.0;
/// Bytes of a unit's length before it in a symbol of a code [RFC 6865].
pub(crate) const LENGTH_LEN: u16 = 2;
/// Share of a layer's rate that the encoder may use. The rest is for packets of uneven length.
const FILL: f64 = 0.97;
/// Least rate of the encoder in a layer.
const LEAST_BITS_PER_S: u64 = 6_000;

/// A layer: what it takes on the wire, and what the encoder has of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Rate on the wire with all headers.
    pub(crate) rate: Rate,
    /// Rate of UDP payload, for the pacer.
    pub(crate) pace: Rate,
    /// Rate of source packets with all headers, for the encoder, in bits per second.
    pub(crate) encoder_bits_per_s: u64,
    /// The layer's code.
    pub(crate) fec: Option<LayerFec>,
}

/// Overheads that a rate pays before content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) family: Family,
    /// UDP payload of a full packet in bytes.
    pub(crate) packet_len: u16,
    pub(crate) pictures: FrameRate,
    /// Time after which a block of a code is closed.
    pub(crate) block_time: Duration,
}

/// Returns the rates of layers for pictures of this size.
pub(crate) fn default_rates(width: u32, height: u32, pictures: FrameRate) -> Vec<Rate> {
    let per_s = f64::from(pictures.pictures) / f64::from(pictures.seconds);
    let samples = f64::from(width) * f64::from(height) * per_s;
    let base = BASE_KBIT * (samples / BASE_SAMPLES).sqrt() / STEP_KBIT;
    let base = (base.round().max(1.0) * STEP_KBIT) as u64;
    (0..LAYERS).filter_map(|layer| Rate::from_bits_per_s((base * 1_000) << layer)).collect()
}

/// Returns the codes of layers by default: much for the base, without which there is no picture,
/// and some for the layer above it.
pub(crate) fn default_fec() -> Vec<Option<LayerFec>> {
    let code = |source_symbols, repair_symbols| Some(LayerFec { source_symbols, repair_symbols });
    vec![code(8, 3), code(16, 2)]
}

/// Returns the steps of a ladder. Layers beyond the end of `fec` have no code.
///
/// # Errors
///
/// If a layer has hardly any rate.
pub(crate) fn steps(
    rates: &[Rate],
    fec: &[Option<LayerFec>],
    shape: &Shape,
) -> anyhow::Result<Vec<Step>> {
    let codes = fec.iter().copied().chain(std::iter::repeat(None));
    let steps = rates.iter().zip(codes).enumerate();
    steps.map(|(layer, (&rate, fec))| step(layer, rate, fec, shape)).collect()
}

fn step(layer: usize, rate: Rate, fec: Option<LayerFec>, shape: &Shape) -> anyhow::Result<Step> {
    let per_s = f64::from(shape.pictures.pictures) / f64::from(shape.pictures.seconds);
    let bits_per_s = rate.bits_per_s() as f64;
    let ip = shape.family.header_bytes() as f64;
    let full = f64::from(shape.packet_len) + ip;
    // A picture's part of a layer is in its own packets, unless a slow layer waits until it has
    // enough for a whole one.
    let whole_per_s = bits_per_s / 8.0 / full;
    let packets_per_s = (whole_per_s / per_s).ceil().max(1.0) * per_s;
    let share = fec.map_or(1.0, |fec| {
        let share = |packets_per_s| source_share(fec, packets_per_s, shape.block_time);
        share(packets_per_s).min(share(whole_per_s))
    });
    let encoder_bits_per_s = (bits_per_s * share * FILL) as u64;
    if encoder_bits_per_s < LEAST_BITS_PER_S {
        bail!("layer {} has {rate}: give it at least 10k by --layers", layer + 1);
    }
    let payload_bits_per_s = bits_per_s - packets_per_s * ip * 8.0;
    let least = bits_per_s * (full - ip) / full * FILL;
    let pace = Rate::from_bits_per_s(payload_bits_per_s.max(least) as u64);
    Ok(Step { rate, pace: pace.unwrap_or(rate), encoder_bits_per_s, fec })
}

/// Returns the share of source symbols among those of a block, at this rate of packets. A block
/// that is closed early has repair symbols in proportion, rounded up.
fn source_share(fec: LayerFec, packets_per_s: f64, block_time: Duration) -> f64 {
    let (k, r) = (f64::from(fec.source_symbols), f64::from(fec.repair_symbols));
    let in_time = (packets_per_s * block_time.as_secs_f64() * k / (k + r)).floor();
    let source = in_time.clamp(1.0, k);
    source / (source + (source * r / k).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRTY: FrameRate = FrameRate { pictures: 30, seconds: 1 };

    fn shape() -> Shape {
        let block_time = Duration::from_millis(500);
        Shape { family: Family::V4, packet_len: 1400, pictures: THIRTY, block_time }
    }

    fn rate(kbit_per_s: u64) -> Rate {
        Rate::from_bits_per_s(kbit_per_s * 1_000).unwrap()
    }

    #[test]
    fn larger_pictures_have_more_and_each_layer_doubles() {
        let kbit = |width, height| -> Vec<u64> {
            let rates = default_rates(width, height, THIRTY);
            rates.iter().map(|rate| rate.bits_per_s() / 1_000).collect()
        };
        assert_eq!(kbit(640, 360), [128, 256, 512, 1024, 2048, 4096]);
        assert_eq!(kbit(1280, 720), [256, 512, 1024, 2048, 4096, 8192]);
        assert_eq!(kbit(16, 16)[0], 16);
    }

    #[test]
    fn the_encoder_has_what_repairs_leave_and_the_pacer_what_headers_leave() {
        let fec = Some(LayerFec { source_symbols: 8, repair_symbols: 4 });
        let steps = steps(&[rate(128), rate(2048)], &[fec], &shape()).unwrap();
        // 11 whole packets a second: 3 of 5 in half a second can be source symbols; 3 + 2 a block.
        assert_eq!(steps[0].encoder_bits_per_s, (128_000.0 * 3.0 / 5.0 * FILL) as u64);
        assert_eq!(steps[0].pace.bits_per_s(), (128_000.0 * 1400.0 / 1428.0 * FILL) as u64);
        // 8,533 bytes a picture in 6 packets.
        assert_eq!(steps[1].encoder_bits_per_s, (2_048_000.0 * FILL) as u64);
        assert_eq!(steps[1].pace.bits_per_s(), 2_048_000 - 28 * 8 * 30 * 6);
    }

    #[test]
    fn a_layer_of_hardly_any_rate_is_refused() {
        let error = steps(&[rate(128), rate(5)], &[], &shape()).unwrap_err().to_string();
        assert!(error.starts_with("layer 2 has 5.0 kbit/s"), "{error}");
    }
}
