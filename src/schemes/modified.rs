//! A scheme with changes, as data; ReZero, SkipInit, LayerScale and zero residuals are such.

use serde::{Deserialize, Serialize};

use super::{Scheme, parts::check_depth};
use crate::{
    depth::Depth,
    error::Error,
    initializer::{Initializer, restarted},
    param::ParamSpec,
    role::{Role, Select},
    rule::{Init, Rule},
};

/// Another scheme with changes: in a file what `.with`, `.depth_scaled` and `.padding_row` are in code.
///
/// | preset | base | change |
/// |---|---|---|
/// | `rezero` (Bachlechner et al. 2020) | PyTorch's defaults, attention as in `nn.MultiheadAttention` | scalar scales of branches 0 |
/// | `skipinit` (De and Smith 2020) | Kaiming normal | scalar scales of branches 0 |
/// | `layerscale` (Touvron et al. 2021) | 0.02 everywhere | channel scales of branches 1e-5; 1e-4 and 1e-6 are in use, too |
/// | `zero-residual` | GPT-2 | what writes into the residual stream 0: every block starts as the identity |
/// | `llm-foundry` | Kaiming normal | `1/sqrt(2N)` on what writes into the stream |
///
/// ```
/// use burn_init::Scheme;
///
/// let scheme: Scheme = serde_json::from_str(
///     r#"{"scheme": "modified", "base": "xavier-normal", "depth": {"rule": "total"}, "head_std": 0.0}"#,
/// )?;
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// Source: ReZero, `rztx.py` (one scalar for the branches of a layer, no norm); llm-foundry, `param_init_fns.py`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modified {
    /// The scheme to change.
    pub base: Box<Scheme>,
    /// Depth rule over the base.
    #[serde(default = "Depth::none")]
    pub depth: Depth,
    /// Scalar scales of branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_scale: Option<f64>,
    /// Channel scales of branches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_scale: Option<f64>,
    /// Std of the token table, drawn from a normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_std: Option<f64>,
    /// Std of the table of learned positions, drawn from a normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position_std: Option<f64>,
    /// Std of the head, drawn from a normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_std: Option<f64>,
    /// Whether what writes into the residual stream is 0.
    #[serde(default)]
    pub zero_residual: bool,
    /// The padding token, whose row of the token table is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding_row: Option<u64>,
}

impl Modified {
    /// No change yet.
    pub fn of(base: impl Into<Scheme>) -> Self {
        Self {
            base: Box::new(base.into()),
            depth: Depth::none(),
            branch_scale: None,
            layer_scale: None,
            embedding_std: None,
            position_std: None,
            head_std: None,
            zero_residual: false,
            padding_row: None,
        }
    }

    /// ReZero.
    pub fn rezero() -> Self {
        Self { branch_scale: Some(0.0), ..Self::of(super::TorchDefault::transformer_layer()) }
    }

    /// SkipInit.
    pub fn skip_init() -> Self {
        Self { branch_scale: Some(0.0), ..Self::of(super::Kaiming::normal()) }
    }

    /// LayerScale.
    pub fn layer_scale() -> Self {
        Self { layer_scale: Some(1e-5), ..Self::of(super::PlainNormal::new()) }
    }

    /// Every block starts as the identity.
    pub fn zero_residual() -> Self {
        let plain = super::Gpt2::new().with_depth(Depth::none());
        Self { zero_residual: true, ..Self::of(plain) }
    }

    /// llm-foundry's default.
    pub fn llm_foundry() -> Self {
        Self { depth: Depth::total(), ..Self::of(super::Kaiming::normal()) }
    }

    /// The new starts, by role.
    fn starts(&self) -> impl Iterator<Item = (Role, Init)> {
        let zero = self.zero_residual.then_some(Init::Zeros);
        [
            (Role::BranchScale, self.branch_scale.map(Init::constant)),
            (Role::LayerScale, self.layer_scale.map(Init::constant)),
            (Role::TokenEmbedding, self.embedding_std.map(Init::normal)),
            (Role::PositionEmbedding, self.position_std.map(Init::normal)),
            (Role::OutputHead, self.head_std.map(Init::normal)),
            (Role::AttentionOutput, zero.clone()),
            (Role::MlpDown, zero),
        ]
        .into_iter()
        .filter_map(|(role, init)| init.map(|init| (role, init)))
    }
}

impl Initializer for Modified {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let base = (&*self.base).depth_scaled(self.depth.clone());
        let start = self.starts().find(|(role, _)| *role == param.role());
        let rule = match start {
            Some((_, init)) => Some(restarted(&self.base, &init, param)),
            None => base.rule(param)?,
        };
        let zero_row = self.padding_row.filter(|_| param.role() == Role::TokenEmbedding);
        Ok(rule.map(|rule: Rule| Rule { zero_row: zero_row.or(rule.zero_row), ..rule }))
    }

    /// A change that finds nothing to change is a mistake.
    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        let padding = self.padding_row.map(|_| Role::TokenEmbedding);
        for role in self.starts().map(|(role, _)| role).chain(padding) {
            let select = Select::from(role);
            if !tree.iter().any(|param| select.matches(param)) {
                return Err(select.unmatched(tree.first()));
            }
        }
        check_depth(&self.depth, tree)?;
        self.base.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        self.base.warnings(tree)
    }
}
