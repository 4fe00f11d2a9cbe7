//! Starts a tiny Transformer in two ways, looks at both before step 1, and trains them on the same batches.
//!
//!     cargo run --release --example train_tiny
//!     cargo run --release --example train_tiny -- --scheme gpt2 --scheme my_scheme.toml --text book.txt

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use plotters::prelude::*;

use burn_init::reference::{Transformer, TransformerConfig};
use burn_init::schemes::Scheme;
use burn_init::step_zero::{Batch, StepZero, step_zero};
use burn_init::{NormPlacement, Plan};

#[path = "common/device.rs"]
mod device;

/// Trains a tiny Transformer from several starts, and shows what each start is worth.
#[derive(Parser)]
struct Knobs {
    /// How to start: a scheme's name or a TOML file; repeat it to compare
    #[arg(long = "scheme", value_name = "NAME|FILE.toml", default_values = ["torch-default", "gpt2"])]
    schemes: Vec<String>,
    /// Steps of training for each scheme; with 0 only step zero is looked at
    #[arg(long, default_value_t = 300)]
    steps: usize,
    /// Blocks; each adds two branches to the residual stream
    #[arg(long, default_value_t = 6)]
    layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 128)]
    d_model: usize,
    /// Attention heads
    #[arg(long, default_value_t = 4)]
    heads: usize,
    /// Where the norms stand: pre, post (DeepNorm needs it), res-post or sandwich
    #[arg(long, default_value_t)]
    norms: NormPlacement,
    /// Characters that the model sees
    #[arg(long, default_value_t = 64)]
    context: usize,
    /// Sequences in a batch
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Peak learning rate of AdamW
    #[arg(long, default_value_t = 1e-3)]
    lr: f64,
    /// Seed of the parameters, the batches and the sample
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Text to learn; by default Cicero's De finibus, book 1
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Where to compute: flex; with the feature of its name ndarray, wgpu, vulkan, metal, cuda or rocm; with the feature remote ws://host:port;
    /// by default what BURN_INIT_DEVICE names, or flex
    #[arg(long)]
    device: Option<String>,
    /// Where the pictures go
    #[arg(long, default_value = "target/train_tiny")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match run(&Knobs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(knobs: &Knobs) -> Result<(), Box<dyn Error>> {
    // Everything that can be wrong with the knobs is found here.
    let schemes = knobs.schemes.iter().map(|name| scheme(name)).collect::<Result<Vec<_>, _>>()?;
    let device = knobs.device.as_deref().map_or_else(device::from_environment, device::open)?;
    let text = Text::new(knobs)?;
    if knobs.batch == 0 || !(knobs.lr > 0.0 && knobs.lr.is_finite()) {
        return Err("--batch must be at least 1 and --lr a positive number".into());
    }
    let scores = [knobs.batch, knobs.heads, knobs.context, knobs.context].into_iter().fold(4, usize::saturating_mul);
    if scores > 1 << 30 || knobs.layers > 1000 {
        return Err("that is not tiny; use a smaller --batch, --context or --heads, or at most 1000 --layers".into());
    }
    let config = TransformerConfig::new(text.alphabet.len(), knobs.context, knobs.d_model, knobs.layers, knobs.heads)
        .with_norm_placement(knobs.norms)
        .with_seed(knobs.seed);
    let parameters = plan(&config, &device)?.num_params();
    if parameters > 1 << 30 {
        return Err(format!("{parameters} parameters are not tiny; use a smaller --d-model or fewer --layers").into());
    }
    std::fs::create_dir_all(&knobs.out).map_err(|error| format!("{}: {error}", knobs.out.display()))?;
    println!(
        "{} characters of text, {} distinct; {parameters} parameters, {} blocks, {} branches\n",
        text.train.len() + text.held_out.len(),
        text.alphabet.len(),
        knobs.layers,
        2 * knobs.layers
    );

    // Step zero: what each start does before it has learned anything, beside what its plan predicts.
    println!("STEP ZERO");
    let mut runs = Vec::new();
    for (name, scheme) in knobs.schemes.iter().zip(schemes) {
        let config = config.clone().with_scheme(scheme);
        let model = config.init(&device.clone().autodiff())?;
        let batch = text.batch(&text.train, &mut Random(knobs.seed), 4 * knobs.batch, knobs.context, &device);
        let fresh = model.valid();
        let measured = step_zero(&batch, |tokens, probe| fresh.forward_with(tokens, probe))?;
        let architecture = config.architecture().with_collision(text.collision).with_repeats(text.repeats);
        let predicted = plan(&config, &device)?.predict(&architecture)?;
        println!("{name}: {measured}");
        println!("from its plan alone: loss {:.4}, logits of std {:.4}\n", predicted.loss, predicted.logit_std);
        runs.push(Run::new(name, config.scheme, model, measured, predicted));
    }
    print_streams(&runs);
    println!("the same schemes at the size of GPT-2 small, from the plan, nothing allocated:");
    for run in &runs {
        let large = TransformerConfig::gpt2_small().with_norm_placement(config.norm_placement);
        let config = large.with_scheme(run.scheme.clone());
        let predicted = plan(&config, &device)?.predict(&config.architecture())?;
        println!("  {:<16} loss {:.2} (ln V = {:.2})", run.name, predicted.loss, predicted.ln_vocab());
    }

    let stream = runs.iter().map(|run| {
        let points =
            |start: &StepZero| (0u32..).map(f64::from).zip(start.stream.iter().map(|r| r.second_moment)).collect();
        (format!("{}: dots measured, line predicted", run.name), points(&run.measured), points(&run.predicted))
    });
    picture(&knobs.out.join("stream.svg"), "second moment of the residual stream", "branches added", stream.collect())?;
    if knobs.steps == 0 {
        return Ok(());
    }

    // Training: the same batches for each.
    println!("\nTRAINING");
    for run in &mut runs {
        run.train(knobs, &text, &device);
        println!("{} writes: {:?}\n", run.name, run.write(&text, knobs, &device));
    }
    print_results(&runs);

    let loss = runs.iter().map(|run| (format!("{}, held out", run.name), run.validation.clone(), run.losses.clone()));
    picture(&knobs.out.join("loss.svg"), "loss", "step", loss.collect())?;
    println!("\npictures: {0}/loss.svg, {0}/stream.svg", knobs.out.display());
    Ok(())
}

