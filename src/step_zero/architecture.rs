//! What a plan cannot show of a decoder.

use serde::{Deserialize, Serialize};

use super::Activation;
use crate::{Error, Plan, Role};

/// Longest sequence that is summed over.
const LONGEST: u64 = 10_000_000;

/// What a plan cannot show of a decoder: the parts without parameters, and the tokens.
///
/// [`TransformerConfig::architecture`](crate::reference::TransformerConfig::architecture) gives that of the reference model. The number of
/// heads, the width of a head, LayerNorm or RmsNorm and rotary positions do not enter: with scores scaled by 1/sqrt(d_head) they change
/// nothing to leading order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Architecture {
    /// The nonlinearity of the MLPs.
    pub activation: Activation,
    /// What the norms add to the variance.
    pub norm_epsilon: f64,
    /// Whether the head is the token embedding.
    pub tied: bool,
    /// The length of the sequences, in tokens.
    pub length: u64,
    /// The sequences of a batch: more of them lower the spread of what is measured, and the gradients of the weights.
    #[serde(default = "one")]
    pub sequences: u64,
    /// The probability that two positions hold the same token: `sum p_i^2`, by default 1/V.
    #[serde(default)]
    pub collision: Option<f64>,
    /// The probability that a target equals its input token, by default that of a collision.
    #[serde(default)]
    pub repeats: Option<f64>,
    /// The vocabulary without its padding, by default the rows of the table.
    #[serde(default)]
    pub vocab: Option<u64>,
    /// Whether a position sees only itself and those before it.
    #[serde(default = "yes")]
    pub causal: bool,
    /// Whether queries and keys are normed before they meet. Where the plan shows it (`q_norm` beside the query) it need not be said.
    #[serde(default)]
    pub qk_norm: bool,
    /// A factor on each branch where it is added to the stream.
    #[serde(default = "unit")]
    pub branch_multiplier: f64,
    /// A factor on the embeddings where they enter the stream: `sqrt(d_model)` in Gemma.
    #[serde(default = "unit")]
    pub embedding_multiplier: f64,
    /// A factor on the logits.
    #[serde(default = "unit")]
    pub logit_multiplier: f64,
    /// The probability of dropout on embeddings, attention weights and branches while measuring: 0, as in evaluation. The one on attention
    /// weights is not followed.
    #[serde(default)]
    pub dropout: f64,
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

fn unit() -> f64 {
    1.0
}

impl Architecture {
    /// A causal decoder that reads one sequence of uniformly random tokens.
    pub fn new(activation: Activation, norm_epsilon: f64, tied: bool, length: u64) -> Self {
        Self {
            activation,
            norm_epsilon,
            tied,
            length,
            sequences: 1,
            collision: None,
            repeats: None,
            vocab: None,
            causal: true,
            qk_norm: false,
            branch_multiplier: 1.0,
            embedding_multiplier: 1.0,
            logit_multiplier: 1.0,
            dropout: 0.0,
        }
    }

    /// Sets the length of the sequences.
    pub fn with_length(mut self, length: u64) -> Self {
        self.length = length;
        self
    }

    /// Sets the number of sequences in a batch.
    pub fn with_sequences(mut self, sequences: u64) -> Self {
        self.sequences = sequences;
        self
    }

    /// Sets the probability that two positions hold the same token.
    pub fn with_collision(mut self, collision: f64) -> Self {
        self.collision = Some(collision);
        self
    }

    /// Sets the probability that a target equals its input token.
    pub fn with_repeats(mut self, repeats: f64) -> Self {
        self.repeats = Some(repeats);
        self
    }

    /// Says that only the first `vocab` rows of a padded table are tokens.
    pub fn with_vocab(mut self, vocab: u64) -> Self {
        self.vocab = Some(vocab);
        self
    }

    /// Sets whether a position sees only itself and those before it: false for an encoder.
    pub fn with_causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }

    /// Sets whether queries and keys are normed before they meet.
    pub fn with_qk_norm(mut self, qk_norm: bool) -> Self {
        self.qk_norm = qk_norm;
        self
    }

    /// Sets the factor on each branch.
    pub fn with_branch_multiplier(mut self, multiplier: f64) -> Self {
        self.branch_multiplier = multiplier;
        self
    }

    /// Sets the factor on the embeddings.
    pub fn with_embedding_multiplier(mut self, multiplier: f64) -> Self {
        self.embedding_multiplier = multiplier;
        self
    }

    /// Sets the factor on the logits.
    pub fn with_logit_multiplier(mut self, multiplier: f64) -> Self {
        self.logit_multiplier = multiplier;
        self
    }

    /// Sets the probability of dropout.
    pub fn with_dropout(mut self, dropout: f64) -> Self {
        self.dropout = dropout;
        self
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let probability = |p: Option<f64>| p.is_none_or(|p| (0.0..=1.0).contains(&p));
        for (name, count) in [("the sequences have", self.length), ("the batch has", self.sequences)] {
            if count == 0 || count > LONGEST {
                let what = if count == self.length { "tokens" } else { "sequences" };
                return Err(Error::config(
                    format!("{name} {count} {what}"),
                    format!("use a number from 1 to {LONGEST}"),
                ));
            }
        }
        if !(self.norm_epsilon >= 0.0 && self.norm_epsilon.is_finite()) {
            return Err(Error::config(format!("norm epsilon is {}", self.norm_epsilon), "use 0 or more"));
        }
        if !(probability(self.collision) && probability(self.repeats)) {
            return Err(Error::config("collision or repeats is not a probability", "use a number from 0 to 1"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::config(format!("dropout is {}", self.dropout), "use a number from 0 to below 1"));
        }
        for (name, multiplier) in [
            ("branch", self.branch_multiplier),
            ("embedding", self.embedding_multiplier),
            ("logit", self.logit_multiplier),
        ] {
            if !(multiplier.is_finite() && multiplier.abs() < 1e6) {
                return Err(Error::config(format!("the {name} multiplier is {multiplier}"), "use a number below 1e6"));
            }
        }
        if self.vocab.is_some_and(|vocab| vocab < 2) {
            return Err(Error::config("the vocabulary has fewer than two tokens", "use 2 or more"));
        }
        Ok(())
    }

    /// Whether the plan is one of such a model.
    pub(super) fn fits(&self, plan: &Plan) -> Result<(), Error> {
        let has = |role: Role| plan.iter().any(|entry| entry.spec().role() == role);
        if self.tied && has(Role::OutputHead) {
            return Err(Error::config(
                "the plan has a head of its own, and the architecture is tied",
                "set tied to false",
            ));
        }
        if !self.activation.is_gated() && has(Role::MlpGate) {
            return Err(Error::config(
                "the plan has a gate in its MLPs, and the activation has none",
                "use a gated activation such as SwiGlu",
            ));
        }
        Ok(())
    }
}
