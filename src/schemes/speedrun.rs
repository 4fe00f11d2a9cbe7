//! nanochat and modded-nanogpt.

use serde::{Deserialize, Serialize};

use super::parts::{weights, width};
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Init, Rule},
};

/// The speed runs: nanochat and modded-nanogpt. Uniform inputs, branches that start at 0, tiny logits.
///
/// | role | [nanochat](Self::nanochat) | [modded](Self::modded) | [modded medium](Self::modded_medium) | [modded 2024](Self::modded_2024) |
/// |---|---|---|---|---|
/// | token embedding | `N(0, 0.8)` | `N(0, 0.005)` | `N(0, 1)` | `N(0, 1)` |
/// | query, key, value | U, std `1/sqrt(d)` | U, std `0.5/sqrt(d)` | U, std `1/sqrt(d)` | U, std `1/sqrt(3d)` |
/// | attention output | 0 | U, std `0.5/sqrt(d)` | 0 | 0 |
/// | MLP in, gate, up | U, std `0.4/sqrt(d)` | U, std `0.5/sqrt(d)` | U, std `0.5/sqrt(d)` | U, std `1/sqrt(3d)` |
/// | MLP down | 0 | 0 | 0 | 0 |
/// | head | `N(0, 0.001)` | `N(0, 0.005)` | `N(0, 0.005)` | 0 |
///
/// Uniform, so that there are no outliers. A zero head gives a loss of exactly `ln V` and no gradient to the body in step 0. modded copies its head into
/// the token table; here both have the same law, and are equal only where they are tied.
///
/// Their scalars (residual and skip weights, gates, value embeddings) have no common role: give them with `.with("…", Init::…)`.
///
/// Source: nanochat, `nanochat/gpt.py` (`GPT.init_weights`; its docstring says 1.0 for the table and the MLP, the code 0.8 and 0.4);
/// modded-nanogpt, `train_gpt.py`, `train_gpt_medium.py`, records of December 2024.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Speedrun {
    /// Std of the tables.
    pub embedding_std: f64,
    /// Std of query, key and value, times `sqrt(d)`.
    pub attention: f64,
    /// Std of the attention output, times `sqrt(d)`.
    pub output: f64,
    /// Std of the MLP's first maps, times `sqrt(d)`.
    pub mlp: f64,
    /// Std of the MLP's last map, times `sqrt(d)`.
    pub down: f64,
    /// Std of the head.
    pub head_std: f64,
}

impl Default for Speedrun {
    fn default() -> Self {
        Self { embedding_std: 0.8, attention: 1.0, output: 0.0, mlp: 0.4, down: 0.0, head_std: 0.001 }
    }
}

impl Speedrun {
    /// nanochat.
    pub fn nanochat() -> Self {
        Self::default()
    }

    /// modded-nanogpt, short track.
    pub fn modded() -> Self {
        Self { embedding_std: 0.005, attention: 0.5, output: 0.5, mlp: 0.5, down: 0.0, head_std: 0.005 }
    }

    /// modded-nanogpt, medium track.
    pub fn modded_medium() -> Self {
        Self { embedding_std: 1.0, attention: 1.0, output: 0.0, mlp: 0.5, down: 0.0, head_std: 0.005 }
    }

    /// modded-nanogpt as of the records of December 2024.
    pub fn modded_2024() -> Self {
        let default = 1.0 / 3f64.sqrt();
        Self { embedding_std: 1.0, attention: default, output: 0.0, mlp: default, down: 0.0, head_std: 0.0 }
    }
}

impl Initializer for Speedrun {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        weights(param, |param| {
            let gain = match param.role() {
                role if role.is_table() => return Ok(Init::normal(self.embedding_std)),
                Role::OutputHead => return Ok(Init::normal(self.head_std)),
                Role::AttentionOutput => self.output,
                Role::MlpDown => self.down,
                Role::MlpIn | Role::MlpGate | Role::MlpUp => self.mlp,
                _ => self.attention,
            };
            Ok(match gain {
                0.0 => Init::Zeros,
                gain => Family::Uniform.with_std(gain / width(param)?.sqrt()),
            })
        })
    }
}
