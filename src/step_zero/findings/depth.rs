//! The projections that write into the stream: scaled for depth as their siblings are, once, and by the right number.

use super::{Fault, Finding, StepZero};
use crate::{NormPlacement, Role, step_zero::Parameter};

/// Fewer layers say too little about a rule over layers.
const FEW: usize = 3;
/// Two stds this close are the same: three sampling errors of a quotient of stds of 4096 values each.
const SAME: f64 = 0.05;
/// How close the number of additions that a scale stands for comes to a whole number of layers; all projections tell it together.
const WHOLE: f64 = 0.02;
/// A projection that strays from its siblings by more is not one of them.
const STRAYS: f64 = 0.2;

/// A projection, and its std over that of a matrix of its layer that does not write.
struct Scaled<'a> {
    parameter: &'a Parameter,
    ratio: f64,
}

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let outputs = scaled(s, Role::AttentionOutput);
    let downs = scaled(s, Role::MlpDown);
    let mut findings: Vec<Finding> = MATRICES.iter().filter_map(|role| strays(s, *role)).collect();
    // A multiplier scales the branch otherwise, and norms elsewhere bound the stream or fix what a branch adds.
    let plain = |one: &Scaled<'_>| one.parameter.forward == 1.0 && one.parameter.norms == NormPlacement::Pre;
    if findings.is_empty() && outputs.iter().chain(&downs).all(plain) {
        findings.extend(common(&outputs, &downs));
    }
    findings
}

/// Matrices that each layer has one of.
const MATRICES: [Role; 8] = [
    Role::AttentionOutput,
    Role::MlpDown,
    Role::Query,
    Role::Key,
    Role::Value,
    Role::MlpIn,
    Role::MlpUp,
    Role::MlpGate,
];

/// Each projection of this role beside the widest matrix of its branch that does not write: some schemes scale queries and keys for their
/// scores, and up projections for depth. Empty where that one itself changes over the layers, as everything is then scaled for depth.
fn scaled(s: &StepZero, role: Role) -> Vec<Scaled<'_>> {
    let beside = |layer: u64| {
        let wanted: &[Role] = match role {
            Role::MlpDown => &[Role::MlpIn, Role::MlpUp, Role::MlpGate],
            _ => &[Role::Query, Role::Key, Role::Value],
        };
        let beside = s.parameters.iter().filter(|p| p.layer == Some(layer) && wanted.contains(&p.role));
        beside.filter(|p| p.fan_in.is_some()).max_by(|a, b| a.std.total_cmp(&b.std))
    };
    let mut scaled: Vec<Scaled<'_>> = Vec::new();
    let (mut by_fan, mut references) = (Vec::new(), Vec::new());
    for parameter in s.parameters.iter().filter(|p| p.role == role && p.branches.is_some() && p.std.is_finite()) {
        let Some(reference) = parameter.layer.and_then(beside) else {
            continue;
        };
        let (Some(from), Some(to)) = (reference.fan_in, parameter.fan_in) else { continue };
        if reference.std > 0.0 {
            scaled.push(Scaled { parameter, ratio: parameter.std / reference.std });
            by_fan.push((from as f64 / to as f64).sqrt());
            references.push(reference.std);
        }
    }
    if references.iter().any(|std| (std / references[0] - 1.0).abs() > STRAYS / 2.0) {
        return Vec::new();
    }
    // A rule over fans gives the two other stds, unscaled for depth: measured in those, such a projection is at 1.
    let unscaled = |(one, by_fan): (&Scaled<'_>, &f64)| (one.ratio / by_fan - 1.0).abs() < SAME;
    if scaled.iter().zip(&by_fan).all(unscaled) {
        scaled.iter_mut().for_each(|one| one.ratio = 1.0);
    }
    scaled
}

