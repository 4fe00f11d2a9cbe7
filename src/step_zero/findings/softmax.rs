//! Attention weights that sum to 1 over the queries, the heads or the batch, in place of the keys.

use super::{Fault, Finding, StepZero};
use crate::Role;
use crate::step_zero::{Ends, Scores, Site};

/// Fewer positions do not tell the two sums apart.
const SHORT: u64 = 8;
/// Wide scores make weights of their own.
const WIDE: f64 = 1.0;
/// Over the keys the first position gives at least what the last one does, up to the scatter of single positions.
const LESS: f64 = 0.25;
/// How far the quotient of two positions may be from its expectation.
const SCATTER: f64 = 4.0;
/// All positions add one vector, though
const ALIKE: f64 = 0.95;
/// by the mask their sums over different positions could not be more alike than this.
const APART: f64 = 0.8;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let seen: Vec<Layer<'_>> = s.attention.iter().filter_map(|scores| Layer::of(s, scores)).collect();
    let Some(first) = seen.first() else { return Vec::new() };
    if seen.iter().all(Layer::sums_over_queries) {
        let cause = format!(
            "the attention weights do not sum to 1 over the keys but over the queries: by its mask position 0 sees itself alone, and yet \
             {}.{} adds {:.1e} there of what it adds at position {}; a softmax over the keys would give {:.1}, over the queries {:.1e}, and \
             there what follows reaches what came before",
            first.scores.layer,
            Site::AttnOut.name(),
            first.ends.first / first.ends.last,
            first.ends.length - 1,
            first.over_keys(),
            first.over_queries(),
        );
        return vec![Finding::error(Fault::SoftmaxDimension, cause, TODO)];
    }
    // Later layers read a stream that the first has made alike. No certainty: other code can make all positions alike.
    if first.scores.layer == 0 && first.mask_is_not_heard() && no_bias(s) {
        let cause = format!(
            "the attention weights are not those of the mask: by it position 0 sees itself alone, and yet {}.{} adds nearly the same vector at \
             every position (correlation {:.2}, where a softmax over the keys gives about {:.2}), as a softmax over heads or batch does",
            first.scores.layer,
            Site::AttnOut.name(),
            first.added_rho,
            first.expected_rho(),
        );
        return vec![Finding::warning(Fault::SoftmaxDimension, cause, TODO)];
    }
    Vec::new()
}

const TODO: &str = "take the softmax of the masked scores [batch, heads, queries, keys] over the keys, the last dimension: softmax(scores, 3)";

/// A drawn bias is the same at all positions.
fn no_bias(s: &StepZero) -> bool {
    !s.parameters.is_empty() && s.with_role(&[Role::Bias, Role::NormBias]).all(|bias| bias.rms() == 0.0)
}

/// A layer with narrow scores and a causal mask.
struct Layer<'a> {
    scores: &'a Scores,
    ends: Ends,
    /// The correlation between tokens before the layer, and in what attention adds.
    rho: f64,
    added_rho: f64,
}

impl<'a> Layer<'a> {
    fn of(s: &StepZero, scores: &'a Scores) -> Option<Self> {
        let ends = scores.ends.filter(|ends| ends.length >= SHORT && ends.last > 0.0)?;
        let before = s.stream.iter().rev().find(|reading| match reading.point.site {
            Site::ResidPre => reading.point.layer == Some(scores.layer),
            Site::ResidPost => reading.point.layer.map(|layer| layer + 1) == Some(scores.layer),
            _ => false,
        })?;
        let added = s.branches.iter().find(|branch| branch.point == Site::AttnOut.in_layer(scores.layer))?;
        let rho = before.correlation?.clamp(0.0, 1.0);
        (scores.std < WIDE).then_some(Self { scores, ends, rho, added_rho: added.correlation? })
    }

    /// Weights of nearly 1/t over the t keys at a position.
    fn over_keys(&self) -> f64 {
        1.0 / (self.rho + (1.0 - self.rho) / self.ends.length as f64)
    }

    /// Weights of nearly `1/(T - k)` for key k: 1/T at the first position, one over each number up to T at the last.
    fn over_queries(&self) -> f64 {
        let length = self.ends.length as f64;
        let sum = |power: i32| (1..=self.ends.length).map(|i| (i as f64).powi(-power)).sum::<f64>();
        1.0 / (length * length * ((1.0 - self.rho) * sum(2) + self.rho * sum(1).powi(2)))
    }

    fn sums_over_queries(&self) -> bool {
        let (found, expected) = (self.ends.first / self.ends.last, self.over_queries());
        found < LESS && found < SCATTER * expected && SCATTER * found > expected
    }

    /// The correlation of means of t and of u > t values, which share t of them: `E 1/max(t, u)` over `E 1/t`.
    fn expected_rho(&self) -> f64 {
        let length = self.ends.length as f64;
        let harmonic: f64 = (1..=self.ends.length).map(|i| 1.0 / i as f64).sum();
        let own = harmonic / length;
        let shared = 2.0 * (length - harmonic) / (length * (length - 1.0));
        (self.rho + (1.0 - self.rho) * shared) / (self.rho + (1.0 - self.rho) * own)
    }

    fn mask_is_not_heard(&self) -> bool {
        self.added_rho > ALIKE && self.expected_rho() < APART
    }
}
