//! T-Fixup and Fixup: depth without normalization.

use serde::{Deserialize, Serialize};

use super::parts::width;
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Factor, FactorKind, Init, Rule, short},
};

/// T-Fixup (Huang et al. 2020): no layer norm, no warmup.
///
/// | role | start |
/// |---|---|
/// | token, position embedding | `N(0, 1/sqrt(d)) (9N)^-1/4` |
/// | query, key | Xavier uniform, gain `1/sqrt(2)` |
/// | value, attention output, MLP | Xavier uniform times `(9N)^-1/4` in a decoder, `0.67 N^-1/4` in an encoder |
/// | untied head | `N(0, 1/sqrt(d))` |
/// | other maps | Xavier uniform |
/// | biases of query, key and value | `U(+-1/sqrt(fan_in))`, PyTorch's default |
/// | other biases | 0 |
/// | scalar scales of branches | 1 |
///
/// A decoder-only model is a decoder here. A whole with both sides is `TFixup::encoder().only("encoder.**").or(TFixup::decoder())`; the shared table goes by the
/// encoder's depth. The values are scaled by `sqrt(2)` more in the original, which only undoes the `1/sqrt(2)` that its attention starts them with.
///
/// Source: layer6ai-labs/T-Fixup, `fixup_initialization` of its encoder and decoder layers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TFixup {
    /// `c` of the factor `c (s N)^-1/4`.
    pub c: f64,
    /// `s` of the factor.
    pub s: f64,
    /// `s` of the factor `(s N)^-1/4` of the tables.
    pub tables: f64,
}

impl Default for TFixup {
    fn default() -> Self {
        Self { c: 1.0, s: 9.0, tables: 9.0 }
    }
}

impl TFixup {
    /// For a decoder, with cross-attention or without.
    pub fn decoder() -> Self {
        Self::default()
    }

    /// For an encoder.
    pub fn encoder() -> Self {
        Self { c: 0.67, s: 1.0, ..Self::default() }
    }

    fn factor(param: &ParamSpec, c: f64, s: f64) -> Result<Factor, Error> {
        let n = param.stack()?.layers;
        let value = c * (s * n as f64).powf(-0.25);
        let c = if c == 1.0 { String::new() } else { format!("{} * ", short(c)) };
        let s = if s == 1.0 { String::new() } else { short(s) };
        Ok(Factor { kind: FactorKind::Depth, value, because: format!("{c}({s}N)^-1/4, N = {n}") })
    }
}

impl Initializer for TFixup {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let bound = |param: &ParamSpec| param.fans().map(|fans| 1.0 / (fans.fan_in as f64).sqrt());
        let rule: Rule = match param.role() {
            Role::TokenEmbedding | Role::PositionEmbedding => {
                Rule::from(Init::normal(1.0 / width(param)?.sqrt())).scaled(Self::factor(param, 1.0, self.tables)?)
            }
            Role::Query | Role::Key => Init::xavier_uniform(0.5f64.sqrt()).into(),
            Role::Value | Role::AttentionOutput | Role::MlpIn | Role::MlpGate | Role::MlpUp | Role::MlpDown => {
                Rule::from(Init::xavier_uniform(1.0)).scaled(Self::factor(param, self.c, self.s)?)
            }
            Role::Bias => match param.weight_role() {
                Some(Role::Query | Role::Key | Role::Value) => Init::uniform(bound(param)?).into(),
                _ => Init::Zeros.into(),
            },
            Role::OutputHead => Init::normal(1.0 / width(param)?.sqrt()).into(),
            role if role.is_weight() => Init::xavier_uniform(1.0).into(),
            _ => return scales(param),
        };
        Ok(Some(rule))
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        norms("T-Fixup", tree)
    }
}

/// Norms in a model that is meant to have none.
fn norms(scheme: &str, tree: &[ParamSpec]) -> Vec<String> {
    let mut gains = tree.iter().filter(|param| param.role().is_gain());
    let Some(first) = gains.next() else { return Vec::new() };
    let more = match gains.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![format!(
        "{}{more}: {scheme} starts a model without normalization, and this is a norm; take the norms out, or use a scheme for a \
         model with them",
        first.path()
    )]
}

/// Scalars that stand in for a norm: scales 1, shifts 0.
fn scales(param: &ParamSpec) -> Result<Option<Rule>, Error> {
    match param.role() {
        Role::BranchScale => Ok(Some(Init::Ones.into())),
        _ => super::NeutralNorm::new().rule(param),
    }
}

/// Fixup (Zhang et al. 2019) for a Transformer without normalization.
///
/// | role | start |
/// |---|---|
/// | token, position embedding | `N(0, 1/sqrt(d))` |
/// | query, key, value | Xavier uniform |
/// | MLP in, gate, up | Xavier uniform times `1/sqrt(B)`, `B` additions to the stream |
/// | attention output, MLP down, untied head | 0 |
/// | biases, scalar shifts | 0 |
/// | scalar scales of branches | 1 |
///
/// The last map of each branch is 0 and those before it share the factor `B^(-1/(2m - 2))`, which is `1/sqrt(B)` for the two maps of an MLP.
/// The authors' Transformer has `B = 2 N_e + 3 N_d` over both sides; a stack here knows its own additions.
///
/// Source: the paper; hongyi-zhang/Fixup, its fairseq branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fixup {}

impl Fixup {
    /// As published.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Initializer for Fixup {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let rule: Rule = match param.role() {
            role if role.is_table() => Init::normal(1.0 / width(param)?.sqrt()).into(),
            Role::AttentionOutput | Role::MlpDown | Role::OutputHead | Role::Bias => Init::Zeros.into(),
            Role::MlpIn | Role::MlpGate | Role::MlpUp => {
                let factor = crate::depth::Depth::total().factor(param)?;
                Rule::from(Init::xavier_uniform(1.0)).scaled(factor)
            }
            role if role.is_weight() => Init::xavier_uniform(1.0).into(),
            _ => return scales(param),
        };
        Ok(Some(rule))
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        norms("Fixup", tree)
    }
}
