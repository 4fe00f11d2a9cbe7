//! What f16 cannot hold.

use super::{Fault, Finding, StepZero};

/// Bits of the significand of f16. bf16 has the range of f32.
const F16: u32 = 11;
const LARGEST: f64 = 65504.0;
/// The smallest subnormal.
const SMALLEST: f64 = 6e-8;
/// Activations have no value beyond so many standard deviations.
const TAIL: f64 = 6.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    if !s.parameters.iter().any(|parameter| parameter.precision == Some(F16)) {
        return Vec::new();
    }
    let readings = s.stream.iter().chain(&s.branches);
    let largest = readings.max_by(|a, b| a.second_moment.total_cmp(&b.second_moment));
    let mut findings = Vec::new();
    if let Some(reading) = largest.filter(|reading| TAIL * reading.second_moment.sqrt() > LARGEST) {
        let cause = format!(
            "values at {} reach {:.0}, and f16 ends at {LARGEST}",
            reading.point,
            TAIL * reading.second_moment.sqrt()
        );
        findings.push(Finding::error(Fault::HalfPrecision, cause, "train in bf16, or scale the branches for depth"));
    }
    let count = |path: &str| s.parameters.iter().find(|p| p.path == path).map(|p| p.count as f64);
    let lost: Vec<String> = s
        .gradients
        .iter()
        .filter_map(|g| Some((g, g.norm.filter(|norm| *norm > 0.0)? / count(&g.path)?.sqrt())))
        .filter(|(g, rms)| *rms < SMALLEST && !s.is_key_bias(&g.path))
        .map(|(g, _)| g.path.clone())
        .collect();
    if !lost.is_empty() {
        let cause = format!("the gradients of {} parameters are below {SMALLEST:e}, where f16 is 0", lost.len());
        let finding = Finding::warning(Fault::HalfPrecision, cause, "scale the loss, or train in bf16");
        findings.push(Finding { parameters: lost, ..finding });
    }
    findings
}
