//! Unit-scaled maximal update parametrization.

use serde::{Deserialize, Serialize};

use super::{
    NeutralNorm,
    mup::{check_tied, heard, not_zero, writes},
    parts::width,
};
use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    parametrization::head_width,
    role::{NormPlacement, Role},
    rule::{Init, Rule},
};

/// u-muP (Blake et al. 2024): every weight starts at `N(0, 1)`, and multipliers do the rest. It needs no base model.
///
/// | role | start | forward | Adam: rate |
/// |---|---|---|---|
/// | tables | `N(0, 1)` | 1 | `1/sqrt(d)` |
/// | matrices in layers | `N(0, 1)` | `1/sqrt(fan_in)` | `1/sqrt(fan_in N)` |
/// | query and its bias | | times `attention / sqrt(h)`: `1/h` with the model's `1/sqrt(h)` | |
/// | attention output, MLP down and their biases | | times `a / sqrt(N)` | |
/// | untied head | `N(0, 1)` | `readout / fan_in` | 1 |
/// | gains, biases | 1, 0 | 1 | `1/sqrt(N)` in layers, else 1 |
///
/// `N` counts layers. The weights of the residual are `x <- x / sqrt(1 + t^2) + F(x) t / sqrt(1 + t^2)` in the paper, with
/// `t_l^2 = a_l^2 / (N + sum of the a_i^2 before)`. Where each branch and the head read the stream through a norm, only the proportion of
/// the branches to the stream counts, and the product of the `1 + t_i^2` telescopes: `x <- x + F(x) a / sqrt(N)` is the same model up to the
/// norms' epsilon. So the multiplier of each branch carries it, with `a_mlp = residual sqrt(2 / (1 + r^2))` and `a_attn = r a_mlp`, `r` being
/// `residual_attention_ratio`. A tree without a last norm is an error.
///
/// The weight decay is the paper's, independent of the multipliers: its multiplier is the inverse of the rate's.
///
/// Deviations: the constants that bring the variance of attention and of the nonlinearity back to 1 are left out, as are the separate scales of the
/// backward pass, which Adam does not see.
///
/// Source: graphcore-research/unit-scaling, `_modules.py`, `core/functional.py`, `optim.py`; Blake et al. 2024 (arXiv:2407.17465, table 2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UMup {
    /// Multiplier of the scores.
    pub attention: f64,
    /// Size of the branches beside the stream.
    pub residual: f64,
    /// Size of the attention branches beside the MLP's.
    pub residual_attention_ratio: f64,
    /// Multiplier of the logits.
    pub readout: f64,
    /// Whether the token table is the head, too. Has to be said where the tree shows no head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tied: Option<bool>,
}

impl Default for UMup {
    fn default() -> Self {
        Self { attention: 1.0, residual: 1.0, residual_attention_ratio: 1.0, readout: 1.0, tied: None }
    }
}

impl UMup {
    /// With all multipliers of the paper at 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a head that is the token table, or says that there is none.
    pub fn with_tied(self, tied: bool) -> Self {
        Self { tied: Some(tied), ..self }
    }

    /// What the branch of `param` is multiplied by.
    fn branch(&self, param: &ParamSpec) -> Result<f64, Error> {
        let mlp = self.residual * (2.0 / (1.0 + self.residual_attention_ratio.powi(2))).sqrt();
        let attention = self.residual_attention_ratio * mlp;
        let role = param.weight_role().unwrap_or(param.role());
        let a = if role == Role::AttentionOutput { attention } else { mlp };
        Ok(a / (param.stack()?.layers as f64).sqrt())
    }
}

impl Initializer for UMup {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let unit = || Rule::from(Init::normal(1.0));
        let mut rule = match param.role() {
            role if role.is_table() => Rule { learning_rate: width(param)?.powf(-0.5), ..unit() },
            Role::OutputHead => Rule { forward: self.readout / param.fans()?.fan_in as f64, ..unit() },
            role if role.is_weight() => {
                let scale = (param.fans()?.fan_in as f64).powf(-0.5);
                Rule { forward: scale, learning_rate: scale, ..unit() }
            }
            Role::Bias => Init::Zeros.into(),
            _ => match NeutralNorm::new().rule(param)? {
                Some(rule) => rule,
                None => return Ok(None),
            },
        };
        if param.layer().is_some() {
            rule.learning_rate /= (param.stack()?.layers as f64).sqrt();
        }
        if writes(param) {
            rule.forward *= self.branch(param)?;
        }
        if [Some(param.role()), param.weight_role()].contains(&Some(Role::Query)) {
            let scores = self.attention / head_width(param)?.sqrt();
            heard(param, scores, "the scores")?;
            rule.forward *= scores;
        }
        if self.tied == Some(true) && param.is_final_norm() {
            rule.forward *= self.readout / width(param)?;
        }
        rule.weight_decay = 1.0 / rule.learning_rate;
        not_zero(rule, param).map(Some)
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        for (name, value) in [
            ("attention", self.attention),
            ("residual", self.residual),
            ("residual_attention_ratio", self.residual_attention_ratio),
            ("readout", self.readout),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::config(format!("{name} is {value}"), "use a positive number"));
            }
        }
        check_tied(self.tied, tree)?;
        let pre = NormPlacement::Pre;
        if let Some(other) = tree.iter().find(|param| param.writes().is_some() && param.norm_placement() != pre) {
            return Err(other.error(
                ErrorKind::Config,
                format!(
                    "u-muP weighs stream and branches by what a Pre-Norm model accumulates, and the norms of this layer are {}",
                    other.norm_placement()
                ),
                "use another scheme, such as mup, or correct .norms(…)",
            ));
        }
        let writer = tree.iter().find(|param| param.writes().is_some());
        match writer.filter(|_| !tree.iter().any(ParamSpec::is_final_norm)) {
            Some(writer) => Err(writer.error(
                ErrorKind::MissingFact,
                "u-muP weighs stream and branches, and the weights carry that only where a last norm takes the scale of the stream out; \
                 the tree shows none",
                "use a Pre-Norm model whose last norm has a gain, and call it ln_f or final_norm",
            )),
            None => Ok(()),
        }
    }
}
