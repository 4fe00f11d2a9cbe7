//! Swaps the start of an experiment in its config file, and shows what that changes before anything is drawn.
//!
//!     cargo run --release --example swap_scheme
//!     cargo run --release --example swap_scheme -- before.toml after.toml

use std::error::Error;

use burn::tensor::Device;
use burn_init::{prelude::*, reference::TransformerConfig};
use serde::Deserialize;

/// An experiment as people write them down; the start is one table of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    vocab: usize,
    context: usize,
    d_model: usize,
    layers: usize,
    heads: usize,
    #[serde(default)]
    seed: u64,
    init: Scheme,
}

const BEFORE: &str = r#"
vocab = 1000
context = 64
d_model = 256
layers = 8
heads = 4

[init]
scheme = "gpt2"
"#;

/// The same experiment with another start: Xavier, scaled by depth, and a narrow table.
const AFTER: &str = r#"
vocab = 1000
context = 64
d_model = 256
layers = 8
heads = 4

[init]
scheme = "modified"
base = "xavier-normal"
depth = "total"
embedding_std = 0.01
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = std::env::args().skip(1);
    let mut read = |default: &str| match files.next() {
        Some(path) => std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}")),
        None => Ok(default.to_string()),
    };
    let (before, after) = (read(BEFORE)?, read(AFTER)?);
    let (before, after): (Experiment, Experiment) = (toml::from_str(&before)?, toml::from_str(&after)?);

    let (old, new) = (plan(&before)?, plan(&after)?);
    println!("{} -> {}\n\n{}", before.init, after.init, old.diff(&new));
    println!("{new:#}");

    // The scheme is chosen; start the model. Nothing was drawn until here.
    let device = Device::flex();
    let model = config(&after).init_with(&after.init, after.seed, &device)?;
    println!("started {} parameters with seed {}", burn::module::Module::num_params(&model), after.seed);
    Ok(())
}

fn config(experiment: &Experiment) -> TransformerConfig {
    let Experiment { vocab, context, d_model, layers, heads, .. } = *experiment;
    TransformerConfig::new(vocab, context, d_model, layers, heads)
}

fn plan(experiment: &Experiment) -> Result<Plan, burn_init::Error> {
    let config = config(experiment);
    config.setup().plan(&config.build(&Device::flex())?, &experiment.init)
}
