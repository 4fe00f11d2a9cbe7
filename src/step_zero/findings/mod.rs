//! What is wrong with a start, in words: one file for each fault.
//!
//! A finding looks at a [`StepZero`] alone, so it holds for a measurement and for a prediction. What the one or the other does not know, it
//! does not judge.

mod bias;
mod collapse;
mod copies_input;
mod dead;
mod depth;
mod epsilon;
mod first_branch;
mod gain;
mod gradients;
mod half;
mod logits;
mod loss;
mod no_gradient;
mod padding;
mod residual;
mod row;
mod scores;
mod softmax;
mod tables;
mod targets;
mod unexplained;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Parameter, StepZero};
pub use crate::audit::Severity;
use crate::{Error, ErrorKind, Role};

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// All logits are equal and nothing behind the head learns.
    Dead,
    /// All logits are equal, and from the second step on they are not.
    DeadFirstStep,
    /// The padding of the vocabulary takes part in the softmax.
    PaddingCounts,
    /// The branches replace the stream and are not added to it.
    NoResidual,
    /// The attention weights do not sum to 1 over the keys.
    SoftmaxDimension,
    /// One row of a table is out of scale.
    RowOutOfScale,
    /// All tokens start with the same vector.
    TokensAlike,
    /// The position vectors drown the token vectors.
    PositionsDrown,
    /// The targets are the inputs.
    TargetsAreInputs,
    /// The spread of the logits alone costs more than a nat.
    LogitsTooWide,
    /// A tied head predicts the input token again.
    CopiesInput,
    /// Projections into the stream that are scaled otherwise than their siblings.
    BranchOutOfScale,
    /// Another matrix that is scaled otherwise than in the other layers.
    MatrixOutOfScale,
    /// No projection into the stream is scaled for depth.
    DepthUnscaled,
    /// The projections into the stream are scaled for depth twice.
    DepthScaledTwice,
    /// They are scaled for another depth.
    DepthWrong,
    /// Most of the stream is its first branch.
    FirstBranchDominates,
    /// The positions hold the same vector.
    TokensCollapse,
    /// The epsilon of the norms is not small beside the stream.
    NormEpsilon,
    /// The attention scores are wide.
    ScoresTooWide,
    /// The gradient grows over the layers on its way back.
    GradientsExplode,
    /// The gradient shrinks over the layers on its way back.
    GradientsVanish,
    /// A parameter has no part in the loss.
    NoGradient,
    /// The gain of a norm does not start at 1.
    GainNotOne,
    /// A bias does not start at 0.
    BiasNotZero,
    /// Values that the dtype of the model cannot hold.
    HalfPrecision,
    /// The loss of the user's own loop is a sum over the positions.
    LossIsSum,
    /// The loss of the user's own loop is in bits.
    LossInBits,
    /// It is a perplexity.
    LossIsPerplexity,
    /// The loss is not what these logits should cost.
    Unexplained,
}

/// Something wrong with a start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it is about.
    pub fault: Fault,
    /// How much it matters.
    pub severity: Severity,
    /// What was found and where it comes from.
    pub cause: String,
    /// Paths of the parameters that cause it, as far as they are known; the first ones of many.
    pub parameters: Vec<String>,
    /// What to do.
    pub todo: String,
}

impl Finding {
    fn new(fault: Fault, severity: Severity, cause: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { fault, severity, cause: cause.into(), parameters: Vec::new(), todo: todo.into() }
    }

    fn error(fault: Fault, cause: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::new(fault, Severity::Error, cause, todo)
    }

    fn warning(fault: Fault, cause: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::new(fault, Severity::Warning, cause, todo)
    }

    fn note(fault: Fault, cause: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::new(fault, Severity::Note, cause, todo)
    }

    fn about<'a>(mut self, parameters: impl IntoIterator<Item = &'a Parameter>) -> Self {
        self.parameters = parameters.into_iter().map(|parameter| parameter.path.clone()).collect();
        self
    }
}

/// The first parameters that are listed in full.
const LISTED: usize = 4;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.cause)?;
        if let Some((first, rest)) = self.parameters.split_first() {
            write!(f, " ({first}")?;
            for path in rest.iter().take(LISTED - 1) {
                write!(f, ", {path}")?;
            }
            match rest.len().saturating_sub(LISTED - 1) {
                0 => write!(f, ")")?,
                more => write!(f, " and {more} more)")?,
            }
        }
        write!(f, "; {}", self.todo)
    }
}

type Look = fn(&StepZero) -> Vec<Finding>;

/// From causes to symptoms: of two findings of the same severity the earlier one explains the later one.
const ALL: &[Look] = &[
    padding::find,
    residual::find,
    softmax::find,
    dead::find,
    targets::find,
    row::find,
    tables::find,
    gain::find,
    bias::find,
    depth::find,
    logits::find,
    copies_input::find,
    first_branch::find,
    epsilon::find,
    scores::find,
    collapse::find,
    gradients::find,
    no_gradient::find,
    half::find,
    loss::find,
    unexplained::find,
];

impl StepZero {
    /// All that is worth saying about this start: the gravest first, and of equals the cause before its symptoms.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = ALL.iter().flat_map(|find| find(self)).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    /// Whether the start is sound.
    ///
    /// # Errors
    /// [`ErrorKind::Measurement`] with every [finding](Self::findings) that is more than a note.
    pub fn check(&self) -> Result<(), Error> {
        let grave: Vec<String> = self
            .findings()
            .iter()
            .filter(|finding| finding.severity > Severity::Note)
            .map(ToString::to_string)
            .collect();
        match grave.as_slice() {
            [] => Ok(()),
            grave => Err(Error::new(ErrorKind::Measurement, grave.join("\n"), "")),
        }
    }

    /// The parameters with one of these roles.
    fn with_role<'a>(&'a self, roles: &'a [Role]) -> impl Iterator<Item = &'a Parameter> {
        self.parameters.iter().filter(|parameter| roles.contains(&parameter.role))
    }

    /// Whether the path is that of a key's bias: a shift of all scores of a query, which a softmax does not see.
    fn is_key_bias(&self, path: &str) -> bool {
        let weight = path.strip_suffix("bias").map(|stem| format!("{stem}weight"));
        weight.is_some_and(|weight| self.parameters.iter().any(|p| p.path == weight && p.role == Role::Key))
    }

    /// The table that makes the logits.
    fn head_table(&self) -> Option<&Parameter> {
        let head = self.with_role(&[Role::OutputHead]).next();
        head.or_else(|| self.own_logit.and(self.with_role(&[Role::TokenEmbedding]).next()))
    }
}
