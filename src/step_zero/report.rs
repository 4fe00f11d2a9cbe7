//! Step zero on paper.

use std::fmt;

use super::{Reading, StepZero};

impl fmt::Display for StepZero {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "loss {:.4}, expected {:.4} +- {:.4} for logits of std {:.4} (ln V = {:.4})",
            self.loss,
            self.expected_loss,
            self.noise,
            self.logit_std,
            self.ln_vocab()
        )?;
        write!(f, "entropy {:.4}, log-sum-exp {:.4}", self.entropy, self.log_sum_exp)?;
        if let Some(top1) = self.top1 {
            write!(f, ", top-1 probability {top1:.5}")?;
        }
        if let Some(own_logit) = self.own_logit {
            write!(f, ", own-token logit {own_logit:.3}")?;
        }
        writeln!(f)?;
        if let (Some(first), Some(last)) = (self.stream.first(), self.stream.last()) {
            writeln!(
                f,
                "residual stream {:.3e} -> {:.3e} over {} branches",
                first.second_moment,
                last.second_moment,
                self.branches.len()
            )?;
        }
        write!(f, "{}", self.verdict())
    }
}

impl StepZero {
    /// Lays a measurement beside a prediction, field by field; prints as a table.
    pub fn beside<'a>(&'a self, predicted: &'a StepZero) -> Beside<'a> {
        Beside { measured: self, predicted }
    }
}

/// A measurement and a prediction side by side.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    measured: &'a StepZero,
    predicted: &'a StepZero,
}

impl Beside<'_> {
    /// The rows of the table: a name, the measured value and the predicted one, `None` where a side lacks it.
    ///
    /// Readings are matched by their points.
    pub fn rows(&self) -> Vec<(String, Option<f64>, Option<f64>)> {
        let (m, p) = (self.measured, self.predicted);
        let mut rows = vec![
            ("loss".into(), Some(m.loss), Some(p.loss)),
            ("log-sum-exp".into(), Some(m.log_sum_exp), Some(p.log_sum_exp)),
            ("entropy".into(), Some(m.entropy), Some(p.entropy)),
            ("logit std".into(), Some(m.logit_std), Some(p.logit_std)),
            ("own-token logit".into(), m.own_logit, p.own_logit),
            ("final_norm".into(), m.final_norm, p.final_norm),
        ];
        rows.retain(|(_, m, p)| m.is_some() || p.is_some());
        for (measured, predicted) in [(&m.stream, &p.stream), (&m.branches, &p.branches)] {
            let at = |readings: &[Reading], point| {
                readings.iter().find(|reading| reading.point == point).map(|reading| reading.second_moment)
            };
            rows.extend(
                measured.iter().map(|reading| {
                    (reading.point.to_string(), Some(reading.second_moment), at(predicted, reading.point))
                }),
            );
            rows.extend(
                predicted
                    .iter()
                    .filter(|reading| at(measured, reading.point).is_none())
                    .map(|reading| (reading.point.to_string(), None, Some(reading.second_moment))),
            );
        }
        rows
    }
}

impl fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16} {:>11} {:>11} {:>7}", "", "measured", "predicted", "ratio")?;
        for (name, measured, predicted) in self.rows() {
            let ratio = measured.zip(predicted).filter(|(_, p)| *p != 0.0).map(|(m, p)| format!("{:.3}", m / p));
            let ratio = ratio.unwrap_or_default();
            write!(f, "\n{name:<16} {:>11} {:>11} {ratio:>7}", number(measured), number(predicted))?;
        }
        Ok(())
    }
}

/// Five digits, in the notation that shows them.
fn number(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value == 0.0 || (0.01..1e5).contains(&value.abs()) => format!("{value:.4}"),
        Some(value) => format!("{value:.4e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers() {
        assert_eq!(number(None), "");
        assert_eq!(number(Some(10.97849)), "10.9785");
        assert_eq!(number(Some(0.00080123)), "8.0123e-4");
    }
}
