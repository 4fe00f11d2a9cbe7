//! T5.

use serde::{Deserialize, Serialize};

use super::{
    mup::check_tied,
    parts::{weights, width},
};
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    parametrization::head_width,
    role::Role,
    rule::{Family, Fan, Init, Rule, VarianceScaling},
};

/// T5, whose attention has no `1/sqrt(h)`: the query's start has it instead.
///
/// | role | start |
/// |---|---|
/// | token embedding | `N(0, 1)`; with a [tied](Self::with_tied) head the last norm is multiplied by `1/sqrt(d)` |
/// | query | `N(0, 1/sqrt(d h))`, `h` the width of a head, and scores that are **not** divided by `sqrt(h)` |
/// | key, value | `N(0, 1/sqrt(d))` |
/// | attention output | `N(0, 1/sqrt(H h))` |
/// | MLP in, gate, up, down | std `1/sqrt(fan_in)`; normal cut at 2 sigma and compensated, in Hugging Face's code plain normal |
/// | relative bias | uniform by the average fan, in Hugging Face's code `N(0, 1/sqrt(d))` |
/// | untied head | `N(0, 1/sqrt(d))` |
/// | norm gain | 1 |
///
/// [`Rule::forward`] of the query and its bias is `sqrt(h)`, which undoes the `1/sqrt(h)` of burn's attention and makes it T5's. For attention
/// that has none take [`unscaled`](Self::unscaled). [`scaled`](Self::scaled) keeps the `1/sqrt(h)` where it is: the query is `N(0, 1/sqrt(d))`, and
/// the scores of step 0 are the same.
///
/// Deviation: Hugging Face starts an untied head at `N(0, 1)`, which puts the loss of step 0 above 100; here it has the std that
/// the tied head has after its division.
///
/// Source: flaxformer, `architectures/t5/t5_common_layers.py`, `components/attention/dense_attention.py`; Hugging Face's `T5PreTrainedModel`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct T5 {
    /// Std of the token table.
    pub embedding_std: f64,
    /// Family of the MLP's draws.
    pub mlp_family: Family,
    /// Family of the relative bias: a uniform goes by the average fan, a normal by `1/sqrt(d)`.
    pub relative_bias: Family,
    /// Whether the query's start has the `1/sqrt(h)` that the attention lacks.
    pub fold_scale: bool,
    /// Whether the model's attention has the `1/sqrt(h)` all the same, so that the query's multiplier has to undo it.
    pub undo_scale: bool,
    /// Whether the token table is the head, too; nothing for a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tied: Option<bool>,
    /// Std of an untied head; nothing for `1/sqrt(d)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_std: Option<f64>,
    /// Std of the router of a mixture of experts.
    pub router_std: f64,
}

impl Default for T5 {
    fn default() -> Self {
        Self {
            embedding_std: 1.0,
            mlp_family: Family::TruncatedNormal { bound: 2.0, compensated: true },
            relative_bias: Family::Uniform,
            fold_scale: true,
            undo_scale: true,
            tied: None,
            head_std: None,
            router_std: 0.02,
        }
    }
}

impl T5 {
    /// As flaxformer has it.
    pub fn new() -> Self {
        Self::default()
    }

    /// As Hugging Face has it: nothing is cut, and the relative bias is normal.
    pub fn hf() -> Self {
        Self { mlp_family: Family::Normal, relative_bias: Family::Normal, ..Self::default() }
    }

    /// For attention that divides its scores by `sqrt(h)`.
    pub fn scaled() -> Self {
        Self { fold_scale: false, ..Self::default() }
    }

    /// For attention that has no `1/sqrt(h)` of its own, so that there is nothing to undo.
    pub fn unscaled() -> Self {
        Self { undo_scale: false, ..Self::default() }
    }

    /// With the token table for a head, whose logits the last norm divides by `sqrt(d)`.
    pub fn with_tied(self, tied: bool) -> Self {
        Self { tied: Some(tied), ..self }
    }

    fn query(&self, param: &ParamSpec) -> Result<Rule, Error> {
        let std = 1.0 / width(param)?.sqrt();
        match self.fold_scale {
            true => Ok(Rule { forward: self.undone(param)?, ..Init::normal(std / head_width(param)?.sqrt()).into() }),
            false => Ok(Init::normal(std).into()),
        }
    }

    /// The multiplier of the query and of its bias.
    fn undone(&self, param: &ParamSpec) -> Result<f64, Error> {
        match self.fold_scale && self.undo_scale {
            true => Ok(head_width(param)?.sqrt()),
            false => Ok(1.0),
        }
    }

    fn table(&self) -> Rule {
        let divide = "if the head is tied to this table, divide the logits by sqrt(d), or say .with_tied(true)";
        let needs = self.tied.is_none().then(|| divide.into());
        Rule { needs, ..Init::normal(self.embedding_std).into() }
    }
}

impl Initializer for T5 {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let rule = weights(param, |param| {
            let by_fan = |family| Init::VarianceScaling(VarianceScaling { scale: 1.0, fan: Fan::In, family });
            Ok(match param.role() {
                Role::Query => self.query(param)?,
                Role::TokenEmbedding => self.table(),
                Role::RelativeBias => match self.relative_bias {
                    Family::Uniform => Init::xavier_uniform(1.0).into(),
                    family => family.with_std(1.0 / (param.stack()?.d_model as f64).sqrt()).into(),
                },
                Role::OutputHead => match self.head_std {
                    Some(std) => Init::normal(std).into(),
                    None => by_fan(Family::Normal).into(),
                },
                Role::MlpIn | Role::MlpGate | Role::MlpUp | Role::MlpDown => by_fan(self.mlp_family).into(),
                Role::Router => Init::normal(self.router_std).into(),
                role if role.is_table() => Init::normal(self.embedding_std).into(),
                _ => by_fan(Family::Normal).into(),
            })
        })?;
        let forward = match param.role() {
            Role::Bias if param.weight_role() == Some(Role::Query) => self.undone(param)?,
            Role::NormGain | Role::NormBias if self.tied == Some(true) && param.is_final_norm() => {
                1.0 / width(param)?.sqrt()
            }
            _ => 1.0,
        };
        Ok(rule.map(|rule| Rule { forward: rule.forward * forward, ..rule }))
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        match self.tied {
            Some(tied) => check_tied(Some(tied), tree),
            None => Ok(()),
        }
    }
}
