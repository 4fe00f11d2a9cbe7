//! Mimetic attention: products of weights that look trained.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Scheme, Vit};
use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    role::{
        Role,
        names::{is_attention, is_weight_field},
    },
    rule::{Fill, Init, Rule, Side, Split},
};

/// What the product of two weights starts as: `identity I + noise Z`, `Z ~ N(0, 1/d)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Factor of the identity.
    pub identity: f64,
    /// Factor of the noise.
    pub noise: f64,
}

/// Mimetic initialization (Trockman and Kolter 2023): the products of attention's weights start as they look in trained models.
///
/// | role | start |
/// |---|---|
/// | query, key | for each head `W_Q W_K' = 0.7 I + 0.7 Z`, cut to the rank of a head by its singular values |
/// | value, attention output | `W_V W_O = -0.4 I + 0.4 Z` over all heads, split by its singular values |
/// | biases of attention | 0 |
/// | position embedding | sines and cosines, in one dimension |
/// | all else | the base, by default timm's |
///
/// `Z` is drawn for an attention module and not for a parameter: see [`Split`]. It is named by the path of the module up to its attention, so
/// that `blocks.3.attn.c_q` and `blocks.3.attn.c_proj` belong together. The query must be as wide as the key: grouped key and value heads have
/// no such product. The number of heads has to be stated.
///
/// The values are those for images; for text, take products that resemble trained language models. A head costs the singular values of a
/// `d x d` matrix, about `30 d^3` operations for each of query and key.
///
/// Source: the paper, section 4 (`alpha_1 = beta_1 = 0.7`, `alpha_2 = beta_2 = 0.4`); the authors' code is not public.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mimetic {
    /// The scheme of everything else.
    pub base: Box<Scheme>,
    /// `W_Q W_K'` of each head.
    pub query_key: Product,
    /// `W_V W_O` over all heads.
    pub value_output: Product,
    /// Whether learned positions start as sines and cosines.
    pub sinusoidal: bool,
}

impl Default for Mimetic {
    fn default() -> Self {
        Self {
            base: Box::new(Vit::timm().into()),
            query_key: Product { identity: 0.7, noise: 0.7 },
            value_output: Product { identity: -0.4, noise: 0.4 },
            sinusoidal: true,
        }
    }
}

impl Mimetic {
    /// As published, over timm's start.
    pub fn new() -> Self {
        Self::default()
    }

    /// Over another scheme.
    pub fn over(base: impl Into<Scheme>) -> Self {
        Self { base: Box::new(base.into()), ..Self::default() }
    }

    fn split(&self, param: &ParamSpec) -> Result<Option<Init>, Error> {
        let (product, name, side) = match param.role() {
            Role::Query => (self.query_key, "query_key", Side::Left),
            Role::Key => (self.query_key, "query_key", Side::RightTransposed),
            Role::Value => (self.value_output, "value_output", Side::Left),
            Role::AttentionOutput => (self.value_output, "value_output", Side::Right),
            _ => return Ok(None),
        };
        let matrices = if name == "query_key" { param.heads()? } else { 1 };
        let Product { identity, noise } = product;
        let of = format!("{}.{name}", attention(param.path()));
        Ok(Some(Init::Split(Split { of, side, identity, noise, matrices })))
    }
}

const ATTENTION: [Role; 4] = [Role::Query, Role::Key, Role::Value, Role::AttentionOutput];

/// The attention module that a parameter belongs to: its path up to the first segment behind the index of the layer that is named for attention, or
/// up to that index in a block that holds the projections itself.
fn attention(path: &str) -> String {
    let segments: Vec<&str> = path.split('.').collect();
    let own = if segments.last().is_some_and(|field| is_weight_field(field)) { 2 } else { 1 };
    let parents = &segments[..segments.len().saturating_sub(own)];
    let behind = parents.iter().rposition(|segment| segment.parse::<u64>().is_ok()).map_or(0, |index| index + 1);
    let named = parents[behind..].iter().position(|segment| is_attention(&segment.to_lowercase()));
    parents[..named.map_or(behind, |at| behind + at + 1)].join(".")
}

