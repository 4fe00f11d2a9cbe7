//! How the end of the residual stream grows with the number of layers N, for several schemes: predicted from the plan for each N, and
//! measured on fresh models. Prints the slope of ln Var(x_2N) over ln N with its sampling error, and draws a picture.
//!
//! ```sh
//! cargo run --release --example depth_sweep
//! cargo run --release --example depth_sweep -- --scheme gpt2 --scheme torch-default --measure-up-to 24
//! ```
//!
//! The picture of docs/theory.md, with the std that keeps d * std^2 as it is in GPT-2 small:
//!
//! ```sh
//! cargo run --release --example depth_sweep -- --seeds 4 --out docs/theory-depth.svg --scheme '1/√(2N)={"scheme": "gpt2", "std": 0.049}' \
//!   --scheme '1/√(2(l+1))={"scheme": "gpt2", "std": 0.049, "depth": {"rule": "per_layer"}}' --scheme 'unscaled={"scheme": "gpt2", "std": 0.049, "depth": {"rule": "none"}}' \
//!   --scheme 'zero residual={"scheme": "modified", "base": {"scheme": "gpt2", "std": 0.049}, "zero_residual": true}'
//! ```

mod common;

use std::{error::Error, path::PathBuf};

use burn::tensor::Device;
use burn_init::{
    plot::{Chart, Picture, Series},
    reference::TransformerConfig,
    step_zero::{StepZero, step_zero},
};
use clap::Parser;
use common::Named;
use indicatif::{ProgressBar, ProgressStyle};

#[derive(Parser)]
#[command(about = "Fits the growth of the residual stream over depth")]
struct Args {
    /// A name from docs/schemes.md, or its JSON, with a label before either: label=scheme; may be repeated
    #[arg(long, default_values = ["gpt2", "gpt2-released", "olmo-mitchell", "gpt-neox", "zero-residual"])]
    scheme: Vec<Named>,
    /// The numbers of layers
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 6, 12, 24, 48])]
    layers: Vec<usize>,
    /// Deeper models are only predicted
    #[arg(long, default_value_t = 48)]
    measure_up_to: usize,
    /// The slopes are fitted from here on: the step from one layer to two is steeper than all others
    #[arg(long, default_value_t = 2)]
    fit_from: usize,
    #[arg(long, default_value_t = 128)]
    width: usize,
    #[arg(long, default_value_t = 4)]
    heads: usize,
    #[arg(long, default_value_t = 1000)]
    vocab: usize,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 64)]
    length: usize,
    /// Sequences of the batch
    #[arg(long, default_value_t = 2)]
    sequences: usize,
    #[arg(long, default_value_t = 4)]
    seeds: u64,
    /// The picture, .svg or .png [default: depth-sweep.svg in the target directory]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// One scheme over N.
struct Sweep {
    label: String,
    /// (N, Var(x_2N), its standard deviation with one seed)
    predicted: Vec<(f64, f64, f64)>,
    /// For each seed (N, Var(x_2N)).
    measured: Vec<Vec<(f64, f64)>>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let sizes = args.layers.iter().filter(|layers| **layers <= args.measure_up_to);
    let work: u64 = sizes.map(|layers| *layers as u64).sum::<u64>() * args.seeds * args.scheme.len() as u64;
    let bar = ProgressBar::new(work)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} layers, {eta} left  {msg}")?);
    let sweeps = args.scheme.iter().map(|named| args.sweep(named, &bar)).collect::<Result<Vec<_>, _>>()?;
    bar.finish_and_clear();

    let wide = sweeps.iter().map(|sweep| sweep.label.chars().count()).max().unwrap_or(0).max(6);
    println!("slope of ln Var(x_2N) over ln N, N >= {}", args.fit_from);
    println!(
        "{:<wide$}  {:>9}  {:>17}  Var(x_2N) at N = {:?}, predicted",
        "scheme", "predicted", "measured", args.layers
    );
    for sweep in &sweeps {
        let ends: Vec<String> = sweep.predicted.iter().map(|(_, value, _)| format!("{value:.3e}")).collect();
        let (slope, measured) = sweep.slopes(args.fit_from as f64);
        println!("{:<wide$}  {slope:>9.3}  {measured:>17}  {}", sweep.label, ends.join(" "));
    }

    let out = args.out.clone().unwrap_or_else(|| common::target("depth-sweep.svg"));
    Picture::of(args.chart(&sweeps)).save(&out)?;
    println!("{}", out.display());
    Ok(())
}

