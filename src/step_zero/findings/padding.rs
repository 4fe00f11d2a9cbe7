//! Rows of the table that are no tokens, and yet get probability.

use super::{Fault, Finding, StepZero};

/// Probability that is worth a word.
const PADDING: f64 = 1e-3;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    if s.padding <= PADDING {
        return Vec::new();
    }
    let cause =
        format!("{:.1} % of the probability falls on padding: rows of the table that are no tokens", 100.0 * s.padding);
    vec![Finding::error(Fault::PaddingCounts, cause, "mask their logits with -inf").about(s.head_table())]
}
