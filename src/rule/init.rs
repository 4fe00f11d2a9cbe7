//! Initial distributions as data.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Fill, Split, fits, short};
use crate::{
    error::{Error, ErrorKind},
    param::Fans,
    sample::{Distribution, truncated_moments},
};

/// The fan that a variance is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fan {
    /// `fan_in`: keeps the variance of the forward pass.
    In,
    /// `fan_out`: keeps the variance of the backward pass.
    Out,
    /// `(fan_in + fan_out) / 2`: the compromise of Glorot and Bengio.
    Average,
}

impl Fan {
    /// The number for given fans.
    pub fn of(self, fans: Fans) -> f64 {
        match self {
            Fan::In => fans.fan_in as f64,
            Fan::Out => fans.fan_out as f64,
            Fan::Average => (fans.fan_in as f64 + fans.fan_out as f64) / 2.0,
        }
    }
}

/// The family of distributions that a variance-scaled draw comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Family {
    /// A normal with that std.
    Normal,
    /// A uniform on `+-sqrt(3) * std`.
    Uniform,
    /// A normal cut at `+-bound` sigmas.
    TruncatedNormal {
        /// In sigmas of the normal before it is cut.
        bound: f64,
        /// Whether the normal is widened so that the std *after* the cut is the one asked for (as JAX does), or
        /// narrower by what the cut takes away (as PyTorch does).
        #[serde(default)]
        compensated: bool,
    },
}

impl Family {
    /// The member of the family with mean 0 and this std: before the cut, for a truncated normal that is not compensated.
    pub fn with_std(self, std: f64) -> Init {
        match self {
            Family::Normal => Init::normal(std),
            Family::Uniform => Init::uniform(3f64.sqrt() * std),
            Family::TruncatedNormal { bound, compensated: false } => Init::truncated_normal(std, bound),
            Family::TruncatedNormal { bound, compensated: true } => Init::truncated_normal_compensated(std, bound),
        }
    }
}

/// `std = sqrt(scale / fan)`: the core that Xavier, Kaiming and LeCun are one line over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VarianceScaling {
    /// Numerator of the variance; `gain^2` of the schemes that have a gain.
    pub scale: f64,
    /// Denominator of the variance.
    pub fan: Fan,
    /// Shape of the distribution.
    pub family: Family,
}

/// What a parameter starts as, before factors: a distribution or a constant, as data.
///
/// Constructors never fail; [`check`](Self::check) runs when the init is read from a file and when a plan is made.
///
/// | init | values | std |
/// |---|---|---|
/// | [`Zeros`](Init::Zeros), [`Ones`](Init::Ones), [`Constant`](Init::Constant) | all the same | 0 |
/// | [`Normal`](Init::Normal) | `mean + std * z` | `std` |
/// | [`TruncatedNormal`](Init::TruncatedNormal) | the same with `low <= z <= high` | smaller, or `std` if compensated |
/// | [`Uniform`](Init::Uniform) | `[low, high)` | `(high - low) / sqrt(12)` |
/// | [`VarianceScaling`](Init::VarianceScaling) | by family | `sqrt(scale / fan)` |
/// | [`Orthogonal`](Init::Orthogonal) | `gain * Q`, `Q` Haar with orthonormal shorter side | `gain / sqrt(longer side)` |
/// | [`Fill`](Init::Fill) | a named function | unknown |
/// | [`Split`](Init::Split) | a factor of a matrix that is drawn for two parameters | unknown |
/// | [`Keep`](Init::Keep) | untouched | unknown |
///
/// ```
/// use burn_init::Init;
///
/// let init: Init = serde_json::from_str(r#"{"normal": {"std": 0.02}}"#)?;
/// assert_eq!(init, Init::normal(0.02));
/// assert!(serde_json::from_str::<Init>(r#"{"normal": {"std": -1.0}}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, remote = "Self")]
#[non_exhaustive]
pub enum Init {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All the same.
    Constant {
        /// The value.
        value: f64,
    },
    /// Normal.
    Normal {
        /// Mean, 0 unless said otherwise.
        #[serde(default)]
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Normal, cut to an interval; never clamped, so that no value piles up at a bound.
    TruncatedNormal {
        /// Mean before the cut, 0 unless said otherwise.
        #[serde(default)]
        mean: f64,
        /// Standard deviation: before the cut, or after it if `compensated`.
        std: f64,
        /// Lower bound, in sigmas of the normal before it is cut (not in absolute values, as in `torch.nn.init.trunc_normal_`).
        low: f64,
        /// Upper bound, in the same unit.
        high: f64,
        /// Whether `std` is the one after the cut.
        #[serde(default)]
        compensated: bool,
    },
    /// Uniform on `[low, high)`.
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// A variance divided by a fan.
    VarianceScaling(VarianceScaling),
    /// A (semi-)orthogonal matrix times `gain`, Haar distributed (Saxe et al. 2013). A convolution `[out, in, k…]` is taken as
    /// `[out, in k…]`; anything else of more than two dimensions as `[product of all but the last, last]`.
    Orthogonal {
        /// Factor on the matrix.
        gain: f64,
    },
    /// A named function.
    Fill(Fill),
    /// One of the two factors of a matrix that is drawn for two parameters together.
    Split(Split),
    /// The parameter keeps the value it has or, if it is lazy, the one that burn will draw.
    Keep,
}

impl Init {
    /// Normal with mean 0.
    pub fn normal(std: f64) -> Self {
        Init::Normal { mean: 0.0, std }
    }

