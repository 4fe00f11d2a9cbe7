//! levanter.

use serde::{Deserialize, Serialize};

use super::parts::{weights, width};
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Fan, Init, Rule, VarianceScaling},
};

/// levanter, on haliax's layers: LeCun's maps and very small tables.
///
/// | role | [GPT-2](Self::gpt2) | [Llama](Self::llama) |
/// |---|---|---|
/// | token, type embedding | std `0.02 / d` | std `1/d` |
/// | position embedding | std `0.01 / d` | std `1/d` |
/// | every linear map | std `1/sqrt(fan_in)` | std `1/sqrt(fan_in)` |
/// | every bias | 0 | 0 |
/// | norm gain, norm bias | 1, 0 | 1, 0 |
///
/// All cut at 3 sigma and not compensated. The tables go by `d` where all other code has `sqrt(d)`: at d = 768 the token vectors of GPT-2 have std 2.6e-5, and
/// a tied head starts with logits of nothing. There is no depth rule.
///
/// Source: haliax, `nn/linear.py`, `nn/embedding.py`; levanter, `models/gpt2.py`, `models/llama.py`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Levanter {
    /// Std of the linear maps times `sqrt(fan_in)`.
    pub scale: f64,
    /// Std of the tables times `d`.
    pub embedding_scale: f64,
    /// Std of the table of positions times `d`.
    pub position_scale: f64,
    /// Where the normal is cut, in sigmas.
    pub bound: f64,
}

impl Default for Levanter {
    fn default() -> Self {
        Self { scale: 1.0, embedding_scale: 0.02, position_scale: 0.01, bound: 3.0 }
    }
}

impl Levanter {
    /// GPT-2.
    pub fn gpt2() -> Self {
        Self::default()
    }

    /// Llama.
    pub fn llama() -> Self {
        Self { embedding_scale: 1.0, position_scale: 1.0, ..Self::default() }
    }
}

impl Initializer for Levanter {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let family = Family::TruncatedNormal { bound: self.bound, compensated: false };
        weights(param, |param| {
            Ok(match param.role() {
                Role::PositionEmbedding => family.with_std(self.position_scale / width(param)?),
                role if role.is_table() => family.with_std(self.embedding_scale / width(param)?),
                _ => {
                    let scale = self.scale * self.scale;
                    Init::VarianceScaling(VarianceScaling { scale, fan: Fan::In, family })
                }
            })
        })
    }
}
