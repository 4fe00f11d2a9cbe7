//! The distribution of the logits.

use burn::tensor::{Int, Tensor};

use super::chart::{Chart, Mark, Series};
use super::failed;
use crate::{Error, step_zero::StepZero};

/// Bars for each standard deviation.
const BARS: f64 = 6.0;
const MOST_BARS: f64 = 240.0;
/// The predicted curve is drawn this many standard deviations to either side.
const TAILS: f64 = 5.0;

/// The logits of one forward pass, each less the mean of its position, and apart from them the one of the input token itself.
#[derive(Debug, Clone, PartialEq)]
pub struct LogitSample {
    others: Vec<f32>,
    own: Vec<f32>,
}

impl LogitSample {
    /// From logits `[batch, seq, vocab]` and the tokens `[batch, seq]` that were read.
    ///
    /// ```
    /// # use burn::tensor::{Device, Int, Tensor};
    /// use burn_init::{ModuleInit as _, plot::{LogitSample, Picture}, reference::TransformerConfig};
    ///
    /// # fn main() -> Result<(), burn_init::Error> {
    /// let device = Device::flex();
    /// let config = TransformerConfig::new(500, 16, 64, 2, 4);
    /// let model = config.init(&device)?;
    /// let tokens = Tensor::<1, Int>::arange(0..16, &device).unsqueeze();
    /// let sample = LogitSample::new(&model.forward(tokens.clone()), &tokens)?;
    /// let predicted = model.plan(&config.scheme)?.predict(&config.architecture())?;
    /// assert!(Picture::of(sample.chart(&predicted)?).svg()?.contains("logit of the input token"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Picture`](crate::ErrorKind::Picture): shapes that do not belong together, tokens outside of the vocabulary, logits that are
    /// not finite.
    pub fn new(logits: &Tensor<3>, tokens: &Tensor<2, Int>) -> Result<Self, Error> {
        let [rows, length, vocab] = logits.dims();
        if tokens.dims() != [rows, length] || rows * length == 0 || vocab < 2 {
            let found = format!("tokens have the shape {:?} and logits {:?}", tokens.dims(), logits.dims());
            return Err(failed(found, "give the tokens that the logits come from, and at least one"));
        }
        let unread = |reason: &dyn std::fmt::Display| failed(format!("the logits cannot be read: {reason}"), "");
        let values = logits.try_to_vec_as::<f32>().map_err(|reason| unread(&reason))?;
        let tokens = tokens.try_to_vec_as::<i64>().map_err(|reason| unread(&reason))?;
        let mut sample = Self { others: Vec::with_capacity(values.len()), own: Vec::with_capacity(tokens.len()) };
        for (row, &token) in values.chunks_exact(vocab).zip(&tokens) {
            if let Some(bad) = row.iter().find(|z| !z.is_finite()) {
                return Err(failed(
                    format!("a logit is {bad}"),
                    "slice the padding of the vocabulary off, or look at the stream",
                ));
            }
            let token = usize::try_from(token).ok().filter(|token| *token < vocab);
            let Some(token) = token else {
                return Err(failed(
                    "a token is outside of the vocabulary",
                    "give the tokens that the logits come from",
                ));
            };
            let others = || row.iter().enumerate().filter(|(i, _)| *i != token).map(|(_, z)| *z);
            let mean = (others().map(f64::from).sum::<f64>() / (vocab - 1) as f64) as f32;
            sample.others.extend(others().map(|z| z - mean));
            sample.own.push(row[token] - mean);
        }
        Ok(sample)
    }

    /// As a histogram, with the normal distribution that `predicted` gives them and, for a tied head, the logit of the input token.
    ///
    /// # Errors
    /// [`ErrorKind::Picture`](crate::ErrorKind::Picture): logits that are all equal.
    pub fn chart(&self, predicted: &StepZero) -> Result<Chart, Error> {
        let bars = self.histogram()?;
        let steps = |(from, to, share): (f64, f64, f64)| [(from, 0.0, share), (to, 0.0, share)];
        let measured = Series::new("").band(bars.iter().copied().flat_map(steps)).colored_as(0);
        let outline = bars.iter().flat_map(|&(from, to, share)| [(from, share), (to, share)]);
        let measured = measured.line(outline);
        let mut chart = Chart::new("The logits before the first step")
            .x("logit, less the mean of its position")
            .y("share of the logits, per unit")
            .with(measured);
        let std = predicted.logit_std;
        if std > 0.0 {
            let density = |z: f64| (-0.5 * (z / std).powi(2)).exp() / (std * std::f64::consts::TAU.sqrt());
            let points = (-100..=100).map(|i| f64::from(i) / 100.0 * TAILS * std);
            chart = chart.with(Series::new("").line(points.map(|z| (z, density(z)))).colored_as(1));
        }
        let found = self.others.iter().map(|z| f64::from(*z).powi(2)).sum::<f64>() / self.others.len() as f64;
        let note = format!("blue: measured, std {:.3}; orange: predicted, N(0, {std:.3}²)", found.sqrt());
        if let Some(own) = predicted.own_logit {
            let measured = self.own.iter().map(|z| f64::from(*z)).sum::<f64>() / self.own.len() as f64;
            chart = chart
                .mark(Mark::new(own, format!("logit of the input token:\npredicted {own:.2}, measured {measured:.2}")));
        }
        Ok(chart.note(note))
    }

    /// Bars (from, to, share per unit).
    fn histogram(&self) -> Result<Vec<(f64, f64, f64)>, Error> {
        let values = || self.others.iter().map(|z| f64::from(*z));
        let count = self.others.len() as f64;
        let std = (values().map(|z| z * z).sum::<f64>() / count).sqrt();
        let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), z| (low.min(z), high.max(z)));
        if std.is_nan() || std <= 1e-9 {
            return Err(failed("all logits are equal", "there is no distribution to draw: see StepZero::findings"));
        }
        let width = (std / BARS).max((high - low) / MOST_BARS);
        let first = (low / width).floor();
        let mut counts = vec![0u64; ((high / width).floor() - first) as usize + 1];
        for z in values() {
            let bar = ((z / width).floor() - first) as usize;
            let last = counts.len() - 1;
            counts[bar.min(last)] += 1;
        }
        let bar = |(i, bar): (f64, u64)| ((first + i) * width, (first + i + 1.0) * width, bar as f64 / count / width);
        Ok((0u32..).map(f64::from).zip(counts).map(bar).collect())
    }
}
