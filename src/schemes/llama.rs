//! Llama as torchtitan and OLMo-core train it.

use serde::{Deserialize, Serialize};

use super::parts::{check_depth, deep_weights, width};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::{Role, names::is_expert},
    rule::{Family, Init, Rule},
};

/// Llama as torchtitan and OLMo-core start it: tables of std 1, a small head, and a depth factor on the *up* projection, too.
///
/// | role | start |
/// |---|---|
/// | token embedding | `N(0, 1)`; [tied](Self::torchtitan_tied) in torchtitan as the head |
/// | query, key, value, MLP in, MLP gate | std 0.02 |
/// | attention output, MLP up, MLP down, router | std `0.02 / sqrt(2(l + 1))`, or `0.02 / sqrt(2N)` |
/// | head | std `1/sqrt(d)`, cut at 3 sigma, not compensated |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// | preset | depth | 0.02 is cut at |
/// |---|---|---|
/// | [`torchtitan`](Self::torchtitan) | per layer | not at all: `trunc_normal_` with its default bounds of +-2 in absolute value is +-100 sigma |
/// | [`olmo_core`](Self::olmo_core) | total | 3 sigma |
/// | [`olmo_core_depth`](Self::olmo_core_depth) | per layer | 3 sigma |
/// | [`qwen3`](Self::qwen3) | none; tables, head and all matrices `N(0, 0.02)` | not at all |
/// | [`qwen3_moe`](Self::qwen3_moe) | total, on what writes into the stream only | not at all |
///
/// Deviation: torchtitan's absolute bounds let a value of exactly +-2 through about once in 1e8 draws; here they are plain normal.
///
/// Source: torchtitan, `models/common/param_init.py`, `models/llama3`, `models/qwen3`; OLMo-core, `nn/transformer/init.py` (`llama`, `llama_depth`).
/// In OLMo-core the factor comes to the down projection because a local std is reassigned for the up projection and used again.
/// Not here: torchtitan's GPT-OSS, which scales all linear maps, sinks and expert biases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Llama {
    /// Std of matrices.
    pub std: f64,
    /// Family of the draws of matrices.
    pub family: Family,
    /// Std of the tables, which are drawn from a normal.
    pub embedding_std: f64,
    /// Whether the tables are started as the head instead: torchtitan, where they are tied.
    pub embedding_as_head: bool,
    /// Std of the head; nothing for `1/sqrt(d)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_std: Option<f64>,
    /// Family of the head's draw.
    pub head_family: Family,
    /// Depth rule, with the roles that it covers.
    pub depth: Depth,
    /// Whether the depth rule covers the gates of experts, too (OLMo-core).
    pub scale_expert_gates: bool,
}

impl Default for Llama {
    fn default() -> Self {
        Self {
            std: 0.02,
            family: Family::Normal,
            embedding_std: 1.0,
            embedding_as_head: false,
            head_std: None,
            head_family: Family::TruncatedNormal { bound: 3.0, compensated: false },
            depth: Depth::per_layer().on(SCALED),
            scale_expert_gates: false,
        }
    }
}

const SCALED: [Role; 4] = [Role::AttentionOutput, Role::MlpUp, Role::MlpDown, Role::Router];

impl Llama {
    /// torchtitan's Llama 3.
    pub fn torchtitan() -> Self {
        Self::default()
    }

    /// torchtitan's Llama 3 with one table for lookup and logits: the head's start wins.
    pub fn torchtitan_tied() -> Self {
        Self { embedding_as_head: true, ..Self::default() }
    }

    /// OLMo-core's `llama`.
    pub fn olmo_core() -> Self {
        Self {
            family: Family::TruncatedNormal { bound: 3.0, compensated: false },
            depth: Depth::total().on(SCALED),
            scale_expert_gates: true,
            ..Self::default()
        }
    }

    /// OLMo-core's `llama_depth`.
    pub fn olmo_core_depth() -> Self {
        Self { depth: Depth::per_layer().on(SCALED), ..Self::olmo_core() }
    }

    /// torchtitan's dense Qwen3.
    pub fn qwen3() -> Self {
        Self {
            embedding_std: 0.02,
            head_std: Some(0.02),
            head_family: Family::Normal,
            depth: Depth::none(),
            ..Self::default()
        }
    }

    /// torchtitan's Qwen3 with experts.
    pub fn qwen3_moe() -> Self {
        Self { depth: Depth::total(), ..Self::qwen3() }
    }

    fn weight(&self, param: &ParamSpec) -> Result<Init, Error> {
        Ok(match param.role() {
            role if role.is_table() && !self.embedding_as_head => Init::normal(self.embedding_std),
            role if role.is_table() || role == Role::OutputHead => {
                let std = self.head_std.map_or_else(|| width(param).map(|d| 1.0 / d.sqrt()), Ok)?;
                self.head_family.with_std(std)
            }
            _ => self.family.with_std(self.std),
        })
    }
}

impl Initializer for Llama {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let in_expert = || param.experts().is_some() || param.path().split('.').any(is_expert);
        let depth = match self.scale_expert_gates && param.role() == Role::MlpGate && in_expert() {
            true => self.depth.clone().on([Role::MlpGate]),
            false => self.depth.clone(),
        };
        deep_weights(param, &depth, |param| self.weight(param))
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        check_depth(&self.depth, tree)
    }
}
