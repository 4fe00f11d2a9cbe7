//! What a model does before it has learned anything: predicted from its plan, or measured on it.
//!
//! Both ways fill the same [`StepZero`], so that the two can be laid side by side:
//!
//! - [`predict`] follows second moments, between all pairs of positions, through the layers of a [`Plan`](crate::Plan) and those of the
//!   gradient back; nothing is drawn, allocated or run;
//! - [`step_zero`] runs one forward pass of any model that can give logits, and with autodiff one backward pass;
//!   [`measure`] looks at the parameters, too.
//!
//! A fresh model knows nothing, so its loss should be that of guessing, ln V. What it really has is
//! the loss of logits with some spread s: **ln V + s^2/2**, and with a tied head a little more, because the
//! logit of the input token itself stands out. A loss above that is a fault in the start, and [`StepZero::findings`]
//! say which, and which parameter causes it.

mod activation;
mod architecture;
mod backward;
mod batch;
mod decoder;
mod dropout;
mod findings;
mod gauss;
mod kernel;
mod listen;
mod logits;
mod measure;
mod parameters;
mod pieces;
mod position;
mod predict;
mod probe;
mod report;
mod seeds;
mod sparkline;

use serde::{Deserialize, Serialize};

pub use activation::Activation;
pub use architecture::Architecture;
pub use batch::Batch;
pub use findings::{Fault, Finding, Severity};
pub use measure::{measure, step_zero};
pub use parameters::{Loudest, Parameter};
pub use predict::predict;
pub use probe::{Point, Probe, Site};
pub use report::{Beside, Row};

use crate::Role;
use logits::{LogitLaw, Own};

/// The state of a model at step zero, measured or predicted. Logarithms are natural, losses in nats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepZero {
    /// The vocabulary V that counts: the rows of the table without its padding.
    pub vocab: u64,
    /// The width of the stream, where it was seen or is known.
    pub d_model: Option<u64>,
    /// Mean cross-entropy over the targets. In a prediction, the expected one.
    pub loss: f64,
    /// The loss that logits of this spread cost: `ln V + s^2/2` for small s, the exact
    /// mean of the log-sum-exp for any, with the term of the own-token logit.
    pub expected_loss: f64,
    /// Three standard deviations of `loss - expected_loss` by the choice of targets:
    /// `3 s sqrt(sum p_i^2)` with p_i the frequencies of the targets in the batch.
    pub noise: f64,
    /// Mean over the positions of `ln sum_i e^(z_i)`.
    pub log_sum_exp: f64,
    /// Mean entropy of the softmax.
    pub entropy: f64,
    /// Mean probability of the most probable token. Not predicted.
    pub top1: Option<f64>,
    /// The spread s of the logits around their mean at each position, without the own-token logit.
    pub logit_std: f64,
    /// The mean logit of the input token itself, above the others, where it stands out: the sign of a tied head.
    pub own_logit: Option<f64>,
    /// The spread of that logit over the positions.
    pub own_logit_std: Option<f64>,
    /// Probability that falls on the padding of the vocabulary.
    pub padding: f64,
    /// The residual stream: the embedding and the state after each addition, 2N + 1 readings for N blocks.
    pub stream: Vec<Reading>,
    /// What each branch adds, 2N readings.
    pub branches: Vec<Reading>,
    /// The attention of each layer, where it was seen.
    #[serde(default)]
    pub attention: Vec<Scores>,
    /// The output of the final norm, about 1.
    pub final_norm: Option<f64>,
    /// The gradient of each parameter, in a prediction, or measured by [`measure`] with autodiff.
    #[serde(default)]
    pub gradients: Vec<Gradient>,
    /// What the parameters hold, where [`measure`] saw them, or are planned to hold.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// The share of positions whose target is their own input token.
    #[serde(default)]
    pub repeats: Option<f64>,
    /// Positions of the batch.
    #[serde(default)]
    pub positions: u64,
    /// What the norms add to the variance, where it is known; see [`epsilon`](StepZero::epsilon).
    #[serde(default)]
    pub norm_epsilon: Option<f64>,
    /// What the user's own loop printed as the loss of this batch, for [`findings`](StepZero::findings) to explain.
    #[serde(default)]
    pub reported_loss: Option<f64>,
    /// How far a measurement with one seed strays, in a prediction; over how many seeds it did, in a [`mean`](StepZero::mean) of several.
    #[serde(default)]
    pub spread: Option<Spread>,
    /// Over how many seeds this is a mean.
    #[serde(default = "one_seed")]
    pub seeds: u64,
    /// Where the theory behind a prediction is outside of its range, and what disturbs a measurement, in words.
    #[serde(default)]
    pub notes: Vec<String>,
}

