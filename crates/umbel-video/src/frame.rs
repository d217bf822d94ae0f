//! Pictures: their size, their rate, their samples.

use thiserror::Error;

/// Longest side of a picture, in samples.
pub const MAX_SIDE: u32 = 8192;

/// Most luma samples of a picture: 4096×2304.
pub const MAX_SAMPLES: u32 = 4096 * 2304;

/// Width and height of a picture, within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    width: u32,
    height: u32,
}

/// Reason why a size is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a picture of {width}x{height} is not supported: 1 to {MAX_SIDE} a side, \
     at most {MAX_SAMPLES} samples"
)]
pub struct SizeError {
    /// The width that was asked for.
    pub width: u32,
    /// The height that was asked for.
    pub height: u32,
}

impl Size {
    /// Returns the size, odd or even.
    ///
    /// # Errors
    ///
    /// When a side is 0 or above [`MAX_SIDE`], or the area is above [`MAX_SAMPLES`].
    pub const fn new(width: u32, height: u32) -> Result<Self, SizeError> {
        let fits = width >= 1 && height >= 1 && width <= MAX_SIDE && height <= MAX_SIDE;
        if fits && width * height <= MAX_SAMPLES {
            Ok(Self { width, height })
        } else {
            Err(SizeError { width, height })
        }
    }

    /// Returns the luma samples a row.
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Returns the luma rows.
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Samples a row and rows of a component; those of chroma are halved, rounded up.
    pub const fn of(self, component: Component) -> (usize, usize) {
        let (width, height) = (self.width as usize, self.height as usize);
        match component {
            Component::Y => (width, height),
            Component::Cb | Component::Cr => (width.div_ceil(2), height.div_ceil(2)),
        }
    }

    /// Bytes of a whole frame.
    pub const fn frame_len(self) -> usize {
        let (luma, chroma) = (self.of(Component::Y), self.of(Component::Cb));
        luma.0 * luma.1 + 2 * chroma.0 * chroma.1
    }
}

/// Frames a second, as a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameRate {
    numerator: u32,
    denominator: u32,
}

/// Reason why a frame rate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{numerator}/{denominator} frames a second is not supported: 1/60 to 1000")]
pub struct FrameRateError {
    /// The dividend.
    pub numerator: u32,
    /// The divisor.
    pub denominator: u32,
}

impl FrameRate {
    /// Returns the rate of `numerator / denominator` frames a second.
    ///
    /// # Errors
    ///
    /// When it is not between 1/60 and 1000.
    pub const fn new(numerator: u32, denominator: u32) -> Result<Self, FrameRateError> {
        let (n, d) = (numerator as u64, denominator as u64);
        if d > 0 && n * 60 >= d && n <= 1000 * d {
            Ok(Self { numerator, denominator })
        } else {
            Err(FrameRateError { numerator, denominator })
        }
    }

    /// Returns the ratio's first number.
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// Returns the ratio's second number.
    pub const fn denominator(self) -> u32 {
        self.denominator
    }

    /// Frames a second.
    pub fn per_s(self) -> f64 {
        f64::from(self.numerator) / f64::from(self.denominator)
    }
}

/// One of a picture's three planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// Luma.
    Y,
    /// Blue difference, at half resolution both ways.
    Cb,
    /// Red difference, at half resolution both ways.
    Cr,
}

impl Component {
    /// The three, in the order of files.
    pub const ALL: [Self; 3] = [Self::Y, Self::Cb, Self::Cr];
}

/// A picture: planar, 8 bits a sample, 4:2:0, rows without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    size: Size,
    planes: [Vec<u8>; 3],
}

impl Frame {
    /// Returns a grey picture.
    pub fn grey(size: Size) -> Self {
        let planes = Component::ALL.map(|component| {
            let (width, height) = size.of(component);
            vec![128; width * height]
        });
        Self { size, planes }
    }

    /// Its size.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Returns the samples of a component, row by row.
    pub fn plane(&self, component: Component) -> &[u8] {
        &self.planes[component as usize]
    }

    /// Returns the samples of a component, to be written.
    pub fn plane_mut(&mut self, component: Component) -> &mut [u8] {
        &mut self.planes[component as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_limits_on_sides_and_area() {
        assert!(Size::new(1, 1).is_ok());
        assert!(Size::new(4096, 2304).is_ok());
        for (width, height) in [(0, 5), (5, 0), (8193, 1), (1, 8193), (8192, 8192), (u32::MAX, 2)] {
            assert_eq!(Size::new(width, height), Err(SizeError { width, height }));
        }
    }

    #[test]
    fn chroma_of_an_odd_size_is_rounded_up() {
        let size = Size::new(35, 17).unwrap();
        assert_eq!(size.of(Component::Cr), (18, 9));
        assert_eq!(size.frame_len(), 35 * 17 + 2 * 18 * 9);
    }

    #[test]
    fn a_frame_rate_is_neither_stopped_nor_absurd() {
        assert!(FrameRate::new(30_000, 1001).is_ok());
        assert!(FrameRate::new(1, 60).is_ok());
        for (n, d) in [(0, 1), (30, 0), (0, 0), (1, 61), (1001, 1), (u32::MAX, 1)] {
            assert!(FrameRate::new(n, d).is_err(), "{n}/{d}");
        }
    }
}
