//! Parameters that the loss does not depend on.

use super::{Fault, Finding, StepZero};

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let none: Vec<&str> =
        s.gradients.iter().filter(|g| g.norm.is_none_or(|norm| norm == 0.0)).map(|g| g.path.as_str()).collect();
    // With equal logits nothing has a gradient, which is another finding.
    if none.is_empty() || none.len() == s.gradients.len() || s.logit_std == 0.0 {
        return Vec::new();
    }
    let of = |path: &str| s.parameters.iter().find(|parameter| parameter.path == path);
    let silent = |layer: Option<u64>| {
        layer.is_some() && s.parameters.iter().any(|p| p.layer == layer && p.branches.is_some() && p.rms() == 0.0)
    };
    let behind_zero = |path: &str| of(path).is_some_and(|parameter| silent(parameter.layer));
    let (waiting, lost): (Vec<&str>, Vec<&str>) =
        none.into_iter().filter(|path| !s.is_key_bias(path)).partition(|path| behind_zero(path));
    let mut findings = Vec::new();
    if !lost.is_empty() {
        let cause = format!("{} parameters get no gradient: the loss does not depend on them", lost.len());
        let todo = "use them in the forward pass, or remove or freeze them";
        let finding = Finding::warning(Fault::NoGradient, cause, todo);
        findings.push(Finding { parameters: lost.into_iter().map(Into::into).collect(), ..finding });
    }
    if !waiting.is_empty() {
        let cause = format!(
            "{} parameters get no gradient in the first step, because the projection after them starts at 0",
            waiting.len()
        );
        let finding = Finding::note(Fault::NoGradient, cause, "expect them to move from the second step on");
        findings.push(Finding { parameters: waiting.into_iter().map(Into::into).collect(), ..finding });
    }
    findings
}
