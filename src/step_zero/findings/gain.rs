//! Norms that do not start neutral.

use super::{Fault, Finding, StepZero};
use crate::{Role, step_zero::Parameter};

/// What bf16 makes of 1 and more.
const ROUNDING: f64 = 0.005;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let neutral = |parameter: &Parameter| if parameter.role == Role::NormGain { 1.0 } else { 0.0 };
    let roles = [Role::NormGain, Role::NormGainOffset];
    let off: Vec<_> = s
        .with_role(&roles)
        .filter(|parameter| (parameter.mean - neutral(parameter)).hypot(parameter.std) > ROUNDING)
        .collect();
    let Some(first) = off.first() else { return Vec::new() };
    let cause = format!(
        "the gain of {} norm{} does not start at 1 but at {:.3}",
        off.len(),
        plural(off.len()),
        effective(first)
    );
    let todo = "start norms neutral, gain 1 and offset 0, and put a wanted scale into the weights";
    vec![Finding::warning(Fault::GainNotOne, cause, todo).about(off)]
}

fn effective(parameter: &Parameter) -> f64 {
    if parameter.role == Role::NormGain { parameter.mean } else { 1.0 + parameter.mean }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