/// What the config's scheme would draw.
fn plan(config: &TransformerConfig, device: &Device) -> Result<Plan, burn_init::Error> {
    config.setup().plan(&config.build(device)?, &config.scheme)
}

/// One scheme on its way.
struct Run {
    name: String,
    scheme: Scheme,
    model: Transformer,
    measured: StepZero,
    predicted: StepZero,
    projections: Vec<f64>,
    losses: Vec<(f64, f64)>,
    validation: Vec<(f64, f64)>,
    tokens_per_second: f64,
}

impl Run {
    fn new(name: &str, scheme: Scheme, model: Transformer, measured: StepZero, predicted: StepZero) -> Self {
        let projections = residual_projections(&model);
        let (losses, validation) = (Vec::new(), Vec::new());
        let name = name.to_string();
        Self { name, scheme, model, measured, predicted, projections, losses, validation, tokens_per_second: 0.0 }
    }

    fn train(&mut self, knobs: &Knobs, text: &Text, device: &Device) {
        let style = "{prefix:16} {bar:30} {pos}/{len} {msg} {eta}";
        let bar = ProgressBar::new(knobs.steps as u64).with_prefix(self.name.clone());
        bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
        let mut optimizer = AdamWConfig::new().with_beta_2(0.95).with_epsilon(1e-8).with_weight_decay(0.1).init();
        let mut random = Random(knobs.seed);
        let training_device = device.clone().autodiff();
        let mut model = self.model.clone();
        let mut seconds = 0.0;
        self.validation.push((0.0, held_out_loss(&model, text, knobs, device)));
        for step in 1..=knobs.steps {
            let start = Instant::now();
            let batch = text.batch(&text.train, &mut random, knobs.batch, knobs.context, &training_device);
            let loss = cross_entropy(&model, batch);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(learning_rate(step, knobs), model, gradients);
            self.losses.push((step as f64, loss.into_scalar::<f32>().into()));
            seconds += start.elapsed().as_secs_f64();

            if step % (knobs.steps / 10).max(1) == 0 || step == knobs.steps {
                self.validation.push((step as f64, held_out_loss(&model, text, knobs, device)));
            }
            self.tokens_per_second = (step * knobs.batch * knobs.context) as f64 / seconds;
            bar.set_message(format!(
                "loss {:.3}, held out {:.3}, {:.0} tokens/s",
                self.losses[step - 1].1,
                last(&self.validation),
                self.tokens_per_second
            ));
            bar.inc(1);
        }
        bar.finish();
        self.model = model;
    }

