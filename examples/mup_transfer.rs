//! Does the best learning rate of a small model hold for a large one? Sweeps it over several widths, under the standard start and under muP.
//!
//!     cargo run --release --example mup_transfer
//!     cargo run --release --example mup_transfer -- --quick
//!     cargo run --release --example mup_transfer -- --seeds 3
//!
//! Each run is written to `results.json` as it ends; the same command takes up where it was left.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use burn_init::parametrization::BaseShapes;
use burn_init::reference::{Transformer, TransformerConfig};
use burn_init::schemes::{Gpt2, Mup, Scheme};
use burn_init::{Init, from_fn};

/// Sweeps the learning rate over widths, under the standard start and under muP.
#[derive(Parser, Clone, PartialEq, Serialize, Deserialize)]
struct Knobs {
    /// Widths; the first is the base model's
    #[arg(long = "widths", default_values_t = [64, 128, 256, 512])]
    widths: Vec<usize>,
    /// Learning rates are 2^-e for e from this
    #[arg(long, default_value_t = 5)]
    from: i32,
    /// to this
    #[arg(long, default_value_t = 12)]
    to: i32,
    /// Steps of training for each run
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Blocks
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Width of an attention head
    #[arg(long, default_value = "16")]
    head_width: NonZeroUsize,
    /// Characters that the model sees
    #[arg(long, default_value_t = 32)]
    context: usize,
    /// Sequences in a batch
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Seeds of parameters and batches, whose losses are averaged
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Widths to 128 only: two minutes instead of a quarter of an hour a seed, on two idle cores
    #[arg(long)]
    quick: bool,
    /// Text to learn; by default Cicero's De finibus, book 1
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Where results and picture go
    #[arg(long, default_value = "target/mup_transfer")]
    #[serde(skip)]
    out: PathBuf,
}

