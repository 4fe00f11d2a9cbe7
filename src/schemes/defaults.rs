//! What the frameworks do if nobody says otherwise: the baselines.

use serde::{Deserialize, Serialize};

use super::NeutralNorm;
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Init, Rule},
};

/// PyTorch's defaults: for comparison, not for use.
///
/// | role | start |
/// |---|---|
/// | tables | `N(0, 1)` |
/// | linear maps, convolutions | `U(+-1/sqrt(fan_in))` |
/// | recurrent matrices | `U(+-1/sqrt(hidden size))` |
/// | biases | as their weight, with its `fan_in` |
/// | norm gain, norm bias | 1, 0 |
///
/// Its Transformers differ. The preset `torch-transformer-layer` is `nn.TransformerEncoderLayer`, whose attention is `nn.MultiheadAttention`
/// (`multihead_attention`): query, key and value Xavier uniform over the packed `[d, 3d]` matrix as a whole, std `sqrt(2 / 4d)`, and the biases of attention
/// 0. `torch-transformer` is `nn.Transformer`, which draws the other matrices of its layers Xavier uniform, too (`xavier`), and leaves their biases.
///
/// With a tied head the table's std of 1 puts logits of std `sqrt(d)` into the first step.
///
/// Deviations: `nn.TransformerEncoder` copies one layer, so that all of its layers start alike, and in `nn.Transformer` their biases; here each is drawn.
/// `nn.MultiheadAttention` with a key or value of another width takes its matrices one by one; here they count as packed.
///
/// Source: `reset_parameters` of `nn.Linear`, `nn.Embedding`, `nn.Conv2d`, `nn.LSTM`, `nn.MultiheadAttention`, `nn.Transformer` (PyTorch 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TorchDefault {
    /// Whether attention is `nn.MultiheadAttention`'s and not made of `nn.Linear`.
    pub multihead_attention: bool,
    /// Whether the matrices of the layers are Xavier uniform.
    pub xavier: bool,
}

impl TorchDefault {
    /// Every linear map as `nn.Linear`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Layers as in `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`.
    pub fn transformer_layer() -> Self {
        Self { multihead_attention: true, ..Self::default() }
    }

    /// Layers as in `nn.Transformer`.
    pub fn transformer() -> Self {
        Self { multihead_attention: true, xavier: true }
    }

    fn attention(param: &ParamSpec) -> Result<Option<Init>, Error> {
        const READS: [Role; 3] = [Role::Query, Role::Key, Role::Value];
        let role = param.weight_role().unwrap_or(param.role());
        Ok(match param.role() {
            Role::Bias if role == Role::AttentionOutput || READS.contains(&role) => Some(Init::Zeros),
            role if READS.contains(&role) => {
                let fans = param.fans()?;
                let packed = match param.block() {
                    Some(_) => param.shape().last().copied().unwrap_or(0),
                    None => 3 * fans.fan_out,
                };
                Some(Family::Uniform.with_std((2.0 / (fans.fan_in + packed) as f64).sqrt()))
            }
            _ => None,
        })
    }
}

impl Initializer for TorchDefault {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        if let (true, Some(init)) = (self.multihead_attention, Self::attention(param)?) {
            return Ok(Some(init.into()));
        }
        if self.xavier && matches!(param.role(), Role::AttentionOutput | Role::MlpIn | Role::MlpDown) {
            return Ok(Some(Init::xavier_uniform(1.0).into()));
        }
        framework(param, |param| {
            let fans = param.fans()?;
            let hidden = match param.weight_role().unwrap_or(param.role()) {
                Role::RecurrentInput | Role::RecurrentHidden => fans.fan_out,
                _ => fans.fan_in,
            };
            Ok(Init::uniform(1.0 / (hidden as f64).sqrt()))
        })
    }
}

/// burn's defaults (burn-nn 0.22): for comparison, not for use.
///
/// | role | start |
/// |---|---|
/// | tables | `N(0, 1)` |
/// | linear maps, convolutions | `U(+-1/sqrt(fan_in))` (Kaiming uniform with gain `1/sqrt(3)`) |
/// | recurrent matrices | Xavier normal |
/// | biases | as their weight |
/// | norm gain, norm bias | 1, 0 |
///
/// Not the same bits as burn's own draw: the distribution, from this crate's streams. burn's `LinearLayout::Col` swaps the fans; here
/// they are right in both layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurnDefault {}

impl BurnDefault {
    /// The only one there is.
    pub fn new() -> Self {
        Self {}
    }
}

impl Initializer for BurnDefault {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        framework(param, |param| {
            Ok(match param.weight_role().unwrap_or(param.role()) {
                Role::RecurrentInput | Role::RecurrentHidden => {
                    let fans = param.fans()?;
                    Init::normal((2.0 / (fans.fan_in + fans.fan_out) as f64).sqrt())
                }
                _ => Init::uniform(1.0 / (param.fans()?.fan_in as f64).sqrt()),
            })
        })
    }
}

fn framework(param: &ParamSpec, weight: impl Fn(&ParamSpec) -> Result<Init, Error>) -> Result<Option<Rule>, Error> {
    match param.role() {
        role if role.is_table() => Ok(Some(Init::normal(1.0).into())),
        role if role.is_weight() || role == Role::Bias => Ok(Some(weight(param)?.into())),
        _ => NeutralNorm::new().rule(param),
    }
}
