//! What can be wrong with a parameter.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing, no deviation: a parameter that the plan keeps.
    Note,
    /// Not what the plan draws, but a start of nearly the same scale: a uniform in place of a normal, a std that is off by a few percent.
    Warning,
    /// Another start than the plan's: another scale, values where a constant is due, a value that is missing or not finite.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// What was found, for code that wants to react to it; the text of the [`Finding`] is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Deviation {
    /// The model or file has no such parameter.
    Missing,
    /// The parameter is lazy and holds no value yet.
    NoValue,
    /// Another shape than the plan's.
    Shape,
    /// Values that are NaN or infinite.
    NonFinite,
    /// Spread, or another value, where the plan has a constant.
    NotConstant,
    /// One value everywhere, where the plan draws, or a planned spread that the dtype does not resolve.
    Constant,
    /// More exact zeros than a draw has.
    Zeros,
    /// The padding row is not 0, or a row is 0 that should be drawn.
    PaddingRow,
    /// A row out of scale.
    Row,
    /// A column out of scale.
    Column,
    /// Another standard deviation.
    Std,
    /// Another mean.
    Mean,
    /// Values beyond the bounds of the law.
    Bounds,
    /// A value that is too large for the law and the number of draws.
    Outlier,
    /// Mean and std as planned, and another distribution.
    Distribution,
    /// Not a multiple of an orthogonal matrix.
    Orthogonality,
    /// Paths that are tied in the plan hold different values.
    Tie,
    /// The plan multiplies it in the forward pass, and the model does not.
    Multiplier,
    /// Two parameters hold the same values, and the plan does not tie them.
    Duplicate,
    /// The plan has no line for it.
    Unplanned,
    /// Integers with scales, whose values were not looked at.
    Quantized,
    /// The plan keeps it, so that there is nothing to compare with.
    Kept,
}

/// Something about one parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is.
    pub deviation: Deviation,
    /// In words, without the path.
    pub text: String,
}

impl Finding {
    pub(super) fn new(severity: Severity, deviation: Deviation, text: impl Into<String>) -> Self {
        Self { severity, deviation, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
