//! The charts of step zero: one curve for each scheme over the points of the stream.

use super::chart::{Chart, Series};
use super::failed;
use crate::{
    Error,
    step_zero::{Reading, Site, StepZero},
};

/// Half the height of a band, in standard deviations: 95 % of the means of several seeds fall in.
const SDS: f64 = 2.0;

/// One start: what is predicted of it, what was measured, or both.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    name: String,
    predicted: Option<&'a StepZero>,
    measured: Option<&'a StepZero>,
}

impl<'a> Curve<'a> {
    /// A curve with nothing to show yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), predicted: None, measured: None }
    }

    /// Draws a prediction: a line, with a band of two standard deviations of what is measured beside it, and of one seed where nothing is.
    pub fn predicted(mut self, predicted: &'a StepZero) -> Self {
        self.predicted = Some(predicted);
        self
    }

    /// Draws a measurement: a dot at each point.
    pub fn measured(mut self, measured: &'a StepZero) -> Self {
        self.measured = Some(measured);
        self
    }

    fn seeds(&self) -> u64 {
        self.measured.map_or(1, |measured| measured.seeds.max(1))
    }

    fn series(
        &self,
        name: String,
        value: impl Fn(&StepZero) -> Vec<(f64, f64)>,
        sd: impl Fn(&Reading) -> Option<(f64, f64)>,
    ) -> Series {
        let mut series = Series::new(name);
        if let Some(predicted) = self.predicted {
            let one = 1.0 / (self.seeds() as f64).sqrt();
            // Around the logarithm, so that the lower end stays above zero.
            let ends = |(x, reading): (f64, &Reading)| {
                let (value, sd) = sd(reading).filter(|(value, _)| *value > 0.0)?;
                let factor = (SDS * one * sd / value).exp();
                Some((x, value / factor, value * factor))
            };
            series = series.line(value(predicted)).band(count().zip(&predicted.stream).filter_map(ends));
        }
        match self.measured {
            Some(measured) => series.dots(value(measured)),
            None => series,
        }
    }
}

