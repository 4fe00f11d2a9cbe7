//! Scaling for depth: what each addition to the residual stream is multiplied by.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IntoDeserializer as _},
};

use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::{ParamSpec, Stack},
    role::Role,
    rule::{Factor, FactorKind, Init, Rule, short},
};

/// A factor on the initial std for the depth of the stack, and the roles that get it.
///
/// With `B` additions of independent branches of variance `v`, the residual stream grows to `Var(x_0) + B v`; a factor
/// `1/sqrt(B)` on what writes into it keeps the sum at `Var(x_0) + v` whatever the depth (Radford et al. 2019).
///
/// | depth | factor | who |
/// |---|---|---|
/// | [`total`](Self::total) | `1/sqrt(B)`, `B = 2N` in a GPT | GPT-2 (paper), Megatron, nanoGPT |
/// | [`per_layer`](Self::per_layer) | `1/sqrt(B_l)`, `B_l = 2(l + 1)`: the additions up to layer `l` | torchtitan, OLMo mitchell |
/// | [`layers`](Self::layers) | `1/sqrt(N)` | Megatron's hybrid models, NeoX's single residual |
/// | [`count`](Self::count) | `1/sqrt(count)` | a given number, whatever the tree |
/// | [`power`](Self::power) | `(scale * B)^-exponent` | DeepNet: `(4 * 2N)^-1/4` |
///
/// In a file it is a table, `{ rule = "total", roles = ["mlp_up"] }`, or the name of its rule alone: `depth = "per_layer"`.
///
/// By default it covers the projections that write into the stream ([`ParamSpec::writes`]); [`on`](Self::on) names other roles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Depth {
    rule: DepthRule,
    #[serde(skip_serializing_if = "Option::is_none")]
    roles: Option<Vec<Role>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum DepthRule {
    None,
    Total,
    PerLayer,
    Layers,
    Count(u64),
    Power { scale: f64, exponent: f64 },
}

impl Depth {
    /// No factor: for the field of a scheme that has one by default.
    pub fn none() -> Self {
        DepthRule::None.into()
    }

    /// `1/sqrt(B)` with the `B` additions of the whole stack.
    pub fn total() -> Self {
        DepthRule::Total.into()
    }

    /// `1/sqrt(B_l)` with the additions up to and including the parameter's own layer: `1/sqrt(2(l + 1))` in a GPT.
    pub fn per_layer() -> Self {
        DepthRule::PerLayer.into()
    }

    /// `1/sqrt(N)` with the `N` layers of the stack, however many additions each of them makes.
    pub fn layers() -> Self {
        DepthRule::Layers.into()
    }

    /// `1/sqrt(count)`.
    pub fn count(count: u64) -> Self {
        DepthRule::Count(count).into()
    }

    /// `(scale * B)^-exponent` with the `B` additions of the whole stack.
    pub fn power(scale: f64, exponent: f64) -> Self {
        DepthRule::Power { scale, exponent }.into()
    }

    /// The same factor on exactly these roles instead.
    pub fn on(self, roles: impl IntoIterator<Item = Role>) -> Self {
        Self { roles: Some(roles.into_iter().collect()), ..self }
    }

    /// Whether `param` gets the factor.
    pub fn covers(&self, param: &ParamSpec) -> bool {
        match &self.roles {
            _ if self.rule == DepthRule::None => false,
            Some(roles) => roles.contains(&param.role()),
            None => param.writes().is_some(),
        }
    }

    /// Whether the roles that it names have this one among them.
    pub(crate) fn covers_role(&self, role: Role) -> bool {
        self.rule != DepthRule::None && self.roles.as_ref().is_some_and(|roles| roles.contains(&role))
    }

    /// The factor for `param`, whether or not it is covered.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFact`] where the depth is not known, [`ErrorKind::InvalidValue`] where the factor is no positive number.
    pub fn factor(&self, param: &ParamSpec) -> Result<Factor, Error> {
        let (value, because) = match self.rule {
            DepthRule::None => (1.0, "1, no depth rule".to_string()),
            DepthRule::Total => {
                let stack = param.stack()?;
                let (additions, count) = additions(stack);
                (1.0 / (stack.branches as f64).sqrt(), format!("1/sqrt({additions}), {count}"))
            }
            DepthRule::PerLayer => {
                let branches = param.branches_so_far()?;
                let layer = param.layer().unwrap_or_default();
                (1.0 / (branches as f64).sqrt(), format!("1/sqrt({branches}), the additions up to layer {layer}"))
            }
            DepthRule::Layers => {
                let layers = param.stack()?.layers;
                (1.0 / (layers as f64).sqrt(), format!("1/sqrt(N), N = {layers}"))
            }
            DepthRule::Count(count) => (1.0 / (count as f64).sqrt(), format!("1/sqrt({count}), given")),
            DepthRule::Power { scale, exponent } => {
                let stack = param.stack()?;
                let (additions, count) = additions(stack);
                let text = format!("({} * {additions})^-{}, {count}", short(scale), short(exponent));
                ((scale * stack.branches as f64).powf(-exponent), text)
            }
        };
        match value.is_finite() && value > 0.0 {
            true => Ok(Factor { kind: FactorKind::Depth, value, because }),
            false => Err(param.error(
                ErrorKind::InvalidValue,
                format!("the depth factor {because} is {value}"),
                "use a count of 1 or more and a positive scale",
            )),
        }
    }
}

