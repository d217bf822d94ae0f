//! Encoder and decoder together, on small clips.

use umbel_video::clips::{Clip, Kind};
use umbel_video::quality::{luma_mse, psnr};
use umbel_video::{
    ConfigError, Decoder, DecoderConfig, EncodeError, Encoder, EncoderConfig, Frame, FrameRate,
    Packet, PushError, Size,
};

const LAYERS: [u64; 4] = [60_000, 60_000, 120_000, 240_000];

fn size() -> Size {
    Size::new(160, 96).unwrap()
}

fn encoder(size: Size) -> Encoder {
    let config = EncoderConfig { layer_bits_per_s: LAYERS.to_vec(), ..EncoderConfig::default() };
    Encoder::new(size, FrameRate::new(30, 1).unwrap(), config).unwrap()
}

fn encode(clip: &Clip, encoder: &mut Encoder, numbers: std::ops::Range<u64>) -> Vec<Vec<Packet>> {
    numbers.map(|number| encoder.encode(number, &clip.frame(number)).unwrap()).collect()
}

fn decoder(size: Size) -> Decoder {
    Decoder::new(size, DecoderConfig { reorder_frames: 0, ..DecoderConfig::default() })
}

/// Plays those packets for which `keep` holds, and returns the PSNR over all frames from `from` on.
fn play(
    clip: &Clip,
    decoder: &mut Decoder,
    frames: &[Vec<Packet>],
    from: usize,
    mut keep: impl FnMut(&Packet) -> bool,
) -> f64 {
    let mut error = 0.0;
    for (number, packets) in frames.iter().enumerate() {
        for packet in packets.iter().filter(|packet| keep(packet)) {
            decoder.push(packet.layer, &packet.bytes).unwrap();
        }
        if number >= from {
            error += luma_mse(&clip.frame(number as u64), decoder.picture());
        }
    }
    psnr(error / (frames.len() - from) as f64)
}

#[test]
fn each_layer_makes_the_picture_better() {
    for kind in Kind::ALL {
        let clip = Clip::new(kind, size(), 1);
        let frames = encode(&clip, &mut encoder(size()), 0..60);
        let levels: Vec<f64> = (0..LAYERS.len() as u8)
            .map(|level| play(&clip, &mut decoder(size()), &frames, 15, |p| p.layer <= level))
            .collect();
        assert!(levels[0] > 20.0, "{}: {levels:?}", kind.name());
        assert!(levels.is_sorted(), "{}: {levels:?}", kind.name());
    }
}

#[test]
fn each_layer_keeps_its_rate() {
    let clip = Clip::new(Kind::Pan, size(), 2);
    let frames = encode(&clip, &mut encoder(size()), 0..150);
    for (layer, rate) in LAYERS.into_iter().enumerate() {
        let packets = frames.iter().flatten().filter(|p| usize::from(p.layer) == layer);
        let took = packets.map(|p| p.bytes.len() as f64 * 8.0).sum::<f64>() / 5.0 / rate as f64;
        assert!((0.93..1.05).contains(&took), "layer {layer} takes {took} of its rate");
    }
}

#[test]
fn a_run_depends_on_nothing_but_its_frames() {
    let clip = Clip::new(Kind::Head, size(), 3);
    let run = || encode(&clip, &mut encoder(size()), 0..20);
    assert_eq!(run(), run());
}

#[test]
fn losses_in_enhancement_layers_leave_a_moving_picture() {
    for kind in Kind::ALL {
        let clip = Clip::new(kind, size(), 4);
        let frames = encode(&clip, &mut encoder(size()), 0..60);
        let base = play(&clip, &mut decoder(size()), &frames, 15, |p| p.layer == 0);
        let mut lossy = decoder(size());
        let mut n = 0_u32;
        let with_loss = play(&clip, &mut lossy, &frames, 15, |p| {
            n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            p.layer == 0 || n >> 16 >= 65_536 / 5
        });
        assert!(with_loss > base - 0.5, "{}: {with_loss} with, {base} base", kind.name());
        assert_eq!(lossy.counts().malformed, 0);
    }
}

#[test]
fn packets_do_not_depend_on_layers_above_them() {
    let clip = Clip::new(Kind::Head, size(), 5);
    let frames = encode(&clip, &mut encoder(size()), 0..45);
    let mut all = decoder(size());
    play(&clip, &mut all, &frames, 0, |_| true);
    assert_eq!((all.counts().useless, all.counts().malformed), (0, 0));
    for level in 0..LAYERS.len() as u8 {
        let mut some = decoder(size());
        play(&clip, &mut some, &frames, 0, |p| p.layer <= level);
        assert_eq!((some.counts().useless, some.counts().malformed), (0, 0), "level {level}");
    }
}

#[test]
fn layers_that_come_late_are_waited_for() {
    let clip = Clip::new(Kind::Head, size(), 6);
    let frames = encode(&clip, &mut encoder(size()), 0..30);
    let mut in_order = decoder(size());
    let mut late = Decoder::new(size(), DecoderConfig::default());
    play(&clip, &mut in_order, &frames, 0, |_| true);
    // Higher layers first, and the base a frame behind.
    for number in 0..=frames.len() {
        let enhancements = frames.get(number).into_iter().flatten().filter(|p| p.layer > 0).rev();
        let before = number.checked_sub(1).and_then(|number| frames.get(number));
        let base = before.into_iter().flatten().filter(|p| p.layer == 0);
        for packet in enhancements.chain(base) {
            late.push(packet.layer, &packet.bytes).unwrap();
        }
    }
    late.flush();
    assert_eq!(late.counts().useless, 0);
    assert_eq!(late.picture(), in_order.picture());
}

