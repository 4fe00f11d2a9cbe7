//! OLMo.

use serde::{Deserialize, Serialize};

use super::parts::{check_depth, deep_weights, width};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Init, Rule},
};

/// Where the stds of [`Olmo`] come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OlmoMethod {
    /// `1/sqrt(fan_in)` everywhere.
    Mitchell,
    /// `std` everywhere, `1/sqrt(d)` for the untied head.
    FullMegatron,
    /// `std` everywhere.
    Normal,
}

/// OLMo's three methods.
///
/// | role | [mitchell](Self::mitchell) | [full megatron](Self::full_megatron) | [normal](Self::normal) |
/// |---|---|---|---|
/// | token, position embedding | `1/sqrt(d)` | 0.02 (times `sqrt(d)` with `scale_embedding`) | 0.02 |
/// | query, key, value, MLP in, gate, up | `1/sqrt(d)` | 0.02 | 0.02 |
/// | attention output | `1/sqrt(2d(l + 1))` | `0.02 / sqrt(2N)` | 0.02 |
/// | MLP down | `1/sqrt(2f(l + 1))`, `f` its own `fan_in` | `0.02 / sqrt(2N)` | 0.02 |
/// | untied head | `1/sqrt(d)` | `1/sqrt(d)` | 0.02 |
/// | every bias | 0 | 0 | 0 |
/// | drawn from | normal cut at 3 sigma | normal cut at 3 sigma | normal |
///
/// The cut is not compensated: what is realised is 0.98658 times the std.
///
/// Source: OLMo, `olmo/initialization.py` (`init_normal`), `olmo/model.py` (`reset_parameters`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Olmo {
    /// Where the stds come from.
    pub method: OlmoMethod,
    /// Std of the methods that have a fixed one.
    pub std: f64,
    /// Std of the token and position tables, in place of the method's (`emb_init_std`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_std: Option<f64>,
    /// Whether `std` is multiplied by `sqrt(d)` for the tables (`scale_emb_init`).
    pub scale_embedding: bool,
    /// Family of the draws.
    pub family: Family,
    /// Depth rule of the projections that write into the residual stream.
    pub depth: Depth,
}

impl Default for Olmo {
    fn default() -> Self {
        Self {
            method: OlmoMethod::Mitchell,
            std: 0.02,
            embedding_std: None,
            scale_embedding: false,
            family: Family::TruncatedNormal { bound: 3.0, compensated: false },
            depth: Depth::per_layer(),
        }
    }
}

impl Olmo {
    /// By fan and by the depth of each layer.
    pub fn mitchell() -> Self {
        Self::default()
    }

    /// 0.02 and `1/sqrt(2N)`.
    pub fn full_megatron() -> Self {
        Self { method: OlmoMethod::FullMegatron, depth: Depth::total(), ..Self::default() }
    }

    /// 0.02 everywhere, not cut.
    pub fn normal() -> Self {
        Self { method: OlmoMethod::Normal, family: Family::Normal, depth: Depth::none(), ..Self::default() }
    }

    fn std(&self, param: &ParamSpec) -> Result<f64, Error> {
        Ok(match (param.role(), self.method) {
            (role, _) if role.is_table() && self.embedding_std.is_some() => self.embedding_std.unwrap_or(self.std),
            (Role::MlpDown, OlmoMethod::Mitchell) => 1.0 / (param.fans()?.fan_in as f64).sqrt(),
            (_, OlmoMethod::Mitchell) | (Role::OutputHead, OlmoMethod::FullMegatron) => 1.0 / width(param)?.sqrt(),
            (role, _) if role.is_table() && self.scale_embedding => self.std * width(param)?.sqrt(),
            _ => self.std,
        })
    }
}

impl Initializer for Olmo {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        deep_weights(param, &self.depth, |param| Ok::<Init, _>(self.family.with_std(self.std(param)?)))
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        check_depth(&self.depth, tree)
    }
}
