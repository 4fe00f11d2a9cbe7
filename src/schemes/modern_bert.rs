//! ModernBERT.

use serde::{Deserialize, Serialize};

use super::parts::{check_depth, deep_weights, width};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Init, Rule},
};

/// ModernBERT, as Hugging Face has it.
///
/// | role | start |
/// |---|---|
/// | token embedding (tied to the decoder), query, key, value, MLP in, gate, up | std 0.02 |
/// | attention output, MLP down, dense layer of the prediction head | std `0.02 / sqrt(2N)` |
/// | head of a task (untied) | std `1/sqrt(d)` |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// All cut at 2 sigma and not compensated: 0.01759 is realised for 0.02. Earlier versions cut at 3.
///
/// Source: `_init_weights` of Hugging Face's `ModernBertPreTrainedModel` (transformers 5.24).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModernBert {
    /// Std of matrices and tables (`initializer_range`).
    pub std: f64,
    /// Where the normal is cut, in sigmas (`initializer_cutoff_factor`).
    pub bound: f64,
    /// Depth rule, with the roles that it covers.
    pub depth: Depth,
}

impl Default for ModernBert {
    fn default() -> Self {
        let depth = Depth::total().on([Role::AttentionOutput, Role::MlpDown, Role::Linear]);
        Self { std: 0.02, bound: 2.0, depth }
    }
}

impl ModernBert {
    /// As published.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Initializer for ModernBert {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        deep_weights(param, &self.depth, |param| {
            let std = match param.role() {
                Role::OutputHead => 1.0 / width(param)?.sqrt(),
                _ => self.std,
            };
            Ok(Init::truncated_normal(std, self.bound))
        })
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        check_depth(&self.depth, tree)
    }
}