#[test]
fn who_joins_late_has_a_whole_picture_within_the_refresh_time() {
    for kind in [Kind::Head, Kind::Slides] {
        let clip = Clip::new(kind, size(), 7);
        let frames = encode(&clip, &mut encoder(size()), 0..195);
        let mut late = decoder(size());
        play(&clip, &mut late, &frames[..60], 59, |_| false);
        assert!(late.known_share() < 0.01);
        let quality = play_from(&clip, &mut late, &frames[..195], 60, 190);
        assert!(late.known_share() > 0.999, "{}: {}", kind.name(), late.known_share());
        assert!(late.fresh_share(135) > 0.999, "{}: {}", kind.name(), late.fresh_share(135));
        assert!(quality > 30.0, "{}: {quality}", kind.name());
    }
}

/// Plays from a frame on, and returns the PSNR from another on.
fn play_from(
    clip: &Clip,
    decoder: &mut Decoder,
    frames: &[Vec<Packet>],
    first: usize,
    from: usize,
) -> f64 {
    let mut error = 0.0;
    for (number, packets) in frames.iter().enumerate().skip(first) {
        for packet in packets {
            decoder.push(packet.layer, &packet.bytes).unwrap();
        }
        if number >= from {
            error += luma_mse(&clip.frame(number as u64), decoder.picture());
        }
    }
    psnr(error / (frames.len() - from) as f64)
}

#[test]
fn odd_sizes_are_coded() {
    for (width, height) in [(1, 1), (17, 33), (35, 5), (160, 91)] {
        let size = Size::new(width, height).unwrap();
        let clip = Clip::new(Kind::Slides, size, 8);
        let frames = encode(&clip, &mut encoder(size), 0..30);
        let quality = play(&clip, &mut decoder(size), &frames, 20, |_| true);
        assert!(quality > 25.0, "{width}x{height}: {quality}");
    }
}

#[test]
fn frames_that_are_skipped_and_rates_that_change_are_coped_with() {
    let clip = Clip::new(Kind::Head, size(), 9);
    let mut encoder = encoder(size());
    let mut decoder = decoder(size());
    let mut last = 0.0;
    for (i, number) in [0, 1, 2, 50, 51, 60, 2000, 2001, 2010, 2015, 2030].into_iter().enumerate() {
        if i == 4 {
            encoder.set_rates(&[60_000, 0, 500_000, 0]).unwrap();
        }
        let frame = clip.frame(number);
        for packet in encoder.encode(number, &frame).unwrap() {
            assert!(i < 4 || packet.layer % 2 == 0, "a layer without rate sends");
            let _ = decoder.push(packet.layer, &packet.bytes);
        }
        last = psnr(luma_mse(&frame, decoder.picture()));
    }
    assert!(last > 24.0, "{last}");
}

#[test]
fn what_cannot_be_coded_is_refused() {
    let rate = FrameRate::new(30, 1).unwrap();
    let config = |layers, packet_len| EncoderConfig {
        layer_bits_per_s: vec![1000; layers],
        packet_len,
        ..EncoderConfig::default()
    };
    let refused = |config| Encoder::new(size(), rate, config).err();
    assert_eq!(refused(config(0, 1200)), Some(ConfigError::Layers(0)));
    assert_eq!(refused(config(16, 1200)), Some(ConfigError::Layers(16)));
    assert_eq!(refused(config(4, 255)), Some(ConfigError::PacketLen(255)));
    let mut encoder = encoder(size());
    assert_eq!(encoder.set_rates(&[1, 2]), Err(ConfigError::OtherLayers { given: 2, layers: 4 }));
    let other = Size::new(16, 16).unwrap();
    assert_eq!(
        encoder.encode(0, &Frame::grey(other)),
        Err(EncodeError::Size { given: other, stream: size() })
    );
    encoder.encode(5, &Frame::grey(size())).unwrap();
    assert_eq!(
        encoder.encode(5, &Frame::grey(size())),
        Err(EncodeError::Number { given: 5, last: 5 })
    );
}

#[test]
fn packets_of_others_are_refused() {
    let packet = &encoder(size()).encode(0, &Frame::grey(size())).unwrap()[0];
    let push = |size, stream, layer, bytes: &[u8]| {
        Decoder::new(size, DecoderConfig { stream, ..DecoderConfig::default() }).push(layer, bytes)
    };
    assert_eq!(push(size(), 0, packet.layer, &packet.bytes), Ok(()));
    let other = Size::new(160, 97).unwrap();
    assert_eq!(push(other, 0, packet.layer, &packet.bytes), Err(PushError::OtherStream));
    assert_eq!(push(size(), 1, packet.layer, &packet.bytes), Err(PushError::OtherStream));
    assert_eq!(
        push(size(), 0, packet.layer + 1, &packet.bytes),
        Err(PushError::OtherLayer(packet.layer))
    );
    assert_eq!(push(size(), 0, 0, &[]), Err(PushError::Format));
    assert_eq!(push(size(), 0, 0, &[0x20, 0, 0, 0, 0, 0]), Err(PushError::Format));
}

#[test]
fn packets_are_no_longer_than_asked_for() {
    let config = EncoderConfig {
        layer_bits_per_s: vec![3_000_000, 3_000_000],
        packet_len: 256,
        ..EncoderConfig::default()
    };
    let mut encoder = Encoder::new(size(), FrameRate::new(30, 1).unwrap(), config).unwrap();
    let clip = Clip::new(Kind::Pan, size(), 10);
    let frames = encode(&clip, &mut encoder, 0..20);
    assert!(frames.iter().flatten().all(|packet| packet.bytes.len() <= 256));
    let quality = play(&clip, &mut decoder(size()), &frames, 5, |_| true);
    assert!(quality > 30.0, "{quality}");
}
