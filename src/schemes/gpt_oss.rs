//! GPT-OSS as torchtitan starts it.

use serde::{Deserialize, Serialize};

use super::parts::{check_depth, deep_weights, width};
use crate::{
    depth::Depth,
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::{Role, names::is_expert},
    rule::{Family, Init, Rule},
};

/// GPT-OSS as torchtitan starts it: everything in the blocks by depth.
///
/// | role | start |
/// |---|---|
/// | token embedding | `N(0, 0.02)` |
/// | query, key, value, attention output, MLP, router | `N(0, 0.02 / sqrt(2(l + 1)))` |
/// | biases of experts, attention sinks | as the matrices |
/// | other biases | 0 |
/// | head | std `1/sqrt(d)`, cut at 3 sigma, not compensated |
/// | norm gain | 1 |
///
/// The original cuts at the absolute values +-2, which is 100 sigma and more: not at all.
///
/// Source: torchtitan, `models/gpt_oss/__init__.py`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GptOss {
    /// Std of tables, matrices, sinks and the biases of experts, before the depth rule.
    pub std: f64,
    /// Depth rule, with the roles that it covers.
    pub depth: Depth,
    /// Family of the head's draw.
    pub head_family: Family,
}

const SCALED: [Role; 10] = [
    Role::Query,
    Role::Key,
    Role::Value,
    Role::AttentionOutput,
    Role::MlpIn,
    Role::MlpGate,
    Role::MlpUp,
    Role::MlpDown,
    Role::Router,
    Role::AttentionSink,
];

impl Default for GptOss {
    fn default() -> Self {
        Self {
            std: 0.02,
            depth: Depth::per_layer().on(SCALED),
            head_family: Family::TruncatedNormal { bound: 3.0, compensated: false },
        }
    }
}

impl GptOss {
    /// As torchtitan has it.
    pub fn new() -> Self {
        Self::default()
    }

    fn start(&self, param: &ParamSpec) -> Result<Init, Error> {
        Ok(match param.role() {
            Role::OutputHead => self.head_family.with_std(1.0 / width(param)?.sqrt()),
            _ => Init::normal(self.std),
        })
    }

    /// A vector that starts as the matrices of that role.
    fn scaled(&self, param: &ParamSpec, role: Role) -> Result<Rule, Error> {
        let rule = Rule::from(Init::normal(self.std));
        match self.depth.covers_role(role) {
            true => Ok(rule.scaled(self.depth.factor(param)?)),
            false => Ok(rule),
        }
    }
}

impl Initializer for GptOss {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let of_expert = || param.experts().is_some() || param.path().split('.').any(is_expert);
        match (param.role(), param.weight_role()) {
            (Role::AttentionSink, _) => self.scaled(param, Role::AttentionSink).map(Some),
            (Role::Bias, Some(role)) if role != Role::Router && of_expert() => self.scaled(param, role).map(Some),
            _ => deep_weights(param, &self.depth, |param| self.start(param)),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        check_depth(&self.depth, tree)
    }
}