/// Matrices of one role that are not what they are in other layers, whatever that is: constant, or falling over the layers.
fn strays(s: &StepZero, role: Role) -> Option<Finding> {
    let here = |p: &&Parameter| p.role == role && p.layer.is_some() && p.fan_in.is_some() && p.std.is_finite();
    let siblings: Vec<&Parameter> = s.parameters.iter().filter(here).collect();
    if siblings.len() < FEW {
        return None;
    }
    let mut best: Option<(Vec<&Parameter>, f64)> = None;
    for exponent in [0.0, 0.5] {
        let level = |one: &Parameter| one.std * ((one.layer.unwrap_or(0) + 1) as f64).powf(exponent);
        let mut levels: Vec<f64> = siblings.iter().map(|one| level(one)).collect();
        levels.sort_by(f64::total_cmp);
        let median = levels[levels.len() / 2];
        let off: Vec<_> = siblings.iter().copied().filter(|one| (level(one) / median - 1.0).abs() > STRAYS).collect();
        if best.as_ref().is_none_or(|(fewest, _)| off.len() < fewest.len()) {
            best = Some((off, median));
        }
    }
    let (off, median) = best?;
    // A third that strays is another rule, not a slip.
    if off.is_empty() || 3 * off.len() > siblings.len() || median <= 0.0 {
        return None;
    }
    let worst = off.iter().max_by(|a, b| a.std.total_cmp(&b.std))?;
    let what = if role.writes() { "projections into the stream" } else { role.name() };
    let cause = format!(
        "{} of {} {what} are out of scale: std {:.5}, {:.2} times that of the same matrix in other layers",
        off.len(),
        siblings.len(),
        worst.std,
        worst.std / median,
    );
    let todo = "scale the same matrix of every layer alike; a pattern may have missed these";
    let fault = if role.writes() { Fault::BranchOutOfScale } else { Fault::MatrixOutOfScale };
    Some(Finding::warning(fault, cause, todo).about(off))
}

/// What all projections have in common.
fn common(outputs: &[Scaled<'_>], downs: &[Scaled<'_>]) -> Option<Finding> {
    let branches = outputs.first()?.parameter.branches? as f64;
    let layers = outputs.len();
    if layers < FEW || downs.len() < FEW {
        return None;
    }
    let level = |siblings: &[Scaled<'_>]| {
        let mean = siblings.iter().map(|one| one.ratio).sum::<f64>() / siblings.len() as f64;
        siblings.iter().all(|one| (one.ratio / mean - 1.0).abs() < SAME).then_some(mean)
    };
    let (output, down) = (level(outputs)?, level(downs)?);
    let all = || outputs.iter().chain(downs).map(|one| one.parameter);
    let near = |ratio: f64, wanted: f64| (ratio / wanted - 1.0).abs() < SAME;
    let right = 1.0 / branches.sqrt();
    if near(output, 1.0) && near(down, 1.0) {
        let cause = format!(
            "the {} projections into the stream are not scaled for depth: its variance grows with the number of layers",
            outputs.len() + downs.len()
        );
        let todo = format!("scale them by 1/sqrt({branches}) = {right:.4}, as .depth_scaled(Depth::total()) does");
        // Many published schemes do without.
        return Some(Finding::note(Fault::DepthUnscaled, cause, todo).about(all()));
    }
    for (scaled, other, name, these) in
        [(output, down, "MLP's down projections", downs), (down, output, "attention outputs", outputs)]
    {
        if near(scaled, right) && near(other, 1.0) {
            let cause = format!("the {name} are not scaled for depth, and the other projections into the stream are");
            let todo = format!("scale them by 1/sqrt({branches}) = {right:.4}, too");
            let finding = Finding::warning(Fault::BranchOutOfScale, cause, todo);
            return Some(finding.about(these.iter().map(|one| one.parameter)));
        }
    }
    if !near(output, down) || output >= 1.0 - SAME {
        return None;
    }
    if near(output, 1.0 / branches) {
        let cause = format!("the projections into the stream are scaled for depth twice: by 1/{branches}");
        let todo = format!("scale them once, by 1/sqrt({branches}) = {right:.4}");
        return Some(Finding::warning(Fault::DepthScaledTwice, cause, todo).about(all()));
    }
    // 1/sqrt(N) is Megatron's hybrid; 1/N is CompleteP's.
    let known = [right, (2.0 / branches).sqrt(), 2.0 / branches];
    if known.iter().any(|known| near(output, *known)) {
        return None;
    }
    // Other rules give other numbers; that of a depth is even.
    let other = output.powi(-2);
    if other < 1.5 || (other / 2.0 - (other / 2.0).round()).abs() > WHOLE * other / 2.0 {
        return None;
    }
    let cause = format!(
        "the projections into the stream are scaled for {other:.1} additions, and there are {branches}: std {output:.4} times that of the \
         others in place of {right:.4}"
    );
    let todo =
        format!("scale them by 1/sqrt({branches}); a changed number of layers may not have reached the initialization");
    Some(Finding::warning(Fault::DepthWrong, cause, todo).about(all()))
}
