//! One model, many starts: the loss of step zero, the growth of the residual stream, the spread of the gradients, and the loss
//! after some training; a table and a picture.
//!
//!     cargo run --release --example compare_schemes
//!     cargo run --release --example compare_schemes -- --steps 300 gpt2 gpt-neox '{"scheme": "gpt2", "std": 0.05}'

use std::{error::Error, path::PathBuf};

use burn::{
    nn::{Linear, loss::CrossEntropyLossConfig},
    optim::{AdamWConfig, GradientsParams},
    prelude::*,
    tensor::Gradients,
};
use burn_init::{
    Scheme,
    reference::{Transformer, TransformerConfig},
    sample::{Distribution, Stream},
    step_zero::{Batch, step_zero},
};
use clap::Parser;
use plotters::prelude::*;

/// Compares schemes on one small model and one text.
#[derive(Parser)]
struct Knobs {
    /// Schemes by name, or as JSON
    #[arg(default_values = ["torch-default", "lecun-normal", "hf-llama", "gpt2", "gpt-neox", "olmo-mitchell", "nanochat"])]
    schemes: Vec<String>,
    /// Steps of training
    #[arg(long, default_value_t = 200)]
    steps: usize,
    /// Blocks
    #[arg(long, default_value_t = 6)]
    layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 96)]
    d_model: usize,
    /// Learning rate of AdamW, after a warmup over a tenth of the steps
    #[arg(long, default_value_t = 1e-3)]
    lr: f64,
    /// Seed of the values and of the batches
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where the picture goes
    #[arg(long, default_value = "target/compare_schemes.svg")]
    out: PathBuf,
}

const CONTEXT: usize = 64;
const ROWS: usize = 16;
const HEADS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let knobs = Knobs::parse();
    let schemes = knobs.schemes.iter().map(|name| name.parse()).collect::<Result<Vec<Scheme>, _>>()?;
    let device = Device::flex();
    let text = Text::new();
    // An untied head, so that each scheme starts its own.
    let config = TransformerConfig::new(text.letters, CONTEXT, knobs.d_model, knobs.layers, HEADS).with_tied(false);
    println!("{} layers, d = {}, ln V = {:.3}\n", knobs.layers, knobs.d_model, (text.letters as f64).ln());
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}", "", "step 0", "growth", "gradients", "trained", "held out");
    let mut curves = Vec::new();
    for (name, scheme) in knobs.schemes.iter().zip(schemes) {
        let model = config.init_with(&scheme, knobs.seed, &device.clone().autodiff())?;
        let batch = text.batch(0, false, &device);
        let fresh = model.valid();
        let start = step_zero(&batch, |tokens, probe| fresh.forward_with(tokens, probe))?;
        let moment = |reading: Option<&burn_init::step_zero::Reading>| reading.map_or(f64::NAN, |r| r.second_moment);
        let growth = moment(start.stream.last()) / moment(start.stream.first());
        let spread = gradient_spread(&model, text.batch(0, false, &device.clone().autodiff()));
        let (losses, held_out) = train(model, &text, &knobs, &device);
        let trained = losses.last().map_or(f64::NAN, |point| point.1);
        println!("{name:<24}{:>10.3}{growth:>10.2}{spread:>10.1}{trained:>10.3}{held_out:>10.3}", start.loss);
        curves.push((name.clone(), losses));
    }
    println!("\ngrowth: the variance of the stream after the last addition over that of the embedding");
    println!("gradients: the largest RMS gradient of an MLP matrix over the smallest, but for those that are 0");
    draw(&knobs.out, curves)?;
    println!("picture: {}", knobs.out.display());
    Ok(())
}

fn loss(model: &Transformer, batch: Batch) -> Tensor<1> {
    let logits = model.forward(batch.tokens).flatten::<2>(0, 1);
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.targets.flatten::<1>(0, 1))
}

