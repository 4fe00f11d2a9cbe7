//! Biases that start with values.

use super::{Fault, Finding, Severity, StepZero};
use crate::Role;

/// From this multiple of the embeddings' second moment on a bias is most of what a position holds. PyTorch's are drawn, and a few times that.
const HEARD: f64 = 20.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let roles = [Role::Bias, Role::NormBias];
    let off: Vec<_> = s.with_role(&roles).filter(|parameter| parameter.rms() > 0.0).collect();
    let Some(most) = off.iter().map(|parameter| parameter.rms()).reduce(f64::max) else { return Vec::new() };
    let cause = format!("{} biases do not start at 0 but with values up to a root mean square of {most:.4}", off.len());
    let todo = "start biases at 0: a random one shifts all positions alike and correlates them";
    let heard = s.stream.first().is_some_and(|first| most * most > HEARD * first.second_moment);
    let severity = if heard { Severity::Warning } else { Severity::Note };
    vec![Finding::new(Fault::BiasNotZero, severity, cause, todo).about(off)]
}
