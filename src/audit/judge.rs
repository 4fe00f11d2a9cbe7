//! Whether values can have been drawn by a law.

use super::{
    expected::{Expected, chi_squared_z, upper_quantile},
    finding::{Deviation, Finding, Severity},
    statistics::{Lane, Lanes, Sample, Statistics, lower_bound},
};
use crate::rule::{Law, short};

/// The probability that an audit flags anything on a healthy model, by the union bound over all its tests. A tenth of what is promised
/// (1e-3): the rest is for the approximations in the tails.
const FALSE_ALARMS: f64 = 1e-4;
/// Tests of one sample: mean, std, outliers, distribution, rows, columns.
const TESTS: f64 = 6.0;
/// A std that is off by more is another scale, and by less a detail of the distribution.
const DETAIL: f64 = 0.05;
/// Fewer draws say nothing about the shape of a distribution, and fewer in a lane nothing about its scale.
const SHAPE_NEEDS: u64 = 10_000;
const LANE_NEEDS: u64 = 8;
/// Draws expected in each cell of the chi-squared test.
const CELL_NEEDS: f64 = 100.0;

/// What is beyond chance, given the number of samples that are tested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    /// Probability of a false alarm of one test.
    p: f64,
    /// Two-sided.
    pub z: f64,
}

impl Limits {
    pub fn new(samples: u64) -> Self {
        let p = FALSE_ALARMS / (TESTS * samples.max(1) as f64);
        Self { p, z: upper_quantile(p / 2.0) }
    }

    /// For the most extreme of `lanes`.
    fn lane_z(&self, lanes: u64) -> f64 {
        upper_quantile(self.p / (2.0 * lanes.max(1) as f64))
    }
}

/// Measured against expected, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Scores {
    /// Measured std over the expected one.
    pub ratio: Option<f64>,
    pub z_std: Option<f64>,
    pub z_mean: Option<f64>,
}

/// What a sample is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Yardstick {
    Law(Law),
    /// What a named function computes: of itself, and whether it computes the same from every seed.
    Computed {
        sample: Box<Sample>,
        fixed: bool,
    },
}

/// What is due to rows that are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rows {
    /// The padding row, where the plan has one.
    pub padding: Option<u64>,
    /// Whether there is one row for each index, so that a row that is 0 may be meant.
    pub table: bool,
}

/// The values of one block or expert against its law.
pub(super) fn judge(yardstick: &Yardstick, rows: Rows, sample: &Sample, limits: &Limits) -> (Vec<Finding>, Scores) {
    let statistics = &sample.statistics;
    if statistics.non_finite > 0 {
        let total = statistics.count + statistics.non_finite;
        let text = format!("{} of {total} values are NaN or infinite", statistics.non_finite);
        return (vec![Finding::new(Severity::Error, Deviation::NonFinite, text)], Scores::default());
    }
    if statistics.count == 0 {
        return (Vec::new(), Scores::default());
    }
    match yardstick {
        Yardstick::Law(Law::Constant(value)) => (constant(*value, sample).into_iter().collect(), Scores::default()),
        Yardstick::Law(Law::Draw(distribution)) => {
            let expected = Expected::of(*distribution);
            match lost_to_rounding(&expected, sample) {
                Some(finding) => (vec![finding], Scores::default()),
                None => drawn(&expected.stored(smallest(sample.precision)), rows, sample, limits),
            }
        }
        Yardstick::Law(Law::Orthogonal { gain, matrix }) => orthogonal(*gain, *matrix, sample, limits),
        Yardstick::Computed { sample: reference, fixed } => computed(reference, *fixed, sample, limits),
        Yardstick::Law(Law::Keep | Law::Fill { .. }) => (Vec::new(), Scores::default()),
    }
}

/// A unit in the last place, at most, that values of this magnitude are stored with.
fn rounding(value: f64, precision: u32) -> f64 {
    f64::max(value.abs() * 0.5f64.powi(precision as i32 - 1), smallest(precision))
}

