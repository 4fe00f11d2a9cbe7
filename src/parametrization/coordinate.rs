//! Whether activations keep their size as the model grows, in the first steps of training.

use std::{collections::BTreeMap, fmt};

use burn::{
    module::Module,
    nn::loss::CrossEntropyLossConfig,
    optim::{GradientsParams, ModuleOptimizer},
    tensor::{Int, Tensor},
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    step_zero::{Batch, Point, Probe, Site},
};

/// What grows from one size to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// The width; points are compared layer by layer.
    Width,
    /// The depth; the first and the last layers are compared.
    Depth,
}

/// The size of the activations at one point of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coordinates {
    /// Width or depth of the model.
    pub size: u64,
    /// Steps of training before.
    pub step: u64,
    /// Seed of the model.
    pub seed: u64,
    /// Name of the point: `2.attn_out`, or `last.resid_post` over depths.
    pub place: String,
    /// Kind of the point.
    pub site: Site,
    /// Mean of `|x|` over batch, positions and features.
    pub mean_abs: f64,
}

/// How the size of the activations at one place goes with the size of the model: the exponent `s` of `mean |x| ~ size^s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slope {
    /// Name of the point.
    pub place: String,
    /// Kind of the point.
    pub site: Site,
    /// Steps of training before.
    pub step: u64,
    /// Least-squares slope of `ln mean |x|` over `ln size`, the seeds averaged; nothing where activations are 0.
    pub slope: Option<f64>,
}

/// The coordinate check of Yang et al. 2022 (appendix D.1): trains models of several widths or depths for a few steps on one batch and
/// measures the size of their activations at each [`Probe`] point. In a parametrization that transfers, none grows with the size.
///
/// ```
/// use burn::{optim::AdamWConfig, tensor::{Device, Int, Tensor}};
/// use burn_init::{prelude::*, parametrization::{Axis, CoordinateCheck}, reference::TransformerConfig, schemes::Mup, step_zero::Batch};
///
/// let device = Device::flex().autodiff();
/// let config = |width| TransformerConfig::new(20, 8, width, 2, 2).with_tied(false);
/// let tokens = Tensor::<1, Int>::arange(0..9, &device);
/// let batch = Batch::new(tokens.clone().slice(0..8).unsqueeze(), tokens.slice(1..9).unsqueeze());
///
/// let check = CoordinateCheck::new(Axis::Width, [16, 32]).with_steps(2).run(
///     &batch,
///     |width, seed| {
///         let (setup, model) = (config(width as usize).setup(), config(width as usize).build(&device)?);
///         let shapes = setup.base_shapes(&model, &config(16).build(&device)?)?;
///         let scheme = Mup::from(shapes);
///         let model = setup.initialize(model, &scheme, seed)?;
///         let optimizer = setup.adamw(&model, &setup.plan(&model, &scheme)?, &AdamWConfig::new())?;
///         Ok((model, optimizer))
///     },
///     |model, tokens, probe| model.forward_with(tokens, probe),
/// )?;
/// println!("{check}");
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoordinateCheck {
    axis: Axis,
    sizes: Vec<u64>,
    steps: u64,
    seeds: Vec<u64>,
    learning_rate: f64,
    readings: Vec<Coordinates>,
}

/// Slopes up to this far from their right value are read as right.
const TOLERANCE: f64 = 0.1;

impl CoordinateCheck {
    /// Over these widths or depths: five steps at a learning rate of 0.01, seed 0.
    pub fn new(axis: Axis, sizes: impl IntoIterator<Item = u64>) -> Self {
        let sizes = sizes.into_iter().collect();
        Self { axis, sizes, steps: 5, seeds: vec![0], learning_rate: 0.01, readings: Vec::new() }
    }

    /// With this number of steps.
    pub fn with_steps(self, steps: u64) -> Self {
        Self { steps, ..self }
    }

    /// With these seeds; the slopes are those of the mean.
    pub fn with_seeds(self, seeds: impl IntoIterator<Item = u64>) -> Self {
        Self { seeds: seeds.into_iter().collect(), ..self }
    }

    /// With this learning rate of the base model.
    pub fn with_learning_rate(self, learning_rate: f64) -> Self {
        Self { learning_rate, ..self }
    }

