//! Which part a parameter plays, and how it is told: from the known layers, from the known names, or from
//! the user.

#[cfg(test)]
mod coverage;
pub(crate) mod names;
mod pattern;
mod resolve;
mod select;
mod setup;

pub(crate) use pattern::Pattern;
pub(crate) use resolve::{Leaf, Site, Sites, resolve, unknown_roles};
pub use select::Select;
pub use setup::{Dtype, Layout, NormPlacement, PackedBlock, Progress, Setup, StackPlace};

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident = $name:literal, $class:ident;)*) => {
        /// The part that a parameter plays in a Transformer.
        ///
        /// Schemes answer by role. Roles print and parse in snake case: `attention_output`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Role { $($(#[$doc])* $role,)* }

        impl Role {
            /// Every role.
            pub const ALL: &'static [Role] = &[$(Role::$role,)*];

            /// The name that it prints and parses by.
            pub fn name(self) -> &'static str {
                match self { $(Role::$role => $name,)* }
            }

            pub(crate) fn class(self) -> Class {
                match self { $(Role::$role => Class::$class,)* }
            }
        }
    };
}

/// How schemes treat roles alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// A matrix or a table: what a weight rule answers for.
    Weight,
    /// The gain of a normalization.
    Gain,
    /// A shift.
    Bias,
    /// A scalar or vector with a meaning of its own, for which only a scheme that knows it answers.
    Special,
    /// Never drawn.
    Kept,
}

roles! {
    /// Table of token vectors, `[vocab, d]`.
    TokenEmbedding = "token_embedding", Weight;
    /// Table of learned position vectors, `[context, d]`.
    PositionEmbedding = "position_embedding", Weight;
    /// Table of segment (token type) vectors.
    TypeEmbedding = "type_embedding", Weight;
    /// A learned vector that stands for a token: class, mask, register or distillation token.
    ClassToken = "class_token", Weight;
    /// The convolution or linear map from image patches to vectors.
    PatchEmbedding = "patch_embedding", Weight;
    /// Query projection of attention.
    Query = "query", Weight;
    /// Key projection of attention.
    Key = "key", Weight;
    /// Value projection of attention.
    Value = "value", Weight;
    /// Output projection of attention: writes into the residual stream.
    AttentionOutput = "attention_output", Weight;
    /// Learned relative position bias of attention scores.
    RelativeBias = "relative_bias", Weight;
    /// First linear of an MLP without gate.
    MlpIn = "mlp_in", Weight;
    /// The gated MLP's linear under the activation function.
    MlpGate = "mlp_gate", Weight;
    /// The gated MLP's linear beside the gate.
    MlpUp = "mlp_up", Weight;
    /// Last linear of an MLP: writes into the residual stream.
    MlpDown = "mlp_down", Weight;
    /// The router of a mixture of experts.
    Router = "router", Weight;
    /// The untied head that gives the logits.
    OutputHead = "output_head", Weight;
    /// A linear map with no part in the Transformer, such as a pooler, an adapter between towers or a plain network's layer.
    Linear = "linear", Weight;
    /// A convolution.
    Convolution = "convolution", Weight;
    /// Input-to-hidden matrix of a recurrent layer.
    RecurrentInput = "recurrent_input", Weight;
    /// Hidden-to-hidden matrix of a recurrent layer.
    RecurrentHidden = "recurrent_hidden", Weight;
    /// Gain (gamma) of a normalization, neutral at 1.
    NormGain = "norm_gain", Gain;
    /// Gain stored as an offset from 1, neutral at 0.
    NormGainOffset = "norm_gain_offset", Gain;
    /// Shift (beta) of a normalization.
    NormBias = "norm_bias", Bias;
    /// Bias of a linear map, a convolution or a recurrent gate.
    Bias = "bias", Bias;
    /// Per-channel scale of a branch (LayerScale).
    LayerScale = "layer_scale", Special;
    /// Scalar scale of a branch (ReZero, SkipInit).
    BranchScale = "branch_scale", Special;
    /// Learned score of attending to nothing, one for each head.
    AttentionSink = "attention_sink", Special;
    /// Slope of an activation function (PReLU).
    ActivationSlope = "activation_slope", Special;
    /// Something else, for which the user's own initializer answers.
    Other = "other", Special;
    /// A low-rank adapter or another reparameterization: kept.
    Adapter = "adapter", Kept;
    /// A running statistic: kept.
    Buffer = "buffer", Kept;
}

impl Role {
    /// Whether it is a matrix or a table, what weight rules such as `normal(0.02)` answer for.
    pub fn is_weight(self) -> bool {
        self.class() == Class::Weight
    }

    /// Whether it is a shift: [`Role::Bias`] or [`Role::NormBias`].
    pub fn is_bias(self) -> bool {
        self.class() == Class::Bias
    }

    /// Whether it is the gain of a normalization.
    pub fn is_gain(self) -> bool {
        self.class() == Class::Gain
    }

    /// Whether it is never drawn.
    pub fn is_kept(self) -> bool {
        self.class() == Class::Kept
    }

    /// Whether it adds to the residual stream: [`Role::AttentionOutput`] and [`Role::MlpDown`].
    pub fn writes(self) -> bool {
        matches!(self, Role::AttentionOutput | Role::MlpDown)
    }

    /// Whether it is a matrix that maps to or from the residual stream, or next to it.
    pub(crate) fn reads_or_writes(self) -> bool {
        matches!(
            self,
            Role::Query
                | Role::Key
                | Role::Value
                | Role::AttentionOutput
                | Role::MlpIn
                | Role::MlpGate
                | Role::MlpUp
                | Role::MlpDown
                | Role::Router
                | Role::OutputHead
        )
    }

    /// Whether it is a table with one row per index.
    pub fn is_table(self) -> bool {
        matches!(
            self,
            Role::TokenEmbedding
                | Role::PositionEmbedding
                | Role::TypeEmbedding
                | Role::ClassToken
                | Role::RelativeBias
        )
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Role::ALL.iter().copied().find(|role| role.name() == text).ok_or_else(|| {
            Error::new(
                ErrorKind::Parse,
                format!("unknown role \"{text}\""),
                near(text, Role::ALL.iter().map(|role| role.name())),
            )
        })
    }
}

/// What to do about an unknown name: the near ones, or all of them.
pub(crate) fn near<'a>(text: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let part = |name: &str| text.len() > 2 && name.contains(text);
    let mut close: Vec<_> = known.clone().map(|name| (strsim::jaro_winkler(text, name), name)).collect();
    close.retain(|&(similar, name)| similar > 0.8 || part(name));
    // The nearest first, and no more than can be read at a glance.
    close.sort_by(|a, b| b.0.total_cmp(&a.0));
    let close: Vec<_> = close.into_iter().map(|(_, name)| name).take(5).collect();
    match close.is_empty() {
        true => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
        false => format!("did you mean {}?", close.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_agree_with_serde() {
        for &role in Role::ALL {
            assert_eq!(role.name().parse::<Role>().unwrap(), role);
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
        assert_eq!(
            "atention_output".parse::<Role>().unwrap_err().to_string(),
            "unknown role \"atention_output\"; did you mean attention_output?"
        );
    }
}