/// The smallest positive number of a dtype.
fn smallest(precision: u32) -> f64 {
    match precision {
        8 => 2f64.powi(-133),
        11 => 2f64.powi(-24),
        _ => 2f64.powi(-149),
    }
}

/// A spread that is less than the distance of neighbouring values around the mean: rounding, and not the law, makes what is stored.
fn lost_to_rounding(expected: &Expected, sample: &Sample) -> Option<Finding> {
    let unit = rounding(expected.mean, sample.precision);
    let Statistics { min, max, .. } = sample.statistics;
    let reach = 6.0 * expected.std + unit;
    if expected.std >= unit || min < expected.mean - reach || max > expected.mean + reach {
        return None;
    }
    let text = format!(
        "{} is lost to rounding: around {} stored values are {} apart",
        of_std(expected.std),
        short(expected.mean),
        short(unit)
    );
    Some(Finding::new(Severity::Warning, Deviation::Constant, text))
}

fn constant(value: f64, sample: &Sample) -> Option<Finding> {
    let Statistics { min, max, mean, std, .. } = sample.statistics;
    let tolerance = rounding(value, sample.precision);
    if (min - value).abs() <= tolerance && (max - value).abs() <= tolerance {
        return None;
    }
    let found = match min == max {
        true => format!("all {} instead of {}", short(min), short(value)),
        false => format!(
            "not {} throughout: mean {}, std {}, from {} to {}",
            short(value),
            short(mean),
            short(std),
            short(min),
            short(max)
        ),
    };
    Some(Finding::new(Severity::Error, Deviation::NotConstant, found))
}

fn drawn(expected: &Expected, rows: Rows, sample: &Sample, limits: &Limits) -> (Vec<Finding>, Scores) {
    let statistics = &sample.statistics;
    if statistics.is_constant() && statistics.count > 1 {
        let text = format!("all {}, where {} is drawn", short(statistics.min), of_std(expected.std));
        return (vec![Finding::new(Severity::Error, Deviation::Constant, text)], Scores::default());
    }
    let mut findings = Vec::new();
    let rest = Rest::without_zero_lanes(sample, rows, &mut findings);
    let (lanes, mut rest) = lanes_out_of_scale(expected, sample, rest, limits);
    findings.extend(lanes);
    let mut scores = rest.scores(expected);
    let tails = tails(expected, sample, limits);
    if tails.is_some() && scores.z_std.is_some_and(|z| z.abs() > limits.z) {
        let without = rest.without_value(sample);
        let better = without.scores(expected);
        if better.z_std.is_some_and(|z| z.abs() <= limits.z) {
            (rest, scores) = (without, better);
        }
    }
    let known = |score: Option<f64>| score.is_some_and(|z| z.abs() > limits.z);
    let (std_off, mean_off) = (known(scores.z_std), known(scores.z_mean));
    if std_off {
        findings.push(wrong_std(expected.std, &scores));
    }
    if mean_off {
        let off = (rest.mean() - expected.mean).abs();
        let severity = if off > DETAIL * expected.std { Severity::Error } else { Severity::Warning };
        let text = format!(
            "mean {} instead of {}, {} standard errors off",
            short(rest.mean()),
            short(expected.mean),
            sigmas(scores.z_mean)
        );
        findings.push(Finding::new(severity, Deviation::Mean, text));
    }
    // A scale that is off, or a lane, explains the rest.
    if findings.iter().all(|finding| finding.deviation == Deviation::PaddingRow) {
        findings.extend(zeros(expected, sample, &rest));
        findings.extend(tails.or_else(|| shape(expected, sample, &rest, limits)));
    }
    (findings, scores)
}

fn of_std(std: f64) -> String {
    format!("a std of {}", short(std))
}

fn sigmas(z: Option<f64>) -> String {
    short(z.unwrap_or(f64::NAN).abs().round())
}

