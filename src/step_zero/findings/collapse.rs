//! All positions on their way to one vector.

use super::{Fault, Finding, StepZero};

/// The correlation between tokens. GPT-2 small ends at 0.7.
const ALIKE: f64 = 0.9;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let alike = s.stream.iter().find(|reading| reading.correlation.is_some_and(|rho| rho > ALIKE));
    let Some(reading) = alike else { return Vec::new() };
    let cause = format!(
        "from {} on the tokens are almost one vector (correlation {:.2}): what distinguishes them is lost to the layers above",
        reading.point,
        reading.correlation.unwrap_or(1.0)
    );
    let todo = "start the embeddings wider, scale the branches for depth, or gate the MLP, whose mean output all positions share";
    vec![Finding::warning(Fault::TokensCollapse, cause, todo)]
}
