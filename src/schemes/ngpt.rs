//! nGPT: everything on the unit sphere.

use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Fill, Init, Rule},
};

/// nGPT (Loshchilov et al. 2024): directions drawn, lengths 1.
///
/// | role | start |
/// |---|---|
/// | token, position embedding | rows of length 1 |
/// | query, key, value, MLP in, gate, up, router, head | columns of length 1 (the weights of one output) |
/// | attention output, MLP down | rows of length 1 (the weights of one input): the side of the stream, too |
/// | every bias | 0 |
/// | LayerScale (`attn_alpha`, `mlp_alpha`) | `1/sqrt(d)`, used as `0.05 sqrt(d)` times it |
///
/// The original draws `N(0, 1/sqrt(d))`, with a further `1/sqrt(2N)` on what writes into the stream, and normalises; the std is gone then, and here
/// it is left out. The matrices have to be normalised again after each step, which the plan says. The scales `s_qk`, `s_uv` and `s_z` have no
/// common role: give them with `.with("…", Init::…)`.
///
/// Source: NVIDIA/ngpt, `model.py`, `train.py` (`normalize_matrices`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NGpt {}

impl NGpt {
    /// As published.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Initializer for NGpt {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let unit = |name: &str| Rule {
            needs: Some("nGPT brings these to length 1 again after each step".into()),
            ..Init::Fill(Fill::named(name)).into()
        };
        Ok(Some(match param.role() {
            role if role.is_table() || role.writes() => unit("unit_rows"),
            Role::LayerScale => {
                let d = param.shape().last().map_or(1.0, |&d| d as f64);
                Rule {
                    needs: Some("nGPT multiplies these by 0.05 sqrt(d)".into()),
                    ..Init::constant(1.0 / d.sqrt()).into()
                }
            }
            Role::Convolution | Role::PatchEmbedding => Init::lecun_normal().into(),
            role if role.is_weight() => unit("unit_columns"),
            Role::Bias => Init::Zeros.into(),
            _ => return super::NeutralNorm::new().rule(param),
        }))
    }
}
