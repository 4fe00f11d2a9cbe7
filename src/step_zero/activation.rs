//! The nonlinearity of an MLP, and its second moments under a Gaussian input.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::gauss;

/// The nonlinearity of an MLP.
///
/// The gated ones multiply it with a second, independent projection: `act(gate(x)) * up(x)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
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
    /// SiLU is a series in Hermite polynomials, integrated numerically. GELU's tanh approximation is taken for the
    /// exact one, which is right to 0.03 %.
    pub fn kernel(self, q: f64, c: f64) -> f64 {
        let variances = [q, q];
        let pairs = Pairs::new(self, &variances);
        if c >= q { pairs.own(0) } else { pairs.value(0, 1, c) }
    }
}

/// Terms of SiLU's series. They fall like `exp(-pi sqrt(2k / q))`.
const TERMS: usize = 64;

/// `E f(x_t) f(x_u)` and `E f'(x_t) f'(x_u)` for normal x with given variances, of a nonlinearity without its gate.
///
/// The second is the derivative of the first by the covariance (Price's theorem).
pub(super) struct Pairs<'a> {
    activation: Activation,
    variances: &'a [f64],
    silu: Vec<Silu>,
}

impl<'a> Pairs<'a> {
    pub fn new(activation: Activation, variances: &'a [f64]) -> Self {
        let activation = activation.ungated();
        let mut silu: Vec<Silu> = Vec::new();
        if activation == Activation::Silu {
            for (t, &q) in variances.iter().enumerate() {
                match t.checked_sub(1).filter(|&before| variances[before] == q) {
                    Some(before) => silu.push(silu[before].clone()),
                    None => silu.push(Silu::new(q)),
                }
            }
        }
        Self { activation, variances, silu }
    }

    /// `E f(x_t)^2`
    pub fn own(&self, t: usize) -> f64 {
        match self.silu.get(t) {
            Some(silu) => silu.square,
            None => self.closed(self.variances[t], self.variances[t], self.variances[t]),
        }
    }

    /// `E f'(x_t)^2`
    pub fn own_slope(&self, t: usize) -> f64 {
        match self.silu.get(t) {
            Some(silu) => silu.slope_square,
            None => self.closed_slope(self.variances[t], self.variances[t], self.variances[t]),
        }
    }

    /// `E f(x_t) f(x_u)` at covariance `c`.
    pub fn value(&self, t: usize, u: usize, c: f64) -> f64 {
        match self.silu.get(t).zip(self.silu.get(u)) {
            Some((a, b)) => a.with(b, self.correlation(t, u, c)),
            None => self.closed(self.variances[t], self.variances[u], c),
        }
    }

    /// `E f'(x_t) f'(x_u)` at covariance `c`.
    pub fn slope(&self, t: usize, u: usize, c: f64) -> f64 {
        match self.silu.get(t).zip(self.silu.get(u)) {
            Some((a, b)) => a.slope_with(b, self.correlation(t, u, c)),
            None => self.closed_slope(self.variances[t], self.variances[u], c),
        }
    }

    fn correlation(&self, t: usize, u: usize, c: f64) -> f64 {
        correlation(self.variances[t], self.variances[u], c)
    }

    fn closed(&self, a: f64, b: f64, c: f64) -> f64 {
        let (scale, cos) = ((a * b).sqrt(), correlation(a, b, c));
        let (sin, angle) = ((1.0 - cos * cos).max(0.0).sqrt(), cos.acos());
        match self.activation {
            Activation::Relu => scale / (2.0 * PI) * (sin + cos * (PI - angle)),
            Activation::SquaredRelu => {
                scale * scale / (2.0 * PI) * (3.0 * sin * cos + (PI - angle) * (1.0 + 2.0 * cos * cos))
            }
            _ => {
                let gelu = Gelu::new(a, b, scale * cos);
                // Symmetric in a and b: -a / (1 + a) + 1 / (1 + b) is 1 / (1 + a) + 1 / (1 + b) - 1.
                let rest = a * b + gelu.c * gelu.c * (1.0 / (1.0 + a) + 1.0 / (1.0 + b) - 1.0);
                gelu.c * gelu.both_positive() + rest / (2.0 * PI * gelu.root)
            }
        }
    }

    fn closed_slope(&self, a: f64, b: f64, c: f64) -> f64 {
        let (scale, cos) = ((a * b).sqrt(), correlation(a, b, c));
        let (sin, angle) = ((1.0 - cos * cos).max(0.0).sqrt(), cos.acos());
        match self.activation {
            Activation::Relu => (PI - angle) / (2.0 * PI),
            // f' = 2 relu
            Activation::SquaredRelu => 4.0 * scale / (2.0 * PI) * (sin + cos * (PI - angle)),
            _ => {
                let gelu = Gelu::new(a, b, scale * cos);
                let density = 1.0 / (2.0 * PI * gelu.root);
                let tilted = 1.0 / (1.0 + a) + 1.0 / (1.0 + b) + 1.0 / (gelu.root * gelu.root);
                gelu.both_positive() + gelu.c * density * tilted
            }
        }
    }
}

fn correlation(a: f64, b: f64, c: f64) -> f64 {
    if a <= 0.0 || b <= 0.0 { 0.0 } else { (c / (a * b).sqrt()).clamp(-1.0, 1.0) }
}

/// The pieces of GELU's kernel: x and y with variances a, b and covariance c, each compared with a standard normal of its own.
struct Gelu {
    a: f64,
    b: f64,
    c: f64,
    /// `sqrt((1 + a)(1 + b) - c^2)`
    root: f64,
}

impl Gelu {
    fn new(a: f64, b: f64, c: f64) -> Self {
        Self { a, b, c, root: ((1.0 + a) * (1.0 + b) - c * c).sqrt() }
    }

    /// `E Phi(x) Phi(y)`
    fn both_positive(&self) -> f64 {
        0.25 + (self.c / ((1.0 + self.a) * (1.0 + self.b)).sqrt()).asin() / (2.0 * PI)
    }
}

/// SiLU of x ~ N(0, q), as a series in normalised Hermite polynomials of `x / sqrt(q)`.
#[derive(Clone)]
struct Silu {
    terms: [f64; TERMS],
    slope_terms: [f64; TERMS],
    square: f64,
    slope_square: f64,
}

impl Silu {
    fn new(q: f64) -> Self {
        let s = q.max(0.0).sqrt();
        let mut result = Self { terms: [0.0; TERMS], slope_terms: [0.0; TERMS], square: 0.0, slope_square: 0.0 };
        gauss::each(s, |z, weight| {
            let logistic = 1.0 / (1.0 + (-s * z).exp());
            let f = s * z * logistic;
            let slope = logistic * (1.0 + s * z * (1.0 - logistic));
            result.square += weight * f * f;
            result.slope_square += weight * slope * slope;
            let (mut before, mut hermite) = (0.0, 1.0);
            for k in 0..TERMS {
                result.terms[k] += weight * f * hermite;
                result.slope_terms[k] += weight * slope * hermite;
                let next = (z * hermite - (k as f64).sqrt() * before) / ((k + 1) as f64).sqrt();
                (before, hermite) = (hermite, next);
            }
        });
        result
    }

    fn with(&self, other: &Self, r: f64) -> f64 {
        series(&self.terms, &other.terms, r)
    }

    fn slope_with(&self, other: &Self, r: f64) -> f64 {
        series(&self.slope_terms, &other.slope_terms, r)
    }
}

fn series(a: &[f64; TERMS], b: &[f64; TERMS], r: f64) -> f64 {
    a.iter().zip(b).rev().fold(0.0, |sum, (a, b)| sum * r + a * b)
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