    /// What the model goes on to say after a line of the text.
    fn write(&self, text: &Text, knobs: &Knobs, device: &Device) -> String {
        let model = self.model.valid();
        let mut random = Random(knobs.seed);
        let mut tokens = text.held_out[..knobs.context.min(16)].to_vec();
        for _ in 0..120 {
            let seen = &tokens[tokens.len().saturating_sub(knobs.context)..];
            let logits = model.forward(Tensor::<1, Int>::from_data(seen, device).unsqueeze());
            let row = logits.slice([0..1, seen.len() - 1..seen.len()]).into_data_as::<f32>();
            let row = row.try_to_vec::<f32>().expect("logits are floats");
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f64> = row.iter().map(|z| f64::from((z - max) / 0.8).exp()).collect();
            let mut rest = random.uniform() * weights.iter().sum::<f64>();
            let next = weights.iter().position(|weight| {
                rest -= weight;
                rest <= 0.0
            });
            tokens.push(next.unwrap_or(0) as i64);
        }
        tokens.iter().map(|&token| text.alphabet[token as usize]).collect::<String>().replace('\n', " ")
    }
}

/// Warm-up over a tenth of the steps, then a cosine down to a tenth of the peak.
fn learning_rate(step: usize, knobs: &Knobs) -> f64 {
    let warmup = (knobs.steps / 10).max(1);
    let progress = step.saturating_sub(warmup) as f64 / (knobs.steps - warmup).max(1) as f64;
    let cosine = 0.55 + 0.45 * (std::f64::consts::PI * progress).cos();
    knobs.lr * cosine * (step as f64 / warmup as f64).min(1.0)
}

fn cross_entropy(model: &Transformer, batch: Batch) -> Tensor<1> {
    let logits = model.forward(batch.tokens).flatten::<2>(0, 1);
    let targets = batch.targets.flatten::<1>(0, 1);
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
}

fn held_out_loss(model: &Transformer, text: &Text, knobs: &Knobs, device: &Device) -> f64 {
    let batch = text.batch(&text.held_out, &mut Random(knobs.seed), 4 * knobs.batch, knobs.context, device);
    cross_entropy(&model.valid(), batch).into_scalar::<f32>().into()
}

/// The std of each matrix that writes into the residual stream, in order.
fn residual_projections(model: &Transformer) -> Vec<f64> {
    let std = |weight: Tensor<2>| f64::from(weight.square().mean().sqrt().into_scalar::<f32>());
    let blocks = model.blocks.iter();
    blocks.flat_map(|b| [&b.attention.output, &b.mlp.linear_out]).map(|linear| std(linear.weight.val())).collect()
}

fn last(curve: &[(f64, f64)]) -> f64 {
    curve.last().map_or(f64::NAN, |point| point.1)
}

