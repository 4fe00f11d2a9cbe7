//! What the files of the schemes share.

use super::{Gpt2Normal, NeutralNorm};
use crate::{
    depth::Depth,
    error::Error,
    initializer::{Initializer, from_fn},
    param::ParamSpec,
    role::Role,
    rule::{Init, Rule},
};

/// `weight` for matrices and tables, biases 0, norms neutral.
pub(super) fn weights<R: Into<Rule>>(
    param: &ParamSpec,
    weight: impl FnOnce(&ParamSpec) -> Result<R, Error>,
) -> Result<Option<Rule>, Error> {
    match param.role() {
        role if role.is_weight() => Ok(Some(weight(param)?.into())),
        Role::Bias => Ok(Some(Init::Zeros.into())),
        _ => NeutralNorm::new().rule(param),
    }
}

/// As [`weights`], with the factor of `depth` on the roles that it covers.
pub(super) fn deep_weights<R: Into<Rule>>(
    param: &ParamSpec,
    depth: &Depth,
    weight: impl FnOnce(&ParamSpec) -> Result<R, Error>,
) -> Result<Option<Rule>, Error> {
    let rule = weights(param, weight)?;
    from_fn(|_| rule.clone()).depth_scaled(depth.clone()).rule(param)
}

/// A depth rule that covers nothing is a mistake.
pub(super) fn check_depth(depth: &Depth, tree: &[ParamSpec]) -> Result<(), Error> {
    Gpt2Normal::new().depth_scaled(depth.clone()).check(tree)
}

/// The width `d` that the papers mean at this parameter: of the residual stream next to a matrix, of a row of a table, and the
/// `fan_in` of a map that has no part in a Transformer.
pub(crate) fn width(param: &ParamSpec) -> Result<f64, Error> {
    let width = match param.role() {
        role if role.is_table() => param.shape().last().copied().unwrap_or(0),
        Role::PatchEmbedding
        | Role::Linear
        | Role::Convolution
        | Role::RecurrentInput
        | Role::RecurrentHidden
        | Role::OutputHead => param.fans()?.fan_in,
        role => match param.stack() {
            Ok(stack) => stack.d_model,
            Err(_) if role.writes() => param.fans()?.fan_out,
            Err(_) => param.fans()?.fan_in,
        },
    };
    Ok(width as f64)
}
