//! Megatron-LM.

use serde::{Deserialize, Serialize};

use super::parts::{check_depth, deep_weights};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Init, Rule},
};

/// Megatron-LM.
///
/// | role | start |
/// |---|---|
/// | matrices, router | `N(0, 0.02)` |
/// | token, position, type embedding | `N(0, 0.02)`; Megatron's own advice is a std near 1 (`embedding_std`) |
/// | attention output, MLP down | `N(0, 0.02 / sqrt(2N))`; in [hybrid](Self::hybrid) models `N(0, 0.02 / sqrt(N))` |
/// | untied head | `N(0, 0.02)` |
/// | bias of a router | `N(0, 0.02)`, where all other code has 0 (`router_bias_std`) |
/// | other biases | 0 |
/// | norm gain, norm bias | 1 (0 where stored as an offset), 0 |
///
/// Source: Megatron-LM core, `utils.py` (`init_method_normal`, `scaled_init_method_normal`), `transformer_config.py`, `moe/router.py`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Megatron {
    /// Std of matrices (`init_method_std`).
    pub std: f64,
    /// Std of tables (`embedding_init_method_std`).
    pub embedding_std: f64,
    /// Std of a router's bias.
    pub router_bias_std: f64,
    /// Depth rule of the projections that write into the residual stream.
    pub depth: Depth,
}

impl Default for Megatron {
    fn default() -> Self {
        Self { std: 0.02, embedding_std: 0.02, router_bias_std: 0.02, depth: Depth::total() }
    }
}

impl Megatron {
    /// A GPT: two additions a layer, `1/sqrt(2N)`.
    pub fn new() -> Self {
        Self::default()
    }

    /// A hybrid model, whose layers are one addition each: `1/sqrt(N)`.
    pub fn hybrid() -> Self {
        Self { depth: Depth::layers(), ..Self::default() }
    }
}

impl Initializer for Megatron {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        if (param.role(), param.weight_role()) == (Role::Bias, Some(Role::Router)) {
            return Ok(Some(Init::normal(self.router_bias_std).into()));
        }
        deep_weights(param, &self.depth, |param| {
            Ok(Init::normal(if param.role().is_table() { self.embedding_std } else { self.std }))
        })
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        check_depth(&self.depth, tree)
    }
}