fn wrong_std(expected: f64, scores: &Scores) -> Finding {
    let ratio = scores.ratio.unwrap_or(f64::NAN);
    let severity = if (ratio - 1.0).abs() > DETAIL { Severity::Error } else { Severity::Warning };
    let text = format!(
        "std {} instead of {}: times {}, {} standard errors off",
        short(ratio * expected),
        short(expected),
        short(ratio),
        sigmas(scores.z_std)
    );
    Finding::new(severity, Deviation::Std, text)
}

fn zero_lanes(name: &str, deviation: Deviation, lanes: &Lanes) -> Finding {
    const SHOWN: usize = 5;
    let shown: Vec<_> = lanes.first_zeros.iter().take(SHOWN).map(u64::to_string).collect();
    let more = if lanes.zeros as usize > SHOWN { ", …" } else { "" };
    let text = match lanes.zeros {
        1 => format!("{name} {} is 0", shown[0]),
        n => format!("{n} {name}s are 0: {}{more}", shown.join(", ")),
    };
    Finding::new(Severity::Error, deviation, text)
}

/// The sums over a sample, less those over rows that were set apart.
#[derive(Clone, Copy)]
struct Rest {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Rest {
    /// Lanes that are 0 add nothing to the sums: only the count is less.
    fn without_zero_lanes(sample: &Sample, due: Rows, findings: &mut Vec<Finding>) -> Self {
        let statistics = &sample.statistics;
        let count = statistics.count as f64;
        let mut rest = Self { count, sum: statistics.mean * count, squares: statistics.rms().powi(2) * count };
        if let Some(columns) = sample.columns.as_ref().filter(|columns| columns.zeros > 0) {
            rest.count -= (columns.zeros * columns.len) as f64;
            findings.push(zero_lanes("column", Deviation::Column, columns));
        }
        let Some(rows) = &sample.rows else { return rest };
        rest.count -= (rows.zeros * rows.len) as f64;
        match due.padding {
            Some(row) if !rows.first_zeros.contains(&row) => {
                let text = format!("row {row}, the vector of the padding token, is not 0");
                findings.push(Finding::new(Severity::Error, Deviation::PaddingRow, text));
            }
            Some(_) if rows.zeros == 1 => {}
            None if due.table && rows.zeros == 1 => {
                let row = rows.first_zeros[0];
                let text = format!("row {row} is 0, as of a padding token; plan it with .padding_row({row})");
                findings.push(Finding::new(Severity::Warning, Deviation::PaddingRow, text));
            }
            _ if rows.zeros > 0 => findings.push(zero_lanes("row", Deviation::Row, rows)),
            _ => {}
        }
        rest
    }

    fn without(self, lane: Lane, len: u64) -> Self {
        Self { count: self.count - len as f64, sum: self.sum - lane.sum, squares: self.squares - lane.squares }
    }

