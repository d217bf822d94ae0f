//! Test clips, made from a seed: what tests and measurements code.
//!
//! All are of 30 frames a second and any size; what is in them grows with the width.
//!
//! | clip | still | moves | noise |
//! |---|---|---|---|
//! | [`Kind::Head`] | a background out of focus | a head, eyes that blink, a mouth | σ = 1.5 |
//! | [`Kind::Slides`] | text and a picture; a new page every 4 s | a pointer | none |
//! | [`Kind::Pan`] | nothing | a landscape, three squares that turn | σ = 1.5 |

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::frame::{Component, Frame, Size};

/// Content of a clip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A talking head.
    Head,
    /// Slides.
    Slides,
    /// A camera that pans.
    Pan,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Head, Self::Slides, Self::Pan];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Slides => "slides",
            Self::Pan => "pan",
        }
    }
}

/// Frames a second.
const RATE: f32 = 30.0;

/// Frames for which a page is shown.
const PAGE: u64 = 120;

/// Side of a texture, which repeats.
const SIDE: usize = 512;

/// Deviations of noise, drawn once.
const DRAWS: usize = 1 << 14;

/// Frames of a clip, in any order.
#[derive(Debug, Clone)]
pub struct Clip {
    kind: Kind,
    size: Size,
    seed: u64,
    /// Fine and soft.
    textures: [Vec<f32>; 2],
    noise: Vec<i8>,
}

/// A sample: luma, blue and red difference, from 0 to 255.
type Colour = [f32; 3];

impl Clip {
    /// Returns a clip.
    pub fn new(kind: Kind, size: Size, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fine = texture(&mut rng, 7);
        let soft = texture(&mut rng, 3);
        let sigma = if kind == Kind::Slides { 0.0 } else { 1.5 };
        let noise = (0..DRAWS).map(|_| (normal(&mut rng) * sigma).round() as i8).collect();
        Self { kind, size, seed, textures: [fine, soft], noise }
    }

    /// Returns a frame.
    pub fn frame(&self, number: u64) -> Frame {
        let mut frame = Frame::grey(self.size);
        let (width, height) = self.size.of(Component::Y);
        let mut colours = vec![[0.0; 3]; width * height];
        // A picture is drawn 640 wide.
        let scale = 640.0 / width as f32;
        let tall = height as f32 * scale;
        match self.kind {
            Kind::Slides => self.slide(&mut colours, width, height, number),
            kind => {
                let time = number as f32 / RATE;
                for (i, colour) in colours.iter_mut().enumerate() {
                    let (x, y) = ((i % width) as f32 * scale, (i / width) as f32 * scale);
                    *colour = match kind {
                        Kind::Head => self.head(x, y, tall, time),
                        _ => self.pan(x, y, tall, number as f32),
                    };
                }
            }
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ number.wrapping_mul(0x9E37));
        for component in Component::ALL {
            let (wide, _) = self.size.of(component);
            let plane = frame.plane_mut(component);
            for (y, row) in plane.chunks_exact_mut(wide).enumerate() {
                for (x, sample) in row.iter_mut().enumerate() {
                    *sample = if component == Component::Y {
                        to_sample(colours[y * width + x][0])
                    } else {
                        let right = (2 * x + 1).min(width - 1);
                        let below = (2 * y + 1).min(height - 1);
                        let four = [(2 * x, 2 * y), (right, 2 * y), (2 * x, below), (right, below)];
                        let sum: f32 = four
                            .iter()
                            .map(|(x, y)| colours[y * width + x][component as usize])
                            .sum();
                        to_sample(sum / 4.0)
                    };
                }
                if self.kind != Kind::Slides {
                    let noise = self.noise.iter().cycle().skip(rng.next_u32() as usize % DRAWS);
                    for (sample, &noise) in row.iter_mut().zip(noise) {
                        *sample = sample.saturating_add_signed(noise);
                    }
                }
            }
        }
        frame
    }

