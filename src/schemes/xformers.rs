//! The "small" start of xformers.

use serde::{Deserialize, Serialize};

use super::NeutralNorm;
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Init, Rule},
};

/// `small` of xformers: small init as a uniform that goes by both fans, on everything but the MLP.
///
/// | role | start |
/// |---|---|
/// | query, key, value, attention output, head, other linear maps | U, std `sqrt(2 / (fan_in + 4 fan_out))` |
/// | MLP | Xavier uniform |
/// | bias of the MLP | `N(0, 1e-6)` |
/// | other biases | 0 |
/// | tables | `N(0, 0.02)` |
/// | convolutions | `N(0, 1.1368 / sqrt(fan_in))` |
/// | norm gain, norm bias | 1, 0 |
///
/// It is [`SmallInit`](super::SmallInit)'s `sqrt(2 / (5d))` where both fans are `d`, and only there: a head to 50000 words is five times smaller.
/// Its convolutions are meant to be LeCun's, but are widened for a cut that the original places at the absolute values +-2, so that nothing is cut.
///
/// Source: xformers, `factory/weight_init.py` (`_init_weights_small`), `components/positional_embedding/vocab.py`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Xformers {
    /// Std of the tables.
    pub embedding_std: f64,
    /// Std of the biases of the MLP.
    pub mlp_bias_std: f64,
}

impl Default for Xformers {
    fn default() -> Self {
        Self { embedding_std: 0.02, mlp_bias_std: 1e-6 }
    }
}

/// Std of a unit normal that is cut at 2 sigma.
const CUT: f64 = 0.879_625_661_034_239_8;

impl Xformers {
    /// As published.
    pub fn new() -> Self {
        Self::default()
    }
}

fn is_mlp(role: Role) -> bool {
    matches!(role, Role::MlpIn | Role::MlpGate | Role::MlpUp | Role::MlpDown)
}

impl Initializer for Xformers {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let init = match param.role() {
            role if role.is_table() => Init::normal(self.embedding_std),
            role if is_mlp(role) => Init::xavier_uniform(1.0),
            Role::Convolution | Role::PatchEmbedding => Init::kaiming_normal(1.0 / CUT),
            role if role.is_weight() => {
                let fans = param.fans()?;
                Family::Uniform.with_std((2.0 / (fans.fan_in as f64 + 4.0 * fans.fan_out as f64)).sqrt())
            }
            Role::Bias if param.weight_role().is_some_and(is_mlp) => Init::normal(self.mlp_bias_std),
            Role::Bias => Init::Zeros,
            _ => return NeutralNorm::new().rule(param),
        };
        Ok(Some(init.into()))
    }
}
