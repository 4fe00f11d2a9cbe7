//! A stream that is mostly its first branch: the later ones hardly change it.

use super::{Fault, Finding, StepZero};
use crate::Role;

/// The share of the last point of the stream. GPT-2 small: 0.06.
const SHARE: f64 = 0.5;
/// Fewer branches share it among few.
const FEW: usize = 6;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let (Some(last), true) = (s.stream.last(), s.branches.len() >= FEW) else { return Vec::new() };
    let first = s.branches.iter().take(2).max_by(|a, b| a.second_moment.total_cmp(&b.second_moment));
    let Some(first) = first.filter(|first| first.second_moment > SHARE * last.second_moment) else { return Vec::new() };
    let cause = format!(
        "{} makes {:.0} % of the last point of the stream: the layers after it hardly change what the head reads",
        first.point,
        100.0 * (first.second_moment / last.second_moment).min(1.0)
    );
    let roles = [Role::AttentionOutput, Role::MlpDown];
    let writes = s.with_role(&roles).filter(|parameter| parameter.layer == Some(0) && parameter.branches.is_some());
    let todo = "give the branches of all layers the same scale, and the embedding one that they do not drown";
    vec![Finding::warning(Fault::FirstBranchDominates, cause, todo).about(writes)]
}