fn main() -> ExitCode {
    let mut knobs = Knobs::parse();
    if knobs.quick {
        knobs.widths.retain(|&width| width <= 128);
        knobs.out.push("quick");
    }
    match run(&knobs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(knobs: &Knobs) -> Result<(), Box<dyn Error>> {
    if knobs.widths.is_empty() || knobs.from > knobs.to || [knobs.steps, knobs.batch, knobs.seeds as usize].contains(&0)
    {
        return Err("give at least one width, one step, one sequence, one seed, and --from below --to".into());
    }
    if let Some(width) = knobs.widths.iter().find(|&&width| width % knobs.head_width != 0 || width == 0) {
        return Err(format!("the width {width} is no multiple of the head's {}", knobs.head_width).into());
    }
    let text = Text::new(knobs)?;
    let mut results = Results::open(knobs)?;
    let device = Device::flex();
    let runs: Vec<Run> = (0..knobs.seeds)
        .flat_map(|seed| knobs.widths.iter().map(move |&width| (seed, width)))
        .flat_map(|(seed, width)| ["standard", "muP"].map(|name| (seed, width, name)))
        .flat_map(|(seed, width, name)| (knobs.from..=knobs.to).map(move |e| Run::new(knobs, name, width, e, seed)))
        .collect();
    let bar = ProgressBar::new(runs.iter().map(|run| cost(run.width)).sum());
    bar.set_style(ProgressStyle::with_template("{bar:30} {percent}% {msg} {eta}")?);
    for run in runs {
        bar.set_message(run.to_string());
        if results.get(run).is_none() {
            results.put(run, train(knobs, &text, run, &device)?)?;
        }
        bar.inc(cost(run.width));
    }
    bar.finish_and_clear();
    report(knobs, &results);
    let path = knobs.out.join("transfer.svg");
    picture(&path, knobs, &results)?;
    println!("\npicture: {}", path.display());
    Ok(())
}

/// Time goes about with the number of weights.
fn cost(width: usize) -> u64 {
    (width * width) as u64 + 4096
}

/// One training.
#[derive(Clone, Copy)]
struct Run {
    name: &'static str,
    width: usize,
    /// The learning rate is 2^-exponent.
    exponent: i32,
    seed: u64,
}

impl Run {
    /// At the base width both parametrizations are the same model.
    fn new(knobs: &Knobs, name: &'static str, width: usize, exponent: i32, seed: u64) -> Self {
        Self { name: if width == knobs.widths[0] { "standard" } else { name }, width, exponent, seed }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, width, exponent, seed } = self;
        write!(f, "{name}, width {width}, learning rate 2^-{exponent}, seed {seed}")
    }
}

/// The held-out loss after training; infinite if it diverged.
fn train(knobs: &Knobs, text: &Text, run: Run, device: &Device) -> Result<f64, burn_init::Error> {
    let config = |width: usize| {
        let heads = width / knobs.head_width;
        TransformerConfig::new(text.alphabet, knobs.context, width, knobs.layers, heads).with_tied(false)
    };
    let training = device.clone().autodiff();
    let (setup, model) = (config(run.width).setup(), config(run.width).build(&training)?);
    let scheme: Scheme = match run.name {
        "muP" => {
            // The base model is built to be looked at; no value is drawn in it.
            let keep = from_fn(|_| Init::Keep);
            let base = config(knobs.widths[0]);
            let base = base.setup().plan(&base.build(device)?, &keep)?;
            let shapes = BaseShapes::new(&setup.plan(&model, &keep)?, &base)?;
            Mup::from(shapes).with_start(Gpt2::new()).into()
        }
        _ => Gpt2::new().into(),
    };
    let mut model: Transformer = setup.initialize(model, &scheme, run.seed)?;
    let adam = AdamWConfig::new().with_beta_2(0.95).with_epsilon(1e-8).with_weight_decay(0.0);
    let mut optimizer = setup.adamw(&model, &setup.plan(&model, &scheme)?, &adam)?;
    let mut random = Random(run.seed);
    for step in 1..=knobs.steps {
        let (tokens, targets) = text.batch(&text.train, &mut random, knobs.batch, knobs.context, &training);
        let loss = cross_entropy(&model, tokens, targets);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let rate = 2f64.powi(-run.exponent) * schedule(step, knobs.steps);
        model = optimizer.step(rate, model, gradients);
    }
    let (tokens, targets) = text.batch(&text.held_out, &mut Random(7), 32, knobs.context, device);
    let loss: f64 = cross_entropy(&model.valid(), tokens, targets).into_scalar::<f32>().into();
    Ok(if loss.is_finite() { loss } else { f64::INFINITY })
}

/// A tenth of warm-up, then a line down to nothing.
fn schedule(step: usize, steps: usize) -> f64 {
    let warmup = (steps / 10).max(1);
    (step as f64 / warmup as f64).min((steps + 1 - step) as f64 / (steps + 1 - warmup).max(1) as f64)
}

fn cross_entropy(model: &Transformer, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
    let logits = model.forward(tokens).flatten::<2>(0, 1);
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets.flatten::<1>(0, 1))
}

/// The losses so far, with the knobs that they belong to.
#[derive(Serialize, Deserialize)]
struct Results {
    knobs: Knobs,
    /// By run; `null` for one that diverged.
    losses: BTreeMap<String, Option<f64>>,
    #[serde(skip)]
    path: PathBuf,
}