/// How unlike the gradients of the MLP's matrices are over the depth.
fn gradient_spread(model: &Transformer, batch: Batch) -> f64 {
    let gradients = loss(model, batch).backward();
    let rms = |linear: &Linear, gradients: &Gradients| {
        let gradient = linear.weight.val().grad(gradients);
        gradient.map_or(0.0, |gradient| f64::from(gradient.square().mean().sqrt().into_scalar::<f32>()))
    };
    let blocks = model.blocks.iter().flat_map(|block| [&block.mlp.linear_in, &block.mlp.linear_out]);
    let rms: Vec<f64> = blocks.map(|linear| rms(linear, &gradients)).filter(|&rms| rms > 0.0).collect();
    let max = rms.iter().copied().fold(0.0, f64::max);
    max / rms.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The loss of each step, and at the end that of text not seen. Every scheme gets the same batches.
fn train(mut model: Transformer, text: &Text, knobs: &Knobs, device: &Device) -> (Vec<(f64, f64)>, f64) {
    let mut optimizer = AdamWConfig::new().with_beta_2(0.95).with_weight_decay(0.1).init();
    let training = device.clone().autodiff();
    let mut losses = Vec::new();
    for step in 1..=knobs.steps {
        let loss = loss(&model, text.batch(knobs.seed + step as u64, false, &training));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let warmup = (10.0 * step as f64 / knobs.steps as f64).min(1.0);
        model = optimizer.step(knobs.lr * warmup, model, gradients);
        losses.push((step as f64, f64::from(loss.into_scalar::<f32>())));
    }
    let held_out = (0..4).map(|i| f64::from(loss(&model.valid(), text.batch(i, true, device)).into_scalar::<f32>()));
    (losses, held_out.sum::<f64>() / 4.0)
}

/// Cicero, by letters; the last tenth is held out.
struct Text {
    tokens: Vec<i64>,
    letters: usize,
}

impl Text {
    fn new() -> Self {
        let mut letters: Vec<char> = lipsum::LIBER_PRIMUS.chars().collect();
        letters.sort_unstable();
        letters.dedup();
        let index = |c| letters.binary_search(&c).unwrap_or_default() as i64;
        Self { tokens: lipsum::LIBER_PRIMUS.chars().map(index).collect(), letters: letters.len() }
    }

    /// Pieces at places that depend on `number` alone.
    fn batch(&self, number: u64, held_out: bool, device: &Device) -> Batch {
        let (train, rest) = self.tokens.split_at(self.tokens.len() * 9 / 10);
        let tokens = if held_out { rest } else { train };
        let mut places = [0.0f32; ROWS];
        let end = (tokens.len() - CONTEXT - 1) as f64;
        Stream::new(number, "places").fill(&Distribution::Uniform { low: 0.0, high: end }, 0, &mut places);
        let rows = |shift: usize| {
            let pieces = places.iter().flat_map(|&place| &tokens[place as usize + shift..][..CONTEXT]).copied();
            Tensor::<1, Int>::from_data(&*pieces.collect::<Vec<_>>(), device).reshape([ROWS, CONTEXT])
        };
        Batch::new(rows(0), rows(1))
    }
}

type Curve = (String, Vec<(f64, f64)>);

fn draw(path: &std::path::Path, curves: Vec<Curve>) -> Result<(), Box<dyn Error>> {
    let points = || curves.iter().flat_map(|(_, points)| points).filter(|point| point.1.is_finite());
    let x_max = points().map(|point| point.0).fold(1.0, f64::max);
    let (low, high) = points().fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), p| (low.min(p.1), high.max(p.1)));
    if low > high {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let canvas = SVGBackend::new(path, (800, 500)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&canvas)
        .caption("loss over the first steps", ("sans-serif", 20))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..x_max, (low / 1.1..high * 1.1).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("step")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (i, (name, points)) in curves.into_iter().enumerate() {
        let color = Palette99::pick(i).to_rgba();
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 15, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    canvas.present()?;
    Ok(())
}
