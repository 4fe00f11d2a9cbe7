//! What does a model do before it has learned anything? Predicted from its plan and measured on the fresh model, side by side, and as
//! pictures.
//!
//! ```sh
//! cargo run --release --example step_zero -- --scheme gpt2 --layers 12 --width 768 --seeds 3
//! cargo run --release --example step_zero -- --model llama --scheme hf-llama --gradients
//! cargo run --release --example step_zero -- --scheme gpt2 --against gpt2-released --against zero-residual --out target/pictures
//! ```
//!
//! The pictures of docs/theory.md have the std that keeps d * std^2, and so every branch, as it is in GPT-2 small:
//!
//! ```sh
//! cargo run --release --example step_zero -- --seeds 3 --gradients --out docs --prefix theory- --pictures stream,gradient,rho \
//!   --scheme 'scaled={"scheme": "gpt2", "std": 0.0346}' --against 'unscaled={"scheme": "gpt2", "std": 0.0346, "depth": {"rule": "none"}}' \
//!   --against 'zero residual={"scheme": "modified", "base": {"scheme": "gpt2", "std": 0.0346}, "zero_residual": true}'
//! ```

mod common;

use std::{error::Error, fs, path::PathBuf};

use burn::tensor::Device;
use burn_init::{
    plot::{self, Curve, LogitSample, Picture},
    reference::{Norm, NormPlacement, Positions, Transformer, TransformerConfig},
    step_zero::{Activation, StepZero, measure},
};
use clap::{Parser, ValueEnum};
use common::Named;

#[derive(Parser)]
#[command(about = "Predicts and measures step zero")]
struct Args {
    /// How the model starts: a name from docs/schemes.md, or its JSON, and a label for the pictures before either: label=scheme
    #[arg(long, default_value = "gpt2")]
    scheme: Named,
    /// Draws another scheme into the same pictures; may be repeated
    #[arg(long)]
    against: Vec<Named>,
    #[arg(long, value_enum, default_value_t = Model::Gpt2)]
    model: Model,
    /// Where the norms stand: pre, post (DeepNorm needs it), res-post or sandwich
    #[arg(long, default_value_t)]
    norms: NormPlacement,
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
    /// The folder that the pictures are written to [default: step_zero in the target directory]
    #[arg(long)]
    out: Option<PathBuf>,
    /// What the names of the pictures begin with
    #[arg(long, default_value = "")]
    prefix: String,
    /// Which pictures to draw [default: all]
    #[arg(long, value_delimiter = ',', value_parser = ["stream", "branches", "gradient", "rho", "logits"])]
    pictures: Vec<String>,
    /// Write PNG instead of SVG
    #[arg(long)]
    png: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// Learned positions, LayerNorm, GELU, biases
    Gpt2,
    /// Rotary positions, RmsNorm, SwiGLU, no biases
    Llama,
}

/// One scheme, on both ways.
struct Start {
    label: String,
    predicted: StepZero,
    measured: StepZero,
    logits: LogitSample,
}

impl Start {
    fn predicted(&self) -> Curve<'_> {
        Curve::new(&self.label).predicted(&self.predicted)
    }

    fn curve(&self) -> Curve<'_> {
        self.predicted().measured(&self.measured)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let starts = [&args.scheme].into_iter().chain(&args.against).map(|named| args.start(named));
    let starts = starts.collect::<Result<Vec<_>, _>>()?;
    let Start { measured, predicted, .. } = &starts[0];
    if args.json {
        println!("{}", serde_json::to_string_pretty(&[measured, predicted])?);
    } else if args.csv {
        print!("{}", measured.beside(predicted).to_csv());
    } else {
        println!("{measured}\n\n{}", measured.beside(predicted));
    }
    args.draw(&starts)
}

impl Args {
    fn config(&self) -> TransformerConfig {
        let config = TransformerConfig::new(self.vocab, self.length, self.width, self.layers, self.heads)
            .with_norm_placement(self.norms)
            .with_tied(!self.untied);
        match self.model {
            Model::Gpt2 => config,
            Model::Llama => config
                .with_norm(Norm::RmsNorm)
                .with_positions(Positions::Rotary)
                .with_activation(Activation::SwiGlu)
                .with_bias(false),
        }
    }

    fn start(&self, Named { label, scheme }: &Named) -> Result<Start, Box<dyn Error>> {
        let config = self.config().with_scheme(scheme.clone());
        let device = if self.gradients { Device::flex().autodiff() } else { Device::flex() };
        let plan = config.setup().plan(&config.build(&device)?, scheme)?;
        let architecture = config.architecture().with_length(self.length as u64).with_sequences(self.sequences as u64);

        let mut runs = Vec::new();
        let mut logits = None;
        for seed in 0..self.seeds.max(1) {
            let model = config.init_with(scheme, seed, &device)?;
            let batch = common::random_batch(self.vocab, self.sequences, self.length, seed, &device);
            runs.push(measure(&model, &batch, |model, tokens, probe| {
                let logits_now = Transformer::forward_with(model, tokens, probe);
                logits.get_or_insert_with(|| logits_now.clone());
                logits_now
            })?);
        }
        let batch = common::random_batch(self.vocab, self.sequences, self.length, 0, &device);
        let logits = logits.ok_or("nothing was measured")?;
        Ok(Start {
            label: label.clone(),
            predicted: plan.predict(&architecture)?,
            measured: StepZero::mean(&runs)?,
            logits: LogitSample::new(&logits, &batch.tokens)?,
        })
    }

    fn draw(&self, starts: &[Start]) -> Result<(), Box<dyn Error>> {
        let folder = self.out.clone().unwrap_or_else(|| common::target("step_zero"));
        fs::create_dir_all(&folder)?;
        let curves: Vec<_> = starts.iter().map(Start::curve).collect();
        // Without a backward pass there is only the prediction to show.
        let gradients = match self.gradients {
            true => plot::gradient(&curves),
            false => plot::gradient(&starts.iter().map(Start::predicted).collect::<Vec<_>>()),
        };
        let charts = [
            ("stream", plot::stream(&curves)),
            ("branches", plot::branches(&curves)),
            ("gradient", gradients),
            ("rho", plot::correlation(&curves)),
            ("logits", starts[0].logits.chart(&starts[0].predicted)),
        ];
        let wanted = |name: &str| self.pictures.is_empty() || self.pictures.iter().any(|picture| picture == name);
        for (name, chart) in charts.into_iter().filter(|(name, _)| wanted(name)) {
            let path = folder.join(format!("{}{name}.{}", self.prefix, if self.png { "png" } else { "svg" }));
            match chart.and_then(|chart| Picture::of(chart).save(&path)) {
                Ok(()) => eprintln!("{}", path.display()),
                Err(error) => eprintln!("{name} is not drawn: {error}"),
            }
        }
        Ok(())
    }
}
