//! Streams for minutes: what is lost in the long run, how pictures look at each site, and how old
//! they are.
//!
//! ```text
//! cargo test --release -p umbel --test second lab::soak_stream:: -- --ignored --test-threads 1 --nocapture
//! ```

use std::io::{BufReader, BufWriter};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::lab;
use crate::support::process::Process;
use crate::support::streams::{Streams, number, sites};
use umbel_video::clips::{Clip, Kind};
use umbel_video::{Component, Frame, FrameRate, Size, quality, y4m};

/// Pictures of the clip, which is repeated.
const PICTURES: usize = 90;
/// Bits of a picture's number, and of its check.
const BITS: u32 = 16;
const CHECK: u32 = 4;
/// Side of the square that shows a bit.
const SQUARE: usize = 16;

fn minutes() -> f64 {
    std::env::var("UMBEL_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(10.0)
}

#[test]
#[ignore = "ten minutes, or as UMBEL_MINUTES says"]
fn about_one_per_cent_is_lost_in_the_long_run() {
    let Some(lab) = lab(&sites(&[("a", "8M", 4), ("b", "2M", 4), ("c", "500k", 4)])) else {
        return;
    };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", (320, 180), 60);
    let source = streams.stream("clip.y4m", &["--layers", "100k,200k,400k,800k,1600k,3200k"]);
    let hosts = ["a", "b", "c"].map(|site| [1, 2, 3, 4].map(|n| format!("{site}{n}")));
    let receivers = hosts.as_flattened().iter().map(|host| (host, streams.watch(host, &[])));
    let receivers: Vec<_> = receivers.collect();
    std::thread::sleep(Duration::from_secs_f64(minutes() * 60.0));
    drop(source);
    for (host, mut receiver) in receivers {
        receiver.signal(nix::sys::signal::Signal::SIGINT);
        let summary = receiver.wait_done(SOON);
        let [packets, lost] = ["packets", "lost"].map(|name| summary[name].as_f64().unwrap());
        let loss = lost / (packets + lost);
        println!(
            "{host}: {:.2} % lost, seconds at each level {}, {} experiments, {} failed",
            loss * 1e2,
            summary["at_level"],
            summary["experiments"],
            summary["failed"]
        );
        assert!(loss < 0.03, "{host}: {summary}");
    }
}

/// Draws the number of a picture into its first rows.
fn stamp(frame: &mut Frame, number: u32) {
    let code = number << CHECK | check(number);
    let (width, _) = frame.size().of(Component::Y);
    let plane = frame.plane_mut(Component::Y);
    for bit in 0..BITS + CHECK {
        let shade = if code >> bit & 1 == 1 { 220 } else { 30 };
        for y in 0..SQUARE {
            let from = y * width + bit as usize * SQUARE;
            plane[from..from + SQUARE].fill(shade);
        }
    }
}

fn check(number: u32) -> u32 {
    (number.wrapping_mul(0x9E37_79B1) >> 28) & ((1 << CHECK) - 1)
}

/// Returns the number that a picture shows, if it is all there.
fn read_number(frame: &Frame) -> Option<u32> {
    let (width, _) = frame.size().of(Component::Y);
    let plane = frame.plane(Component::Y);
    let middle = |bit: u32| plane[SQUARE / 2 * width + bit as usize * SQUARE + SQUARE / 2];
    let code = (0..BITS + CHECK).fold(0, |code, bit| code | u32::from(middle(bit) > 125) << bit);
    let number = code >> CHECK;
    (check(number) == code & ((1 << CHECK) - 1)).then_some(number)
}

/// A camera: pictures at their rate on the standard input of a source.
struct Camera {
    pictures: Arc<Vec<Frame>>,
    /// Time at which each picture was taken.
    taken: Arc<Mutex<Vec<Instant>>>,
    stopped: Arc<AtomicBool>,
}

impl Camera {
    fn new(kind: Kind, size: Size) -> Camera {
        let clip = Clip::new(kind, size, 1);
        let pictures = Arc::new((0..PICTURES as u64).map(|number| clip.frame(number)).collect());
        Camera { pictures, taken: Arc::default(), stopped: Arc::default() }
    }

    /// Begins to shoot.
    fn shoot(&self, input: ChildStdin) {
        let output = BufWriter::with_capacity(1 << 16, input);
        let header =
            y4m::Header { size: self.pictures[0].size(), rate: FrameRate::new(30, 1).unwrap() };
        let (pictures, taken, stopped) =
            (self.pictures.clone(), self.taken.clone(), self.stopped.clone());
        std::thread::spawn(move || {
            let mut writer = y4m::Writer::new(output, header).unwrap();
            let start = Instant::now();
            for number in 0.. {
                let due = start + Duration::from_secs(1) * number / 30;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let mut picture = pictures[number as usize % PICTURES].clone();
                stamp(&mut picture, number);
                taken.lock().unwrap().push(Instant::now());
                if writer.write(&picture).is_err() {
                    return;
                }
            }
        });
    }
}

/// Pictures that a viewer saw in some seconds.
#[derive(Default)]
struct Seen {
    ages_ms: Vec<f64>,
    psnr: Vec<f64>,
    ssim: Vec<f64>,
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

fn quantile(numbers: &mut [f64], share: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let at = (numbers.len() as f64 * share) as usize;
    numbers.get(at.min(numbers.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Watches on a host, and compares each picture with the one that was taken.
fn view(streams: &Streams<'_>, camera: &Camera, host: &str) -> (Child, Arc<Mutex<Seen>>) {
    let mut command = streams.umbel(host);
    command.args(["watch", "live", "--wait", "20s", "-o", "-", "--stats"]);
    let log = std::fs::File::create(streams.path(host)).unwrap();
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let output = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
    let seen = Arc::<Mutex<Seen>>::default();
    let (told, pictures, taken) = (seen.clone(), camera.pictures.clone(), camera.taken.clone());
    std::thread::spawn(move || {
        let mut reader = y4m::Reader::new(output).unwrap();
        let mut picture = Frame::grey(reader.header().size);
        let mut last = None;
        while reader.read(&mut picture).unwrap_or(false) {
            let now = Instant::now();
            let Some(number) = read_number(&picture).filter(|number| last != Some(*number)) else {
                continue;
            };
            let Some(at) = taken.lock().unwrap().get(number as usize).copied() else { continue };
            last = Some(number);
            let mut source = pictures[number as usize % PICTURES].clone();
            stamp(&mut source, number);
            let mut seen = told.lock().unwrap();
            seen.ages_ms.push((now - at).as_secs_f64() * 1e3);
            // Comparing takes longer than showing.
            if number % 5 == 0 {
                seen.psnr.push(quality::psnr(quality::luma_mse(&picture, &source)));
                seen.ssim.push(quality::luma_ssim(&picture, &source));
            }
        }
    });
    (child, seen)
}

#[test]
#[ignore = "two minutes, or as UMBEL_MINUTES says; alone on the machine"]
fn pictures_at_each_site_are_as_good_and_as_fresh_as_its_link_allows() {
    let Some(lab) = lab(&sites(&[("a", "8M", 1), ("b", "2M", 1), ("c", "500k", 1)])) else {
        return;
    };
    let streams = Streams::new(&lab);
    for kind in [Kind::Head, Kind::Pan] {
        let camera = Camera::new(kind, Size::new(640, 360).unwrap());
        let mut command = streams.umbel("h1");
        command.args(["stream", "-", "--name", "live", "--json"]);
        command.args(["--layers", "150k,250k,1200k,4800k"]);
        let (process, input) = Process::start_fed("source", command, &streams.logs);
        camera.shoot(input);
        let source = streams.follow(process);
        let mut viewers = ["a1", "b1", "c1"].map(|host| view(&streams, &camera, host));
        println!("{kind:?}: PSNR and SSIM of luma; age of a picture when it is read, in ms");
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < minutes().min(2.0) * 30.0 {
            std::thread::sleep(Duration::from_secs(10));
            print!("{:4.0} s", start.elapsed().as_secs_f64());
            for (_, seen) in &viewers {
                let mut seen = std::mem::take(&mut *seen.lock().unwrap());
                let (median, late) =
                    (quantile(&mut seen.ages_ms, 0.5), quantile(&mut seen.ages_ms, 0.95));
                print!(
                    " | {:4.1} dB {:.3} {:4} pictures {median:4.0} {late:4.0} ms",
                    mean(&seen.psnr),
                    mean(&seen.ssim),
                    seen.ages_ms.len(),
                );
                assert!(start.elapsed().as_secs() < 15 || !seen.ages_ms.is_empty(), "frozen");
            }
            let progress = source.process.events("progress").pop().unwrap();
            println!(" | {:.1} ms encoding", number(&progress["progress"]["encoding_ms"]));
        }
        camera.stopped.store(true, Ordering::Release);
        for (viewer, _) in &mut viewers {
            viewer.kill().unwrap();
            viewer.wait().unwrap();
        }
        for host in ["a1", "b1", "c1"] {
            let said = std::fs::read_to_string(streams.path(host)).unwrap();
            println!("{host}: {}", said.lines().last().unwrap_or_default());
        }
        // The next one has the same name.
        drop(source);
        std::thread::sleep(Duration::from_secs(1));
    }
}