    /// Returns the texture's value, about -1 to 1, between its points.
    fn look(&self, texture: usize, x: f32, y: f32) -> f32 {
        let texture = &self.textures[texture];
        let (left, top) = (x.floor(), y.floor());
        let (u, v) = (x - left, y - top);
        let at = |dx: i64, dy: i64| {
            let x = (left as i64 + dx).rem_euclid(SIDE as i64) as usize;
            let y = (top as i64 + dy).rem_euclid(SIDE as i64) as usize;
            texture[y * SIDE + x]
        };
        let upper = at(0, 0) * (1.0 - u) + at(1, 0) * u;
        let lower = at(0, 1) * (1.0 - u) + at(1, 1) * u;
        upper * (1.0 - v) + lower * v
    }

    fn head(&self, x: f32, y: f32, tall: f32, time: f32) -> Colour {
        let sway = (time * 1.3).sin() * 7.0 + (time * 0.7).sin() * 3.0;
        let nod = (time * 1.9).sin() * 3.0;
        let (middle, eyes) = (320.0 + sway, tall * 0.45 + nod);
        let (across, down) = (x - middle, y - eyes);
        let soft = self.look(1, x * 0.5, y * 0.5);
        let background = [110.0 + 60.0 * soft + y * 0.05, 128.0 + 14.0 * soft, 120.0 - 10.0 * soft];
        // Shoulders move half as far.
        let shoulder = (x - 320.0 - sway * 0.5).powi(2) / 170.0_f32.powi(2)
            + (y - tall * 1.1).powi(2) / (tall * 0.36).powi(2);
        let mut colour = background;
        if shoulder < 1.0 {
            let cloth = self.look(0, (x - sway * 0.5) * 0.8, y * 0.8);
            colour = [60.0 + 25.0 * cloth, 142.0, 118.0];
        }
        let face = across.powi(2) / 75.0_f32.powi(2) + down.powi(2) / (tall * 0.30).powi(2);
        if face < 1.0 {
            let skin = self.look(0, across * 0.7 + 100.0, down * 0.7 + 50.0);
            let shade = (1.0 - face).sqrt() * 40.0 + across * 0.25;
            colour = [125.0 + shade + 16.0 * skin, 112.0, 150.0];
            if down < -tall * 0.13 {
                let hair = self.look(0, across * 2.0, down * 0.5);
                colour = [45.0 + 25.0 * hair, 124.0, 134.0];
            }
            let blink = (time * 0.31).fract() < 0.05;
            let open = if blink { 1.0 } else { 6.0 };
            for side in [-28.0, 28.0] {
                let eye = ((across - side) / 11.0).powi(2) + (down / open).powi(2);
                if eye < 1.0 {
                    let pupil = (across - side).powi(2) + down.powi(2) < 20.0;
                    colour = if pupil { [30.0, 128.0, 128.0] } else { [225.0, 128.0, 128.0] };
                }
            }
            let mouth = 3.0 + 8.0 * (time * 9.0).sin().abs() * (time * 0.8).sin().max(0.0);
            if (across / 24.0).powi(2) + ((down - tall * 0.17) / mouth).powi(2) < 1.0 {
                colour = [80.0, 118.0, 165.0];
            }
        }
        colour
    }

    fn pan(&self, x: f32, y: f32, tall: f32, number: f32) -> Colour {
        let (across, down) = (x + number * 6.3, y);
        let land = self.look(0, across, down);
        let soft = self.look(1, across * 0.4, down * 0.4);
        let mut colour =
            [128.0 + 30.0 * land + 30.0 * soft, 128.0 + 20.0 * soft, 128.0 - 15.0 * land];
        for square in 0..3 {
            let side = square as f32;
            let angle = number * 0.05 * (side - 1.2);
            let (u, v) = (x - 160.0 * (side + 1.0), y - tall * (0.35 + 0.15 * side));
            let (u, v) = (u * angle.cos() - v * angle.sin(), u * angle.sin() + v * angle.cos());
            if u.abs().max(v.abs()) < 30.0 {
                let stripe = if (u / 8.0).floor() as i32 % 2 == 0 { 60.0 } else { 200.0 };
                colour = [stripe, 90.0 + 40.0 * side, 170.0 - 40.0 * side];
            }
        }
        colour
    }

