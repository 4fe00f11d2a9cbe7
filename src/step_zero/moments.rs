//! Second moments on their way through a Pre-Norm decoder.
//!
//! Two numbers stand for the vectors at all positions: their second moment and what two positions have in
//! common. Positions do become alike (every MLP adds the same mean to all, attention averages them), and a theory
//! without the second number is wrong by a third at depth. From the full kernel over pairs of positions these means
//! differ by at most 7 %.

use super::Activation;

/// The vectors at all positions, per feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moments {
    /// E x_t^2
    pub own: f64,
    /// E x_t x_u, the mean over pairs t != u.
    pub shared: f64,
}

/// A matrix of independent weights of mean 0, and a bias drawn once for all positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Linear {
    pub fan_in: f64,
    pub variance: f64,
    pub bias_variance: f64,
}

impl Moments {
    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { own: f(self.own), shared: f(self.shared) }
    }

    /// LayerNorm or RmsNorm with gain 1: they differ by the mean, which is O(1/d).
    pub fn norm(self, epsilon: f64) -> Self {
        self.map(|moment| moment / (self.own + epsilon))
    }

    pub fn linear(self, linear: &Linear) -> Self {
        self.map(|moment| linear.fan_in * linear.variance * moment + linear.bias_variance)
    }

    pub fn add(self, branch: Self) -> Self {
        Self { own: self.own + branch.own, shared: self.shared + branch.shared }
    }

    pub fn activation(self, activation: Activation) -> Self {
        self.map(|moment| activation.kernel(self.own, moment))
    }

    pub fn times(self, other: Self) -> Self {
        Self { own: self.own * other.own, shared: self.shared * other.shared }
    }

    /// Causal averaging of `length` values with nearly uniform weights. `scores` is the variance
    /// of the attention scores, which are scaled by 1/sqrt(d_head); the number of heads drops out.
    pub fn attend(self, length: u64, scores: f64) -> Self {
        let single = self.own - self.shared;
        let correlation = if self.own > 0.0 { self.shared / self.own } else { 0.0 };
        let spread = (scores * (1.0 - correlation)).exp();
        let count = length as f64;
        let harmonic = (1..=length).map(|n| 1.0 / n as f64).sum::<f64>();
        let own_weight = (1..=length).map(|n| (spread / n as f64).min(1.0)).sum::<f64>() / count;
        // The mean of 1/max(t, u) over t != u.
        let shared_weight = if length > 1 { 2.0 * (count - harmonic) / (count * (count - 1.0)) } else { 0.0 };
        Self { own: self.shared + single * own_weight, shared: self.shared + single * shared_weight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_averages() {
        let independent = Moments { own: 1.0, shared: 0.0 };
        let first = independent.attend(1, 0.0);
        assert_eq!(first, independent);
        let four = independent.attend(4, 0.0);
        assert!((four.own - (1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0) / 4.0).abs() < 1e-15);
        // Pairs by their larger index: 1 of 2, 2 of 3, 3 of 4.
        assert!((four.shared - (1.0 / 2.0 + 2.0 / 3.0 + 3.0 / 4.0) / 6.0).abs() < 1e-15);
        let alike = Moments { own: 0.7, shared: 0.7 };
        assert_eq!(alike.attend(128, 0.1), alike);
    }

    #[test]
    fn a_small_stream_loses_to_epsilon() {
        let normed = Moments { own: 4e-6, shared: 0.0 }.norm(1e-5);
        assert!((normed.own - 0.2857).abs() < 1e-4);
    }
}
