//! Attention that has made up its mind before it has learned anything.

use super::{Fault, Finding, StepZero};
use crate::Role;

/// Beyond it the softmax hangs on few positions.
const WIDEST: f64 = 1.5;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let wide: Vec<_> = s.attention.iter().filter(|scores| scores.std > WIDEST).collect();
    let Some(widest) = wide.iter().max_by(|a, b| a.std.total_cmp(&b.std)) else { return Vec::new() };
    let cause = format!(
        "the attention scores of {} layers are wide, up to std {:.2} in layer {}: attention hangs on few positions (entropy {:.2} nats)",
        wide.len(),
        widest.std,
        widest.layer,
        widest.entropy
    );
    let layers: Vec<u64> = wide.iter().map(|scores| scores.layer).collect();
    let roles = [Role::Query, Role::Key];
    let these = s.with_role(&roles).filter(|parameter| parameter.layer.is_some_and(|layer| layers.contains(&layer)));
    let todo = "start queries and keys narrower, norm them, or check that the scores are divided by sqrt(d_head)";
    vec![Finding::warning(Fault::ScoresTooWide, cause, todo).about(these)]
}
