//! A measured start against a plan, line by line.

use std::collections::HashMap;

use super::{
    Audit, Line,
    finding::{Deviation, Finding, Severity},
    judge::{Limits, Rows, Scores, Yardstick, computed, judge, std_of},
    start::{Part, Reading, Start},
    statistics::Sample,
};
use crate::{
    plan::{Entry, Plan},
    rule::{FillContext, Law, short},
    sample::Stream,
};

pub(super) fn compare(plan: &Plan, start: &Start) -> Audit {
    let limits = Limits::new(samples(plan, start));
    let mut lines: Vec<Line> = Vec::with_capacity(plan.len());
    let mut notes = Vec::new();
    let mut seen: HashMap<u64, &str> = HashMap::new();
    for entry in plan {
        let path = entry.spec().path();
        let block = entry.spec().block().map_or(0, |block| block.index as usize);
        let reading = start.readings.get(path);
        let mut line = match reading {
            Some(Reading::Values { parts, .. }) => compare_part(entry, &parts[block], &limits),
            other => without_values(entry, other),
        };
        line.name = start.names.get(path).cloned();
        if let (Some(Reading::Values { hash, .. }), 0) = (reading, block) {
            line.findings.extend(copies(path, *hash, start));
            // Two draws of some length never agree.
            let drawn = !matches!(entry.law(), Law::Constant(_) | Law::Keep);
            let random = drawn && !matches!(entry.law(), Law::Fill { .. }) && entry.spec().num_elements() >= 16;
            match seen.get(hash) {
                Some(twin) if random => line.findings.push(Finding::new(
                    Severity::Error,
                    Deviation::Duplicate,
                    format!("holds the same values as {twin}: tied or cloned, where the plan draws both"),
                )),
                _ if random => drop(seen.insert(*hash, path)),
                _ => {}
            }
        }
        lines.push(line);
    }
    for extra in &start.extras {
        match extra.hash.and_then(|hash| seen.get(&hash)) {
            Some(twin) => notes.push(format!("{} holds the same values as {twin}: tied", extra.path)),
            None => lines.push(unplanned(&extra.path, &extra.shape)),
        }
    }
    let order = |line: &Line| std::cmp::Reverse(line.severity());
    lines.sort_by_key(order);
    Audit { lines, notes }
}

/// How many samples are tested: constants cannot raise a false alarm.
fn samples(plan: &Plan, start: &Start) -> u64 {
    let of = |entry: &Entry| match (entry.law(), start.readings.get(entry.spec().path())) {
        (Law::Constant(_) | Law::Keep, _) => 0,
        (_, Some(Reading::Values { .. })) => entry.spec().experts().unwrap_or(1),
        _ => 0,
    };
    plan.iter().map(of).sum()
}

fn line(entry: &Entry, expected_std: f64) -> Line {
    let spec = entry.spec();
    Line {
        path: spec.path().to_string(),
        name: None,
        role: Some(spec.role()),
        block: spec.block(),
        shape: spec.shape().to_vec(),
        expected: entry.law().to_string(),
        expected_std: Some(expected_std).filter(|std| std.is_finite()),
        measured: None,
        ratio: None,
        z_std: None,
        z_mean: None,
        findings: Vec::new(),
    }
}

fn without_values(entry: &Entry, reading: Option<&Reading>) -> Line {
    let mut line = line(entry, entry.std());
    let (severity, deviation, text) = match reading {
        Some(Reading::NoValue) => {
            (Severity::Error, Deviation::NoValue, "holds no value yet: initialize the model first".to_string())
        }
        Some(Reading::Quantized) => {
            (Severity::Note, Deviation::Quantized, "quantised: its values were not looked at".to_string())
        }
        Some(Reading::Shape(found)) => {
            (Severity::Error, Deviation::Shape, format!("its shape is {found:?}, and the plan has {:?}", line.shape))
        }
        Some(Reading::Values { .. }) | None => {
            let shown = entry.tied().is_empty();
            let also = if shown { String::new() } else { format!(", nor {}", entry.tied().join(" nor ")) };
            (Severity::Error, Deviation::Missing, format!("there is no such parameter{also}"))
        }
    };
    line.findings.push(Finding::new(severity, deviation, text));
    line
}

