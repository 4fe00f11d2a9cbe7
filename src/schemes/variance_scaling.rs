//! Xavier, Kaiming and LeCun: one line each over one core.

use serde::{Deserialize, Serialize};

use super::NeutralNorm;
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Fan, Init, Rule, VarianceScaling},
};

/// Every matrix and table by its fans, biases 0, norms neutral: the scheme that [`Xavier`], [`Kaiming`] and [`LeCun`] build.
///
/// | role | start |
/// |---|---|
/// | every matrix and table | std `sqrt(scale / fan)`; a table `[n, d]` has `fan_in = d`, `fan_out = n` |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// Packed projections are taken block by block, experts one by one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanScaled {
    /// The core.
    pub scaling: VarianceScaling,
}

impl FanScaled {
    fn new(scale: f64, fan: Fan, family: Family) -> Self {
        Self { scaling: VarianceScaling { scale, fan, family } }
    }

    /// With weights multiplied by `gain`.
    pub fn gain(self, gain: f64) -> Self {
        let scale = self.scaling.scale * gain * gain;
        Self { scaling: VarianceScaling { scale, ..self.scaling } }
    }
}

impl Initializer for FanScaled {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match param.role() {
            role if role.is_weight() => Ok(Some(Init::VarianceScaling(self.scaling).into())),
            Role::Bias => Ok(Some(Init::Zeros.into())),
            _ => NeutralNorm::new().rule(param),
        }
    }
}

macro_rules! family {
    ($(#[$doc:meta])* $name:ident, $scale:expr, $fan:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name;

        impl $name {
            /// Drawn from a normal.
            pub fn normal() -> FanScaled {
                FanScaled::new($scale, $fan, Family::Normal)
            }

            /// Drawn from the uniform with the same std.
            pub fn uniform() -> FanScaled {
                FanScaled::new($scale, $fan, Family::Uniform)
            }
        }
    };
}

family!(
    /// `std = sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio 2010).
    Xavier, 1.0, Fan::Average
);
family!(
    /// `std = sqrt(2 / fan_in)`, for ReLU (He et al. 2015).
    Kaiming, 2.0, Fan::In
);
family!(
    /// `std = sqrt(1 / fan_in)` (LeCun et al. 1998).
    LeCun, 1.0, Fan::In
);
