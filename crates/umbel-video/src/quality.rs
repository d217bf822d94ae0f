//! Similarity of two pictures.

use crate::frame::{Component, Frame};

/// Returns the mean squared error of luma. Both frames have the same size.
pub fn luma_mse(a: &Frame, b: &Frame) -> f64 {
    let (a, b) = (a.plane(Component::Y), b.plane(Component::Y));
    let sum: u64 = a.iter().zip(b).map(|(&a, &b)| u64::from(a.abs_diff(b)).pow(2)).sum();
    sum as f64 / a.len() as f64
}

/// Returns the peak signal-to-noise ratio of a mean squared error, in dB; at most 99.
pub fn psnr(mse: f64) -> f64 {
    (10.0 * (255.0 * 255.0 / mse).log10()).min(99.0)
}

/// Side of SSIM's windows, and the step from one to the next.
const WINDOW: usize = 8;
const STEP: usize = 4;

/// Returns the structural similarity of luma, in windows of 8×8 [Wang et al. 2004, §III-B]: 1 for
/// equal pictures. Pictures below 8×8 are compared whole.
pub fn luma_ssim(a: &Frame, b: &Frame) -> f64 {
    const C1: f64 = (0.01 * 255.0) * (0.01 * 255.0);
    const C2: f64 = (0.03 * 255.0) * (0.03 * 255.0);
    let (width, height) = a.size().of(Component::Y);
    let (wide, high) = (WINDOW.min(width), WINDOW.min(height));
    let (a, b) = (a.plane(Component::Y), b.plane(Component::Y));
    let n = (wide * high) as f64;
    let (mut sum, mut windows) = (0.0, 0_u32);
    for top in (0..=height - high).step_by(STEP) {
        for left in (0..=width - wide).step_by(STEP) {
            let mut sums = [0_u32; 5];
            for y in top..top + high {
                let at = y * width + left;
                for (&a, &b) in a[at..at + wide].iter().zip(&b[at..at + wide]) {
                    let (a, b) = (u32::from(a), u32::from(b));
                    for (sum, value) in sums.iter_mut().zip([a, b, a * a, b * b, a * b]) {
                        *sum += value;
                    }
                }
            }
            let [mean_a, mean_b, aa, bb, ab] = sums.map(|sum| f64::from(sum) / n);
            let (var_a, var_b) = (aa - mean_a * mean_a, bb - mean_b * mean_b);
            let covariance = ab - mean_a * mean_b;
            sum += (2.0 * mean_a * mean_b + C1) * (2.0 * covariance + C2)
                / ((mean_a * mean_a + mean_b * mean_b + C1) * (var_a + var_b + C2));
            windows += 1;
        }
    }
    sum / f64::from(windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clips::{Clip, Kind};
    use crate::frame::Size;

    #[test]
    fn equal_pictures_are_alike_and_noise_is_not() {
        let size = Size::new(64, 48).unwrap();
        let a = Clip::new(Kind::Pan, size, 1).frame(0);
        assert!(luma_mse(&a, &a) < 1e-12);
        assert!((luma_ssim(&a, &a) - 1.0).abs() < 1e-12);
        let mut b = a.clone();
        b.plane_mut(Component::Y).iter_mut().step_by(2).for_each(|sample| *sample ^= 4);
        assert!((luma_mse(&a, &b) - 8.0).abs() < 1e-9);
        assert!((psnr(8.0) - 39.10).abs() < 0.01);
        let ssim = luma_ssim(&a, &b);
        assert!(ssim > 0.8 && ssim < 0.999, "{ssim}");
    }

    #[test]
    fn a_picture_smaller_than_a_window_is_compared_whole() {
        let a = Frame::grey(Size::new(3, 1).unwrap());
        assert!((luma_ssim(&a, &a) - 1.0).abs() < 1e-12);
    }
}