impl Results {
    fn open(knobs: &Knobs) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir_all(&knobs.out).map_err(|error| format!("{}: {error}", knobs.out.display()))?;
        let path = knobs.out.join("results.json");
        if !path.exists() {
            return Ok(Self { knobs: knobs.clone(), losses: BTreeMap::new(), path });
        }
        let file = std::fs::read_to_string(&path)?;
        let results: Results = serde_json::from_str(&file).map_err(|error| format!("{}: {error}", path.display()))?;
        // More widths, rates and seeds may be added to a sweep; anything else is another one.
        let same = |knobs: &Knobs| Knobs {
            widths: knobs.widths[..1].into(),
            from: 0,
            to: 0,
            seeds: 1,
            out: PathBuf::new(),
            ..knobs.clone()
        };
        if same(&results.knobs) != same(knobs) {
            return Err(format!("{} is of other knobs; remove it, or choose another --out", path.display()).into());
        }
        Ok(Self { path, ..results })
    }

    fn get(&self, run: Run) -> Option<f64> {
        self.losses.get(&run.to_string()).map(|loss| loss.unwrap_or(f64::INFINITY))
    }

    fn put(&mut self, run: Run, loss: f64) -> Result<(), Box<dyn Error>> {
        self.losses.insert(run.to_string(), loss.is_finite().then_some(loss));
        // Whole or not at all, so that an interruption leaves the last state.
        let half = self.path.with_extension("half");
        std::fs::write(&half, serde_json::to_string_pretty(self)?)?;
        Ok(std::fs::rename(half, &self.path)?)
    }

    /// Exponent and mean loss over the rates.
    fn curve(&self, knobs: &Knobs, name: &'static str, width: usize) -> Vec<(i32, f64)> {
        let loss = |e: i32, seed: u64| self.get(Run::new(knobs, name, width, e, seed));
        let mean = |e: i32| (0..knobs.seeds).map(|seed| loss(e, seed)).sum::<Option<f64>>();
        (knobs.from..=knobs.to).filter_map(|e| mean(e).map(|sum| (e, sum / knobs.seeds as f64))).collect()
    }
}

/// The best learning rate of a curve, `2^-exponent`.
#[derive(Clone, Copy)]
struct Optimum {
    exponent: f64,
    /// `>` or `<` where it is the largest or the smallest of the sweep, so that the best one may lie beyond.
    beyond: &'static str,
}

impl fmt::Display for Optimum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}2^-{:.1}", self.beyond, self.exponent))
    }
}

/// The exponent at the lowest loss, between the grid by a parabola through its neighbours.
fn optimum(curve: &[(i32, f64)]) -> Optimum {
    let best = (0..curve.len()).min_by(|&a, &b| curve[a].1.total_cmp(&curve[b].1));
    let Some(at) = best else { return Optimum { exponent: f64::NAN, beyond: "" } };
    let middle = f64::from(curve[at].0);
    let (left, right) = match (at.checked_sub(1).map(|i| curve[i].1), curve.get(at + 1).map(|point| point.1)) {
        (Some(left), Some(right)) => (left, right),
        (None, _) => return Optimum { exponent: middle, beyond: ">" },
        (_, None) => return Optimum { exponent: middle, beyond: "<" },
    };
    let bend = left - 2.0 * curve[at].1 + right;
    let shift = if bend > 0.0 && bend.is_finite() { 0.5 * (left - right) / bend } else { 0.0 };
    Optimum { exponent: middle + shift, beyond: "" }
}

fn report(knobs: &Knobs, results: &Results) {
    for name in ["standard", "muP"] {
        let mean = if knobs.seeds > 1 { format!(", mean of {} seeds", knobs.seeds) } else { String::new() };
        println!("\n{name}: held-out loss after {} steps{mean}", knobs.steps);
        let heads: String = knobs.widths.iter().map(|width| format!("{width:>10}")).collect();
        println!("{:>14}{heads}", "learning rate");
        for exponent in knobs.from..=knobs.to {
            let cells = knobs.widths.iter().map(|&width| {
                let curve = results.curve(knobs, name, width);
                let best = curve.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
                match curve.iter().find(|point| point.0 == exponent).map(|point| point.1) {
                    Some(loss) if loss == best => format!("{:>10}", format!("*{loss:.3}")),
                    Some(loss) if loss.is_finite() => format!("{loss:>10.3}"),
                    _ => format!("{:>10}", "diverged"),
                }
            });
            println!("{:>14}{}", format!("2^-{exponent}"), cells.collect::<String>());
        }
        let best: Vec<Optimum> =
            knobs.widths.iter().map(|&width| optimum(&results.curve(knobs, name, width))).collect();
        let cells: String = best.iter().map(|optimum| format!("{optimum:>10}")).collect();
        println!("{:>14}{cells}", "best");
        if best.iter().any(|optimum| !optimum.beyond.is_empty()) {
            println!("a best rate lies at the edge of the sweep: widen it with --from or --to");
            continue;
        }
        let moved = 2f64.powf(best[best.len() - 1].exponent - best[0].exponent);
        let last = knobs.widths[knobs.widths.len() - 1];
        println!("from width {} to {last} the best learning rate falls {moved:.1} times", knobs.widths[0]);
    }
}

