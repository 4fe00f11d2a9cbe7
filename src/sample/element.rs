//! The floating-point types that a parameter can have.

use half::{bf16, f16};

use super::stream::TILE;

mod sealed {
    use half::{bf16, f16, vec::HalfBitsVecExt};

    pub trait Sealed: Sized {
        /// Zeros that the system hands out as such: no pass over them is made here.
        #[doc(hidden)]
        fn zeros(len: usize) -> Vec<Self>;
    }

    impl Sealed for f32 {
        fn zeros(len: usize) -> Vec<Self> {
            vec![0.0; len]
        }
    }

    impl Sealed for f64 {
        fn zeros(len: usize) -> Vec<Self> {
            vec![0.0; len]
        }
    }

    impl Sealed for f16 {
        fn zeros(len: usize) -> Vec<Self> {
            vec![0u16; len].reinterpret_into()
        }
    }

    impl Sealed for bf16 {
        fn zeros(len: usize) -> Vec<Self> {
            vec![0u16; len].reinterpret_into()
        }
    }
}

/// A type that can be drawn: `f32`, `f64`, [`struct@f16`] and [`bf16`].
///
/// A value is computed in `f64` and rounded to nearest even: once for `f32`, and once more from `f32` for the two half
/// types, so that a tensor in half precision is the `f32` tensor rounded, bit for bit.
pub trait Element: sealed::Sealed + Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The nearest value of this type.
    fn round(value: f64) -> Self;
}

impl Element for f64 {
    #[inline(always)]
    fn round(value: f64) -> Self {
        value
    }
}

impl Element for f32 {
    #[inline(always)]
    fn round(value: f64) -> Self {
        value as f32
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn round(value: f64) -> Self {
        let bits = (value as f32).to_bits();
        bf16::from_bits((bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16)
    }
}

impl Element for f16 {
    /// Normal results are rounded in integers. Subnormal ones are aligned by adding 1/2, whose last place is the smallest
    /// subnormal: the addition itself rounds.
    #[inline(always)]
    fn round(value: f64) -> Self {
        const SMALLEST_NORMAL: u32 = 0x3880_0000;
        const OVERFLOW: u32 = 0x477f_f000;
        const HALF: u32 = 0x3f00_0000;
        let bits = (value as f32).to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let normal = magnitude.wrapping_sub(0x3800_0000).wrapping_add(0x0fff + ((magnitude >> 13) & 1)) >> 13;
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(HALF);
        let rounded = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
        let rounded = if magnitude >= OVERFLOW { 0x7c00 } else { rounded };
        f16::from_bits((rounded | (bits >> 16) & 0x8000) as u16)
    }
}

/// `shift + scale * unit`, rounded once.
#[inline(always)]
pub(super) fn affine<E: Element>(unit: &[f32; TILE], shift: f64, scale: f64, out: &mut [E; TILE]) {
    for (out, &unit) in out.iter_mut().zip(unit) {
        *out = E::round(shift + scale * f64::from(unit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every finite `f32` whose low bits decide a rounding, against the conversions of `half`.
    #[test]
    fn half_types_round_as_half_does() {
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(high) << 16 | low);
                if x.is_finite() {
                    assert_eq!(bf16::round(x.into()).to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
                    assert_eq!(f16::round(x.into()).to_bits(), f16::from_f32(x).to_bits(), "{x:e}");
                }
            }
        }
    }
}
