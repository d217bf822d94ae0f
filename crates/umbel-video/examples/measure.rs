//! Measures the codec on its test clips: `measure --help`.
//!
//! Prints for each clip how many frames a second of processor time encode and decode. Also prints
//! what each layer took of its rate, and how good the picture is at each level.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use umbel_video::clips::{Clip, Kind};
use umbel_video::quality::{luma_mse, luma_ssim, psnr};
use umbel_video::y4m::{Header, Writer};
use umbel_video::{Decoder, DecoderConfig, Encoder, EncoderConfig, FrameRate, Packet, Size};

const HELP: &str = "\
measure [--size 640x360] [--frames 240] [--clip head|slides|pan] [--layers 250,250,500,…]
        [--loss 0.05] [--base-loss 0] [--join FRAME] [--write PREFIX]
  --layers   kb/s of each layer     --loss   share of enhancement packets lost
  --join     decode from this frame on only
  --write    write PREFIX-CLIP.y4m, which is encoded, and PREFIX-CLIP-LEVEL.y4m";

struct Options {
    size: Size,
    frames: u64,
    clips: Vec<Kind>,
    layers: Vec<u64>,
    loss: f64,
    base_loss: f64,
    join: u64,
    write: Option<String>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        size: Size::new(640, 360)?,
        frames: 240,
        clips: Kind::ALL.to_vec(),
        layers: vec![250, 250, 500, 1000, 2000, 4000],
        loss: 0.0,
        base_loss: 0.0,
        join: 0,
        write: None,
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(HELP)?;
        match word.as_str() {
            "--size" => {
                let (width, height) = value.split_once('x').ok_or(HELP)?;
                options.size = Size::new(width.parse()?, height.parse()?)?;
            }
            "--frames" => options.frames = value.parse()?,
            "--clip" => options.clips.retain(|clip| clip.name() == value),
            "--layers" => {
                options.layers = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--loss" => options.loss = value.parse()?,
            "--base-loss" => options.base_loss = value.parse()?,
            "--join" => options.join = value.parse()?,
            "--write" => options.write = Some(value),
            _ => return Err(HELP.into()),
        }
    }
    Ok(options)
}

/// Returns what the function returns, and the processor time that it took.
fn timed<T>(f: impl FnOnce() -> T) -> Result<(T, Duration), Box<dyn Error>> {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let before = now()?;
    let value = f();
    Ok((value, now()?.saturating_sub(before)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    for &kind in &options.clips {
        measure(kind, &options)?;
    }
    Ok(())
}

fn measure(kind: Kind, options: &Options) -> Result<(), Box<dyn Error>> {
    let rate = FrameRate::new(30, 1)?;
    let clip = Clip::new(kind, options.size, 1);
    let mut encoder = Encoder::new(
        options.size,
        rate,
        EncoderConfig {
            layer_bits_per_s: options.layers.iter().map(|rate| rate * 1000).collect(),
            packet_overhead: 12,
            ..EncoderConfig::default()
        },
    )?;
    let writer = |name: String| -> Result<_, Box<dyn Error>> {
        let header = Header { size: options.size, rate };
        Ok(Writer::new(BufWriter::new(File::create(format!("{name}.y4m"))?), header)?)
    };
    let name = options.write.as_ref().map(|prefix| format!("{prefix}-{}", kind.name()));
    let mut source = name.clone().map(writer).transpose()?;
    let mut encoding = Duration::ZERO;
    let mut packets: Vec<Vec<Packet>> = Vec::new();
    for number in 0..options.frames {
        let frame = clip.frame(number);
        if let Some(writer) = &mut source {
            writer.write(&frame)?;
        }
        let (coded, took) = timed(|| encoder.encode(number, &frame))?;
        packets.push(coded?);
        encoding += took;
    }
    let (width, height) = (options.size.width(), options.size.height());
    let per_s = |time: Duration| options.frames as f64 / time.as_secs_f64();
    println!(
        "{} {width}x{height}: encodes {:.0} frames/s, noise {:.2}",
        kind.name(),
        per_s(encoding),
        encoder.noise()
    );

    let seconds = options.frames as f64 / 30.0;
    let mut total = 0.0;
    for level in 0..options.layers.len() {
        let of_layer = || packets.iter().flatten().filter(|p| usize::from(p.layer) == level);
        let bytes: usize = of_layer().map(|p| p.bytes.len() + 12).sum();
        total += bytes as f64 * 0.008 / seconds;
        let mut decoder =
            Decoder::new(options.size, DecoderConfig { reorder_frames: 0, ..Default::default() });
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut decoding = Duration::ZERO;
        let (mut errors, mut likeness, mut worst) = (0.0, 0.0, 99.0_f64);
        let mut writer = name.as_ref().map(|name| writer(format!("{name}-{level}"))).transpose()?;
        for (number, packets) in packets.iter().enumerate().skip(options.join as usize) {
            let kept: Vec<&Packet> = packets
                .iter()
                .filter(|packet| usize::from(packet.layer) <= level)
                .filter(|packet| {
                    let loss = if packet.layer == 0 { options.base_loss } else { options.loss };
                    rng.next_u32() as f64 / f64::from(u32::MAX) >= loss
                })
                .collect();
            let (picture, took) = timed(|| {
                for packet in kept {
                    decoder.push(packet.layer, &packet.bytes).expect("our own packets");
                }
                decoder.picture()
            })?;
            decoding += took;
            let source = clip.frame(number as u64);
            let error = luma_mse(&source, picture);
            errors += error;
            likeness += luma_ssim(&source, picture);
            if number as u64 >= options.join + 60 {
                worst = worst.min(psnr(error));
            }
            if let Some(writer) = &mut writer {
                writer.write(picture)?;
            }
        }
        let shown = (options.frames - options.join) as f64;
        let counts = decoder.counts();
        println!(
            "  level {level}: layer takes {:4.0} % of {:5} kb/s, {total:7.0} in all, {:4.0} B a packet; \
             {:5.2} dB (least {worst:5.2}), SSIM {:.4}; decodes {:4.0} frames/s, {} of {} segments useless",
            bytes as f64 * 0.8 / seconds / options.layers[level] as f64,
            options.layers[level],
            bytes as f64 / of_layer().count().max(1) as f64,
            psnr(errors / shown),
            likeness / shown,
            per_s(decoding),
            counts.useless + counts.malformed,
            counts.segments + counts.useless + counts.malformed,
        );
    }
    Ok(())
}
