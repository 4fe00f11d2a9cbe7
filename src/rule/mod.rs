//! What a parameter starts as, as data: the initial distribution, the factors applied to it, and the
//! rest of the parametrization.

mod fill;
mod init;
mod law;
mod split;

pub use fill::{Fill, FillContext};
pub use init::{Family, Fan, Init, VarianceScaling};
pub use law::Law;
pub(crate) use law::{Misfit, fits};
pub use split::{Side, Split};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
};

/// Why a factor is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FactorKind {
    /// For the depth of the stack. A second one on the same parameter is an error.
    Depth,
    /// For a width.
    Width,
    /// For anything else.
    Other,
}

/// A named number that the initial values are multiplied by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Why.
    pub kind: FactorKind,
    /// The number.
    pub value: f64,
    /// Its formula with the numbers put in, as the plan prints it: `1/sqrt(2N), 2N = 24`.
    pub because: String,
}

/// What one parameter starts as: `value = product(factors) * draw(init)`, used in the forward pass as
/// `forward * value` and trained with `learning_rate` times the optimizer's rate: an abc-parametrization (Yang and Hu 2021), `a` being
/// `forward`, `b` the std and `c` the learning rate.
///
/// Plain data: equal rules compare equal, print the same and survive a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The initial distribution before the factors.
    pub init: Init,
    /// The factors, in the order they were applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factors: Vec<Factor>,
    /// Multiplier in the forward pass, 1 where the scheme has none.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub forward: f64,
    /// Multiplier of the learning rate, 1 where the scheme has none.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub learning_rate: f64,
    /// Multiplier of the weight decay, 1 where the scheme has none. burn's AdamW and PyTorch's decay by the product of weight decay and
    /// learning rate, so that `learning_rate * weight_decay` is what changes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight_decay: f64,
    /// Multiplier of Adam's epsilon, 1 where the scheme has none.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub epsilon: f64,
    /// What the scheme needs the model to do besides, in words; the plan lists it among its warnings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Row of a table that is set to 0 after the draw: the vector of the padding token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_row: Option<u64>,
}

fn one() -> f64 {
    1.0
}

fn is_one(value: &f64) -> bool {
    *value == 1.0
}

impl From<Init> for Rule {
    fn from(init: Init) -> Self {
        Self {
            init,
            factors: Vec::new(),
            forward: 1.0,
            learning_rate: 1.0,
            weight_decay: 1.0,
            epsilon: 1.0,
            needs: None,
            zero_row: None,
        }
    }
}

impl Rule {
    /// The same rule with one more factor.
    pub fn scaled(mut self, factor: Factor) -> Self {
        self.factors.push(factor);
        self
    }

    /// Another start with the same multipliers.
    pub(crate) fn restarted(self, init: Init) -> Self {
        let Self { forward, learning_rate, weight_decay, epsilon, .. } = self;
        Self { forward, learning_rate, weight_decay, epsilon, ..init.into() }
    }

    /// Product of all factors.
    pub fn factor(&self) -> f64 {
        self.factors.iter().map(|factor| factor.value).product()
    }

    /// What is drawn for `param`: the init, resolved against its fans, times the factors.
    ///
    /// # Errors
    /// Numbers that are not usable, missing fans, a second depth factor, a factor on a kept parameter.
    pub fn law(&self, param: &ParamSpec) -> Result<Law, Error> {
        self.check().map_err(|error| error.at(param.path()).shaped(param.shape()))?;
        if self.init == Init::Keep
            && let Some(factor) = self.factors.first()
        {
            return Err(param.error(
                ErrorKind::ScaledKept,
                format!("the factor {} is applied to a parameter that is kept", factor.because),
                "put .with(…, Init::Keep) outside of the scaling, or give it an initialization",
            ));
        }
        let mut depth = self.factors.iter().filter(|factor| factor.kind == FactorKind::Depth);
        if let (Some(first), Some(second)) = (depth.next(), depth.next()) {
            return Err(param.error(
                ErrorKind::ScaledTwice,
                format!("scaled for depth twice: {} and {}", first.because, second.because),
                "apply .depth_scaled(…) once; Gpt2 and other whole schemes have it already",
            ));
        }
        if let Some(row) = self.zero_row {
            let rows = param.shape().first().copied().unwrap_or(0);
            if !param.role().is_table() || row >= rows {
                return Err(param.error(
                    ErrorKind::Shape,
                    format!("row {row} is to be 0, and the parameter with the role {} has {rows} rows", param.role()),
                    "give a row of the table of token vectors, counted from 0",
                ));
            }
        }
        Law::resolve(&self.init, self.factor(), param)
    }

    /// Whether the numbers are usable; run by planning and by reading from a file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`].
    pub fn check(&self) -> Result<(), Error> {
        self.init.check()?;
        let bad = |found: String, todo: &str| Err(Error::new(ErrorKind::InvalidValue, found, todo));
        let factors = self.factors.iter().map(|factor| (factor.because.as_str(), factor.value));
        for (name, value) in factors.chain([("forward multiplier", self.forward)]) {
            if !value.is_finite() {
                return bad(format!("{name} is {value}"), "use a finite number");
            }
            fits::<f32>(name, value).or_else(|(found, todo)| bad(found, todo))?;
        }
        if !self.factor().is_finite() {
            return bad(format!("the product of all factors is {}", self.factor()), "use smaller ones");
        }
        for (name, value) in self.training() {
            if !value.is_finite() || value < 0.0 {
                return bad(format!("{name} multiplier is {value}"), "use a finite number, 0 or more");
            }
        }
        Ok(())
    }

    /// The "because" column of the plan: the init with its factors.
    pub fn because(&self) -> String {
        let mut text = self.init.to_string();
        for factor in &self.factors {
            text += " * ";
            text += &factor.because;
        }
        if self.forward != 1.0 {
            text += &format!(", times {} in the forward pass", short(self.forward));
        }
        if let Some(row) = self.zero_row {
            text += &format!(", row {row} = 0");
        }
        for (what, value) in self.training() {
            if value != 1.0 {
                text += &format!(", {what} times {}", short(value));
            }
        }
        text
    }

    /// The multipliers of the optimizer, by name.
    pub(crate) fn training(&self) -> [(&'static str, f64); 3] {
        [("learning rate", self.learning_rate), ("weight decay", self.weight_decay), ("epsilon", self.epsilon)]
    }

    /// Whether every multiplier is 1, so that there is nothing to attach and nothing to tell the optimizer.
    pub(crate) fn is_plain(&self) -> bool {
        self.forward == 1.0 && self.training().iter().all(|(_, value)| *value == 1.0)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.because())
    }
}

/// Five significant digits, without trailing zeros: `0.0040825`.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-6..=8).contains(&magnitude) {
        return format!("{value:.4e}");
    }
    let text = format!("{value:.*}", (4 - magnitude).max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn short_numbers() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.02, "0.02"),
            (0.02 / 24f64.sqrt(), "0.0040825"),
            (-743.123, "-743.12"),
            (1e-9, "1.0000e-9"),
            (50257.0, "50257"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
