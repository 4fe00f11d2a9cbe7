//! DeepNorm and SubLN.

use serde::{Deserialize, Serialize};

use super::{NeutralNorm, TorchDefault, parts::width};
use crate::{
    error::Error,
    initializer::Initializer,
    param::{ParamSpec, Stack},
    role::Role,
    rule::{Factor, FactorKind, Init, Rule},
};

/// Which normalization [`DeepNet`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeepNetNorm {
    /// `LN(alpha x + F(x))`: factor `(8N)^-1/4`.
    DeepNorm,
    /// Pre-LN with one more norm before each output projection: factor `sqrt(ln 2N)`.
    SubLn,
    /// Pre-LN: no factor.
    PreLn,
}

/// What the factors of [`DeepNet`] multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeepNetBase {
    /// Xavier normal, biases 0: the papers.
    Xavier,
    /// PyTorch's default of `nn.Linear`, biases included: what torchscale draws.
    Torch,
}

/// DeepNorm (Wang et al. 2022) and SubLN (Magneto, Wang et al. 2022), for a stack of decoders or of encoders.
///
/// | role | start |
/// |---|---|
/// | token, position embedding, untied head | `N(0, 1/sqrt(d))` |
/// | query, key | the base |
/// | value, attention output, MLP in, gate, up, down | the base times `(8N)^-1/4`, or `sqrt(ln 2N)` for SubLN |
/// | biases | 0; in torchscale as their weight, with its factor |
/// | norm gain, norm bias | 1, 0 |
///
/// The base is Xavier's in the papers ([`deepnorm`](Self::deepnorm), [`subln`](Self::subln)). torchscale's attention has a reset that nothing calls, so what
/// it draws is PyTorch's default ([`torchscale_deepnorm`](Self::torchscale_deepnorm), [`torchscale_subln`](Self::torchscale_subln)).
///
/// DeepNorm's skip is multiplied by `alpha = (2N)^1/4` before the norm. As a norm does not see a common factor, `LN(alpha x + F(x))` is
/// `LN(x + F(x) / alpha)` up to the norm's epsilon: [`Rule::forward`] of what writes into the stream, and of its bias, is `1/alpha`. That is right in
/// a Post-Norm model, which a tree does not show: the plan warns.
///
/// Not here: an encoder with a decoder, whose factors need both depths (`0.87 (N^4 M)^-1/16` for the encoder, where torchscale has the inverse,
/// 1.15); compose it with [`only`](Initializer::only) and a factor of your own.
///
/// Source: torchscale, `architecture/decoder.py`, `component/multihead_attention.py`; the papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeepNet {
    /// The normalization that it is for.
    pub norm: DeepNetNorm,
    /// What the factors multiply.
    pub base: DeepNetBase,
}

impl Default for DeepNet {
    fn default() -> Self {
        Self { norm: DeepNetNorm::DeepNorm, base: DeepNetBase::Xavier }
    }
}

impl DeepNet {
    /// DeepNorm as in the paper.
    pub fn deepnorm() -> Self {
        Self::default()
    }

    /// SubLN as in the paper.
    pub fn subln() -> Self {
        Self { norm: DeepNetNorm::SubLn, ..Self::default() }
    }

    /// DeepNorm as torchscale draws it.
    pub fn torchscale_deepnorm() -> Self {
        Self { base: DeepNetBase::Torch, ..Self::default() }
    }

    /// SubLN as torchscale draws it.
    pub fn torchscale_subln() -> Self {
        Self { norm: DeepNetNorm::SubLn, base: DeepNetBase::Torch }
    }

    /// Pre-LN as torchscale draws it.
    pub fn torchscale_preln() -> Self {
        Self { norm: DeepNetNorm::PreLn, base: DeepNetBase::Torch }
    }

    fn factor(self, stack: Stack) -> Option<Factor> {
        let n = stack.layers as f64;
        let (value, formula) = match self.norm {
            DeepNetNorm::DeepNorm => ((8.0 * n).powf(-0.25), "(8N)^-1/4"),
            DeepNetNorm::SubLn => ((2.0 * n).ln().sqrt(), "sqrt(ln 2N)"),
            DeepNetNorm::PreLn => return None,
        };
        Some(Factor { kind: FactorKind::Depth, value, because: format!("{formula}, N = {n}") })
    }

    fn base(self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        Ok(match (param.role(), self.base) {
            (role, _) if role.is_table() || role == Role::OutputHead => {
                Some(Init::normal(1.0 / width(param)?.sqrt()).into())
            }
            (role, DeepNetBase::Xavier) if role.is_weight() => Some(Init::xavier_normal(1.0).into()),
            (Role::Bias, DeepNetBase::Xavier) => Some(Init::Zeros.into()),
            (role, DeepNetBase::Torch) if role.is_weight() || role == Role::Bias => TorchDefault::new().rule(param)?,
            _ => NeutralNorm::new().rule(param)?,
        })
    }
}

const SCALED: [Role; 6] = [Role::Value, Role::AttentionOutput, Role::MlpIn, Role::MlpGate, Role::MlpUp, Role::MlpDown];

impl Initializer for DeepNet {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let Some(rule) = self.base(param)? else { return Ok(None) };
        let role = param.weight_role().unwrap_or(param.role());
        if !SCALED.contains(&role) {
            return Ok(Some(rule));
        }
        let stack = param.stack()?;
        let mut rule = match self.factor(stack) {
            Some(factor) if rule.init != Init::Zeros => rule.scaled(factor),
            _ => rule,
        };
        if role.writes() && self.norm == DeepNetNorm::DeepNorm {
            rule.forward = (2.0 * stack.layers as f64).powf(-0.25);
            rule.needs =
                Some("DeepNorm is for Post-Norm, LN(x + F(x)): the multiplier makes it LN(x + F(x)/alpha)".into());
        }
        if role.writes() && self.norm == DeepNetNorm::SubLn {
            rule.needs = Some("SubLN has one more norm before each output projection".into());
        }
        Ok(Some(rule))
    }
}
