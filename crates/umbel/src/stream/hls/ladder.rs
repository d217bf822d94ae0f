//! The layers of a ladder: how fast each is sent.

use anyhow::bail;
use umbel_engine::units::Rate;
use umbel_net::interface::Family;
use umbel_store::hls::Master;
use umbel_wire::rlm::SignedHeader;
use umbel_wire::stream::{LayerFec, LayerInfo};

/// Rate of what receivers need before any segment, in bits per second.
const HEADS_BITS_PER_S: f64 = 32_000.0;

/// A layer, which is a rendition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rung {
    /// Rate on the wire with all headers.
    pub(crate) rate: Rate,
    /// Rate of UDP payload, for the pacer.
    pub(crate) pace: Rate,
    /// UDP payload of a full packet in bytes.
    pub(crate) packet_len: u16,
    /// The layer's code.
    pub(crate) fec: Option<LayerFec>,
}

impl Rung {
    /// Returns the layer as it is announced.
    pub(crate) fn info(&self) -> LayerInfo {
        LayerInfo { kbit_per_s: self.rate.bits_per_s().div_ceil(1_000), fec: self.fec }
    }
}

/// Returns the layers of a ladder. Each has its rendition's peak rate, with repairs and headers,
/// and the share `headroom` of that in addition. A segment then takes most of its duration to
/// arrive.
///
/// # Errors
///
/// If a rate is beyond all bounds.
pub(crate) fn rungs(
    master: &Master,
    fec: Option<LayerFec>,
    headroom: f64,
    packet_len: u16,
    family: Family,
) -> anyhow::Result<Vec<Rung>> {
    let len = f64::from(packet_len);
    let symbol = len - SignedHeader::LEN as f64;
    let repairs =
        fec.map_or(0.0, |fec| f64::from(fec.repair_symbols) / f64::from(fec.source_symbols));
    let mut rungs = Vec::with_capacity(master.renditions.len());
    for rendition in &master.renditions {
        let content = rendition.bandwidth as f64 * (1.0 + repairs) + HEADS_BITS_PER_S;
        let pace = content * len / symbol * (1.0 + headroom);
        let rate = pace * (len + family.header_bytes() as f64) / len;
        let rates = Rate::from_bits_per_s(pace as u64).zip(Rate::from_bits_per_s(rate as u64));
        let Some((pace, rate)) = rates.filter(|_| rate < 1e11) else {
            bail!("{}: BANDWIDTH={} is out of range", rendition.playlist, rendition.bandwidth);
        };
        rungs.push(Rung { rate, pace, packet_len, fec });
    }
    Ok(rungs)
}

#[cfg(test)]
mod tests {
    use umbel_store::hls::{FileName, Playlist};

    use super::*;

    #[test]
    fn a_layer_has_room_for_its_rendition_with_repairs_headers_and_headroom() {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000000\na.m3u8\n";
        let name = FileName::parse("m.m3u8").unwrap();
        let master = Playlist::parse_master(&name, text.as_bytes()).unwrap();
        let fec = Some(LayerFec { source_symbols: 100, repair_symbols: 10 });
        let rungs = rungs(&master, fec, 0.25, 1400, Family::V4).unwrap();
        let pace = (1_100_000.0 + 32_000.0) * 1400.0 / 1304.0 * 1.25;
        assert_eq!(rungs[0].pace.bits_per_s(), pace as u64);
        assert_eq!(rungs[0].info().kbit_per_s, (pace * 1.02 / 1000.0_f64).ceil() as u64);
    }
}
