//! The number that the user's own loop prints.

use super::{Fault, Finding, StepZero};

/// How close a number must come to what explains it.
const CLOSE: f64 = 0.02;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let Some(reported) = s.reported_loss else { return Vec::new() };
    let near = |wanted: f64| (reported / wanted - 1.0).abs() < CLOSE;
    let positions = s.positions as f64;
    if near(s.loss) || s.loss <= 0.0 {
        return Vec::new();
    }
    if s.positions > 1 && near(s.loss * positions) {
        let cause = format!(
            "the reported loss of {reported:.1} is a sum over {} positions: its mean is {:.4}",
            s.positions,
            reported / positions
        );
        return vec![Finding::error(Fault::LossIsSum, cause, "average it, or the learning rate grows with the batch")];
    }
    if near(s.loss / std::f64::consts::LN_2) {
        let cause = format!("the reported loss of {reported:.4} is in bits: in nats it is {:.4}", s.loss);
        return vec![Finding::note(Fault::LossInBits, cause, "compare it with log2 V")];
    }
    if near(s.loss.exp()) {
        let cause = format!("the reported {reported:.1} is a perplexity: its logarithm is the loss, {:.4}", s.loss);
        return vec![Finding::note(Fault::LossIsPerplexity, cause, "compare it with V")];
    }
    let times = (reported / s.loss).round();
    if times > 1.0 && (reported / s.loss / times - 1.0).abs() < CLOSE / times && positions % times == 0.0 {
        let cause = format!(
            "the reported loss of {reported:.1} is {times} times the mean: a sum over positions that is averaged over sequences, or the other way round"
        );
        return vec![Finding::error(Fault::LossIsSum, cause, "average over all positions")];
    }
    let cause = format!("the reported loss is {reported:.4}, and these logits cost {:.4} on these targets", s.loss);
    let todo = "measure with the batch and the targets of the loop; look for label smoothing, masks, or a shift of the targets";
    vec![Finding::warning(Fault::Unexplained, cause, todo)]
}