impl Initializer for Mimetic {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        if let Some(split) = self.split(param)? {
            return Ok(Some(split.into()));
        }
        match (param.role(), param.weight_role()) {
            (Role::Bias, Some(role)) if ATTENTION.contains(&role) => Ok(Some(Init::Zeros.into())),
            (Role::PositionEmbedding, _) if self.sinusoidal => Ok(Some(Init::Fill(Fill::named("sinusoidal")).into())),
            _ => self.base.rule(param),
        }
    }

    /// Each attention has one query, one key, one value and one output, and they fit each other.
    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        let mut modules: BTreeMap<String, Vec<&ParamSpec>> = BTreeMap::new();
        for param in tree.iter().filter(|param| ATTENTION.contains(&param.role())) {
            modules.entry(attention(param.path())).or_default().push(param);
        }
        if modules.is_empty() {
            return Err(Error::new(
                ErrorKind::Unmatched,
                "mimetic initialization is about attention, and the tree has none",
                "give its projections their roles: .role(\"…\", Role::Query), …",
            ));
        }
        for params in modules.values() {
            let of = |role: Role| {
                let mut found = params.iter().filter(|param| param.role() == role);
                match (found.next(), found.next()) {
                    (Some(param), None) => Ok(*param),
                    (None, _) => Err(params[0].error(
                        ErrorKind::Shape,
                        format!("it belongs to an attention without a parameter of the role {role}"),
                        "mimetic initialization draws query with key and value with output; give all four their roles, or use another scheme",
                    )),
                    (Some(_), Some(second)) => Err(second.error(
                        ErrorKind::Shape,
                        format!("it is the second parameter of its attention with the role {role}"),
                        "mimetic initialization needs one; use another scheme",
                    )),
                }
            };
            let [query, key, value, output] = ATTENTION.map(of);
            let (query, key, value, output) = (query?, key?, value?, output?);
            let pairs = [
                (query, key, "fan_out", query.fans()?.fan_out, key.fans()?.fan_out),
                (query, key, "fan_in", query.fans()?.fan_in, key.fans()?.fan_in),
                (value, output, "width", value.fans()?.fan_out, output.fans()?.fan_in),
                (value, output, "ends", value.fans()?.fan_in, output.fans()?.fan_out),
            ];
            if let Some((one, other, what, a, b)) = pairs.into_iter().find(|(.., a, b)| a != b) {
                return Err(other.error(
                    ErrorKind::Shape,
                    format!(
                        "its {what} is {b}, and that of {} is {a}, so that they have no square product",
                        one.path()
                    ),
                    "mimetic initialization needs as many key and value heads as query heads, and one width",
                ));
            }
        }
        self.base.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        self.base.warnings(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::attention;

    #[test]
    fn parameters_find_their_attention() {
        for (path, module) in [
            ("transformer.h.3.attn.c_attn.weight", "transformer.h.3.attn"),
            ("model.layers.0.self_attn.o_proj.weight", "model.layers.0.self_attn"),
            ("encoder.layer.0.attention.self.query.weight", "encoder.layer.0.attention"),
            ("encoder.layer.0.attention.output.dense.weight", "encoder.layer.0.attention"),
            ("decoder.block.1.layer.1.EncDecAttention.q.weight", "decoder.block.1.layer.1.EncDecAttention"),
            ("decoder.layers.0.cross_attn.query.weight", "decoder.layers.0.cross_attn"),
            ("transformer.h.0.att_c_proj.weight", "transformer.h.0"),
            ("transformer.h.0.key.weight", "transformer.h.0"),
            ("layers.0.self_attn.in_proj_weight", "layers.0.self_attn"),
            ("attention.query.weight", "attention"),
            ("query", ""),
        ] {
            assert_eq!(attention(path), module, "{path}");
        }
    }
}
