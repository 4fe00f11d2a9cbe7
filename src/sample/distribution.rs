//! What can be drawn.

use super::{element::holds, truncated::drawn_in};
use crate::error::{Error, ErrorKind};

/// A distribution with its parameters, which are finite unless a bound says otherwise.
///
/// [`Stream::fill`](super::Stream::fill) takes the numbers as they are. Values mean something where [`check`](Self::check) finds
/// nothing, which planning sees to.
///
/// Each value is computed in `f64` from a unit draw and rounded once, see [`Element`](super::Element). So scaling by a
/// standard deviation costs no accuracy: a draw with `std / sqrt(2 N)` is the draw with `std` divided by `sqrt(2 N)`, up to the
/// rounding of the two results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Distribution {
    /// Uniform between two bounds: `(low + high) / 2 + (high - low) / 2 * x`, where `x` is one of the 2^32 odd multiples of 2^-32
    /// in (-1, 1).
    ///
    /// The points are `(high - low) / 2^32` apart and symmetric about the middle. None of them is a bound, but one that is
    /// very near may be rounded to it. The standard deviation is `(high - low) / sqrt(12)`.
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// `mean + std z`, where `z` is standard normal by Box & Muller's transform (1958): `sqrt(-2 ln u)` times the cosine or the
    /// sine of an angle, with 2^32 values for `u` and as many for the angle.
    ///
    /// `z` carries the 24 bits of `f32`, is never zero, and at most `sqrt(66 ln 2) = 6.76` in magnitude. For every pair of words it
    /// is within 1.9e-6 of the exact transform.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// `mean + std z`, where `z` is standard normal conditioned on `low < z < high`, by inversion: the quantile of one of 2^32
    /// equally likely probabilities. No value is moved to a bound, and for numbers that [`check`](Distribution::check) accepts no `z` is
    /// beyond one; a value rounded to `E` can be the bound rounded to `E`.
    ///
    /// To keep this promise each bound is first moved in by 2^-21 of itself, more than the error of `z`, which carries the
    /// 24 bits of `f32`: it is within 1.2e-6 and within 4.5e-7 `|z|` of the exact quantile.
    ///
    /// A bound may be infinite; the largest `|z|` is then 6.34. If both bounds are on one side of the mean, the nearer one must be
    /// within 10 sigmas.
    ///
    /// The standard deviation is `std` times the second of [`truncated_moments`](super::truncated_moments).
    TruncatedNormal {
        /// Mean of the normal before truncation.
        mean: f64,
        /// Standard deviation of the normal before truncation.
        std: f64,
        /// Lower bound in sigmas of the normal before truncation.
        low: f64,
        /// Upper bound, likewise.
        high: f64,
    },
}

impl Distribution {
    /// Whether the values mean something.
    ///
    /// ```
    /// use burn_init::sample::Distribution;
    ///
    /// let uniform = Distribution::Uniform { low: 1.0, high: 0.0 };
    /// assert_eq!(uniform.check().unwrap_err().to_string(), "the interval (1, 0) is empty; use low < high");
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`]: a mean that is not finite, a standard deviation that is not finite or negative, `low >= high`, an interval of
    /// a truncated normal that is narrower than its resolution (2^-21 of each bound) or more than 10 sigmas from the mean, values beyond `f32`,
    /// a standard deviation or an interval that is less than the smallest `f32`.
    pub fn check(&self) -> Result<(), Error> {
        let bad = |found: String, todo: &str| Err(Error::new(ErrorKind::InvalidValue, found, todo));
        let (low, high) = match *self {
            Distribution::Uniform { low, high } => (low, high),
            Distribution::Normal { .. } => (f64::NEG_INFINITY, f64::INFINITY),
            Distribution::TruncatedNormal { low, high, .. } => (low, high),
        };
        if low.is_nan() || high.is_nan() || low >= high {
            return bad(format!("the interval ({low}, {high}) is empty"), "use low < high");
        }
        let reach = match *self {
            Distribution::Uniform { .. } => low.abs().max(high.abs()),
            Distribution::Normal { mean, std } | Distribution::TruncatedNormal { mean, std, .. } => {
                if !std.is_finite() || std < 0.0 {
                    return bad(format!("the standard deviation is {std}"), "use a finite number, 0 or more");
                }
                if drawn_in(low, 1.0) >= drawn_in(high, -1.0) {
                    return bad(
                        format!("the interval ({low}, {high}) is narrower than 2^-20 of its bounds"),
                        "widen it",
                    );
                }
                if low > 10.0 || high < -10.0 {
                    return bad(
                        format!("the interval ({low}, {high}) is more than 10 sigmas away"),
                        "use a nearer one",
                    );
                }
                // No normal lies beyond 7 sigmas, and none on one side of the mean beyond 13.
                let sigmas = if low > 0.0 || high < 0.0 { 13.0 } else { 7.0 };
                mean.abs() + std * low.abs().max(high.abs()).min(sigmas)
            }
        };
        let spread = match *self {
            Distribution::Uniform { low, high } => high - low,
            Distribution::Normal { std, .. } | Distribution::TruncatedNormal { std, .. } => std,
        };
        if reach.is_nan() || reach > f64::from(f32::MAX) {
            return bad(format!("the values reach {reach:e}"), "use finite numbers that fit f32");
        }
        match holds::<f32>(spread.min(1.0)) {
            true => Ok(()),
            false => {
                bad(format!("the spread is {spread:e}, and f32 has nothing between 0 and 1.4013e-45"), "use more, or 0")
            }
        }
    }
}
