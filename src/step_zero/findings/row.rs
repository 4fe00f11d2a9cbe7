//! One row of a table louder than the others: a token that was added, copied or read from elsewhere.

use super::{Fault, Finding, StepZero};
use crate::step_zero::Parameter;

/// A row of independent values strays from its root mean square by this many times `1/sqrt(2d)` once in 1e9 rows.
const SDS: f64 = 6.0;
/// A smaller factor does no harm.
const FACTOR: f64 = 1.5;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let loud = |parameter: &&Parameter| {
        let width = s.d_model.unwrap_or(1) as f64;
        parameter.loudest.is_some_and(|row| row.rms > row.others * FACTOR.max(1.0 + SDS / (2.0 * width).sqrt()))
    };
    let report = |parameter: &Parameter| {
        let row = parameter.loudest?;
        let cause = format!(
            "row {} of a table has std {:.4}, {:.1} times that of the other rows",
            row.index,
            row.rms,
            row.rms / row.others.max(f64::MIN_POSITIVE)
        );
        let todo = "start every row alike; a token that was added later takes the scale of the others";
        Some(Finding::error(Fault::RowOutOfScale, cause, todo).about([parameter]))
    };
    s.parameters.iter().filter(loud).filter_map(report).collect()
}
