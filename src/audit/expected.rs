//! What a law says about the values drawn by it: moments, bounds and cumulative distribution.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use libm::{erf, erfc};

use crate::sample::Distribution;

/// The moments and the cumulative distribution of independent draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    pub mean: f64,
    pub std: f64,
    /// Fourth central moment over the squared variance: `sqrt((kurtosis - 1) / n)` is the relative error of a variance from `n` draws.
    pub kurtosis: f64,
    pub low: f64,
    pub high: f64,
    distribution: Distribution,
}

impl Expected {
    pub fn of(distribution: Distribution) -> Self {
        match distribution {
            Distribution::Normal { mean, std } => {
                Self { mean, std, kurtosis: 3.0, low: f64::NEG_INFINITY, high: f64::INFINITY, distribution }
            }
            Distribution::Uniform { low, high } => Self {
                mean: (low + high) / 2.0,
                std: (high - low) / 12f64.sqrt(),
                kurtosis: 1.8,
                low,
                high,
                distribution,
            },
            Distribution::TruncatedNormal { mean, std, low, high } => {
                let [m1, m2, m3, m4] = truncated_moments(low, high);
                let variance = m2 - m1 * m1;
                let fourth = m4 - 4.0 * m1 * m3 + 6.0 * m1 * m1 * m2 - 3.0 * m1.powi(4);
                Self {
                    mean: mean + std * m1,
                    std: std * variance.sqrt(),
                    kurtosis: fourth / (variance * variance),
                    low: mean + std * low,
                    high: mean + std * high,
                    distribution,
                }
            }
        }
    }

    /// Of values that are stored as multiples of `unit`, whose rounding adds `unit^2 / 12` to the variance.
    pub fn stored(self, unit: f64) -> Self {
        Self { std: self.std.hypot(unit / 12f64.sqrt()), ..self }
    }

    /// The probability of a value below `x`.
    pub fn cdf(&self, x: f64) -> f64 {
        if x <= self.low {
            return 0.0;
        }
        if x >= self.high {
            return 1.0;
        }
        match self.distribution {
            Distribution::Normal { mean, std } => below((x - mean) / std),
            Distribution::Uniform { low, high } => (x - low) / (high - low),
            Distribution::TruncatedNormal { mean, std, low, high } => {
                let z = (x - mean) / std;
                between(low, z) / between(low, high)
            }
        }
    }
}

/// `P(Z < z)` of a standard normal.
fn below(z: f64) -> f64 {
    0.5 * erfc(-z * FRAC_1_SQRT_2)
}

/// `P(a < Z < b)`, without cancellation on either side.
fn between(a: f64, b: f64) -> f64 {
    let (a, b) = (a * FRAC_1_SQRT_2, b * FRAC_1_SQRT_2);
    0.5 * if a > 0.0 {
        erfc(a) - erfc(b)
    } else if b < 0.0 {
        erfc(-b) - erfc(-a)
    } else {
        erf(b) - erf(a)
    }
}

/// The first four moments of a standard normal conditioned on `a < z < b`, by `m_k = (k - 1) m_(k-2) + (a^(k-1) f(a) - b^(k-1) f(b)) / Z`.
fn truncated_moments(a: f64, b: f64) -> [f64; 4] {
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * PI).sqrt();
    let mass = between(a, b);
    let edge = |z: f64, power: i32| if z.is_finite() { z.powi(power) * density(z) } else { 0.0 };
    let term = |k: i32| (edge(a, k - 1) - edge(b, k - 1)) / mass;
    let m1 = term(1);
    let m2 = 1.0 + term(2);
    let m3 = 2.0 * m1 + term(3);
    let m4 = 3.0 * m2 + term(4);
    [m1, m2, m3, m4]
}

/// The `z` beyond which a standard normal lies with probability `p` on that side, for `p` up to a half.
pub(super) fn upper_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 38.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if 0.5 * erfc(middle * FRAC_1_SQRT_2) > p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// How many sigmas `ratio` is from 1, where `ratio * degrees` has a chi-squared distribution with that many degrees of freedom (Wilson and
/// Hilferty 1931: its cube root is nearly normal, far into the tails).
pub(super) fn chi_squared_z(ratio: f64, degrees: f64) -> f64 {
    let spread = 2.0 / (9.0 * degrees);
    (ratio.cbrt() - (1.0 - spread)) / spread.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truncated(low: f64, high: f64) -> Expected {
        Expected::of(Distribution::TruncatedNormal { mean: 0.0, std: 1.0, low, high })
    }

    /// Kurtosis of the symmetric cuts by numerical integration (SciPy's `truncnorm.stats`).
    #[test]
    fn truncated_normals() {
        for (cut, std, kurtosis) in
            [(1.0, 0.539_560, 1.940_920), (2.0, 0.879_626, 2.365_537), (3.0, 0.986_578, 2.828_886)]
        {
            let found = truncated(-cut, cut);
            assert!((found.std - std).abs() < 1e-6, "{found:?}");
            assert!((found.kurtosis - kurtosis).abs() < 1e-4, "{found:?}");
        }
        let wide = truncated(f64::NEG_INFINITY, f64::INFINITY);
        assert_eq!((wide.mean, wide.std, wide.kurtosis), (0.0, 1.0, 3.0));
    }

    #[test]
    fn distribution_functions() {
        let normal = Expected::of(Distribution::Normal { mean: 1.0, std: 2.0 });
        assert!((normal.cdf(1.0) - 0.5).abs() < 1e-15);
        assert!((normal.cdf(1.0 + 2.0 * 1.959_963_984_540_054) - 0.975).abs() < 1e-12);
        let cut = truncated(-2.0, 2.0);
        assert!((cut.cdf(1.0) - (0.841_344_746 - 0.022_750_132) / 0.954_499_736).abs() < 1e-8);
        assert_eq!((cut.cdf(-2.0), cut.cdf(2.5)), (0.0, 1.0));
    }

    #[test]
    fn quantiles() {
        assert!((upper_quantile(0.025) - 1.959_963_985).abs() < 1e-8);
        assert!((upper_quantile(2.866_515_718_8e-7) - 5.0).abs() < 1e-8);
        // The 0.999 quantile of chi-squared with 50 degrees of freedom is 86.66.
        assert!((chi_squared_z(86.66 / 50.0, 50.0) - 3.090).abs() < 0.01);
    }
}