/// The additions to a stream as a formula in the number of layers, and the number: `2N`, `N = 12`.
fn additions(stack: Stack) -> (String, String) {
    let layers = format!("N = {}", stack.layers);
    match (stack.branches / stack.layers.max(1), stack.branches % stack.layers.max(1)) {
        (1, 0) => ("N".into(), layers),
        (per_layer, 0) => (format!("{per_layer}N"), layers),
        _ => ("B".into(), format!("B = {} additions", stack.branches)),
    }
}

impl From<DepthRule> for Depth {
    fn from(rule: DepthRule) -> Self {
        Self { rule, roles: None }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            DepthRule::None => write!(f, "none"),
            DepthRule::Total => write!(f, "1/sqrt(additions)"),
            DepthRule::PerLayer => write!(f, "1/sqrt(additions up to the layer)"),
            DepthRule::Layers => write!(f, "1/sqrt(layers)"),
            DepthRule::Count(count) => write!(f, "1/sqrt({count})"),
            DepthRule::Power { scale, exponent } => write!(f, "({} * additions)^-{}", short(scale), short(exponent)),
        }?;
        match &self.roles {
            Some(roles) => {
                let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
                write!(f, " on {}", names.join(", "))
            }
            None => Ok(()),
        }
    }
}

/// A table, or the name of the rule for one without roles.
impl<'de> Deserialize<'de> for Depth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            rule: DepthRule,
            #[serde(default)]
            roles: Option<Vec<Role>>,
        }

        struct NameOrTable;

        impl<'de> de::Visitor<'de> for NameOrTable {
            type Value = Depth;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a depth rule, or a table with the key `rule`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Depth, E> {
                DepthRule::deserialize(name.into_deserializer()).map(Depth::from)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Depth, A::Error> {
                let Table { rule, roles } = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                if roles.as_ref().is_some_and(Vec::is_empty) {
                    return Err(de::Error::custom(
                        "`roles` is empty, so that nothing is scaled; leave it out for what writes into the stream, or use rule = \"none\"",
                    ));
                }
                Ok(Depth { rule, roles })
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

/// Any initializer with a [`Depth`] factor; see [`Initializer::depth_scaled`].
#[derive(Debug, Clone, PartialEq)]
pub struct DepthScaled<I> {
    base: I,
    depth: Depth,
}

impl<I: Initializer> DepthScaled<I> {
    /// `base` with the factor of `depth` on the roles that it covers.
    pub fn new(base: I, depth: Depth) -> Self {
        Self { base, depth }
    }
}

impl<I: Initializer> Initializer for DepthScaled<I> {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match self.base.rule(param)? {
            // Zero times anything is zero: such a rule needs no factor, and so no depth.
            Some(rule) if self.depth.covers(param) && rule.init != Init::Zeros => {
                let factor = self.depth.factor(param)?;
                let deep = rule.factors.iter().any(|factor| factor.kind == FactorKind::Depth);
                if rule.forward != 1.0 && !deep && param.writes().is_some() && self.depth.rule != DepthRule::None {
                    return Err(param.error(
                        ErrorKind::ScaledTwice,
                        format!(
                            "the scheme multiplies its branch by {} in the forward pass, and the depth factor {} is to go on top",
                            short(rule.forward),
                            factor.because
                        ),
                        "leave the depth factor out: CompleteP, depth-muP and u-muP scale for depth by their multipliers",
                    ));
                }
                Ok(Some(rule.scaled(factor)))
            }
            rule => Ok(rule),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        if self.depth.rule != DepthRule::None && self.depth.roles.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::config(
                "the depth rule names no role, so that nothing is scaled",
                "leave out .on([]) for what writes into the stream, or use Depth::none()",
            ));
        }
        if self.depth.rule != DepthRule::None && !tree.iter().any(|param| self.depth.covers(param)) {
            return Err(Error::new(
                ErrorKind::Unmatched,
                format!("the depth rule {} covers no parameter", self.depth),
                "give the projections that write into the residual stream their roles: \
                 .role(\"…\", Role::AttentionOutput), .role(\"…\", Role::MlpDown)",
            ));
        }
        self.base.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        self.base.warnings(tree)
    }
}
