//! An epsilon that is not small beside the stream it is added to.

use super::{Fault, Finding, StepZero};
use crate::Role;

/// At this quotient of stream and epsilon a norm gives 0.95 of what it should. GPT-2's embeddings have 80, which costs 1.2 %.
const QUOTIENT: f64 = 20.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let (Some(first), Some(epsilon)) = (s.stream.first(), s.epsilon()) else { return Vec::new() };
    if first.second_moment <= 0.0 || first.second_moment > QUOTIENT * epsilon {
        return Vec::new();
    }
    let left = first.second_moment / (first.second_moment + epsilon);
    let cause = format!(
        "the embeddings have a second moment of {:.1e}, and the norms add an epsilon of {epsilon:.1e} to it: the first norm gives {left:.2} in place of 1",
        first.second_moment
    );
    let roles = [Role::TokenEmbedding, Role::PositionEmbedding];
    let todo = "start the embeddings wider, scale them in the forward pass, or lower the epsilon";
    vec![Finding::warning(Fault::NormEpsilon, cause, todo).about(s.with_role(&roles))]
}