fn picture(path: &Path, knobs: &Knobs, results: &Results) -> Result<(), Box<dyn Error>> {
    let canvas = SVGBackend::new(path, (900, 420)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let curves = ["standard", "muP"].into_iter().flat_map(|name| knobs.widths.iter().map(move |&width| (name, width)));
    let losses: Vec<f64> =
        curves.flat_map(|(name, width)| results.curve(knobs, name, width)).map(|point| point.1).collect();
    let losses = || losses.iter().copied().filter(|loss| loss.is_finite());
    let low = losses().fold(f64::MAX, f64::min) - 0.05;
    // What is worse than guessing is out of the picture.
    let high = losses().filter(|loss| *loss < low + 1.5).fold(low, f64::max) + 0.05;
    for (panel, name) in canvas.split_evenly((1, 2)).iter().zip(["standard", "muP"]) {
        let mut chart = ChartBuilder::on(panel)
            .caption(name, ("sans-serif", 20))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(f64::from(-knobs.to) - 0.3..f64::from(-knobs.from) + 0.3, low..high)?;
        chart
            .configure_mesh()
            .x_desc("log2 of the learning rate")
            .y_desc("held-out loss")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (i, &width) in knobs.widths.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let curve = results.curve(knobs, name, width);
            let best = optimum(&curve).exponent.round() as i32;
            let points: Vec<_> = curve.iter().map(|&(e, loss)| (f64::from(-e), loss)).filter(|p| p.1 <= high).collect();
            let lowest = curve
                .iter()
                .filter(|p| p.0 == best)
                .map(|&(e, loss)| Circle::new((f64::from(-e), loss), 5, color.filled()));
            chart.draw_series(lowest)?;
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                .label(format!("width {width}"))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperMiddle)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()?;
    }
    canvas.present()?;
    Ok(())
}

/// The text as tokens, one per character.
struct Text {
    alphabet: usize,
    train: Vec<i64>,
    held_out: Vec<i64>,
}

impl Text {
    fn new(knobs: &Knobs) -> Result<Self, Box<dyn Error>> {
        let text = match &knobs.text {
            Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?,
            None => lipsum::LIBER_PRIMUS.to_string(),
        };
        let mut alphabet: Vec<char> = text.chars().collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let tokens: Vec<i64> = text.chars().map(|c| alphabet.partition_point(|&other| other < c) as i64).collect();
        let (train, held_out) = tokens.split_at(tokens.len() * 9 / 10);
        if held_out.len() <= knobs.context + 1 || alphabet.len() < 2 {
            return Err("the last tenth of the text must be longer than the context, and have two characters".into());
        }
        Ok(Self { alphabet: alphabet.len(), train: train.to_vec(), held_out: held_out.to_vec() })
    }

    /// Random pieces of `tokens`, and the same one character later.
    fn batch(
        &self,
        tokens: &[i64],
        random: &mut Random,
        rows: usize,
        length: usize,
        device: &Device,
    ) -> (Tensor<2, Int>, Tensor<2, Int>) {
        let starts: Vec<usize> = (0..rows).map(|_| random.below(tokens.len() - length)).collect();
        let pieces = |shift: usize| {
            let pieces = starts.iter().flat_map(|start| &tokens[start + shift..start + shift + length]).copied();
            Tensor::<1, Int>::from_data(&*pieces.collect::<Vec<_>>(), device).reshape([rows, length])
        };
        (pieces(0), pieces(1))
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}
