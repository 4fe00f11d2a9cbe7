//! What a model does before it has learned anything: predicted from its plan, or measured on it.
//!
//! Both ways fill the same [`StepZero`], so that the two can be laid side by side:
//!
//! - [`predict`] follows the second moments of the residual stream through the layers of a [`Plan`](crate::Plan);
//!   nothing is drawn, allocated or run;
//! - [`step_zero`] runs one forward pass of any model that can give logits.
//!
//! A fresh model knows nothing, so its loss should be that of guessing, ln V. What it really has is
//! the loss of logits with some spread s: **ln V + s^2/2**, and with a tied head a little more, because the
//! logit of the input token itself stands out. A loss above that is a fault in the start, and [`StepZero::verdict`]
//! says which.

mod activation;
mod batch;
mod gauss;
mod logits;
mod measure;
mod moments;
mod predict;
mod probe;
mod report;
mod verdict;

use serde::{Deserialize, Serialize};

pub use activation::Activation;
pub use batch::Batch;
pub use measure::step_zero;
pub use predict::{Architecture, predict};
pub use probe::{Point, Probe, Site};
pub use report::Beside;
pub use verdict::{Table, Verdict};

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
    /// `3 s sqrt(sum p_i^2)` with p_i the frequencies of the targets. In a prediction, that of an endless batch.
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
    /// The output of the final norm, about 1.
    pub final_norm: Option<f64>,
}

/// A second moment at one point: the mean of x^2 over batch, positions and features.
///
/// In the residual stream of a fresh model the mean is 0 up to O(1/d), so this is its variance, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Where.
    pub point: Point,
    /// Mean of the squares.
    pub second_moment: f64,
}

impl StepZero {
    /// ln V, the loss of guessing.
    pub fn ln_vocab(&self) -> f64 {
        (self.vocab as f64).ln()
    }

    fn law(&self) -> LogitLaw {
        let own = self.own_logit.map(|mean| Own { mean, std: self.own_logit_std.unwrap_or(self.logit_std) });
        LogitLaw { vocab: self.vocab as f64, std: self.logit_std, own }
    }
}

#[cfg(test)]
mod tests;