fn compare_part(entry: &Entry, part: &Part, limits: &Limits) -> Line {
    let yardstick = yardstick(entry, &part.whole, limits);
    let mut line = line(entry, std_of(&yardstick));
    line.measured = Some(part.whole.statistics);
    let rows = Rows { padding: entry.rule().zero_row, table: entry.spec().role().is_table() };
    let (findings, Scores { ratio, z_std, z_mean }) = judge(&yardstick, rows, &part.whole, limits);
    (line.ratio, line.z_std, line.z_mean) = (ratio, z_std, z_mean);
    let computed = matches!(yardstick, Yardstick::Computed { .. });
    if part.experts.is_empty() || computed {
        line.findings = findings;
    } else {
        line.findings = by_expert(&yardstick, rows, &part.experts, limits);
    }
    if let Law::Keep = entry.law() {
        line.findings.push(Finding::new(Severity::Note, Deviation::Kept, "kept by the plan: nothing to compare with"));
    }
    if let (Law::Fill { fill, .. }, Yardstick::Law(_)) = (entry.law(), &yardstick) {
        let text = format!("the fill \"{}\" has no function: bind it with plan.bind(…)", fill.name());
        line.findings.push(Finding::new(Severity::Warning, Deviation::Kept, text));
    }
    line
}

/// One finding for each expert that deviates, or one for all where all do alike.
fn by_expert(yardstick: &Yardstick, rows: Rows, experts: &[Sample], limits: &Limits) -> Vec<Finding> {
    let judged: Vec<Vec<Finding>> = experts.iter().map(|sample| judge(yardstick, rows, sample, limits).0).collect();
    let ill = judged.iter().filter(|findings| !findings.is_empty()).count();
    let mut out = Vec::new();
    for (index, findings) in judged.into_iter().enumerate().filter(|(_, findings)| !findings.is_empty()) {
        let prefix = match ill == experts.len() {
            true => format!("each expert, as the first: {}", findings[0].text),
            false => format!("expert {index} of {}: {}", experts.len(), findings[0].text),
        };
        out.push(Finding { text: prefix, ..findings[0].clone() });
        if ill == experts.len() {
            break;
        }
    }
    out
}

/// The law itself, or what its function computes.
fn yardstick(entry: &Entry, found: &Sample, limits: &Limits) -> Yardstick {
    let Law::Fill { fill, factor } = entry.law() else { return Yardstick::Law(entry.law().clone()) };
    if fill.bound().is_err() {
        return Yardstick::Law(entry.law().clone());
    }
    let spec = entry.spec();
    let columns = spec.block().map_or(spec.shape().last().copied().unwrap_or(1), |block| block.len) as usize;
    let draw = |seed: u64| {
        let mut values = vec![0.0f32; spec.num_elements() as usize];
        let stream = Stream::new(seed, entry.stream_path());
        fill.apply(&FillContext { param: spec, stream }, *factor, &mut values);
        values
    };
    let one = draw(0);
    let sample = Box::new(Sample::of(&one, columns, false, found.precision.max(24)));
    // What no draw can have given is not what is computed from every seed, either: a second one would tell nothing.
    let drawn = computed(&sample, false, found, limits).0.iter().all(|finding| finding.severity < Severity::Error);
    let fixed = drawn && one == draw(1);
    Yardstick::Computed { sample, fixed }
}

/// Tensors at tied paths that are no longer the same.
fn copies(path: &str, hash: u64, start: &Start) -> Vec<Finding> {
    let all = start.copies.get(path).map_or(&[][..], Vec::as_slice);
    let differ = all.iter().filter(|(_, other)| *other != hash);
    differ
        .map(|(other, _)| {
            let text = format!("tied to {other} in the plan, and the two hold different values");
            Finding::new(Severity::Error, Deviation::Tie, text)
        })
        .collect()
}

fn unplanned(path: &str, shape: &[u64]) -> Line {
    let text = "the plan has no line for it";
    Line {
        path: path.into(),
        name: None,
        role: None,
        block: None,
        shape: shape.to_vec(),
        expected: String::new(),
        expected_std: None,
        measured: None,
        ratio: None,
        z_std: None,
        z_mean: None,
        findings: vec![Finding::new(Severity::Warning, Deviation::Unplanned, text)],
    }
}

/// How far a line is from its law on a scale on which an e-fold of the std is 1: what orders schemes of which none fits.
pub(super) fn distance(line: &Line) -> f64 {
    const MOST: f64 = 3.0;
    match (line.ratio, &line.measured) {
        (Some(ratio), _) if ratio > 0.0 => ratio.ln().abs().min(MOST),
        _ if line.severity() > Some(Severity::Note) => 1.0,
        _ => 0.0,
    }
}

/// `z` in print.
pub(super) fn sigmas(z: Option<f64>) -> String {
    match z {
        None => String::new(),
        Some(z) if z.abs() < 100.0 => format!("{z:+.1}"),
        Some(z) => format!("{}{}", if z > 0.0 { "+" } else { "" }, short(z.round())),
    }
}
