//! How the residual stream of a fresh 12-layer GPT-2 grows, with and without depth scaling: predicted from the plan and
//! measured on the model. Draws the picture of the README.
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

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args().nth(1).unwrap_or_else(|| "target/residual-stream.svg".into());
    let device = Device::flex();

    // A third of GPT-2 small's width, with the std that keeps d * std^2, and so every branch, as it is there.
    let config = TransformerConfig::new(1000, 128, 256, LAYERS, 4);
    let gpt2 = Gpt2::new().with_std(0.02 * 3f64.sqrt());
    let schemes = [("without depth scaling", gpt2.clone().with_depth(Depth::none())), ("with 1/sqrt(2N)", gpt2)];

    let mut curves = Vec::new();
    for (name, scheme) in &schemes {
        let predicted = config.build(&device)?.plan(scheme)?.predict(&config.architecture())?;
        let mut mean = vec![0.0; 2 * LAYERS + 1];
        for seed in 0..SEEDS {
            let model = config.init_with(scheme, seed, &device)?;
            let measured = step_zero(&batch(seed, &device), |tokens, probe| model.forward_with(tokens, probe))?;
            for (mean, value) in mean.iter_mut().zip(stream(&measured)) {
                *mean += value / SEEDS as f64;
            }
        }
        let (first, last) = (mean[0], mean[2 * LAYERS]);
        println!("{name}: {first:.2e} -> {last:.2e}, predicted {:.2e}", stream(&predicted)[2 * LAYERS]);
        curves.push((*name, mean, stream(&predicted)));
    }
    draw(&out, &curves)?;
    println!("{out}");
    Ok(())
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

fn draw(path: &str, curves: &[(&str, Vec<f64>, Vec<f64>)]) -> Result<(), Box<dyn Error>> {
    let colors = [RGBColor(192, 57, 43), RGBColor(41, 98, 155)];
    let root = SVGBackend::new(path, (760, 380)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .caption("A fresh 12-layer GPT-2 before its first step", ("sans-serif", 18))
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0f64..31.0, (1e-3..10f64).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("additions to the residual stream")
        .y_desc("variance of the stream")
        .x_labels(7)
        .y_label_formatter(&|v| format!("{v:.0e}"))
        .draw()?;
    for ((name, measured, predicted), color) in curves.iter().zip(colors) {
        let points = |values: &[f64]| (0u32..).map(f64::from).zip(values.to_vec()).collect::<Vec<_>>();
        chart.draw_series(LineSeries::new(points(predicted), color.stroke_width(2)))?;
        chart.draw_series(points(measured).into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
        let end = (24.5, predicted[2 * LAYERS]);
        chart.draw_series([Text::new(name.to_string(), end, ("sans-serif", 14).into_font().color(&color))])?;
    }
    let note = ("sans-serif", 13).into_font().color(&RGBColor(110, 110, 110));
    chart.draw_series([Text::new("dots: measured, line: predicted from the plan", (8.0, 1.6e-3), note)])?;
    root.present()?;
    Ok(())
}
