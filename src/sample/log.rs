//! A logarithm of IEEE additions and multiplications only, so that it has the same bits on every machine.

/// `x = 2^exponent * (1 + fraction)` with a fraction in [-1/3, 1/3), for a normal positive `x`.
#[inline(always)]
pub(super) fn split(x: f32) -> (i32, f32) {
    const TWO_THIRDS: i32 = 0x3f2a_aaab;
    let bits = (x.to_bits() as i32).wrapping_sub(TWO_THIRDS);
    let mantissa = f32::from_bits(((bits & 0x007f_ffff) + TWO_THIRDS) as u32);
    (bits >> 23, mantissa - 1.0)
}

/// `-2 ln(2^exponent * (1 + fraction))`, to about two units in the last place. The polynomial is the minimax one for the
/// relative error on [-1/3, 1/3] (Remez exchange, 2.3e-8 before its coefficients are rounded).
#[inline(always)]
pub(super) fn minus_two_ln(exponent: i32, fraction: f32) -> f32 {
    const R: [f32; 7] =
        [-0.666_655_06, 0.500_103_2, -0.400_597_3, 0.329_000_6, -0.275_046_05, 0.305_012_08, -0.300_623_48];
    const MINUS_TWO_LN_2: f32 = -1.386_294_4;
    let f = fraction;
    let f2 = f * f;
    let low = R[0] + f * R[1] + f2 * (R[2] + f * R[3]);
    let high = R[4] + f * R[5] + f2 * R[6];
    let cubic = low + (f2 * f2) * high;
    let rest = f2 + (f2 * f) * cubic;
    exponent as f32 * MINUS_TWO_LN_2 + (rest - (f + f))
}
