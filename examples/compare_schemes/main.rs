//! One model, many starts: the loss of step zero, the growth of the residual stream, the spread of the gradients, and the loss
//! after some training; a table and a picture.
//!
//!     cargo run --release --example compare_schemes
//!     cargo run --release --example compare_schemes -- --steps 300 gpt2 gpt-neox '{"scheme": "gpt2", "std": 0.05}'
//!
//! With `--study` the same for several depths, learning rates and seeds, which is the study of docs/schemes.md: 126 runs of 2 to 10
//! seconds each on a core. Each is kept in a file, so that it can be stopped and goes on where it was.
//!
//!     cargo run --release --example compare_schemes -- --study

mod picture;
mod study;
mod training;

use std::{error::Error, path::PathBuf};

use burn_init::{NormPlacement, Scheme};
use clap::Parser;

use training::{Outcome, Run, Text};

/// Compares schemes on one small model and one text.
#[derive(Parser)]
struct Knobs {
    /// Schemes by name, or as JSON
    schemes: Vec<String>,
    /// Steps of training
    #[arg(long, default_value_t = 150)]
    steps: usize,
    /// Blocks
    #[arg(long, default_value_t = 6)]
    layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 64)]
    d_model: usize,
    /// Where the norms stand: pre, post (DeepNorm needs it), res-post or sandwich
    #[arg(long, default_value_t)]
    norms: NormPlacement,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 32)]
    context: usize,
    /// Highest learning rate of AdamW, after a warmup over a tenth of the steps
    #[arg(long, default_value_t = 3e-3)]
    lr: f64,
    /// Seed of the values and of the batches
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Runs at a time
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Where the picture goes
    #[arg(long, default_value = "target/compare_schemes.svg")]
    out: PathBuf,
    /// Depths, learning rates and seeds instead of the one of each
    #[arg(long)]
    study: bool,
    /// Seeds of the study, from 0 on
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Where the study keeps its runs
    #[arg(long, default_value = "target/study.jsonl")]
    runs: PathBuf,
}

const SCHEMES: [&str; 7] =
    ["torch-default", "lecun-normal", "hf-llama", "gpt2", "gpt-neox", "olmo-mitchell", "nanochat"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut knobs = Knobs::parse();
    if knobs.schemes.is_empty() {
        knobs.schemes = SCHEMES.map(String::from).to_vec();
    }
    let names = &knobs.schemes;
    let schemes = names.iter().map(|name| name.parse()).collect::<Result<Vec<Scheme>, _>>()?;
    let text = Text::new();
    if knobs.study {
        return study::study(&knobs, &schemes, &text);
    }
    let Knobs { steps, layers, d_model, norms, context, lr, seed, .. } = knobs;
    let run = Run { layers, d_model, norms, context, steps, lr, seed };
    println!("{layers} layers, d = {d_model}, {steps} steps, ln V = {:.3}\n", (text.letters as f64).ln());
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}", "", "step 0", "growth", "gradients", "trained", "held out");
    let mut curves = Vec::new();
    study::in_turn(knobs.jobs, schemes.len(), |index| run.train(&schemes[index], &text).map_err(|e| e.to_string()), {
        |index, outcome: Outcome| {
            // The loss of one batch is noisy.
            let last = &outcome.losses[outcome.losses.len() - outcome.losses.len().min(10)..];
            let trained = last.iter().sum::<f64>() / last.len() as f64;
            let Outcome { step_zero, growth, spread, held_out, .. } = outcome;
            let name = &names[index];
            println!("{name:<24}{step_zero:>10.3}{growth:>10.2}{spread:>10.1}{trained:>10.3}{held_out:>10.3}");
            curves.push((name.clone(), outcome.losses));
            Ok(())
        }
    })?;
    println!("\ngrowth: the second moment of the stream after the last addition over that of the embedding");
    println!("gradients: the largest RMS gradient of an MLP's matrix over the smallest, but for those that are 0");
    println!("trained: the mean loss of the last ten steps");
    picture::curves(&knobs.out, &curves)?;
    println!("picture: {}", knobs.out.display());
    Ok(())
}
