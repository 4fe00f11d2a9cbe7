//! Tables whose vectors say nothing, or too much.

use super::{Fault, Finding, StepZero};
use crate::Role;

/// Beyond this factor the positions are all that the norm lets through.
const DROWN: f64 = 10.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let mut findings = Vec::new();
    let of = |role: Role| s.parameters.iter().find(move |parameter| parameter.role == role);
    let Some(tokens) = of(Role::TokenEmbedding) else { return findings };
    // A table of nothing but zeros is a dead model, which is another finding.
    if tokens.std == 0.0 && tokens.mean != 0.0 {
        let cause = format!("all tokens start with the same vector, {:.4} in each feature", tokens.mean);
        findings.push(Finding::error(Fault::TokensAlike, cause, "draw the token embedding").about([tokens]));
    }
    if let Some(positions) =
        of(Role::PositionEmbedding).filter(|p| p.rms() > DROWN * tokens.rms() && tokens.rms() > 0.0)
    {
        let cause = format!(
            "the position vectors have std {:.4}, {:.0} times that of the token vectors, and drown them",
            positions.rms(),
            positions.rms() / tokens.rms()
        );
        let todo = "start both tables alike";
        findings.push(Finding::warning(Fault::PositionsDrown, cause, todo).about([positions, tokens]));
    }
    findings
}