/// The text as tokens, one per character.
struct Text {
    alphabet: Vec<char>,
    train: Vec<i64>,
    held_out: Vec<i64>,
    /// Probability that two places hold the same character: `sum p_i^2`.
    collision: f64,
    /// Probability that a character follows itself.
    repeats: f64,
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
        let index = |c| alphabet.binary_search(&c).expect("every character is in the alphabet") as i64;
        let tokens: Vec<i64> = text.chars().map(index).collect();
        let (train, held_out) = tokens.split_at(tokens.len() * 9 / 10);
        if held_out.len() <= knobs.context {
            let (all, context) = (tokens.len(), knobs.context);
            return Err(format!(
                "the text has {all} characters; its last tenth must be longer than the context of {context}"
            )
            .into());
        }
        if alphabet.len() < 2 {
            return Err("the text has only one distinct character".into());
        }
        let mut frequencies = vec![0.0; alphabet.len()];
        tokens.iter().for_each(|&token| frequencies[token as usize] += 1.0 / tokens.len() as f64);
        let collision = frequencies.iter().map(|p| p * p).sum();
        let repeats = tokens.windows(2).filter(|pair| pair[0] == pair[1]).count() as f64 / tokens.len() as f64;
        Ok(Self { train: train.to_vec(), held_out: held_out.to_vec(), collision, repeats, alphabet })
    }

    /// Random pieces of `tokens`, and the same one character later.
    fn batch(&self, tokens: &[i64], random: &mut Random, rows: usize, length: usize, device: &Device) -> Batch {
        let starts: Vec<usize> = (0..rows).map(|_| random.below(tokens.len() - length)).collect();
        let rows = |shift: usize| {
            let pieces = starts.iter().flat_map(|start| &tokens[start + shift..start + shift + length]).copied();
            Tensor::<1, Int>::from_data(&*pieces.collect::<Vec<_>>(), device).reshape([starts.len(), length])
        };
        Batch::new(rows(0), rows(1))
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn scheme(name: &str) -> Result<Scheme, String> {
    if !name.ends_with(".toml") {
        return name.parse().map_err(|error| format!("{error} (known: {})", Scheme::names().join(", ")));
    }
    let file = std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
    toml::from_str(&file).map_err(|error: toml::de::Error| format!("{name}: {}", error.message()))
}

/// The residual stream of each scheme, measured and predicted.
fn print_streams(runs: &[Run]) {
    let names: String = runs.iter().map(|run| format!("{:>22}", run.name)).collect();
    println!("{:<14}{names}\n{:<14}{}", "", "stream", "   measured  predicted".repeat(runs.len()));
    for (i, reading) in runs[0].measured.stream.iter().enumerate() {
        print!("{:<14}", reading.point.to_string());
        for run in runs {
            let moment = |start: &StepZero| start.stream[i].second_moment;
            print!("{:>11.5}{:>11.5}", moment(&run.measured), moment(&run.predicted));
        }
        println!();
    }
    println!();
}

fn print_results(runs: &[Run]) {
    println!("{:<18}{:>10}{:>10}{:>10}{:>10}{:>10}", "", "expected", "step zero", "last", "held out", "tokens/s");
    for run in runs {
        let (expected, first) = (run.measured.expected_loss, run.measured.loss);
        let (end, held_out) = (last(&run.losses), last(&run.validation));
        println!(
            "{:<18}{expected:>10.3}{first:>10.3}{end:>10.3}{held_out:>10.3}{:>10.0}",
            run.name, run.tokens_per_second
        );
    }
    println!("\nstd of the projections into the residual stream, at the start and at the end: a start, not a cap");
    for run in runs {
        let row = |stds: &[f64]| stds.iter().map(|std| format!(" {std:.4}")).collect::<String>();
        println!("{:<18}start{}", run.name, row(&run.projections));
        println!("{:<18}end  {}", "", row(&residual_projections(&run.model)));
    }
}

type Curve = Vec<(f64, f64)>;

/// Dots and a line for each scheme, on a logarithmic axis.
fn picture(path: &Path, title: &str, x: &str, curves: Vec<(String, Curve, Curve)>) -> Result<(), Box<dyn Error>> {
    let points = || curves.iter().flat_map(|(_, dots, line)| dots.iter().chain(line)).filter(|point| point.1 > 0.0);
    let x_max = points().map(|point| point.0).fold(1.0, f64::max);
    let (low, high) = points().fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let canvas = SVGBackend::new(path, (800, 500)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption(title, ("sans-serif", 20))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..x_max, (low / 1.2..high * 1.2).log_scale())?;
    chart.configure_mesh().x_desc(x).x_label_formatter(&|x| format!("{x:.0}")).light_line_style(TRANSPARENT).draw()?;
    for (i, (name, dots, line)) in curves.into_iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        chart.draw_series(LineSeries::new(line, color))?;
        chart
            .draw_series(dots.into_iter().map(|point| Circle::new(point, 3, color.filled())))?
            .label(name)
            .legend(move |point| Circle::new(point, 3, color.filled()));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    canvas.present()?;
    Ok(())
}