    /// Normal with mean 0, cut at `+-bound` sigmas, `std` before the cut.
    pub fn truncated_normal(std: f64, bound: f64) -> Self {
        Init::TruncatedNormal { mean: 0.0, std, low: -bound, high: bound, compensated: false }
    }

    /// Normal with mean 0, cut at `+-bound` of its sigmas, `std` after the cut.
    pub fn truncated_normal_compensated(std: f64, bound: f64) -> Self {
        Init::TruncatedNormal { mean: 0.0, std, low: -bound, high: bound, compensated: true }
    }

    /// Uniform on `[-bound, bound)`.
    pub fn uniform(bound: f64) -> Self {
        Init::Uniform { low: -bound, high: bound }
    }

    /// All `value`.
    pub fn constant(value: f64) -> Self {
        Init::Constant { value }
    }

    /// Orthogonal.
    pub fn orthogonal(gain: f64) -> Self {
        Init::Orthogonal { gain }
    }

    fn scaling(scale: f64, fan: Fan, family: Family) -> Self {
        Init::VarianceScaling(VarianceScaling { scale, fan, family })
    }

    /// `std = gain * sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio 2010).
    pub fn xavier_normal(gain: f64) -> Self {
        Self::scaling(gain * gain, Fan::Average, Family::Normal)
    }

    /// The uniform with the std of [`xavier_normal`](Self::xavier_normal): bound `gain * sqrt(6 / (fan_in + fan_out))`.
    pub fn xavier_uniform(gain: f64) -> Self {
        Self::scaling(gain * gain, Fan::Average, Family::Uniform)
    }

    /// `std = gain / sqrt(fan_in)`; `gain = sqrt(2)` for ReLU (He et al. 2015).
    pub fn kaiming_normal(gain: f64) -> Self {
        Self::scaling(gain * gain, Fan::In, Family::Normal)
    }

    /// The uniform with the std of [`kaiming_normal`](Self::kaiming_normal): bound `gain * sqrt(3 / fan_in)`.
    pub fn kaiming_uniform(gain: f64) -> Self {
        Self::scaling(gain * gain, Fan::In, Family::Uniform)
    }

    /// `std = 1 / sqrt(fan_in)` (LeCun et al. 1998).
    pub fn lecun_normal() -> Self {
        Self::kaiming_normal(1.0)
    }

    /// The uniform with the std of [`lecun_normal`](Self::lecun_normal).
    pub fn lecun_uniform() -> Self {
        Self::kaiming_uniform(1.0)
    }