/// The residual stream after each of its additions, on a logarithmic axis.
///
/// # Errors
/// [`ErrorKind::Picture`](crate::ErrorKind::Picture): no curve, or a model whose stream was not seen.
pub fn stream(curves: &[Curve<'_>]) -> Result<Chart, Error> {
    let value = |reading: &Reading| Some(reading.second_moment);
    let sd = |reading: &Reading| Some((reading.second_moment, reading.sd?));
    let chart = over_stream("The residual stream before the first step", curves, value, sd, "no stream")?;
    Ok(chart.y("second moment of the stream: mean of x² per element").log_y())
}

/// The gradient of the loss by the stream at each of its points, on a logarithmic axis: of each position, as `|n dL/dx|²`.
///
/// # Errors
/// Those of [`stream`], and measurements without a gradient.
pub fn gradient(curves: &[Curve<'_>]) -> Result<Chart, Error> {
    let value = |reading: &Reading| reading.gradient;
    let sd = |reading: &Reading| Some((reading.gradient?, reading.gradient_sd?));
    let chart = over_stream("The gradient of the stream at step zero", curves, value, sd, "no gradient of the stream")?;
    Ok(chart.y("squared gradient norm of a position: mean of |n dL/dx|²").log_y())
}

/// The correlation between the positions of a sequence along the stream. At 1 all hold the same vector.
///
/// # Errors
/// Those of [`stream`], and sequences of one token.
pub fn correlation(curves: &[Curve<'_>]) -> Result<Chart, Error> {
    let value = |reading: &Reading| reading.correlation;
    let title = "How alike the tokens become";
    let chart = over_stream(title, curves, value, |_| None, "no correlation between tokens")?;
    Ok(chart.y("ρ: mean correlation between two positions of the stream").y_holds([0.0, 1.0]))
}

/// Each branch against the stream that it is added to, as a ratio of second moments on a logarithmic axis: MLPs as solid lines,
/// attention dashed.
///
/// # Errors
/// Those of [`stream`], and a model that shows another number of branches than of additions.
pub fn branches(curves: &[Curve<'_>]) -> Result<Chart, Error> {
    let mut chart = chart("Each branch against the stream that it is added to", curves);
    for (i, curve) in curves.iter().enumerate() {
        for start in curve.predicted.iter().chain(&curve.measured) {
            if start.branches.is_empty() || start.branches.len() + 1 != start.stream.len() {
                let found = format!(
                    "\"{}\" has {} points of the stream and {} branches",
                    curve.name,
                    start.stream.len(),
                    start.branches.len()
                );
                return Err(failed(
                    found,
                    "show the probe the embedding, each branch, and the stream after each addition",
                ));
            }
            if let Some(empty) =
                start.stream[..start.branches.len()].iter().find(|reading| reading.second_moment == 0.0)
            {
                let found = format!("\"{}\" has a stream of zero at {}", curve.name, empty.point);
                return Err(failed(found, "there is no ratio to it: leave the curve out"));
            }
        }
        for (site, name) in [(Site::MlpOut, "MLP"), (Site::AttnOut, "attention")] {
            let ratios = |start: &StepZero| {
                let pairs = count().zip(start.branches.iter().zip(&start.stream));
                pairs
                    .filter(|(_, (branch, _))| branch.point.site == site)
                    .map(|(x, (branch, stream))| (x + 1.0, branch.second_moment / stream.second_moment))
                    .collect()
            };
            let series = curve.series(format!("{}, {name}", curve.name), ratios, |_| None).colored_as(i);
            chart = chart.with(if site == Site::AttnOut { series.dashed() } else { series });
        }
    }
    let chart = chart.note(format!("MLPs solid, attention dashed; {}", note(curves, false)));
    Ok(chart.y("second moment of the branch, over that of the stream before it").log_y())
}

fn over_stream(
    title: &str,
    curves: &[Curve<'_>],
    value: impl Fn(&Reading) -> Option<f64>,
    sd: impl Fn(&Reading) -> Option<(f64, f64)>,
    missing: &str,
) -> Result<Chart, Error> {
    let mut chart = chart(title, curves);
    let points = |start: &StepZero| -> Vec<(f64, f64)> {
        count().zip(&start.stream).filter_map(|(x, reading)| Some((x, value(reading)?))).collect()
    };
    for curve in curves {
        let sides = [(curve.predicted, "prediction"), (curve.measured, "measurement")];
        if let Some((_, side)) = sides.iter().find(|(start, _)| start.is_some_and(|start| points(start).is_empty())) {
            let found = format!("the {side} of \"{}\" has {missing}", curve.name);
            return Err(failed(
                found,
                "call Probe::pass with the stream in the forward pass, on an autodiff device for gradients",
            ));
        }
        chart = chart.with(curve.series(curve.name.clone(), points, &sd));
    }
    Ok(match chart.has_bands() {
        true => chart,
        false => chart.note(note(curves, false)),
    })
}

fn chart(title: &str, curves: &[Curve<'_>]) -> Chart {
    let deepest =
        curves.iter().flat_map(|curve| [curve.predicted, curve.measured]).flatten().map(|start| start.stream.len());
    let additions = deepest.max().unwrap_or(1).saturating_sub(1);
    // Whole blocks, so that a tick is always the end of an MLP.
    let every =
        [2, 4, 8, 12, 16, 24, 32, 48, 64].into_iter().find(|every| additions / every <= 8).unwrap_or(additions / 8);
    let ticks = (0..=additions).step_by(every.max(1)).map(|tick| tick as f64);
    Chart::new(title).x("additions to the residual stream").x_ticks(ticks).note(note(curves, true))
}

/// What is line, band and dot.
fn note(curves: &[Curve<'_>], bands: bool) -> String {
    let mut parts = Vec::new();
    if curves.iter().any(|curve| curve.predicted.is_some()) {
        parts.push("lines: predicted from the plan".to_string());
    }
    let mut seeds: Vec<u64> = curves.iter().filter(|curve| curve.predicted.is_some()).map(Curve::seeds).collect();
    seeds.dedup();
    match seeds[..] {
        _ if !bands => {}
        [1] => parts.push("bands: ± 2 sd of a single seed".into()),
        [seeds] => parts.push(format!("bands: ± 2 sd of a mean of {seeds} seeds")),
        [] => {}
        _ => parts.push("bands: ± 2 sd of what is measured".into()),
    }
    if curves.iter().any(|curve| curve.measured.is_some()) {
        parts.push("dots: measured".into());
    }
    parts.join("; ")
}

fn count() -> impl Iterator<Item = f64> {
    (0u32..).map(f64::from)
}
