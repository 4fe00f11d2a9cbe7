//! GPT-2.

use serde::{Deserialize, Serialize};

use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Init, Rule},
};

/// Every matrix and table `N(0, std)`, every bias 0; norms are left to the next initializer.
///
/// Source: `std = 0.02` in Radford et al. 2018 (GPT), section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gpt2Normal {
    /// Standard deviation, 0.02 by default.
    pub std: f64,
}

impl Default for Gpt2Normal {
    fn default() -> Self {
        Self { std: 0.02 }
    }
}

impl Gpt2Normal {
    /// With `std = 0.02`.
    pub fn new() -> Self {
        Self::default()
    }

    /// With another std.
    pub fn with_std(self, std: f64) -> Self {
        Self { std }
    }
}

impl Initializer for Gpt2Normal {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        Ok(match param.role() {
            role if role.is_weight() => Some(Init::normal(self.std).into()),
            Role::Bias => Some(Init::Zeros.into()),
            _ => None,
        })
    }
}

/// Normalizations start neutral: gamma 1 (0 where it is stored as an offset from 1), beta 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeutralNorm {}

impl NeutralNorm {
    /// The only one there is.
    pub fn new() -> Self {
        Self {}
    }
}

impl Initializer for NeutralNorm {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        Ok(match param.role() {
            Role::NormGain => Some(Init::Ones.into()),
            Role::NormGainOffset | Role::NormBias => Some(Init::Zeros.into()),
            _ => None,
        })
    }
}

/// GPT-2 as in its paper, and as nanoGPT and Hugging Face have it.
///
/// | role | start |
/// |---|---|
/// | every matrix and table | `N(0, 0.02)` |
/// | attention output, MLP down | `N(0, 0.02 / sqrt(2N))`, `N` layers |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// Source: Radford et al. 2019, section 2.3 ("scale the weights of residual layers at initialization by a factor of
/// 1/sqrt(N) where N is the number of residual layers": the additions, two in each block); nanoGPT `model.py`.
/// [`Gpt2::released`] is what OpenAI's published code does: no depth scaling, positions `N(0, 0.01)`.
///
/// It has its depth scaling in it: `Gpt2::new().depth_scaled(…)` is an error. To choose another depth rule use [`Gpt2::with_depth`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gpt2 {
    /// Std of matrices and tables.
    pub std: f64,
    /// Std of the table of learned positions, where it is not that of the other tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position_std: Option<f64>,
    /// Depth rule of the projections that write into the residual stream.
    pub depth: Depth,
}

impl Default for Gpt2 {
    fn default() -> Self {
        Self { std: 0.02, position_std: None, depth: Depth::total() }
    }
}

impl Gpt2 {
    /// As in the paper.
    pub fn new() -> Self {
        Self::default()
    }

    /// As in the code that OpenAI released (`src/model.py`): no depth scaling, positions `N(0, 0.01)`.
    pub fn released() -> Self {
        Self { std: 0.02, position_std: Some(0.01), depth: Depth::none() }
    }

    /// With another std for every matrix and table, positions included.
    pub fn with_std(self, std: f64) -> Self {
        Self { std, position_std: None, ..self }
    }

    /// With another depth rule; [`Depth::none`] for none.
    pub fn with_depth(self, depth: Depth) -> Self {
        Self { depth, ..self }
    }
}

impl Initializer for Gpt2 {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let base = Gpt2Normal { std: self.std }
            .with(Role::PositionEmbedding, Init::normal(self.position_std.unwrap_or(self.std)))
            .or(NeutralNorm::new());
        base.depth_scaled(self.depth.clone()).rule(param)
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        Gpt2Normal::new().depth_scaled(self.depth.clone()).check(tree)
    }
}