    fn slide(&self, colours: &mut [Colour], width: usize, height: usize, number: u64) {
        colours.fill([236.0, 126.0, 129.0]);
        let page = number / PAGE;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ page.wrapping_mul(0x517C_C1B7));
        let unit = (width / 320).max(1);
        let mut fill = |x: usize, y: usize, w: usize, h: usize, colour: Colour| {
            for y in y.min(height)..(y + h).min(height) {
                colours[y * width + x.min(width)..y * width + (x + w).min(width)].fill(colour);
            }
        };
        fill(0, 0, width, 26 * unit, [70.0, 150.0, 112.0]);
        // Letters are 5×7 dots of strokes; lines are ragged.
        let mut write = |x: usize, y: usize, letters: usize, dot: usize, ink: Colour| {
            let mut x = x;
            for _ in 0..letters {
                let letter = rng.next_u32();
                if !letter.is_multiple_of(6) {
                    for stroke in 0..4 {
                        let (u, v) = (letter >> (stroke * 7) & 3, letter >> (stroke * 7 + 2) & 3);
                        let (u, v) = (u as usize * dot, v as usize * dot * 2);
                        if letter >> (stroke * 7 + 4) & 1 == 0 {
                            fill(x + u, y, dot, 7 * dot, ink);
                        } else {
                            fill(x, y + v, 4 * dot, dot, ink);
                        }
                    }
                }
                x += 6 * dot;
            }
        };
        write(8 * unit, 6 * unit, 18, 2 * unit, [225.0, 128.0, 128.0]);
        let lines = height.saturating_sub(40 * unit) / (12 * unit);
        for line in 0..lines {
            let letters = 16 + (page as usize * 7 + line * 5) % 12;
            write(10 * unit, (36 + 12 * line) * unit, letters, unit, [40.0, 128.0, 128.0]);
        }
        let (left, top) = (width * 6 / 10, 40 * unit);
        let (right, bottom) = (width * 19 / 20, height * 17 / 20);
        for y in top..bottom {
            for x in left..right {
                let (u, v) = (x as f32 / unit as f32, y as f32 / unit as f32 + page as f32 * 57.0);
                let (fine, soft) = (self.look(0, u, v), self.look(1, u * 0.6, v * 0.6));
                colours[y * width + x] =
                    [120.0 + 30.0 * fine + 60.0 * soft, 128.0 + 30.0 * soft, 128.0 - 20.0 * soft];
            }
        }
        let time = number as f32 / RATE;
        let across = (0.45 + 0.3 * (time * 0.9).sin()) * width as f32;
        let down = (0.5 + 0.3 * (time * 1.3).cos()) * height as f32;
        for y in 0..10 * unit {
            for x in 0..=y * 7 / 10 {
                let (x, y) = (across as usize + x, down as usize + y);
                if x < width && y < height {
                    colours[y * width + x] = [90.0, 110.0, 220.0];
                }
            }
        }
    }
}

fn to_sample(value: f32) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}

/// Draws from about the normal distribution of deviation 1.
fn normal(rng: &mut impl Rng) -> f32 {
    let draws = rng.next_u64().to_le_bytes();
    let sum: f32 = draws.iter().map(|&draw| f32::from(draw)).sum();
    (sum - 8.0 * 127.5) / (73.9 * 8.0_f32.sqrt())
}

/// Returns a texture of this number of octaves, each as strong as that of twice its size: as
/// natural pictures have it.
fn texture(rng: &mut impl Rng, octaves: u32) -> Vec<f32> {
    let mut out = vec![0.0; SIDE * SIDE];
    for octave in 0..octaves {
        let points = (4_usize << octave).min(SIDE);
        let lattice: Vec<f32> = (0..points * points).map(|_| normal(rng)).collect();
        let strength = 0.4;
        let step = SIDE / points;
        for y in 0..SIDE {
            let (row, v) = (y / step, smooth((y % step) as f32 / step as f32));
            for x in 0..SIDE {
                let (column, u) = (x / step, smooth((x % step) as f32 / step as f32));
                let at = |dx, dy| lattice[(row + dy) % points * points + (column + dx) % points];
                let upper = at(0, 0) * (1.0 - u) + at(1, 0) * u;
                let lower = at(0, 1) * (1.0 - u) + at(1, 1) * u;
                out[y * SIDE + x] += strength * (upper * (1.0 - v) + lower * v);
            }
        }
    }
    out
}

fn smooth(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}