    /// Without the value that is furthest from 0.
    fn without_value(self, sample: &Sample) -> Self {
        let Statistics { min, max, .. } = sample.statistics;
        let far = if max > -min { max } else { min };
        Self { count: self.count - 1.0, sum: self.sum - far, squares: self.squares - far * far }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    fn variance(&self) -> f64 {
        (self.squares / self.count - self.mean().powi(2)).max(0.0)
    }

    fn scores(&self, expected: &Expected) -> Scores {
        if self.count < 2.0 {
            let z = (self.mean() - expected.mean) / expected.std;
            return Scores { ratio: None, z_std: None, z_mean: Some(z) };
        }
        // Roots first: the square of a std may be beyond what an f64 holds.
        let std_ratio = (self.variance() * self.count / (self.count - 1.0)).sqrt() / expected.std;
        let ratio = std_ratio.powi(2);
        // Var(s^2) = (kurtosis - 1) / n sigma^4, which is that of chi-squared with these degrees of freedom.
        let degrees = 2.0 * (self.count - 1.0) / (expected.kurtosis - 1.0);
        Scores {
            ratio: Some(std_ratio),
            z_std: Some(chi_squared_z(ratio, degrees)),
            // By the larger std, so that a scale that is off is told once.
            z_mean: Some((self.mean() - expected.mean) / (expected.std * std_ratio.max(1.0)) * self.count.sqrt()),
        }
    }
}

/// Rows and columns that are out of scale while the rest is not; the sums without them.
fn lanes_out_of_scale(expected: &Expected, sample: &Sample, rest: Rest, limits: &Limits) -> (Vec<Finding>, Rest) {
    // Lanes are measured about 0.
    if expected.mean.abs() > 1e-3 * expected.std {
        return (Vec::new(), rest);
    }
    // Another distribution of the same std is not a matter of lanes: they vary as much as those of a normal.
    let kurtosis = expected.kurtosis.max(3.0);
    let z_of = |lanes: &Lanes, lane: Lane| {
        let degrees = 2.0 * lanes.len as f64 / (kurtosis - 1.0);
        chi_squared_z((lanes.rms(lane) / expected.std).powi(2), degrees)
    };
    let mut found = Vec::new();
    for (lanes, deviation, name) in
        [(&sample.rows, Deviation::Row, "row"), (&sample.columns, Deviation::Column, "column")]
    {
        let Some(lanes) = lanes.as_ref().filter(|lanes| lanes.len >= LANE_NEEDS) else { continue };
        let limit = limits.lane_z(lanes.count);
        // One value alone is an outlier, not a lane.
        let spike = sample.statistics.max.max(-sample.statistics.min).powi(2);
        let off = |lane: Lane| {
            let z = z_of(lanes, lane);
            let less = Lane { squares: (lane.squares - spike).max(0.0), ..lane };
            lane.squares > 0.0 && (z < -limit || (z > limit && z_of(lanes, less) > limit))
        };
        for lane in [lanes.largest, lanes.smallest] {
            let known =
                found.iter().any(|(_, d, _, l): &(Finding, _, f64, Lane)| *d == deviation && l.index == lane.index);
            if known || !off(lane) {
                continue;
            }
            let rms = lanes.rms(lane);
            let text = format!(
                "{name} {} is out of scale: rms {}, times {} of what is due",
                lane.index,
                short(rms),
                short(rms / expected.std)
            );
            let ratio = rms / expected.std;
            let severity = if (ratio - 1.0).abs() > 0.5 { Severity::Error } else { Severity::Warning };
            found.push((Finding::new(severity, deviation, text), deviation, z_of(lanes, lane).abs(), lane));
        }
    }
    // The lane that stands out most, if the rest is in order without it; otherwise the whole is out of scale, not a lane.
    found.sort_by(|a, b| b.2.total_cmp(&a.2));
    let Some((_, deviation, _, lane)) = found.first() else { return (Vec::new(), rest) };
    let lanes = if *deviation == Deviation::Row { &sample.rows } else { &sample.columns };
    let len = lanes.as_ref().map_or(0, |lanes| lanes.len);
    let without = rest.without(*lane, len);
    let fits = |rest: &Rest| rest.scores(expected).z_std.is_some_and(|z| z.abs() <= limits.z);
    match fits(&without) || fits(&rest) {
        true => (found.into_iter().take(1).map(|(finding, ..)| finding).collect(), without),
        false => (Vec::new(), rest),
    }
}

/// More zeros than rounding explains. A draw by PyTorch may be a multiple of 2^-24 of its range.
fn zeros(expected: &Expected, sample: &Sample, rest: &Rest) -> Option<Finding> {
    let in_rows = sample.rows.as_ref().map_or(0, |rows| rows.zeros * rows.len);
    let zeros = sample.statistics.zeros - in_rows;
    let least =
        f64::max(expected.std * 2f64.powi(-(sample.precision.min(24) as i32)), smallest(sample.precision) / 2.0);
    let due = rest.count * (expected.cdf(least) - expected.cdf(-least));
    if zeros as f64 <= 20.0 + 2.0 * due {
        return None;
    }
    let share = zeros as f64 / sample.statistics.count as f64;
    let severity = if share > DETAIL { Severity::Error } else { Severity::Warning };
    Some(Finding::new(severity, Deviation::Zeros, format!("{zeros} values are 0, {} % of all", short(100.0 * share))))
}

fn tails(expected: &Expected, sample: &Sample, limits: &Limits) -> Option<Finding> {
    let Statistics { min, max, count, .. } = sample.statistics;
    let margin = |bound: f64| rounding(bound, sample.precision);
    if min < expected.low - margin(expected.low) || max > expected.high + margin(expected.high) {
        let text = format!(
            "values from {} to {}, beyond the bounds {} and {}",
            short(min),
            short(max),
            short(expected.low),
            short(expected.high)
        );
        return Some(Finding::new(Severity::Warning, Deviation::Bounds, text));
    }
    if expected.low.is_finite() || expected.high.is_finite() {
        return None;
    }
    let far = if max - expected.mean > expected.mean - min { max } else { min };
    let distance = (far - expected.mean).abs() * (1.0 - 0.5f64.powi(sample.precision as i32));
    let distance = distance - smallest(sample.precision) / 2.0;
    // Two-sided, for the largest of `count`.
    let p = 2.0 * count as f64 * expected.cdf(expected.mean - distance);
    (p < limits.p).then(|| {
        let z = (far - expected.mean).abs() / expected.std;
        let text = format!("the value {} is {} sigmas out, too far for {count} draws", short(far), short(z));
        Finding::new(Severity::Error, Deviation::Outlier, text)
    })
}

/// Pearson's chi-squared test on the histogram: tells a uniform, a normal and a truncated normal of equal std apart.
fn shape(expected: &Expected, sample: &Sample, rest: &Rest, limits: &Limits) -> Option<Finding> {
    if rest.count < SHAPE_NEEDS as f64 {
        return None;
    }
    let zeros = sample.statistics.count as f64 - rest.count;
    let count = rest.count;
    let (mut chi, mut bins) = (0.0, 0u32);
    let (mut from, mut observed) = (0.0, 0.0);
    let mut close = |upto: f64, observed: &mut f64, from: &mut f64, last: bool| {
        let due = count * (upto - *from);
        // The last cell takes what is left, and so may be short of draws: it is counted with a due of at least the least.
        if due >= CELL_NEEDS || (last && (due > 0.0 || *observed > 0.0)) {
            chi += (*observed - due).powi(2) / due.max(CELL_NEEDS);
            bins += 1;
            *observed = 0.0;
            *from = upto;
        }
    };
    for &(cell, n) in &sample.histogram {
        let edge = stored_below(lower_bound(cell), sample.precision);
        // Cells around 0 are of no help, and of the size of the resolution of some generators.
        if edge.abs() > expected.std / 16.0 {
            close(expected.cdf(edge), &mut observed, &mut from, false);
        }
        observed += n as f64;
        if cell == 0 {
            observed -= zeros;
        }
    }
    close(1.0, &mut observed, &mut from, true);
    if bins < 3 {
        return None;
    }
    let degrees = f64::from(bins - 1);
    let z = chi_squared_z(chi / degrees, degrees);
    (z > limits.z).then(|| {
        let text = format!(
            "mean and std are as planned, the distribution is not: kurtosis {} instead of {}{}, from {} to {}",
            short(sample.statistics.kurtosis),
            short(expected.kurtosis),
            likeness(sample),
            short(sample.statistics.min),
            short(sample.statistics.max)
        );
        Finding::new(Severity::Warning, Deviation::Distribution, text)
    })
}

/// The boundary in the unrounded values between what is stored below `edge` and what is not. The histogram's cells are half open towards
/// larger magnitudes, so that on the negative side the edge itself belongs to the cell nearer to 0.
fn stored_below(edge: f64, precision: u32) -> f64 {
    if edge == 0.0 {
        return edge;
    }
    let magnitude = edge.abs();
    let exponent = magnitude.log2().floor() as i32;
    let is_power = magnitude == 2f64.powi(exponent);
    let unit = 2f64.powi(exponent + 1 - precision as i32 - i32::from(is_power));
    let unit = unit.max(smallest(precision));
    // Among the smallest numbers of a dtype an edge may lie between two that it holds.
    ((magnitude / unit).ceil() - 0.5) * unit * edge.signum()
}

/// A family with this kurtosis, in words.
fn likeness(sample: &Sample) -> &'static str {
    let Statistics { kurtosis, std, min, max, .. } = sample.statistics;
    let reach = (max - min) / 2.0 / std;
    match kurtosis {
        k if (k - 1.8).abs() < 0.05 && reach < 1.8 => " (a uniform)",
        k if (k - 3.0).abs() < 0.05 && reach > 3.2 => " (a normal)",
        k if (1.85..2.97).contains(&k) && reach < 3.6 => " (a truncated normal)",
        k if k > 3.2 => " (heavy tails, as of a trained or mixed tensor)",
        _ => "",
    }
}

fn orthogonal(gain: f64, matrix: [u64; 2], sample: &Sample, limits: &Limits) -> (Vec<Finding>, Scores) {
    let std = gain.abs() / (matrix[0].max(matrix[1]) as f64).sqrt();
    let statistics = &sample.statistics;
    // All elements have the same second moment, and their sum of squares is exact.
    let ratio = statistics.rms() / std;
    let z_mean = statistics.mean / std * (statistics.count as f64).sqrt();
    let scores = Scores { ratio: Some(ratio), z_std: None, z_mean: Some(z_mean) };
    let tolerance = 1e-3 + 4.0 * 0.5f64.powi(sample.precision as i32);
    let mut findings = Vec::new();
    if (ratio - 1.0).abs() > tolerance {
        let severity = if (ratio - 1.0).abs() > DETAIL { Severity::Error } else { Severity::Warning };
        let text = format!("rms {} instead of {}: times {}", short(statistics.rms()), short(std), short(ratio));
        findings.push(Finding::new(severity, Deviation::Std, text));
    }
    if let Some(rest) = sample.orthogonality.filter(|rest| *rest > tolerance) {
        let text = format!("not a multiple of an orthogonal matrix: off by {} of its scale", short(rest));
        findings.push(Finding::new(Severity::Error, Deviation::Orthogonality, text));
    }
    if findings.is_empty() && z_mean.abs() > limits.z {
        let text =
            format!("mean {} instead of 0, {} standard errors off", short(statistics.mean), sigmas(Some(z_mean)));
        findings.push(Finding::new(Severity::Warning, Deviation::Mean, text));
    }
    (findings, scores)
}

/// Against what the function itself computes: to rounding if that is always the same, as two samples of one law otherwise.
pub(super) fn computed(reference: &Sample, fixed: bool, sample: &Sample, limits: &Limits) -> (Vec<Finding>, Scores) {
    let (due, found) = (&reference.statistics, &sample.statistics);
    if due.is_constant() {
        return (constant(due.min, sample).into_iter().collect(), Scores::default());
    }
    let ratio = found.std / due.std;
    let mut scores = Scores { ratio: Some(ratio), z_std: None, z_mean: None };
    let mut findings = Vec::new();
    let tolerance = 1e-4 + 0.5f64.powi(sample.precision as i32 - 1);
    if fixed {
        let near = |a: f64, b: f64| (a - b).abs() <= tolerance * due.rms();
        if !(near(ratio, 1.0) && near(found.mean, due.mean) && near(found.min, due.min) && near(found.max, due.max)) {
            let text = format!(
                "not what the function computes: mean {}, std {} instead of {}, {}",
                short(found.mean),
                short(found.std),
                short(due.mean),
                short(due.std)
            );
            findings.push(Finding::new(Severity::Error, Deviation::Distribution, text));
        }
        return (findings, scores);
    }
    let degrees = 2.0 * found.count as f64 / (due.kurtosis - 1.0).max(0.1) / 2.0;
    scores.z_std = Some(chi_squared_z(ratio * ratio, degrees));
    scores.z_mean = Some((found.mean - due.mean) / due.std * (found.count as f64 / 2.0).sqrt());
    for (due, found, deviation, name) in [
        (&reference.rows, &sample.rows, Deviation::Row, "row"),
        (&reference.columns, &sample.columns, Deviation::Column, "column"),
    ] {
        let (Some(due), Some(found)) = (due, found) else { continue };
        let length = due.largest.squares.sqrt();
        if due.zeros > 0 || due.smallest.squares.sqrt() < (1.0 - 1e-4) * length {
            continue;
        }
        let off = |lane: Lane| (lane.squares.sqrt() / length - 1.0).abs();
        let worst = if off(found.largest) > off(found.smallest) { found.largest } else { found.smallest };
        if found.zeros > 0 || off(worst) > tolerance {
            let text = format!(
                "{name}s are to have the length {}, and {name} {} has {}",
                short(length),
                worst.index,
                short(worst.squares.sqrt())
            );
            findings.push(Finding::new(Severity::Error, deviation, text));
            break;
        }
    }
    let known = |score: Option<f64>| score.is_some_and(|z| z.abs() > limits.z);
    if findings.is_empty() && known(scores.z_std) {
        findings.push(wrong_std(due.std, &scores));
    }
    if findings.is_empty() && known(scores.z_mean) {
        let text = format!("mean {} instead of {}", short(found.mean), short(due.mean));
        findings.push(Finding::new(Severity::Warning, Deviation::Mean, text));
    }
    (findings, scores)
}

/// The std that is due; NaN where nothing tells it.
pub(super) fn std_of(yardstick: &Yardstick) -> f64 {
    match yardstick {
        Yardstick::Law(law) => law.std(),
        Yardstick::Computed { sample, .. } => sample.statistics.std,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Distribution, Stream};

    const ROWS: Rows = Rows { padding: None, table: false };

    fn draw(distribution: &Distribution, count: usize, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0f32; count];
        Stream::new(seed, "judge").fill(distribution, 0, &mut values);
        values
    }

