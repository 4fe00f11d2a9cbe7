//! What is drawn for one parameter, with every symbol resolved.

use std::fmt;

use super::{Family, Fill, Init, VarianceScaling, short};
use crate::{
    error::{Error, ErrorKind},
    param::{ParamSpec, product},
    role::Role,
    sample::{Distribution, Element, holds, truncated_moments},
};

/// An [`Init`] resolved against the fans of a parameter and multiplied by its factors: numbers only.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Law {
    /// The parameter stays as it is.
    Keep,
    /// All the same value.
    Constant(f64),
    /// Independent draws.
    Draw(Distribution),
    /// `gain` times a Haar-distributed (semi-)orthogonal matrix.
    Orthogonal {
        /// Factor on the matrix.
        gain: f64,
        /// Rows and columns of the matrix.
        matrix: [u64; 2],
    },
    /// A named function, times a factor.
    Fill {
        /// The function.
        fill: Fill,
        /// The factor.
        factor: f64,
    },
}

/// Largest shorter side of an orthogonal matrix: its cost grows with `longer * shorter^2`.
const LARGEST_ORTHOGONAL: u64 = 16_384;

impl Law {
    pub(crate) fn resolve(init: &Init, factor: f64, param: &ParamSpec) -> Result<Self, Error> {
        let truncated = |mean: f64, std: f64, low: f64, high: f64, compensated: bool| {
            Law::Draw(Distribution::TruncatedNormal {
                mean: mean * factor,
                std: Init::uncut_std(std, low, high, compensated) * factor.abs(),
                low,
                high,
            })
        };
        let uniform = |low: f64, high: f64| {
            let (low, high) = if factor < 0.0 { (high, low) } else { (low, high) };
            Law::Draw(Distribution::Uniform { low: low * factor, high: high * factor })
        };
        let normal =
            |mean: f64, std: f64| Law::Draw(Distribution::Normal { mean: mean * factor, std: std * factor.abs() });
        let law = match init {
            Init::Zeros => Law::Constant(0.0),
            Init::Ones => Law::Constant(factor),
            Init::Constant { value } => Law::Constant(value * factor),
            Init::Normal { mean, std } => normal(*mean, *std),
            Init::TruncatedNormal { mean, std, low, high, compensated } => {
                truncated(*mean, *std, *low, *high, *compensated)
            }
            Init::Uniform { low, high } => uniform(*low, *high),
            Init::VarianceScaling(VarianceScaling { scale, fan, family }) => {
                let fan = fan.of(param.fans()?);
                if fan == 0.0 {
                    return Err(param.error(
                        ErrorKind::Shape,
                        "the fan is 0",
                        "give every dimension at least one element, or choose an initialization without a fan",
                    ));
                }
                let std = (scale / fan).sqrt();
                match *family {
                    Family::Normal => normal(0.0, std),
                    Family::Uniform => uniform(-(3.0f64.sqrt() * std), 3.0f64.sqrt() * std),
                    Family::TruncatedNormal { bound, compensated } => truncated(0.0, std, -bound, bound, compensated),
                }
            }
            Init::Orthogonal { gain } => {
                let matrix = orthogonal_matrix(param)?;
                Law::Orthogonal { gain: gain * factor, matrix }
            }
            Init::Fill(fill) => {
                fill.bound().map_err(|error| error.at(param.path()).shaped(param.shape()))?;
                Law::Fill { fill: fill.clone(), factor }
            }
            Init::Split(split) => split.law(factor, param)?,
            Init::Keep => Law::Keep,
        };
        law.check::<f32>()
            .map_err(|(found, todo)| param.error(ErrorKind::InvalidValue, format!("with all factors {found}"), todo))?;
        // A range that factors have closed is a constant.
        let law = match law {
            Law::Draw(Distribution::Uniform { low, high }) if low == high => Law::Constant(low),
            Law::Draw(Distribution::Normal { mean, std: 0.0 }) => Law::Constant(mean),
            Law::Draw(Distribution::TruncatedNormal { mean, std: 0.0, .. }) => Law::Constant(mean),
            law => law,
        };
        if let Law::Draw(distribution) = &law {
            distribution.check().map_err(|error| error.at(param.path()).shaped(param.shape()))?;
        }
        Ok(law)
    }

    /// Whether `E` has numbers for the values: none is beyond its largest, and what differs from 0 does not vanish below its
    /// smallest.
    pub(crate) fn check<E: Element>(&self) -> Result<(), Misfit> {
        let (what, size) = match self {
            Law::Constant(value) => ("the value", *value),
            Law::Fill { factor, .. } => ("the factor", *factor),
            law => ("the std", law.std()),
        };
        let reach = self.reach();
        if reach > E::LARGEST {
            fits::<E>("the largest value", reach)?;
        }
        fits::<E>(what, size)
    }

