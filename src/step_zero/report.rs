//! Step zero on paper.

use std::fmt;

use serde::Serialize;

use super::{Reading, Scores, Spread, StepZero};

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
                "residual stream {:.3e} {} {:.3e} over {} branches",
                first.second_moment,
                self.sparkline(),
                last.second_moment,
                self.branches.len()
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let findings = self.findings();
        if findings.is_empty() {
            return write!(f, "pass: the loss is what logits of this spread cost, and that is little");
        }
        for (i, finding) in findings.iter().enumerate() {
            write!(f, "{}{finding}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
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

/// One quantity, measured and predicted; `None` where a side lacks it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// What it is: `loss`, `3.resid_mid`, `3.resid_mid gradient`, the path of a parameter.
    pub name: String,
    /// The measured value.
    pub measured: Option<f64>,
    /// The predicted one.
    pub predicted: Option<f64>,
    /// Their quotient.
    pub ratio: Option<f64>,
    /// Measured less predicted, in standard deviations of such a measurement over seeds, where the prediction knows them.
    pub deviation: Option<f64>,
}

impl Row {
    fn new(name: impl Into<String>, measured: Option<f64>, predicted: Option<f64>, sd: Option<f64>) -> Self {
        let both = measured.zip(predicted);
        Self {
            name: name.into(),
            measured,
            predicted,
            ratio: both.filter(|(_, p)| *p != 0.0).map(|(m, p)| m / p),
            deviation: both.zip(sd.filter(|sd| *sd > 0.0)).map(|((m, p), sd)| (m - p) / sd),
        }
    }
}

impl Beside<'_> {
    /// The rows of the table: what the logits are worth, then the stream, the branches, the scores, the gradients of the stream and
    /// those of the parameters. Readings are matched by their points, parameters by their paths.
    pub fn rows(&self) -> Vec<Row> {
        let (m, p) = (self.measured, self.predicted);
        let one = 1.0 / (m.seeds.max(1) as f64).sqrt();
        let sd = |f: fn(&Spread) -> f64| p.spread.as_ref().map(|spread| f(spread) * one);
        let mut rows = vec![
            Row::new("loss", Some(m.loss), Some(p.loss), sd(|s| s.loss)),
            Row::new("log-sum-exp", Some(m.log_sum_exp), Some(p.log_sum_exp), sd(|s| s.log_sum_exp)),
            Row::new("entropy", Some(m.entropy), Some(p.entropy), sd(|s| s.entropy)),
            Row::new("logit std", Some(m.logit_std), Some(p.logit_std), sd(|s| s.logit_std)),
            Row::new("own-token logit", m.own_logit, p.own_logit, sd(|s| s.own_logit)),
            Row::new("final_norm", m.final_norm, p.final_norm, None),
        ];
        for readings in [|s: &StepZero| s.stream.clone(), |s: &StepZero| s.branches.clone()] {
            let sd = |r: &Reading| r.sd.map(|sd| sd * one);
            rows.extend(matched(&readings(m), &readings(p), |r| r.point, |r| Some(r.second_moment), sd, ""));
        }
        let by_layer = |s: &StepZero, f: fn(&Scores) -> f64| -> Vec<(String, f64)> {
            s.attention.iter().map(|scores| (scores.layer.to_string(), f(scores))).collect()
        };
        for (suffix, f) in [(".score std", (|s| s.std) as fn(&Scores) -> f64), (".attention entropy", |s| s.entropy)] {
            rows.extend(matched(&by_layer(m, f), &by_layer(p, f), |r| r.0.clone(), |r| Some(r.1), |_| None, suffix));
        }
        for (suffix, has_sd, f) in
            [(" rho", false, (|r| r.correlation) as fn(&Reading) -> Option<f64>), (" gradient", true, |r| r.gradient)]
        {
            let sd = |r: &Reading| r.gradient_sd.filter(|_| has_sd).map(|sd| sd * one);
            rows.extend(matched(&m.stream, &p.stream, |r| r.point, f, sd, suffix));
        }
        rows.extend(matched(&m.gradients, &p.gradients, |g| g.path.clone(), |g| g.norm, |_| None, " gradient"));
        rows.retain(|row| row.measured.is_some() || row.predicted.is_some());
        rows
    }

    /// The rows as CSV, with a header: name, measured, predicted, ratio, deviation.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in self.rows() {
            // Writing numbers and names into memory cannot fail.
            let _ = writer.serialize(row);
        }
        writer.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The rows as JSON: an array of objects with the same fields.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.rows()).unwrap_or_default()
    }
}

/// The rows of two lists whose elements are matched by a key.
fn matched<T, K: PartialEq + fmt::Display>(
    measured: &[T],
    predicted: &[T],
    key: impl Fn(&T) -> K,
    value: impl Fn(&T) -> Option<f64>,
    sd: impl Fn(&T) -> Option<f64>,
    suffix: &str,
) -> Vec<Row> {
    let find = |list: &[T], wanted: &K| list.iter().position(|item| key(item) == *wanted);
    let name = |item: &T| format!("{}{suffix}", key(item));
    let mut rows = Vec::with_capacity(measured.len());
    for item in measured {
        let other = find(predicted, &key(item)).map(|i| &predicted[i]);
        rows.push(Row::new(name(item), value(item), other.and_then(&value), other.and_then(&sd)));
    }
    let alone = predicted.iter().filter(|item| find(measured, &key(item)).is_none());
    rows.extend(alone.map(|item| Row::new(name(item), None, value(item), None)));
    rows
}

impl fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(16);
        write!(f, "{:<wide$} {:>11} {:>11} {:>7} {:>6}", "", "measured", "predicted", "ratio", "sds")?;
        for row in rows {
            let ratio = row.ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default();
            let deviation = row.deviation.map(|sds| format!("{sds:+.1}")).unwrap_or_default();
            let (measured, predicted) = (number(row.measured), number(row.predicted));
            write!(f, "\n{:<wide$} {measured:>11} {predicted:>11} {ratio:>7} {deviation:>6}", row.name)?;
        }
        let notes = self.measured.notes.iter().chain(&self.predicted.notes);
        notes.into_iter().try_for_each(|note| write!(f, "\nnote: {note}"))
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
