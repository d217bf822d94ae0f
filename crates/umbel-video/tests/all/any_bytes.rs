//! A decoder is given what no encoder makes, or what the network made of it.

use std::sync::LazyLock;

use proptest::prelude::*;
use umbel_video::clips::{Clip, Kind};
use umbel_video::{Decoder, DecoderConfig, Encoder, EncoderConfig, FrameRate, Packet, Size};

fn size() -> Size {
    Size::new(80, 48).unwrap()
}

static PACKETS: LazyLock<Vec<Packet>> = LazyLock::new(|| {
    let config = EncoderConfig {
        layer_bits_per_s: vec![40_000, 40_000, 80_000],
        ..EncoderConfig::default()
    };
    let mut encoder = Encoder::new(size(), FrameRate::new(30, 1).unwrap(), config).unwrap();
    let clip = Clip::new(Kind::Head, size(), 1);
    (0..40).flat_map(|number| encoder.encode(number, &clip.frame(number)).unwrap()).collect()
});

/// Fate of a packet on its way.
#[derive(Debug, Clone)]
enum Fate {
    Lost,
    Cut(usize),
    Flipped(usize, u8),
    OtherLayer(u8),
    Late,
    Twice,
    Well,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Lost),
        any::<usize>().prop_map(Fate::Cut),
        (any::<usize>(), 0..8_u8).prop_map(|(at, bit)| Fate::Flipped(at, bit)),
        (0..16_u8).prop_map(Fate::OtherLayer),
        Just(Fate::Late),
        Just(Fate::Twice),
        Just(Fate::Well),
        Just(Fate::Well),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_the_network_does_to_packets_ends_no_picture(
        fates in prop::collection::vec(fate(), 100),
        reorder_frames in 0..4_u32,
    ) {
        let mut decoder = Decoder::new(size(), DecoderConfig { stream: 0, reorder_frames });
        let mut late = Vec::new();
        for (packet, fate) in PACKETS.iter().zip(fates.iter().cycle()) {
            let mut bytes = packet.bytes.clone();
            let mut layer = packet.layer;
            match *fate {
                Fate::Lost => continue,
                Fate::Cut(at) => bytes.truncate(at % bytes.len()),
                Fate::Flipped(at, bit) => {
                    let at = at % bytes.len();
                    bytes[at] ^= 1 << bit;
                }
                Fate::OtherLayer(other) => layer = other,
                Fate::Late => {
                    late.push((layer, bytes));
                    continue;
                }
                Fate::Twice => { let _ = decoder.push(layer, &bytes); }
                Fate::Well => {}
            }
            let _ = decoder.push(layer, &bytes);
            if late.len() > 3 {
                for (layer, bytes) in late.drain(..).rev() {
                    let _ = decoder.push(layer, &bytes);
                }
            }
            decoder.picture();
        }
        decoder.flush();
        decoder.picture();
    }

    #[test]
    fn any_bytes_with_a_right_head_are_decoded_or_counted(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20),
    ) {
        let mut decoder =
            Decoder::new(size(), DecoderConfig { stream: 0, reorder_frames: 0 });
        for (i, body) in bodies.iter().enumerate() {
            let mut bytes = PACKETS[0].bytes[..6].to_vec();
            bytes[5] = bytes[5].wrapping_add(i as u8);
            bytes.extend(body);
            prop_assert!(decoder.push(PACKETS[0].layer, &bytes).is_ok());
        }
        decoder.picture();
    }
}
