//! Vision Transformers.

use serde::{Deserialize, Serialize};

use super::parts::{check_depth, deep_weights, width};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Fan, Init, Rule, VarianceScaling},
};

/// Which code base [`Vit`] follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VitMode {
    /// timm's default.
    Timm,
    /// timm's `jax`: Xavier over the packed query, key and value as one matrix.
    Jax,
    /// timm's `moco`: as `jax`, with query, key and value as three matrices.
    Moco,
    /// Google's big_vision.
    BigVision,
}

/// Vision Transformers, after timm and big_vision.
///
/// | role | [timm](Self::timm) | [jax](Self::jax) | [moco](Self::moco) | [big_vision](Self::big_vision) |
/// |---|---|---|---|---|
/// | patch embedding | `U(+-1/sqrt(fan_in))` | LeCun, cut at 2 sigma and compensated | `U(+-1/sqrt(fan_in))` | as jax |
/// | bias of the patch embedding | `U(+-1/sqrt(fan_in))` | 0 | `U(+-1/sqrt(fan_in))` | 0 |
/// | position embedding | `N(0, 0.02)` | `N(0, 0.02)` | `N(0, 0.02)` | `N(0, 1/sqrt(d))` |
/// | class and register tokens | `N(0, 1e-6)`; [CaiT](Self::cait) 0.02 | `N(0, 1e-6)` | `N(0, 1e-6)` | 0 |
/// | query, key, value | `N(0, 0.02)` | Xavier uniform, packed ones as one matrix of `fan_out = 3d` | Xavier uniform | Xavier uniform |
/// | attention output, MLP | `N(0, 0.02)` | Xavier uniform | Xavier uniform | Xavier uniform |
/// | head | `N(0, 0.02)` | 0 | Xavier uniform | 0 |
/// | bias of the MLP | 0 | `N(0, 1e-6)` | 0 | `N(0, 1e-6)` |
/// | other biases | 0 | 0 | 0 | 0 |
/// | LayerScale | 1e-5 | 1e-5 | 1e-5 | 1e-5 |
///
/// Packed queries, keys and values of jax have a std that is `1/sqrt(2)` of moco's.
///
/// `depth` is timm's `fix_init` ([`Depth::per_layer`], always on in BEiT and EVA): `1/sqrt(2(l + 1))` on what writes into the stream.
///
/// Deviation: timm's `trunc_normal_(std=0.02)` cuts at the absolute values +-2, which is +-100 sigma and yields an exact -2.0 about once in 1e8 draws, enough to
/// be seen in a measured std; here it is the plain normal.
///
/// Source: timm, `layers/weight_init.py`, `models/vision_transformer.py`, `models/_manipulate.py`; big_vision, `models/vit.py`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vit {
    /// The code base to follow.
    pub mode: VitMode,
    /// Depth rule of the projections that write into the residual stream.
    pub depth: Depth,
    /// Std of class, register and other learned tokens; big_vision has 0 whatever it says.
    pub class_token_std: f64,
    /// LayerScale's start, where the tree has it: 1e-5, in CaiT's deep and wide models 1e-6.
    pub layer_scale: f64,
    /// The head's bias: `-ln C` is timm's `nlhb`.
    pub head_bias: f64,
}

impl Default for Vit {
    fn default() -> Self {
        Self { mode: VitMode::Timm, depth: Depth::none(), class_token_std: 1e-6, layer_scale: 1e-5, head_bias: 0.0 }
    }
}

impl Vit {
    fn of(mode: VitMode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// timm's default.
    pub fn timm() -> Self {
        Self::of(VitMode::Timm)
    }

    /// CaiT: class tokens as wide as all else, LayerScale 1e-5.
    pub fn cait() -> Self {
        Self { class_token_std: 0.02, ..Self::default() }
    }

    /// timm's `jax`.
    pub fn jax() -> Self {
        Self::of(VitMode::Jax)
    }

    /// timm's `moco`.
    pub fn moco() -> Self {
        Self::of(VitMode::Moco)
    }

    /// Google's big_vision.
    pub fn big_vision() -> Self {
        Self::of(VitMode::BigVision)
    }

    /// With a depth rule (`fix_init`).
    pub fn with_depth(self, depth: Depth) -> Self {
        Self { depth, ..self }
    }

    fn weight(&self, param: &ParamSpec) -> Result<Init, Error> {
        let timm = self.mode == VitMode::Timm;
        let big_vision = self.mode == VitMode::BigVision;
        let torch_patches = timm || self.mode == VitMode::Moco;
        Ok(match param.role() {
            Role::ClassToken if big_vision => Init::Zeros,
            Role::ClassToken => Init::normal(self.class_token_std),
            Role::PositionEmbedding if big_vision => Init::normal(1.0 / width(param)?.sqrt()),
            role if role.is_table() => Init::normal(0.02),
            Role::PatchEmbedding | Role::Convolution if torch_patches => Init::kaiming_uniform(1.0 / 3f64.sqrt()),
            Role::PatchEmbedding | Role::Convolution => Init::VarianceScaling(VarianceScaling {
                scale: 1.0,
                fan: Fan::In,
                family: Family::TruncatedNormal { bound: 2.0, compensated: true },
            }),
            _ if timm => Init::normal(0.02),
            Role::OutputHead if self.mode != VitMode::Moco => Init::Zeros,
            _ if self.mode == VitMode::Jax && param.block().is_some() => {
                let fan_out = param.shape().last().copied().unwrap_or(0);
                Family::Uniform.with_std((2.0 / (param.fans()?.fan_in + fan_out) as f64).sqrt())
            }
            _ => Init::xavier_uniform(1.0),
        })
    }

    fn bias(&self, param: &ParamSpec) -> Result<Init, Error> {
        let small = matches!(self.mode, VitMode::Jax | VitMode::BigVision);
        Ok(match param.weight_role() {
            Some(Role::PatchEmbedding | Role::Convolution) if matches!(self.mode, VitMode::Timm | VitMode::Moco) => {
                Init::uniform(1.0 / (param.fans()?.fan_in as f64).sqrt())
            }
            Some(Role::MlpIn | Role::MlpGate | Role::MlpUp | Role::MlpDown) if small => Init::normal(1e-6),
            Some(Role::OutputHead) if self.head_bias != 0.0 => Init::constant(self.head_bias),
            _ => Init::Zeros,
        })
    }
}

impl Initializer for Vit {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match param.role() {
            Role::Bias => Ok(Some(self.bias(param)?.into())),
            Role::LayerScale => Ok(Some(Init::constant(self.layer_scale).into())),
            _ => deep_weights(param, &self.depth, |param| self.weight(param)),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        check_depth(&self.depth, tree)
    }
}