impl Args {
    fn sweep(&self, Named { label, scheme }: &Named, bar: &ProgressBar) -> Result<Sweep, Box<dyn Error>> {
        let device = Device::flex();
        let mut sweep =
            Sweep { label: label.clone(), predicted: Vec::new(), measured: vec![Vec::new(); self.seeds as usize] };
        for &layers in &self.layers {
            bar.set_message(format!("{label}, {layers} layers"));
            let config = TransformerConfig::new(self.vocab, self.length, self.width, layers, self.heads);
            let plan = config.setup().plan(&config.build(&device)?, scheme)?;
            let predicted = plan.predict(&config.architecture().with_sequences(self.sequences as u64))?;
            let n = layers as f64;
            let last = predicted.stream.last().ok_or("the model has no stream")?;
            sweep.predicted.push((n, last.second_moment, last.sd.unwrap_or(0.0)));
            if layers > self.measure_up_to {
                continue;
            }
            for (seed, points) in (0..).zip(&mut sweep.measured) {
                let model = config.init_with(scheme, seed, &device)?;
                let batch = common::random_batch(self.vocab, self.sequences, self.length, seed, &device);
                let measured: StepZero = step_zero(&batch, |tokens, probe| model.forward_with(tokens, probe))?;
                points.push((n, measured.stream.last().ok_or("the model has no stream")?.second_moment));
                bar.inc(layers as u64);
            }
        }
        Ok(sweep)
    }

    fn chart(&self, sweeps: &[Sweep]) -> Chart {
        let note = match self.seeds {
            0 => "lines: predicted from the plan; bands: ± 2 sd of a single seed".into(),
            1 => "lines: predicted from the plan; bands: ± 2 sd of a single seed; dots: measured".into(),
            seeds => {
                format!("lines: predicted from the plan; bands: ± 2 sd of a mean of {seeds} seeds; dots: measured")
            }
        };
        let chart = Chart::new("The end of the residual stream over the number of layers")
            .note(format!("d = {}, T = {}; {note}", self.width, self.length))
            .x("layers N")
            .y("second moment of the stream after 2N additions: mean of x² per element")
            .log_x()
            .log_y()
            .x_ticks(self.layers.iter().map(|layers| *layers as f64));
        let root = (self.seeds.max(1) as f64).sqrt();
        sweeps.iter().fold(chart, |chart, sweep| {
            let band = sweep.predicted.iter().map(|&(n, value, sd)| {
                let factor = (2.0 * sd / root / value).exp();
                (n, value / factor, value * factor)
            });
            let series =
                Series::new(&sweep.label).line(sweep.predicted.iter().map(|&(n, value, _)| (n, value))).band(band);
            chart.with(series.dots(sweep.means()))
        })
    }
}

impl Sweep {
    /// The mean over seeds at each N.
    fn means(&self) -> Vec<(f64, f64)> {
        let Some(first) = self.measured.first() else { return Vec::new() };
        let mean = |i: usize| self.measured.iter().map(|seed| seed[i].1).sum::<f64>() / self.measured.len() as f64;
        first.iter().enumerate().map(|(i, &(n, _))| (n, mean(i))).collect()
    }

    /// The predicted slope, and the measured one with its standard error over seeds.
    fn slopes(&self, from: f64) -> (f64, String) {
        let predicted = slope(self.predicted.iter().map(|&(n, value, _)| (n, value)), from);
        let each: Vec<f64> = self.measured.iter().map(|seed| slope(seed.iter().copied(), from)).collect();
        let count = each.len() as f64;
        let mean = each.iter().sum::<f64>() / count;
        let error = (each.iter().map(|slope| (slope - mean).powi(2)).sum::<f64>() / (count - 1.0) / count).sqrt();
        let measured = match each.len() {
            0 => "-".into(),
            1 => format!("{mean:.3}"),
            _ => format!("{mean:.3} +- {error:.3}"),
        };
        (predicted, measured)
    }
}

/// Least squares of ln y over ln x. NaN with fewer than two points.
fn slope(points: impl Iterator<Item = (f64, f64)>, from: f64) -> f64 {
    let points: Vec<_> = points.filter(|(n, _)| *n >= from).map(|(n, value)| (n.ln(), value.ln())).collect();
    let count = points.len() as f64;
    let centre = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    let products = points.iter().map(|(x, y)| (x - centre.0) * (y - centre.1)).sum::<f64>();
    products / points.iter().map(|(x, _)| (x - centre.0).powi(2)).sum::<f64>()
}