    /// The tails that the limits stand on: with 2e-3 for a test, no more than six times that many of 4800 samples are flagged
    /// (the union bound, and four standard deviations of the count); and not none, so that the limits are not slack.
    #[test]
    fn false_alarms_are_as_rare_as_promised() {
        let p = 2e-3;
        let limits = Limits { p, z: upper_quantile(p / 2.0) };
        let laws = [
            Distribution::Normal { mean: 0.0, std: 0.02 },
            Distribution::Uniform { low: -0.05, high: 0.05 },
            Distribution::TruncatedNormal { mean: 0.0, std: 0.02, low: -2.0, high: 2.0 },
        ];
        let (mut samples, mut flagged) = (0, 0);
        for distribution in &laws {
            let yardstick = Yardstick::Law(Law::Draw(*distribution));
            for (rows, columns, times) in [(8, 8, 1000), (16, 64, 400), (96, 128, 200)] {
                for seed in 0..times {
                    let values = draw(distribution, rows * columns, seed);
                    let sample = Sample::of(&values, columns, false, 24);
                    samples += 1;
                    flagged += usize::from(!judge(&yardstick, ROWS, &sample, &limits).0.is_empty());
                }
            }
        }
        let most = TESTS * p * samples as f64;
        assert!(flagged > 5 && (flagged as f64) < most + 4.0 * most.sqrt(), "{flagged} of {samples}, at most {most}");
    }

