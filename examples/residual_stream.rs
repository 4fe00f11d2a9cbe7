//! How the residual stream of a fresh GPT-2 grows, with and without depth scaling: through 12 layers, predicted from the plan
//! and measured on the model, and with the number of layers, predicted. Draws the picture of the README.
//!
//!     cargo run --release --example residual_stream -- docs/residual-stream.svg

mod common;

use std::{error::Error, path::PathBuf};

use burn::prelude::*;
use burn_init::{
    plot::{self, Chart, Curve, Picture, Series},
    prelude::*,
    reference::TransformerConfig,
    step_zero::{StepZero, step_zero},
};

const LAYERS: usize = 12;
const SEEDS: u64 = 4;
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args().nth(1).map_or_else(|| common::target("residual-stream.svg"), PathBuf::from);
    let device = Device::flex();

    // A third of GPT-2 small's width, with the std that keeps d * std^2, and so every branch, as it is there; the tables as they are.
    let config = TransformerConfig::new(1000, 128, 256, LAYERS, 4);
    let gpt2 = |depth| {
        let tables = [Role::TokenEmbedding, Role::PositionEmbedding];
        Gpt2::new().with_std(0.02 * 3f64.sqrt()).with_depth(depth).with(tables, Init::normal(0.02))
    };
    let schemes = [("with 1/√(2N)", gpt2(Depth::total())), ("unscaled", gpt2(Depth::none()))];

    let mut starts = Vec::new();
    let ends = DEPTHS.map(|layers| layers as f64);
    let mut over_depth = Chart::new("At its end, over depth")
        .x("layers N")
        .y("second moment of the stream after 2N additions")
        .log_x()
        .log_y()
        .x_ticks(ends);
    for (name, scheme) in &schemes {
        let predicted = predict(&config, scheme)?;
        let measured = (0..SEEDS).map(|seed| {
            let model = config.init_with(scheme, seed, &device)?;
            let batch = common::random_batch(1000, 2, 128, seed, &device);
            step_zero(&batch, |tokens, probe| model.forward_with(tokens, probe))
        });
        let measured = StepZero::mean(&measured.collect::<Result<Vec<_>, _>>()?)?;
        println!(
            "{name}: {:.2e} -> {:.2e}, predicted {:.2e}",
            end(&measured) / growth(&measured),
            end(&measured),
            end(&predicted)
        );

        let mut points = Vec::new();
        for layers in DEPTHS {
            points.push((
                layers as f64,
                end(&predict(&TransformerConfig { n_layers: layers, ..config.clone() }, scheme)?),
            ));
        }
        println!("    at the end of {DEPTHS:?} layers: {:.2?}", points.iter().map(|point| point.1).collect::<Vec<_>>());
        over_depth = over_depth.with(Series::new(*name).line(points));
        starts.push((*name, predicted, measured));
    }
    let curves =
        starts.iter().map(|(name, predicted, measured)| Curve::new(*name).predicted(predicted).measured(measured));
    let through = plot::stream(&curves.collect::<Vec<_>>())?.titled("A fresh 12-layer GPT-2, before its first step");
    Picture::row([through, over_depth.note("predicted from the plan")]).save(&out)?;
    println!("{}", out.display());
    Ok(())
}

fn predict(config: &TransformerConfig, scheme: &dyn Initializer) -> Result<StepZero, burn_init::Error> {
    config.build(&Device::flex())?.plan(scheme)?.predict(&config.architecture().with_sequences(2))
}

/// The stream after its last addition.
fn end(start: &StepZero) -> f64 {
    start.stream.last().map_or(f64::NAN, |reading| reading.second_moment)
}

fn growth(start: &StepZero) -> f64 {
    start.growth().unwrap_or(f64::NAN)
}
