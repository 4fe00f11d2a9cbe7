//! A loss that the logits do not explain.

use super::{Fault, Finding, StepZero};

/// Nats that the expected loss itself may be off.
const THEORY: f64 = 0.01;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let difference = s.loss - s.expected_loss;
    if difference.abs() <= s.noise + THEORY {
        return Vec::new();
    }
    let cause = format!(
        "the loss is {difference:+.2} nats from what these logits should cost, and the targets can account for {:.2}",
        s.noise
    );
    let todo = "the model has learned already, or the targets are not the next tokens";
    vec![Finding::warning(Fault::Unexplained, cause, todo)]
}