    /// GPT-2 small: the figures of the documentation.
    #[test]
    fn limits_of_gpt2_small() {
        let limits = Limits::new(74);
        assert!((limits.p - 2.25e-7).abs() < 1e-8 && (limits.z - 5.18).abs() < 0.01, "{limits:?}");
    }

    /// From the smallest numbers of a dtype to the largest, healthy draws are healthy, and others are not.
    #[test]
    fn tiny_and_huge_stds() {
        let f16 = |value: f32| half::f16::from_f32(value).to_f32();
        type Round = fn(f32) -> f32;
        let cases: [(u32, Round, &[f64]); 2] =
            [(24, |x| x, &[1e37, 1e30, 1e-30, 1e-38, 1e-42, 1e-44, 3e-45]), (11, f16, &[1e4, 1e-5, 1e-6, 1e-7, 7e-8])];
        let limits = Limits::new(1);
        for (precision, round, stds) in cases {
            for &std in stds {
                let law = Distribution::Normal { mean: 0.0, std };
                let judged = |planned: f64, values: &[f32]| {
                    let yardstick = Yardstick::Law(Law::Draw(Distribution::Normal { mean: 0.0, std: planned }));
                    judge(&yardstick, ROWS, &Sample::of(values, 250, false, precision), &limits)
                };
                let values: Vec<f32> = draw(&law, 100_000, 5).into_iter().map(round).collect();
                let (findings, scores) = judged(std, &values);
                assert_eq!(findings, [], "{std:e} in {precision} bits");
                assert!(scores.z_std.is_some_and(|z| z.abs() < 4.0), "{std:e}: {scores:?}");
                for factor in [1.1, 1e-3, 1e30] {
                    let (findings, _) = judged(std * factor, &values);
                    let deviation = findings.first().map(|finding| finding.deviation);
                    // Below the smallest number another scale is all that can be told.
                    let lost = std * factor < smallest(precision) && std < 100.0 * smallest(precision);
                    let told = deviation == Some(Deviation::Std) || (lost && deviation == Some(Deviation::Constant));
                    assert!(told, "{std:e} times {factor:e}: {findings:?}");
                    assert!(findings.iter().all(|finding| !finding.text.contains("NaN")), "{findings:?}");
                }
            }
        }
        let planned = |std: f64, values: &[f32]| {
            let yardstick = Yardstick::Law(Law::Draw(Distribution::Normal { mean: 0.0, std }));
            judge(&yardstick, ROWS, &Sample::of(values, 10, false, 24), &limits).0
        };
        let lost = planned(1e-50, &[0.0; 100]);
        assert_eq!(
            lost[0].text,
            "a std of 1.0000e-50 is lost to rounding: around 0 stored values are 1.4013e-45 apart"
        );
        assert_eq!(lost[0].severity, Severity::Warning);
        // Whatever is planned, other values are told by their own std.
        let other = planned(1e-200, &draw(&Distribution::Normal { mean: 0.0, std: 0.02 }, 100, 1));
        assert!(other[0].severity == Severity::Error && other[0].text.starts_with("std 0.0"), "{other:?}");
        // CaiT's layer scale, which f16 holds as 17 times its smallest number.
        let constant = Yardstick::Law(Law::Constant(1e-6));
        assert_eq!(judge(&constant, ROWS, &Sample::of(&[f16(1e-6); 64], 64, false, 11), &limits).0, []);
        assert_eq!(judge(&constant, ROWS, &Sample::of(&[f16(2e-6); 64], 64, false, 11), &limits).0.len(), 1);
    }

    /// bf16 rounds every value; the cells of the histogram know.
    #[test]
    fn rounding_is_no_deviation() {
        let normal = Distribution::Normal { mean: 0.0, std: 0.02 };
        let yardstick = Yardstick::Law(Law::Draw(normal));
        let mut values = draw(&normal, 4_000_000, 1);
        values.iter_mut().for_each(|value| *value = half::bf16::from_f32(*value).to_f32());
        let limits = Limits::new(1);
        let found = |precision| judge(&yardstick, ROWS, &Sample::of(&values, 2000, false, precision), &limits).0;
        assert!(found(8).is_empty(), "{:?}", found(8));
    }
}
