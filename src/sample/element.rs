//! The floating-point types that a parameter can have.

use half::{bf16, f16};

use super::stream::TILE;

mod sealed {
    use half::{bf16, f16, vec::HalfBitsVecExt};

    pub trait Sealed: Sized {
        #[doc(hidden)]
        const NAME: &'static str;
        /// The largest number.
        #[doc(hidden)]
        const LARGEST: f64;
        /// The smallest number above 0, a subnormal one.
        #[doc(hidden)]
        const SMALLEST: f64;

        /// Zeros that the system hands out as such: no pass over them is made here.
        #[doc(hidden)]
        fn zeros(len: usize) -> Vec<Self>;
    }

    impl Sealed for f32 {
        const NAME: &'static str = "f32";
        const LARGEST: f64 = f32::MAX as f64;
        const SMALLEST: f64 = f32::from_bits(1) as f64;

        fn zeros(len: usize) -> Vec<Self> {
            vec![0.0; len]
        }
    }

    impl Sealed for f64 {
        const NAME: &'static str = "f64";
        const LARGEST: f64 = f64::MAX;
        const SMALLEST: f64 = f64::from_bits(1);

        fn zeros(len: usize) -> Vec<Self> {
            vec![0.0; len]
        }
    }

    impl Sealed for f16 {
        const NAME: &'static str = "f16";
        const LARGEST: f64 = 65504.0;
        const SMALLEST: f64 = 1.0 / (1 << 24) as f64;

        fn zeros(len: usize) -> Vec<Self> {
            vec![0u16; len].reinterpret_into()
        }
    }

    impl Sealed for bf16 {
        const NAME: &'static str = "bf16";
        const LARGEST: f64 = 255.0 / 128.0 * (1u128 << 127) as f64;
        const SMALLEST: f64 = f32::from_bits(1 << 16) as f64;

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

/// Whether it is 0, or of a size that `E` has numbers of.
pub(crate) fn holds<E: Element>(value: f64) -> bool {
    value == 0.0 || (E::SMALLEST..=E::LARGEST).contains(&value.abs())
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

    #[test]
    fn ends() {
        fn check<E: Element>(to_f64: impl Fn(E) -> f64) {
            for end in [E::LARGEST, E::SMALLEST] {
                assert_eq!(to_f64(E::round(end)), end, "{}", E::NAME);
                assert!(holds::<E>(end) && holds::<E>(-end));
            }
            assert!(!holds::<E>(E::LARGEST * 1.01) && !holds::<E>(E::SMALLEST / 2.0) || E::NAME == "f64");
            assert!(holds::<E>(0.0) && !holds::<E>(f64::NAN) && !holds::<E>(f64::INFINITY));
            assert_eq!(E::round(E::SMALLEST / 2.1), E::default());
        }
        check::<f16>(f64::from);
        check::<bf16>(f64::from);
        check::<f32>(f64::from);
        check::<f64>(f64::from);
    }

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
