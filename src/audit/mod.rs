//! An existing model or file against a plan: parameter by parameter, does the start match the scheme?
//!
//! ```
//! use burn::{nn::transformer::TransformerEncoderConfig, tensor::Device};
//! use burn_init::prelude::*;
//!
//! # fn main() -> Result<(), burn_init::Error> {
//! let device = Device::flex();
//! let model = TransformerEncoderConfig::new(64, 256, 4, 2).init(&device);
//! let model = model.initialize(&Gpt2::new(), 42)?;
//!
//! let plan = model.plan(&Gpt2::new())?;
//! plan.audit(&model)?.assert_started();                 // in a test of your own
//!
//! let audit = model.plan(&Xavier::normal())?.audit(&model)?;
//! println!("{audit}");                                  // a line for each parameter, the worst first
//! assert!(audit.check().is_err());
//! # Ok(()) }
//! ```
//!
//! # What is tested
//!
//! Each line of the plan, a block of a packed parameter and an expert of a stacked one on its own:
//!
//! | | |
//! |---|---|
//! | constants | every value is the constant, to the rounding of its dtype |
//! | mean | `z = (mean - m) / (s / sqrt(n))` |
//! | std | the variance over that of the law, as chi-squared with `2 (n - 1) / (k - 1)` degrees of freedom, where `k` is the kurtosis of the law: 3 for a normal (relative error of the std `1/sqrt(2n)`), 1.8 for a uniform, between them for a truncated normal |
//! | bounds | nothing beyond those of a uniform or truncated normal; no value of a normal that is too large for `n` draws |
//! | zeros | none to speak of in a draw; the padding row 0, and no other |
//! | rows, columns | none out of scale: the most and the least energetic one, as chi-squared |
//! | distribution | from 10,000 values on, Pearson's chi-squared test on a histogram with eight cells an octave: tells a uniform, a normal and a truncated normal of equal std apart |
//! | orthogonality | `A'A x = c x` for a random `x`, and the scale |
//! | fills | against what the named function computes |
//! | ties | one Param at several paths still holds the same values; nothing else holds the values of another parameter |
//!
//! # How sure it is
//!
//! Each test has its `p`; together they make at most `p` times the number of tests false alarms (the union bound, which needs no
//! independence). An audit with `m` drawn samples makes `6 m` tests and gives each `p = 1e-4 / (6 m)`: so a healthy model raises an alarm less than
//! once in 10,000 audits as far as the tails of the approximations hold, and the promise is once in 1000. GPT-2 small has 148 parameters, of which 50
//! are drawn, 12 of them in three blocks: `m = 74`, and the limit is 5.2 sigmas. A std that is 10 percent off is then told from 1,500 weights
//! on, 1 percent from 150,000. Constants raise no false alarm.
//!
//! A std within 5 percent of the planned one is a [`Severity::Warning`], more is an [`Severity::Error`]; both fail [`Audit::check`].

mod compare;
mod expected;
#[cfg(feature = "checkpoint")]
mod file;
mod finding;
mod identify;
mod judge;
mod model;
#[cfg(feature = "checkpoint")]
mod names;
mod report;
mod start;
pub(crate) mod statistics;

#[cfg(feature = "checkpoint")]
pub use file::WeightFile;
pub use finding::{Deviation, Finding, Severity};
pub use identify::{Candidate, Identity, identify};
pub(crate) use model::samples;
pub(crate) use statistics::Lanes;
pub use statistics::Statistics;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    param::Block,
    role::Role,
};

/// One parameter or block: what the plan has for it, what was measured, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Line {
    /// Path in the plan; in the model or file, for what the plan does not have.
    pub path: String,
    /// Name in the file, where it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its part; `None` for what the plan does not have.
    pub role: Option<Role>,
    /// The block of a packed parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
    /// Shape as the plan has it.
    pub shape: Vec<u64>,
    /// The planned distribution.
    pub expected: String,
    /// Its standard deviation; `None` where no formula tells it.
    pub expected_std: Option<f64>,
    /// What the values are.
    pub measured: Option<Statistics>,
    /// Measured std over the expected one, padding rows and rows out of scale left out.
    pub ratio: Option<f64>,
    /// Standard errors between the stds.
    pub z_std: Option<f64>,
    /// Standard errors between the means.
    pub z_mean: Option<f64>,
    /// What is not as planned, the most telling first.
    pub findings: Vec<Finding>,
}

impl Line {
    /// That of the worst finding; `None` where everything is as planned.
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Whether the start of this parameter is another one than the plan's.
    pub fn deviates(&self) -> bool {
        self.severity() >= Some(Severity::Warning)
    }
}

/// An existing start against a plan. Made by [`Plan::audit`](crate::Plan::audit), [`Setup::audit`](crate::Setup::audit) or, for a file,
/// `WeightFile::audit`.
///
/// Prints as a table like the plan's, the worst line first; `{audit:#}` prints only the lines that deviate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Audit {
    lines: Vec<Line>,
    notes: Vec<String>,
}

impl Audit {
    /// One more finding about the first line of a parameter.
    fn add(&mut self, path: &str, finding: Finding) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.path == path) {
            line.findings.push(finding);
        }
        self.lines.sort_by_key(|line| std::cmp::Reverse(line.severity()));
    }

    /// Every line, the worst first, and otherwise in the order of the plan.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The lines whose start is another one than the plan's.
    pub fn deviations(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.deviates())
    }

    /// What is no deviation and worth knowing, such as a tie.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The line of a parameter, the worst one if it is packed.
    pub fn get(&self, path: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.path == path)
    }

    /// Whether everything is as planned.
    pub fn is_started(&self) -> bool {
        self.deviations().next().is_none()
    }

    /// Whether the parameters look trained: most of what starts as a constant (biases, gains) has a spread.
    ///
    /// A scheme with other constants moves them as a whole; training moves each value on its own.
    pub fn looks_trained(&self) -> bool {
        let constants: Vec<(&Line, &Statistics)> = (self.lines.iter())
            .filter(|line| line.expected_std == Some(0.0))
            .filter_map(|line| Some((line, line.measured.as_ref()?)))
            .collect();
        let spread = || constants.iter().filter(|(_, measured)| !measured.is_constant());
        // No scheme draws gains.
        2 * spread().count() > constants.len() && spread().any(|(line, _)| line.role.is_some_and(Role::is_gain))
    }

    /// Whether everything is as planned, as a `Result`.
    ///
    /// # Errors
    /// [`ErrorKind::Audit`] at the worst parameter, with the lines that deviate.
    pub fn check(&self) -> Result<(), Error> {
        let Some(worst) = self.deviations().next() else { return Ok(()) };
        let error = Error::new(
            ErrorKind::Audit,
            format!("{}\n{}", worst.findings[0], format!("{self:#}").trim_end()),
            "initialize it by the plan, or plan it by the scheme that started it",
        );
        Err(error.at(worst.path.as_str()).shaped(worst.shape.as_slice()))
    }

    /// The assertion for tests of your own: that everything is started as planned.
    ///
    /// # Panics
    /// With the table of the lines that deviate, if any does; that is what it is for. [`check`](Self::check) returns a `Result` instead.
    #[track_caller]
    pub fn assert_started(&self) {
        assert!(self.is_started(), "the model is not started as planned\n{self:#}");
    }
}