    /// The largest magnitude that a value can have; NaN where no formula tells it.
    pub(crate) fn reach(&self) -> f64 {
        match self {
            Law::Constant(value) => value.abs(),
            // No normal lies beyond 7 sigmas.
            Law::Draw(Distribution::Normal { mean, std }) => mean.abs() + 7.0 * std,
            Law::Draw(Distribution::TruncatedNormal { mean, std, low, high, .. }) => {
                mean.abs() + std * low.abs().max(high.abs()).min(13.0)
            }
            Law::Draw(Distribution::Uniform { low, high }) => low.abs().max(high.abs()),
            Law::Orthogonal { gain, .. } => gain.abs(),
            Law::Keep | Law::Fill { .. } => f64::NAN,
        }
    }

    /// Standard deviation of the values; 0 for a constant, NaN where no formula tells it (kept and filled parameters).
    pub fn std(&self) -> f64 {
        match self {
            Law::Constant(_) => 0.0,
            Law::Draw(Distribution::Normal { std, .. }) => *std,
            Law::Draw(Distribution::TruncatedNormal { std, low, high, .. }) => std * truncated_moments(*low, *high).1,
            Law::Draw(Distribution::Uniform { low, high }) => (high - low) / 12f64.sqrt(),
            Law::Orthogonal { gain, matrix: [rows, columns] } => gain.abs() / (*rows.max(columns) as f64).sqrt(),
            Law::Keep | Law::Fill { .. } => f64::NAN,
        }
    }

    /// Mean of the values; NaN where no formula tells it.
    pub fn mean(&self) -> f64 {
        match self {
            Law::Constant(value) => *value,
            Law::Draw(Distribution::Normal { mean, .. }) => *mean,
            Law::Draw(Distribution::TruncatedNormal { mean, std, low, high }) => {
                mean + std * truncated_moments(*low, *high).0
            }
            Law::Draw(Distribution::Uniform { low, high }) => (low + high) / 2.0,
            Law::Orthogonal { .. } => 0.0,
            Law::Keep | Law::Fill { .. } => f64::NAN,
        }
    }
}

/// What was found of a number that a precision does not have, and what to do.
pub(crate) type Misfit = (String, &'static str);

/// Whether `E` has numbers of this size; it is not asked about NaN.
pub(crate) fn fits<E: Element>(what: &str, value: f64) -> Result<(), Misfit> {
    let (name, found) = (E::NAME, short(value));
    if value.abs() > E::LARGEST {
        return Err((format!("{what} is {found}, and {name} ends at {}", short(E::LARGEST)), "use a smaller number"));
    }
    if holds::<E>(value) || value.is_nan() {
        return Ok(());
    }
    let smallest = short(E::SMALLEST);
    Err((format!("{what} is {found}, and {name} has nothing between 0 and {smallest}"), "use a larger number, or 0"))
}

/// The matrix that an orthogonal draw fills: `[d_in, d_out of the block]`, per expert where experts are stacked. A convolution `[out, in, k…]`
/// is `[out, in k…]`, one row for each output channel; a transposed one has its input channels first.
fn orthogonal_matrix(param: &ParamSpec) -> Result<[u64; 2], Error> {
    let shape = match param.experts() {
        Some(_) => param.shape().get(1..).unwrap_or_default(),
        None => param.shape(),
    };
    let is_convolution = matches!(param.role(), Role::Convolution | Role::PatchEmbedding) && shape.len() > 2;
    let matrix = match *shape {
        [first, ref rest @ ..] if is_convolution => [first, product(rest)],
        [ref leading @ .., last] if !leading.is_empty() => {
            [product(leading), param.block().map_or(last, |block| block.len)]
        }
        _ => return Err(not_a_matrix(param)),
    };
    if matrix[0].min(matrix[1]) > LARGEST_ORTHOGONAL {
        return Err(param.error(
            ErrorKind::Shape,
            format!("an orthogonal draw of {} x {} would take hours", matrix[0], matrix[1]),
            format!("keep the shorter side at {LARGEST_ORTHOGONAL} or less"),
        ));
    }
    Ok(matrix)
}

fn not_a_matrix(param: &ParamSpec) -> Error {
    param.error(
        ErrorKind::Shape,
        "an orthogonal draw needs at least two dimensions",
        "choose another initialization for this parameter",
    )
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let init = match self {
            Law::Keep => Init::Keep,
            Law::Constant(0.0) => Init::Zeros,
            Law::Constant(1.0) => Init::Ones,
            Law::Constant(value) => Init::constant(*value),
            Law::Draw(Distribution::Normal { mean, std }) => Init::Normal { mean: *mean, std: *std },
            Law::Draw(Distribution::TruncatedNormal { mean, std, low, high }) => {
                Init::TruncatedNormal { mean: *mean, std: *std, low: *low, high: *high, compensated: false }
            }
            Law::Draw(Distribution::Uniform { low, high }) => Init::Uniform { low: *low, high: *high },
            Law::Orthogonal { gain, .. } => Init::orthogonal(*gain),
            Law::Fill { fill, factor: 1.0 } => Init::Fill(fill.clone()),
            Law::Fill { fill, factor } => return write!(f, "{} * fill({})", short(*factor), fill.name()),
        };
        write!(f, "{init}")
    }
}
