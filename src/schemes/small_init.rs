//! Small init and Wang init.

use serde::{Deserialize, Serialize};

use super::parts::{weights, width};
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    rule::{Factor, FactorKind, Init, Rule, short},
};

/// Small init, and Wang init on what writes into the residual stream.
///
/// | role | start |
/// |---|---|
/// | every matrix and table | `N(0, sqrt(2 / (5d)))` |
/// | attention output, MLP down | `N(0, 2 / (N sqrt(d)))`, `d` of the stream also for the `f -> d` matrix; [litgpt](Self::litgpt) has half of it |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// Small init is Xavier's std of a `d -> 4d` matrix, for all (Nguyen and Salazar 2019). Wang init scales by `1/N` and not by `1/sqrt(N)`: at
/// `d = 768`, `N = 12` the two are 0.0228218 and 0.00601407. llm-foundry's `neox_init_` (a divisor `N / sqrt(10)`) is the same formula.
///
/// Source: GPT-NeoX, `init_functions.py` (`small_init_init_method`, `wang_init_method`), paired in all its configurations; litgpt, `pretrain.py`.
/// litgpt picks its down projections by the class that holds them and leaves those of other classes at small init; here it goes by role.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmallInit {
    /// Numerator `c` of Wang's `c / (N sqrt(d))`; 0 for small init everywhere.
    pub wang: f64,
}

impl Default for SmallInit {
    fn default() -> Self {
        Self { wang: 2.0 }
    }
}

impl SmallInit {
    /// With Wang init, as GPT-NeoX has it.
    pub fn new() -> Self {
        Self::default()
    }

    /// With half of Wang init, as litgpt and TinyLlama have it.
    pub fn litgpt() -> Self {
        Self { wang: 1.0 }
    }

    /// Without Wang init: `N(0, sqrt(2 / (5d)))` everywhere.
    pub fn plain() -> Self {
        Self { wang: 0.0 }
    }
}

impl Initializer for SmallInit {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        weights(param, |param| {
            let d = width(param)?;
            if self.wang == 0.0 || param.writes().is_none() {
                return Ok(Rule::from(Init::normal((0.4 / d).sqrt())));
            }
            let layers = param.stack()?.layers;
            Ok(Rule::from(Init::normal(1.0 / d.sqrt())).scaled(Factor {
                kind: FactorKind::Depth,
                value: self.wang / layers as f64,
                because: format!("{}/N, N = {layers}", short(self.wang)),
            }))
        })
    }
}