    /// Whether the numbers are usable.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] for a negative, NaN or infinite number where none can be, or an empty interval.
    pub fn check(&self) -> Result<(), Error> {
        let bad =
            |found: String, todo: &str| Err(Error::new(ErrorKind::InvalidValue, format!("{self}: {found}"), todo));
        let usable = |value: f64| value.abs() <= f32::MAX as f64 / 16.0;
        let tiny = |name: &str, value: f64| fits::<f32>(name, value).or_else(|(found, todo)| bad(found, todo));
        let std_of = |name: &str, value: f64| match value {
            _ if value.is_nan() => bad(format!("{name} is NaN"), "use 0 or more"),
            _ if value < 0.0 => bad(format!("{name} is negative"), "use 0 or more"),
            _ if !usable(value) => bad(format!("{name} is out of range"), "use a number that fits f32"),
            _ => Ok(()),
        };
        let value_of = |name: &str, value: f64| match usable(value) {
            true => tiny(name, value),
            false if value.is_finite() => bad(format!("{name} is out of range"), "use a number that fits f32"),
            false => bad(format!("{name} is not a finite number"), "use a number that fits f32"),
        };
        let cut = |low: f64, high: f64| {
            if low.is_nan() || high.is_nan() || low >= high {
                bad("the interval is empty".into(), "use low < high, in sigmas")
            } else if low.is_infinite() || high.is_infinite() {
                bad("a bound is infinite".into(), "use a finite one: no normal lies beyond 7 sigmas")
            } else if low > 4.0 || high < -4.0 {
                bad(
                    "the interval holds nearly nothing of the normal".into(),
                    "use one that reaches within 4 sigmas of the mean",
                )
            } else {
                let normal = Distribution::TruncatedNormal { mean: 0.0, std: 1.0, low, high };
                normal.check().or_else(|_| bad("the interval is narrower than 2^-20 of its bounds".into(), "widen it"))
            }
        };
        match *self {
            Init::Zeros | Init::Ones | Init::Keep | Init::Fill(_) => Ok(()),
            Init::Constant { value } => value_of("value", value),
            Init::Normal { mean, std } => value_of("mean", mean).and(std_of("std", std)).and(tiny("std", std)),
            Init::TruncatedNormal { mean, std, low, high, .. } => {
                value_of("mean", mean).and(std_of("std", std)).and(tiny("std", std)).and(cut(low, high))
            }
            Init::Uniform { low, high } => {
                value_of("low", low)?;
                value_of("high", high)?;
                match low < high {
                    true => Ok(()),
                    false => bad("the interval is empty".into(), "use low < high, or a constant"),
                }
            }
            Init::VarianceScaling(VarianceScaling { scale, family, .. }) => {
                std_of("scale", scale)?;
                match family {
                    Family::TruncatedNormal { bound, .. } => cut(-bound, bound),
                    Family::Normal | Family::Uniform => Ok(()),
                }
            }
            Init::Orthogonal { gain } => value_of("gain", gain),
            Init::Split(Split { identity, noise, .. }) => {
                value_of("identity", identity).and(std_of("noise", noise)).and(tiny("noise", noise))
            }
        }
    }

    /// Std of the normal before it is cut, for a truncated one that is to have `std` after the cut.
    pub(super) fn uncut_std(std: f64, low: f64, high: f64, compensated: bool) -> f64 {
        match compensated {
            true => std / truncated_moments(low, high).1,
            false => std,
        }
    }
}

impl Serialize for Init {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Init::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Init {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let init = Init::deserialize(deserializer)?;
        init.check().map_err(serde::de::Error::custom)?;
        Ok(init)
    }
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |mean: f64| if mean == 0.0 { String::new() } else { format!("mean = {}, ", short(mean)) };
        let cut = |low: f64, high: f64, compensated: bool| {
            let interval = if low == -high {
                format!("+-{} sigma", short(high))
            } else {
                format!("[{}, {}] sigma", short(low), short(high))
            };
            interval + if compensated { ", compensated" } else { "" }
        };
        match self {
            Init::Zeros => write!(f, "zeros"),
            Init::Ones => write!(f, "ones"),
            Init::Constant { value } => write!(f, "constant({})", short(*value)),
            Init::Normal { mean: m, std } => write!(f, "normal({}std = {})", mean(*m), short(*std)),
            Init::TruncatedNormal { mean: m, std, low, high, compensated } => {
                write!(f, "truncated_normal({}std = {}, {})", mean(*m), short(*std), cut(*low, *high, *compensated))
            }
            Init::Uniform { low, high } if *low == -*high => write!(f, "uniform(+-{})", short(*high)),
            Init::Uniform { low, high } => write!(f, "uniform({}, {})", short(*low), short(*high)),
            Init::VarianceScaling(VarianceScaling { scale, fan, family }) => {
                let fan = match fan {
                    Fan::In => "fan_in",
                    Fan::Out => "fan_out",
                    Fan::Average => "fan_average",
                };
                let family = match family {
                    Family::Normal => "normal".to_string(),
                    Family::Uniform => "uniform".to_string(),
                    Family::TruncatedNormal { bound, compensated } => {
                        format!("truncated_normal {}", cut(-bound, *bound, *compensated))
                    }
                };
                write!(f, "variance_scaling({} / {fan}, {family})", short(*scale))
            }
            Init::Orthogonal { gain } => write!(f, "orthogonal(gain = {})", short(*gain)),
            Init::Fill(fill) => write!(f, "fill({})", fill.name()),
            Init::Split(split) => write!(f, "fill({split})"),
            Init::Keep => write!(f, "keep"),
        }
    }
}
