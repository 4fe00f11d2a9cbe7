//! The nonlinearity of an MLP, and its second moments under a Gaussian input.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::gauss;

/// The nonlinearity of an MLP.
///
/// The gated ones multiply it with a second, independent projection: `act(gate(x)) * up(x)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `x Phi(x)`, exact.
    Gelu,
    /// GELU in its tanh approximation, as GPT-2's code has it.
    GeluTanh,
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)^2`
    SquaredRelu,
    /// `x / (1 + e^-x)`
    Silu,
    /// `silu(gate) * up`, as in Llama.
    #[serde(rename = "swiglu")]
    SwiGlu,
    /// `gelu(gate) * up`
    #[serde(rename = "geglu")]
    GeGlu,
    /// `relu(gate) * up`
    #[serde(rename = "reglu")]
    ReGlu,
}

impl Activation {
    /// Whether it needs a gate beside the up projection.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::SwiGlu | Self::GeGlu | Self::ReGlu)
    }

    /// The nonlinearity itself: that of the gate for the gated ones.
    pub fn ungated(self) -> Self {
        match self {
            Self::SwiGlu => Self::Silu,
            Self::GeGlu => Self::Gelu,
            Self::ReGlu => Self::Relu,
            other => other,
        }
    }

    /// `E f(x) f(y)` for a bivariate normal (x, y) with variances `q` and covariance `c`, of the
    /// nonlinearity without the gate. `kernel(q, q)` is `E f(x)^2` and `kernel(q, 0)` is `(E f(x))^2`.
    ///
    /// Closed forms: ReLU and its square from the arc-cosine kernels (Cho and Saul 2009), GELU by Stein's lemma.
    /// SiLU is integrated numerically. GELU's tanh approximation is taken for the
    /// exact one, which is right to 0.03 %.
    pub fn kernel(self, q: f64, c: f64) -> f64 {
        if q <= 0.0 {
            return 0.0;
        }
        let c = c.clamp(-q, q);
        let r = c / q;
        match self.ungated() {
            Self::Relu => q / (2.0 * PI) * ((1.0 - r * r).sqrt() + r * (PI - r.acos())),
            Self::SquaredRelu => {
                let angle = r.acos();
                let (sin, cos) = ((1.0 - r * r).sqrt(), r);
                q * q / (2.0 * PI) * (3.0 * sin * cos + (PI - angle) * (1.0 + 2.0 * cos * cos))
            }
            Self::Silu => {
                let (a, b) = (r * q.sqrt(), ((1.0 - r * r) * q).sqrt());
                gauss::mean(|x| silu(q.sqrt() * x) * gauss::mean(|y| silu(a * x + b * y), q.sqrt()), q.sqrt())
            }
            _ => {
                let arc = (c / (1.0 + q)).asin();
                let rest = q * q + c * c * (1.0 - q) / (1.0 + q);
                c / 4.0 + (c * arc + rest / ((1.0 + q).powi(2) - c * c).sqrt()) / (2.0 * PI)
            }
        }
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `E f^2` at q = 1 and at GPT-2 small's q = 768 * 0.02^2, from an independent computation.
    #[test]
    fn second_moments() {
        for (f, at_one, at_gpt2) in [
            (Activation::Gelu, 0.42522, 0.10649),
            (Activation::GeluTanh, 0.42522, 0.10649),
            (Activation::Relu, 0.5, 0.1536),
            (Activation::SquaredRelu, 1.5, 1.5 * 0.3072 * 0.3072),
            (Activation::Silu, 0.35578, 0.09099),
            (Activation::SwiGlu, 0.35578, 0.09099),
        ] {
            assert!((f.kernel(1.0, 1.0) - at_one).abs() < 6e-6, "{f:?}: {}", f.kernel(1.0, 1.0));
            assert!((f.kernel(0.3072, 0.3072) - at_gpt2).abs() < 6e-6, "{f:?}: {}", f.kernel(0.3072, 0.3072));
        }
    }

    /// At c = 0 the kernel is the squared mean.
    #[test]
    fn means() {
        for (f, mean) in [(Activation::Gelu, 0.28209), (Activation::Relu, 0.39894), (Activation::Silu, 0.20662)] {
            assert!((f.kernel(1.0, 0.0).sqrt() - mean).abs() < 6e-6, "{f:?}");
        }
    }

    /// The closed forms against a two-dimensional sum.
    #[test]
    fn closed_forms() {
        let erf_gelu = |x: f64| x * 0.5 * (1.0 + erf(x / 2f64.sqrt()));
        for (q, c) in [(0.3072, 0.1), (1.0, 0.7), (2.0, -0.5), (1.0, 1.0)] {
            let (s, r): (f64, f64) = (f64::sqrt(q), c / q);
            let rest = (1.0 - r * r).sqrt();
            let sum = |f: &dyn Fn(f64) -> f64| {
                gauss::mean(|x| f(s * x) * gauss::mean(|y| f(s * (r * x + rest * y)), 1.0), 1.0)
            };
            let numeric = sum(&erf_gelu);
            assert!((Activation::Gelu.kernel(q, c) - numeric).abs() < 1e-6, "{q} {c} {numeric}");
            // A kink costs the trapezoid rule accuracy: its error is of order step^2.
            let numeric = sum(&|x: f64| x.max(0.0));
            assert!((Activation::Relu.kernel(q, c) - numeric).abs() < 0.02, "{q} {c} {numeric}");
            let numeric = sum(&|x: f64| x.max(0.0).powi(2));
            assert!((Activation::SquaredRelu.kernel(q, c) - numeric).abs() < 0.02, "{q} {c} {numeric}");
        }
    }

    /// By its series, good to 1e-12 on the range that the sums above visit.
    fn erf(x: f64) -> f64 {
        if x.abs() > 5.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / PI.sqrt()
    }
}
