//! The truncated normal by inversion: one word, one value, and no value is ever moved to a bound.

use std::f64::consts::FRAC_1_SQRT_2;

use super::{
    element::{Element, affine},
    log,
    philox::{LANES, Words},
    special::{erf, erfc},
    stream::{Draw, TILE},
    uniform::{STEP, centred},
};

/// Where the interval lies decides which polynomials can be needed; the value of a word does not depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Within three sigmas of the mean.
    Centre,
    /// Around the mean, beyond three sigmas.
    Tails,
    /// On one side of the mean.
    OneSide,
}

/// `z` is the standard normal's quantile at `(1 + x) / 2`, where `x` is uniform between the error functions of the bounds. On
/// one side of the mean `t = 1 - |x|` is drawn instead, so that the far tail keeps its relative precision.
#[derive(Clone, Copy)]
pub(super) struct Truncated {
    mean: f64,
    std: f64,
    /// Of `x`, or of `t` on one side.
    middle: f64,
    step: f64,
    /// Of `z`, on one side.
    sign: f64,
    pub(super) reach: Reach,
}

impl Truncated {
    pub(super) fn new(mean: f64, std: f64, low: f64, high: f64) -> Self {
        let (low, high) = (drawn_in(low, 1.0), drawn_in(high, -1.0));
        let reach = if low > 0.0 || high < 0.0 {
            Reach::OneSide
        } else if low >= -3.0 && high <= 3.0 {
            Reach::Centre
        } else {
            Reach::Tails
        };
        let (from, to) = match reach {
            Reach::OneSide => {
                let (near, far) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
                (erfc(far * FRAC_1_SQRT_2), erfc(near * FRAC_1_SQRT_2))
            }
            _ => (erf(low * FRAC_1_SQRT_2), erf(high * FRAC_1_SQRT_2)),
        };
        let sign = if high < 0.0 { -1.0 } else { 1.0 };
        Truncated { mean, std, middle: 0.5 * (from + to), step: 0.5 * (to - from) * STEP, sign, reach }
    }

    #[inline(always)]
    fn draw_at<const TAILS: bool, const ONE_SIDE: bool, E: Element>(&self, words: &Words, out: &mut [E; TILE]) {
        let mut unit = [0.0; TILE];
        let (rows, _) = unit.as_chunks_mut::<LANES>();
        for (row, words) in rows.iter_mut().zip(words) {
            for (z, &word) in row.iter_mut().zip(words) {
                *z = self.unit::<TAILS, ONE_SIDE>(word);
            }
        }
        affine(&unit, self.mean, self.std, out);
    }

    #[inline(always)]
    pub(super) fn unit<const TAILS: bool, const ONE_SIDE: bool>(&self, word: u32) -> f32 {
        let drawn = self.middle + self.step * centred(word);
        let (x, t) = if ONE_SIDE { (self.sign * (1.0 - drawn), drawn) } else { (drawn, 1.0 - drawn.abs()) };
        x as f32 * slope::<TAILS, ONE_SIDE>(t)
    }
}

impl Draw for Truncated {
    #[inline(always)]
    fn draw<E: Element>(&self, words: &Words, out: &mut [E; TILE]) {
        match self.reach {
            Reach::Centre => self.draw_at::<false, false, E>(words, out),
            Reach::Tails => self.draw_at::<true, false, E>(words, out),
            Reach::OneSide => self.draw_at::<true, true, E>(words, out),
        }
    }
}

/// A bound moved towards the other one by more than the relative error of `z`, so that rounding cannot carry a value over it.
pub(super) fn drawn_in(bound: f64, towards: f64) -> f64 {
    if bound.is_finite() { bound + towards * bound.abs() / 2_097_152.0 } else { bound }
}

/// `z / x` for the quantile `z` at `(1 + x) / 2`, given `t = 1 - |x|`: a smooth function of `l = -ln(1 - x^2)` in the centre and
/// of its square root in the tails. The polynomials are minimax ones for the relative error (Remez exchange, 2.1e-8 at most):
/// up to `l` = 5.25 (3 sigmas), then to 22.8 (6.4 sigmas), then to 87 (13 sigmas).
#[inline(always)]
pub(super) fn slope<const TAILS: bool, const FAR: bool>(t: f64) -> f32 {
    const CENTRE: [f32; 10] = [
        2.166_818_1,
        0.347_244_47,
        -0.006_543_367,
        -0.001_618_589_7,
        0.000_303_371_14,
        -1.043_051_3e-5,
        -4.330_161_6e-6,
        6.740_206_7e-7,
        2.092_066_4e-8,
        -1.148_427e-8,
    ];
    const TAIL: [f32; 11] = [
        4.717_089,
        1.424_635_5,
        0.004_634_222_5,
        -0.002_929_323,
        0.001_545_470_3,
        -0.000_918_641_05,
        0.000_610_932_4,
        -0.000_384_486_83,
        0.000_112_668_54,
        3.895_068_2e-5,
        -2.474_015_3e-5,
    ];
    const OUTER: [f32; 8] = [
        9.714_261,
        1.426_369_8,
        -0.000_724_413_1,
        8.609_174e-6,
        8.018_16e-6,
        -2.147_802_4e-6,
        5.997_852_7e-7,
        -1.050_796_5e-7,
    ];
    let (exponent, fraction) = log::split((t * (2.0 - t)) as f32);
    let l = 0.5 * log::minus_two_ln(exponent, fraction);
    let v = l - 2.625;
    let v2 = v * v;
    let v4 = v2 * v2;
    let c = &CENTRE;
    let low = (c[0] + v * c[1]) + v2 * (c[2] + v * c[3]);
    let high = (c[4] + v * c[5]) + v2 * (c[6] + v * c[7]);
    let centre = low + v4 * (high + v4 * (c[8] + v * c[9]));
    if !TAILS || l < 5.25 {
        return centre;
    }
    let root = l.sqrt();
    let tail = horner(&TAIL, root - 3.5);
    if !FAR || l < 22.8 { tail } else { horner(&OUTER, root - 7.0) }
}

#[inline(always)]
fn horner<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c)
}
