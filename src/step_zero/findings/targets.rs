//! Targets that were not shifted.

use super::{Fault, Finding, StepZero};

/// A text repeats a token now and then; a shifted one never does so all the time.
const REPEATS: f64 = 0.9;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    if s.repeats.is_none_or(|repeats| repeats < REPEATS) || s.positions < 8 {
        return Vec::new();
    }
    let cause = format!("{:.0} % of the targets are their own input tokens", 100.0 * s.repeats.unwrap_or(1.0));
    vec![Finding::warning(Fault::TargetsAreInputs, cause, "shift the targets by one: the token after each input")]
}
