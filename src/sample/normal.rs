//! The standard normal by Box & Muller, "A note on the generation of random normal deviates" (1958).

use super::{
    element::{Element, affine},
    log,
    philox::{LANES, Words},
    stream::{Draw, TILE},
};

/// Two words become two independent normals: the first one is a `u` among the 2^32 midpoints of (0, 1), the second one an
/// angle among 2^32, and `sqrt(-2 ln u)` is the radius.
#[derive(Clone, Copy)]
pub(super) struct Normal {
    pub(super) mean: f64,
    pub(super) std: f64,
}

impl Draw for Normal {
    #[inline(always)]
    fn draw<E: Element>(&self, words: &Words, out: &mut [E; TILE]) {
        let mut unit = [0.0; TILE];
        let (rows, _) = unit.as_chunks_mut::<LANES>();
        for k in [0, 2] {
            for i in 0..LANES {
                let [a, b] = pair(words[k][i], words[k + 1][i]);
                rows[k][i] = a;
                rows[k + 1][i] = b;
            }
        }
        affine(&unit, self.mean, self.std, out);
    }
}

/// `sqrt(-2 ln u)`. Words count away from both ends of (0, 1), as signed integers do: the small distance from the nearer end
/// keeps its 24 significant bits, so that the largest radii and the smallest are both exact to rounding.
#[inline(always)]
pub(super) fn radius(word: u32) -> f32 {
    let signed = word as i32;
    let steps = signed ^ (signed >> 31);
    let distance = (steps as f32 + 0.5) * (1.0 / 4_294_967_296.0);
    let u = if signed < 0 { 1.0 - distance } else { distance };
    let (exponent, fraction) = log::split(u);
    let fraction = if exponent == 0 { -distance } else { fraction };
    log::minus_two_ln(exponent, fraction).sqrt()
}

/// A point on the unit circle. The low 30 bits turn it by up to an eighth either way from one of the four half axes, which the
/// two high bits name. The polynomials are minimax ones (Remez exchange, 2.8e-8 at most).
#[inline(always)]
pub(super) fn direction(word: u32) -> [f32; 2] {
    const SIN: [f32; 4] = [std::f32::consts::FRAC_PI_4, -0.080_745_436, 0.002_490_007, -3.595_451e-5];
    const COS: [f32; 4] = [1.0, -0.308_424_26, 0.015_849_914, -0.000_318_880_5];
    let eighths = ((word << 2) | 2) as i32 as f32 * (1.0 / 2_147_483_648.0);
    let x2 = eighths * eighths;
    let x4 = x2 * x2;
    let sin = eighths * ((SIN[0] + x2 * SIN[1]) + x4 * (SIN[2] + x2 * SIN[3]));
    let cos = (COS[0] + x2 * COS[1]) + x4 * (COS[2] + x2 * COS[3]);
    let cos = f32::from_bits(cos.to_bits() ^ ((word << 1) & 0x8000_0000));
    if (word as i32) < 0 { [sin, cos] } else { [cos, sin] }
}

#[inline(always)]
pub(super) fn pair(first: u32, second: u32) -> [f32; 2] {
    let radius = radius(first);
    let [x, y] = direction(second);
    [radius * x, radius * y]
}
