//! How the residual stream of a fresh GPT-2 grows, with and without depth scaling: through 12 layers, predicted from the plan
//! and measured on the model, and with the number of layers, predicted. Draws the picture of the README.
//!
//!     cargo run --release --example residual_stream -- docs/residual-stream.svg

use std::error::Error;

use burn::prelude::*;
use burn_init::{
    prelude::*,
    reference::TransformerConfig,
    step_zero::{Batch, StepZero, step_zero},
};
use plotters::prelude::*;

const LAYERS: usize = 12;
const SEEDS: u64 = 4;
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args().nth(1).unwrap_or_else(|| "target/residual-stream.svg".into());
    let device = Device::flex();

    // A third of GPT-2 small's width, with the std that keeps d * std^2, and so every branch, as it is there; the tables as they are.
    let config = TransformerConfig::new(1000, 128, 256, LAYERS, 4);
    let gpt2 = |depth| {
        let tables = [Role::TokenEmbedding, Role::PositionEmbedding];
        Gpt2::new().with_std(0.02 * 3f64.sqrt()).with_depth(depth).with(tables, Init::normal(0.02))
    };
    let schemes = [("without depth scaling", gpt2(Depth::none())), ("with 1/sqrt(2N)", gpt2(Depth::total()))];

    let mut curves = Vec::new();
    for (name, scheme) in &schemes {
        let predicted = predict(&config, scheme)?;
        let mut mean = vec![0.0; 2 * LAYERS + 1];
        for seed in 0..SEEDS {
            let model = config.init_with(scheme, seed, &device)?;
            let measured = step_zero(&batch(seed, &device), |tokens, probe| model.forward_with(tokens, probe))?;
            for (mean, value) in mean.iter_mut().zip(stream(&measured)) {
                *mean += value / SEEDS as f64;
            }
        }
        let (first, last) = (mean[0], mean[2 * LAYERS]);
        println!("{name}: {first:.2e} -> {last:.2e}, predicted {:.2e}", predicted[2 * LAYERS]);
        let mut over_depth = Vec::new();
        for layers in DEPTHS {
            let config = TransformerConfig { n_layers: layers, ..config.clone() };
            over_depth.push((layers as f64, predict(&config, scheme)?[2 * layers]));
        }
        println!(
            "    at the end of {DEPTHS:?} layers: {:.2?}",
            over_depth.iter().map(|point| point.1).collect::<Vec<_>>()
        );
        curves.push(Curve { name, measured: mean, predicted, over_depth });
    }
    draw(&out, &curves)?;
    println!("{out}");
    Ok(())
}

struct Curve {
    name: &'static str,
    measured: Vec<f64>,
    predicted: Vec<f64>,
    over_depth: Vec<(f64, f64)>,
}

fn predict(config: &TransformerConfig, scheme: &dyn Initializer) -> Result<Vec<f64>, burn_init::Error> {
    let plan = config.build(&Device::flex())?.plan(scheme)?;
    Ok(stream(&plan.predict(&config.architecture())?))
}

fn stream(start: &StepZero) -> Vec<f64> {
    start.stream.iter().map(|reading| reading.second_moment).collect()
}

/// Two sequences of 128 uniformly random tokens, each to be followed by the next.
fn batch(seed: u64, device: &Device) -> Batch {
    let stream = burn_init::sample::Stream::new(seed, "tokens");
    let mut tokens = [0.0f32; 2 * 129];
    stream.fill(&burn_init::sample::Distribution::Uniform { low: 0.0, high: 1000.0 }, 0, &mut tokens);
    let tokens: Vec<i64> = tokens.iter().map(|&token| (token as i64).min(999)).collect();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(tokens, [2, 129]), device);
    Batch::new(tokens.clone().slice([0..2, 0..128]), tokens.slice([0..2, 1..129]))
}

fn draw(path: &str, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let colors = [RGBColor(192, 57, 43), RGBColor(41, 98, 155)];
    let root = SVGBackend::new(path, (960, 380)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(520);
    let label = |text: &str, at: (f64, f64), color: &RGBColor| {
        Text::new(text.to_string(), at, ("sans-serif", 14).into_font().color(color))
    };

    let mut through = ChartBuilder::on(&left)
        .margin(16)
        .caption("A fresh 12-layer GPT-2, before its first step", ("sans-serif", 17))
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0f64..24.0, (5e-4..5f64).log_scale())?;
    through
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("additions to the residual stream")
        .y_desc("variance of the stream")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    for (curve, color) in curves.iter().zip(colors) {
        let points = |values: &[f64]| (0u32..).map(f64::from).zip(values.to_vec()).collect::<Vec<_>>();
        through.draw_series(LineSeries::new(points(&curve.predicted), color.stroke_width(2)))?;
        through.draw_series(points(&curve.measured).into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
        through.draw_series([label(curve.name, (13.0, curve.predicted[13] / 1.9), &color)])?;
    }
    let grey = RGBColor(110, 110, 110);
    through.draw_series([label("dots: measured, line: predicted from the plan", (5.0, 9e-4), &grey)])?;

    let deepest = DEPTHS[DEPTHS.len() - 1] as f64;
    let mut over = ChartBuilder::on(&right)
        .margin(16)
        .caption("at its end, over depth", ("sans-serif", 17))
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d((1f64..deepest).log_scale(), (1e-2..50f64).log_scale())?;
    over.configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("layers")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    for (curve, color) in curves.iter().zip(colors) {
        over.draw_series(LineSeries::new(curve.over_depth.iter().copied(), color.stroke_width(2)))?;
        over.draw_series([label(curve.name, (4.0, curve.over_depth[2].1 / 1.6), &color)])?;
    }
    root.present()?;
    Ok(())
}