fn one_seed() -> u64 {
    1
}

/// Second moments at one point: of the tensor there, and of the gradient of the loss by it.
///
/// In the residual stream of a fresh model the mean is 0 up to O(1/d), so its second moment is its variance, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reading {
    /// Where.
    pub point: Point,
    /// The mean of x^2 over batch, positions and features.
    pub second_moment: f64,
    /// The correlation rho between tokens: the mean over pairs of different positions of a sequence of `x_t . x_u`, over the mean of
    /// `x_t . x_t`. At 1 all positions hold the same vector.
    #[serde(default)]
    pub correlation: Option<f64>,
    /// The mean over the n positions of the batch of `|n dL/dx_t|^2`, with L the mean loss: what a loss summed over positions sends back to each.
    /// Of the stream only, and measured only with autodiff, where the model calls [`Probe::pass`].
    #[serde(default)]
    pub gradient: Option<f64>,
    /// Standard deviation of `second_moment` over seeds.
    #[serde(default)]
    pub sd: Option<f64>,
    /// Standard deviation of `gradient` over seeds.
    #[serde(default)]
    pub gradient_sd: Option<f64>,
}

/// The attention scores of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Scores {
    /// The layer, counted from 0.
    pub layer: u64,
    /// Root mean square of the scores that count, before the softmax.
    pub std: f64,
    /// Mean entropy of the attention weights, in nats. Uniform attention has the mean of `ln t`.
    pub entropy: f64,
    /// What comes out of attention at both ends of a sequence. Measured only, where the scores show a causal mask.
    #[serde(default)]
    pub ends: Option<Ends>,
}

/// The second moments of what attention adds to the stream at the first position, which sees itself alone, and at the last, which sees all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ends {
    /// Positions T of a sequence.
    pub length: u64,
    /// At position 0, which has one value to look at.
    pub first: f64,
    /// At position T - 1, the mean of T values: about `first` times `rho + (1 - rho)/T`, for values that correlate by rho.
    pub last: f64,
}

/// The gradient of one parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Gradient {
    /// The path of the parameter.
    pub path: String,
    /// The L2 norm of the gradient of the mean loss; `None` where the parameter got none.
    pub norm: Option<f64>,
}

/// Standard deviations of a measurement with one seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Spread {
    /// Of the loss.
    pub loss: f64,
    /// Of the log-sum-exp.
    pub log_sum_exp: f64,
    /// Of the entropy.
    pub entropy: f64,
    /// Of the spread of the logits.
    pub logit_std: f64,
    /// Of the mean own-token logit.
    pub own_logit: f64,
}

/// Norms of code bases add 1e-12 to 1e-3.
const LARGEST_EPSILON: f64 = 2e-3;

impl StepZero {
    /// ln V, the loss of guessing.
    pub fn ln_vocab(&self) -> f64 {
        (self.vocab as f64).ln()
    }

    /// `Var(x_2N) / Var(x_0)`: how many times the stream has grown.
    pub fn growth(&self) -> Option<f64> {
        let (first, last) = (self.stream.first()?, self.stream.last()?);
        Some(last.second_moment / first.second_moment)
    }

    /// What the norms add to the variance: as stated, or as the final norm, with gain 1, shows it: `v (1/f - 1)` for a stream of v that comes out
    /// as f.
    pub fn epsilon(&self) -> Option<f64> {
        let shown = || {
            let (last, norm) = (self.stream.last()?, self.final_norm?);
            let epsilon = last.second_moment * (1.0 / norm - 1.0);
            let neutral =
                |p: &Parameter| p.role != Role::NormGain || p.layer.is_some() || (p.mean, p.std) == (1.0, 0.0);
            // Below that f32 shows nothing, and what is more is no epsilon but a gain, an offset or no norm at all.
            let shows = epsilon > 1e-5 * last.second_moment && epsilon < LARGEST_EPSILON;
            (shows && norm < 1.0 && self.parameters.iter().all(neutral)).then_some(epsilon)
        };
        self.norm_epsilon.or_else(shown)
    }

    /// States what the user's own loop printed as the loss of this batch: a sum in place of a mean, bits or a mask are told from it.
    pub fn with_reported_loss(mut self, loss: f64) -> Self {
        self.reported_loss = Some(loss);
        self
    }

    fn law(&self) -> LogitLaw {
        let own = self.own_logit.map(|mean| Own { mean, std: self.own_logit_std.unwrap_or(self.logit_std) });
        LogitLaw { vocab: self.vocab as f64, std: self.logit_std, own }
    }
}

#[cfg(test)]
mod tests;