    /// Builds, measures and trains each model. `build` makes model and optimizer of a size and a seed on a device with autodiff, `forward` gives the
    /// logits `[batch, seq, vocab]`.
    ///
    /// # Errors
    /// Those of `build`; fewer than two sizes; a learning rate that is negative or no number; an activation that is not finite.
    pub fn run<M: Module>(
        mut self,
        batch: &Batch,
        mut build: impl FnMut(u64, u64) -> Result<(M, ModuleOptimizer), Error>,
        forward: impl Fn(&M, Tensor<2, Int>, &mut Probe<'_>) -> Tensor<3>,
    ) -> Result<Self, Error> {
        self.sizes.sort_unstable();
        self.sizes.dedup();
        if self.sizes.len() < 2 || self.sizes[0] == 0 || self.seeds.is_empty() {
            return Err(Error::config("a slope needs two sizes of 1 or more, and a seed", "give more"));
        }
        if !(self.learning_rate.is_finite() && self.learning_rate >= 0.0) {
            return Err(Error::config(
                format!("the learning rate is {}", self.learning_rate),
                "use a finite number, 0 or more",
            ));
        }
        self.readings.clear();
        for size in self.sizes.clone() {
            for seed in self.seeds.clone() {
                let (mut model, mut optimizer) = build(size, seed)?;
                for step in 0..=self.steps {
                    let mut seen: Vec<(Point, Tensor<1>)> = Vec::new();
                    // Scores are -inf where a position must not look.
                    let mut listener = |point: Point, value: &Tensor<3>| {
                        if point.site != Site::AttnScores {
                            seen.push((point, value.clone().detach().abs().mean()));
                        }
                    };
                    let logits = forward(&model, batch.tokens.clone(), &mut Probe::new(&mut listener));
                    self.keep(size, step, seed, seen)?;
                    if step == self.steps {
                        break;
                    }
                    let targets = batch.targets.clone().flatten::<1>(0, 1);
                    let loss = CrossEntropyLossConfig::new().init(&logits.device());
                    let loss = loss.forward(logits.flatten::<2>(0, 1), targets);
                    let gradients = GradientsParams::from_grads(loss.backward(), &model);
                    model = optimizer.step(self.learning_rate, model, gradients);
                }
            }
        }
        Ok(self)
    }

    fn keep(&mut self, size: u64, step: u64, seed: u64, seen: Vec<(Point, Tensor<1>)>) -> Result<(), Error> {
        let last = seen.iter().filter_map(|(point, _)| point.layer).max();
        for (point, value) in seen {
            let place = match (self.axis, point.layer) {
                (Axis::Depth, Some(0)) => format!("first.{}", point.site.name()),
                (Axis::Depth, layer @ Some(_)) if layer == last => format!("last.{}", point.site.name()),
                (Axis::Depth, Some(_)) => continue,
                _ => point.to_string(),
            };
            let mean_abs = f64::from(value.into_scalar::<f32>());
            if !mean_abs.is_finite() {
                return Err(Error::new(
                    ErrorKind::Measurement,
                    format!("{point} is not finite at size {size}, after {step} steps"),
                    "use a smaller learning rate",
                ));
            }
            self.readings.push(Coordinates { size, step, seed, place, site: point.site, mean_abs });
        }
        Ok(())
    }

    /// All that was measured.
    pub fn readings(&self) -> &[Coordinates] {
        &self.readings
    }

    /// The sizes that were compared.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Steps of training.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Mean of `|x|` at a place for each size, the mean over the seeds.
    pub fn curve(&self, place: &str, step: u64) -> Vec<(u64, f64)> {
        let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for reading in self.readings.iter().filter(|reading| reading.place == place && reading.step == step) {
            let (sum, count) = sums.entry(reading.size).or_default();
            *sum += reading.mean_abs;
            *count += 1.0;
        }
        sums.into_iter().map(|(size, (sum, count))| (size, sum / count)).collect()
    }

    /// The slope at each place after each number of steps, in the order of the forward pass.
    pub fn slopes(&self) -> Vec<Slope> {
        let mut places: Vec<(&str, Site)> = Vec::new();
        for reading in &self.readings {
            if !places.iter().any(|(place, _)| *place == reading.place) {
                places.push((&reading.place, reading.site));
            }
        }
        let slope = |place: &str, site, step| {
            let curve = self.curve(place, step);
            Slope { place: place.into(), site, step, slope: log_slope(&curve) }
        };
        (places.into_iter())
            .flat_map(|(place, site)| (0..=self.steps).map(move |step| (place, site, step)))
            .map(|(place, site, step)| slope(place, site, step))
            .collect()
    }

    /// The slopes in words: one line for the first logits, one for what grows or shrinks, or that nothing does.
    pub fn findings(&self) -> Vec<String> {
        let slopes = self.slopes();
        let axis = if self.axis == Axis::Width { "width" } else { "depth" };
        let mut findings = Vec::new();
        for slope in slopes.iter().filter(|slope| slope.step == 0 && slope.site == Site::Logits) {
            findings.push(match (self.axis, slope.slope) {
                (_, None) => "the first logits are 0: the head starts at zero, which is right".into(),
                (Axis::Width, Some(s)) if (s + 0.5).abs() <= 1.5 * TOLERANCE => {
                    format!("the first logits go by width^{s:.2}: right under muP, whose head is divided by the width")
                }
                (_, Some(s)) if s.abs() <= TOLERANCE => {
                    format!("the first logits go by {axis}^{s:.2}: they keep their size")
                }
                (_, Some(s)) if s > 0.0 => {
                    format!("the first logits go by {axis}^{s:.2}: they grow before any training")
                }
                (_, Some(s)) => format!("the first logits go by {axis}^{s:.2}: they vanish"),
            });
        }
        let trained = slopes.iter().filter(|slope| slope.step == self.steps && !self.may_shrink(slope));
        let mut outside: Vec<(&Slope, f64)> =
            trained.filter_map(|slope| slope.slope.map(|s| (slope, s))).filter(|(_, s)| s.abs() > TOLERANCE).collect();
        // What grows is the graver fault.
        outside.sort_by(|a, b| (b.1 > 0.0).cmp(&(a.1 > 0.0)).then(b.1.abs().total_cmp(&a.1.abs())));
        let after = format!("after {} step{}", self.steps, if self.steps == 1 { "" } else { "s" });
        match outside.first() {
            None => findings.push(format!("{after} everything keeps its size within {axis}^{TOLERANCE}")),
            Some((slope, s)) => {
                let does = match (*s > 0.0, self.axis) {
                    (true, Axis::Width) => "grows: the learning rate that is right here is too high for a wider model",
                    (true, Axis::Depth) => "grows: each layer adds its share, and nothing divides by their number",
                    (false, _) => "shrinks: a larger model learns less in the same steps",
                };
                let others = match outside.len() - 1 {
                    0 => String::new(),
                    n => format!(", and {n} other places are outside of {TOLERANCE}, too"),
                };
                findings.push(format!("{after} {} goes by {axis}^{s:.2} and {does}{others}", slope.place));
            }
        }
        findings
    }

    /// Over depths a branch is to be smaller the more there are, and what only the first layer has added. Over widths the random part of the
    /// logits falls, and the last norm carries the multiplier of a tied head.
    fn may_shrink(&self, slope: &Slope) -> bool {
        let may = match (self.axis, slope.site) {
            (Axis::Depth, site) => matches!(site, Site::AttnOut | Site::MlpOut) || slope.place.starts_with("first."),
            (Axis::Width, site) => matches!(site, Site::Logits | Site::FinalNorm),
        };
        may && slope.slope.is_some_and(|s| s < 0.0)
    }
}

/// Least squares over the logarithms.
fn log_slope(curve: &[(u64, f64)]) -> Option<f64> {
    if curve.len() < 2 || curve.iter().any(|&(_, value)| value <= 0.0) {
        return None;
    }
    let points: Vec<(f64, f64)> = curve.iter().map(|&(size, value)| ((size as f64).ln(), value.ln())).collect();
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    Some(covariance / variance)
}

impl fmt::Display for CoordinateCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axis = if self.axis == Axis::Width { "width" } else { "depth" };
        let steps: Vec<_> = (0..=self.steps).map(|step| format!("{:>7}", format!("step {step}"))).collect();
        writeln!(f, "exponent of {axis} in mean |x| over {:?}", self.sizes)?;
        writeln!(f, "{:16}{}", "", steps.join(""))?;
        let slopes = self.slopes();
        for line in slopes.chunks(self.steps as usize + 1) {
            let cells = line.iter().map(|slope| slope.slope.map_or("     0".into(), |s| format!("{s:+6.2}")));
            writeln!(f, "{:16}{}", line[0].place, cells.map(|cell| format!("{cell:>7}")).collect::<String>())?;
        }
        for finding in self.findings() {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(axis: Axis, exponent: f64, site: Site) -> CoordinateCheck {
        let reading = |size: u64, step| Coordinates {
            size,
            step,
            seed: 0,
            place: Point::from(site).to_string(),
            site,
            mean_abs: 3.0 * (size as f64).powf(exponent),
        };
        let readings = [64, 128, 256].into_iter().flat_map(|size| [reading(size, 0), reading(size, 1)]).collect();
        CoordinateCheck { readings, ..CoordinateCheck::new(axis, [64, 128, 256]).with_steps(1) }
    }

    #[test]
    fn slopes_are_exponents() {
        for exponent in [-0.5, 0.0, 1.0] {
            let slopes = check(Axis::Width, exponent, Site::ResidPost).slopes();
            assert_eq!(slopes.len(), 2);
            assert!(slopes.iter().all(|slope| (slope.slope.unwrap() - exponent).abs() < 1e-12));
        }
        assert_eq!(log_slope(&[(64, 0.0), (128, 1.0)]), None);
    }

    #[test]
    fn read_in_words() {
        let findings = |axis, exponent, site| check(axis, exponent, site).findings();
        assert_eq!(
            findings(Axis::Width, 0.5, Site::FinalNorm),
            [
                "after 1 step final_norm goes by width^0.50 and grows: the learning rate that is right here is too high for a wider model"
            ]
        );
        assert_eq!(
            findings(Axis::Width, 0.05, Site::ResidMid),
            ["after 1 step everything keeps its size within width^0.1"]
        );
        assert_eq!(
            findings(Axis::Width, -0.5, Site::Logits)[0],
            "the first logits go by width^-0.50: right under muP, whose head is divided by the width"
        );
        // A branch of a deeper model may be smaller, but not larger.
        assert_eq!(
            findings(Axis::Depth, -1.0, Site::MlpOut),
            ["after 1 step everything keeps its size within depth^0.1"]
        );
        assert!(findings(Axis::Depth, 0.5, Site::MlpOut)[0].contains("mlp_out goes by depth^0.50 and grows"));
    }
}
