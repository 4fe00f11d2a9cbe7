//! What does a model do before it has learned anything? Predicted from its plan and measured on the fresh model, side by side.
//!
//! ```sh
//! cargo run --release --example step_zero -- --scheme gpt2 --layers 12 --width 768 --seeds 3
//! cargo run --release --example step_zero -- --model llama --scheme llama --gradients
//! ```

use std::error::Error;

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_init::{
    Scheme,
    reference::{Norm, Positions, Transformer, TransformerConfig},
    step_zero::{Activation, Batch, StepZero, measure},
};
use clap::{Parser, ValueEnum};

#[derive(Parser)]
#[command(about = "Predicts and measures step zero")]
struct Args {
    /// How the model starts; see docs/schemes.md
    #[arg(long, default_value = "gpt2")]
    scheme: Scheme,
    #[arg(long, value_enum, default_value_t = Model::Gpt2)]
    model: Model,
    /// Blocks N; the stream has 2N additions
    #[arg(long, default_value_t = 12)]
    layers: usize,
    /// Width of the residual stream
    #[arg(long, default_value_t = 256)]
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
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Give the head a table of its own
    #[arg(long)]
    untied: bool,
    /// Run a backward pass, too
    #[arg(long)]
    gradients: bool,
    /// Print CSV instead of a table
    #[arg(long)]
    csv: bool,
    /// Print all that is known of both sides as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// Learned positions, LayerNorm, GELU, biases
    Gpt2,
    /// Rotary positions, RmsNorm, SwiGLU, no biases
    Llama,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let config = args.config();
    let plain = Device::flex();
    let device = if args.gradients { plain.clone().autodiff() } else { plain };

    let plan = config.setup().plan(&config.build(&device)?, &args.scheme)?;
    let architecture = config.architecture().with_length(args.length as u64).with_sequences(args.sequences as u64);
    let predicted = plan.predict(&architecture)?;

    let mut runs = Vec::new();
    for seed in 0..args.seeds {
        let model = config.init_with(&args.scheme, seed, &device)?;
        let batch = random_batch(&args, seed, &device);
        runs.push(measure(&model, &batch, Transformer::forward_with)?);
    }
    let measured = StepZero::mean(&runs)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&[measured, predicted])?);
    } else if args.csv {
        print!("{}", measured.beside(&predicted).to_csv());
    } else {
        println!("{measured}\n\n{}", measured.beside(&predicted));
    }
    Ok(())
}

impl Args {
    fn config(&self) -> TransformerConfig {
        let config = TransformerConfig::new(self.vocab, self.length, self.width, self.layers, self.heads)
            .with_tied(!self.untied)
            .with_scheme(self.scheme.clone());
        match self.model {
            Model::Gpt2 => config,
            Model::Llama => config
                .with_norm(Norm::RmsNorm)
                .with_positions(Positions::Rotary)
                .with_activation(Activation::SwiGlu)
                .with_bias(false),
        }
    }
}

/// Uniformly random tokens and targets.
fn random_batch(args: &Args, seed: u64, device: &Device) -> Batch {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut tokens = || {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % args.vocab as u64) as i64
        };
        let values: Vec<i64> = (0..args.sequences * args.length).map(next).collect();
        Tensor::<2, Int>::from_data(TensorData::new(values, [args.sequences, args.length]), device)
    };
    Batch::new(tokens(), tokens())
}
