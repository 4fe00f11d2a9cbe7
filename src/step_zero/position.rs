//! What the logits of one position say.

use super::measure::failed;
use crate::Error;

/// Beyond this a logit says no more than that something is broken; below its negative that it is masked, where code has no -inf.
const LARGEST_LOGIT: f64 = 1e6;

/// Numbers of one position.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Position {
    pub loss: f64,
    pub log_sum_exp: f64,
    pub entropy: f64,
    pub top1: f64,
    /// Probability on the padding.
    pub padding: f64,
    /// Variance of the logits but that of the input token, and that one's distance from their mean.
    pub variance: f64,
    pub own: f64,
}

impl Position {
    /// Of one row of logits, of which the first `vocab` count; the rest may be -inf.
    pub fn of(row: &[f32], vocab: usize, token: usize, target: usize) -> Result<Self, Error> {
        let (counted, padded) = row.split_at(vocab);
        let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        // Distances from one of the values, so that a common offset costs no digits. A value that is not finite shows in the sum.
        let origin = f64::from(counted[0]);
        let sums = counted.iter().fold((0.0, 0.0), |(sum, squares), &z| {
            let d = f64::from(z) - origin;
            (sum + d, squares + d * d)
        });
        if !sums.0.is_finite() || padded.iter().any(|z| !z.is_finite() && *z != f32::NEG_INFINITY) {
            return Err(not_finite(row, vocab));
        }
        if max > LARGEST_LOGIT {
            return Err(failed(format!("a logit is {max:e}"), "look at the scale of the table that makes the logits"));
        }
        if let Some((i, z)) = counted.iter().enumerate().find(|(_, z)| f64::from(**z) < -LARGEST_LOGIT) {
            return Err(failed(format!("logit {i} is {z:e}"), PADDING));
        }
        let (sum, weighted) = softmax_sums(counted, max);
        let (padding, weighted_padding) = softmax_sums(padded, max);
        let (sum, weighted) = (sum + padding, weighted + weighted_padding);

        let n = (vocab - 1) as f64;
        let own = f64::from(row[token]) - origin;
        let (others, squares) = (sums.0 - own, sums.1 - own * own);
        let mean = others / n;
        let log_sum_exp = max + sum.ln();
        Ok(Self {
            loss: log_sum_exp - f64::from(row[target]),
            log_sum_exp,
            entropy: sum.ln() - weighted / sum,
            top1: 1.0 / sum,
            padding: padding / sum,
            variance: (squares - others * mean).max(0.0) / (n - 1.0).max(1.0),
            own: own - mean,
        })
    }
}

const PADDING: &str = "if these are padding, say so by Batch::with_vocab";

/// `sum e^(z - max)` and `sum e^(z - max) (z - max)`.
fn softmax_sums(logits: &[f32], max: f64) -> (f64, f64) {
    logits.iter().fold((0.0, 0.0), |(sum, weighted), &z| {
        let z = f64::from(z) - max;
        let e = z.exp();
        (sum + e, if e > 0.0 { weighted + e * z } else { weighted })
    })
}

fn not_finite(row: &[f32], vocab: usize) -> Error {
    let masked = |i: usize, z: f32| i >= vocab && z == f32::NEG_INFINITY;
    let found = row.iter().enumerate().find(|&(i, z)| !z.is_finite() && !masked(i, *z));
    let (i, z) = found.map_or((0, f32::NAN), |(i, z)| (i, *z));
    let todo =
        if z == f32::NEG_INFINITY { PADDING } else { "look at the first point of the stream that is not finite" };
    failed(format!("logit {i} is {z}"), todo)
}
