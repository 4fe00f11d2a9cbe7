//! A stream that the branches replace, where they should be added to it.

use super::{Fault, Finding, StepZero};
use crate::step_zero::{Reading, Site};

/// A sum of f64 over the same values, in the same order.
const SAME: f64 = 1e-9;
/// Beside a branch so much larger the stream before it may be lost to rounding, in bf16.
const BURIED: f64 = 1e-3;
/// No sum of a stream and a fresh branch is so much smaller than the stream was: mimetic branches take a tenth of it away.
const LOST: f64 = 0.5;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let mut additions = 0;
    let mut replaced: Vec<[&Reading; 3]> = Vec::new();
    for pair in s.stream.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let Some(branch) = branch(s, after) else { continue };
        additions += 1;
        if same(after, branch) && before.second_moment > BURIED * branch.second_moment {
            replaced.push([before, branch, after]);
        }
    }
    // The clearest one speaks for all.
    let kept = |[before, _, after]: &[&Reading; 3]| after.second_moment / before.second_moment;
    let Some(clearest) = replaced.iter().min_by(|a, b| kept(a).total_cmp(&kept(b))) else { return Vec::new() };
    let [before, branch, after] = *clearest;
    let cause = format!(
        "the stream after {} of {additions} branches is the branch itself, F(x) and not x + F(x): {} is {}, with a second moment of {:.2e} where \
         {:.2e} + {:.2e} is due",
        replaced.len(),
        after.point,
        branch.point,
        after.second_moment,
        before.second_moment,
        branch.second_moment,
    );
    if kept(clearest) < LOST {
        return vec![Finding::error(Fault::NoResidual, cause, "add the branch to the stream: x = x + F(x)")];
    }
    let todo = "add the branch to the stream, or, if it is added, show the probe the branch before the addition";
    vec![Finding::warning(Fault::NoResidual, cause, todo)]
}

/// What was added last before this point of the stream.
fn branch<'a>(s: &'a StepZero, after: &Reading) -> Option<&'a Reading> {
    let site = match after.point.site {
        Site::ResidMid => Site::AttnOut,
        Site::ResidPost => Site::MlpOut,
        _ => return None,
    };
    s.branches.iter().find(|branch| branch.point.site == site && branch.point.layer == after.point.layer)
}

fn same(a: &Reading, b: &Reading) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= SAME * b.abs();
    let correlations = a.correlation.zip(b.correlation).is_none_or(|(a, b)| (a - b).abs() <= SAME);
    near(a.second_moment, b.second_moment) && correlations
}
