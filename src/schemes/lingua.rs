//! Meta's lingua.

use serde::{Deserialize, Serialize};

use super::parts::{weights, width};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Factor, FactorKind, Init, Rule},
};

/// What [`Lingua`] divides the std of attention output and MLP down by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LinguaDepth {
    /// 1.
    Disabled,
    /// `sqrt(2(N + 1))`; lingua's own comment says `sqrt(2N)`.
    GlobalDepth,
    /// `sqrt(2(l + 1))`.
    CurrentDepth,
    /// `d / 4096`, which is below 1 for small models and so widens them.
    DimRatio,
}

/// Meta's lingua.
///
/// | role | start |
/// |---|---|
/// | tables, query, key, value, MLP gate, MLP up, MLP in, head | std `1/sqrt(d)`, cut at 3 sigma |
/// | attention output | std `1/(sqrt(d) F)`, cut at `3 / sqrt(d)`: at `3 F` of its own sigmas, as the original leaves the bounds undivided |
/// | MLP down | std `1/(sqrt(f) F)`, cut at 3 sigma |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// `F` is 1 unless [`LinguaDepth`] says otherwise. The cut is not compensated.
///
/// Source: lingua, `lingua/transformer.py` (`reset_parameters`, `InitStdFactor`), `apps/main/transformer.py`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lingua {
    /// One std for all in place of `1/sqrt(fan)` (`init_base_std`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std: Option<f64>,
    /// Where the normal is cut, in sigmas.
    pub bound: f64,
    /// The divisor `F`.
    pub depth: LinguaDepth,
}

impl Default for Lingua {
    fn default() -> Self {
        Self { std: None, bound: 3.0, depth: LinguaDepth::Disabled }
    }
}

impl Lingua {
    /// As configured by default: no depth factor.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a depth factor.
    pub fn with_depth(self, depth: LinguaDepth) -> Self {
        Self { depth, ..self }
    }

    fn factor(&self, param: &ParamSpec) -> Result<Option<Factor>, Error> {
        let (kind, value, because) = match self.depth {
            LinguaDepth::Disabled => return Ok(None),
            LinguaDepth::CurrentDepth => return Depth::per_layer().factor(param).map(Some),
            LinguaDepth::GlobalDepth => {
                let layers = param.stack()?.layers;
                let value = 1.0 / (2.0 * (layers as f64 + 1.0)).sqrt();
                (FactorKind::Depth, value, format!("1/sqrt(2(N + 1)), N = {layers}"))
            }
            LinguaDepth::DimRatio => {
                let d = width(param)?;
                (FactorKind::Width, 4096.0 / d, format!("4096/d, d = {d}"))
            }
        };
        Ok(Some(Factor { kind, value, because }))
    }
}

impl Initializer for Lingua {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        weights(param, |param| {
            let fan = match param.role() {
                Role::MlpDown => param.fans()?.fan_in as f64,
                _ => width(param)?,
            };
            let std = self.std.unwrap_or(1.0 / fan.sqrt());
            let factor = if param.writes().is_some() { self.factor(param)? } else { None };
            let bound = match (param.role(), &factor) {
                (Role::AttentionOutput, Some(factor)) => self.bound / factor.value,
                _ => self.bound,
            };
            let rule = Rule::from(Init::truncated_normal(std, bound));
            Ok(match factor {
                Some(factor) => rule.scaled(factor),
                None => rule,
            })
        })
    }
}
