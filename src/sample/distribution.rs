//! What can be drawn.

/// A distribution with its parameters, which are finite unless a bound says otherwise.
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
    /// equally likely probabilities. No value is ever moved to a bound, and none is beyond it; rounding to `E` can only reach
    /// the bound itself rounded to `E`.
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
