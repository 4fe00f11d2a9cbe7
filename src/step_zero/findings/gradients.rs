//! Gradients that explode or vanish over the layers.

use super::{Fault, Finding, StepZero};

/// The quotient of the second moments after the first and after the last layer. GPT-2 small has 9, the embedding apart.
const QUOTIENT: f64 = 1000.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    // The embedding and the first layer have a jump of their own, where small embeddings meet the first branches.
    let inner: Vec<_> =
        s.stream.iter().skip(2).filter_map(|reading| Some((reading.point, reading.gradient?))).collect();
    let (Some((low, first)), Some((high, last))) = (inner.first(), inner.last()) else { return Vec::new() };
    if *first <= 0.0 || *last <= 0.0 {
        return Vec::new();
    }
    let between = format!("the gradient's second moment is {last:.1e} at {high} and {first:.1e} at {low}");
    let todo = "scale the branches for depth, and check that every branch has its norm";
    if first / last > QUOTIENT {
        return vec![Finding::warning(
            Fault::GradientsExplode,
            format!("gradients explode on their way back: {between}"),
            todo,
        )];
    }
    if last / first > QUOTIENT {
        return vec![Finding::warning(
            Fault::GradientsVanish,
            format!("gradients vanish on their way back: {between}"),
            todo,
        )];
    }
    Vec::new()
}
