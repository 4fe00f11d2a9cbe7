//! A text, a short training run, and what is looked at before it.

use std::error::Error;

use burn::{
    nn::{Linear, loss::CrossEntropyLossConfig},
    optim::{AdamWConfig, GradientsParams},
    prelude::*,
    tensor::Gradients,
};
use burn_init::{
    Scheme,
    reference::{NormPlacement, Transformer, TransformerConfig},
    sample::{Distribution, Stream},
    step_zero::{Batch, Reading, step_zero},
};

const HEADS: usize = 4;
const ROWS: usize = 8;

/// One training run but for its scheme.
#[derive(Clone, Copy)]
pub struct Run {
    pub layers: usize,
    pub d_model: usize,
    /// Where the norms stand.
    pub norms: NormPlacement,
    pub context: usize,
    pub steps: usize,
    /// Highest learning rate: a warmup over a tenth of the steps, then a straight line to a tenth of it.
    pub lr: f64,
    /// Of the values and of the batches.
    pub seed: u64,
}

/// What came of it.
pub struct Outcome {
    /// Loss of the fresh model.
    pub step_zero: f64,
    /// Second moment of the residual stream after the last addition over that of the embedding.
    pub growth: f64,
    /// Largest RMS gradient of an MLP's matrix over the smallest that is not 0.
    pub spread: f64,
    /// Loss of each step.
    pub losses: Vec<f64>,
    /// Loss of the text that was held out, after the last step.
    pub held_out: f64,
}

impl Run {
    /// Starts a model with the scheme, looks at it, and trains it. Every scheme gets the same batches.
    pub fn train(&self, scheme: &Scheme, text: &Text) -> Result<Outcome, Box<dyn Error>> {
        let device = Device::flex();
        let training = device.clone().autodiff();
        // An untied head, so that each scheme starts its own.
        let config = TransformerConfig::new(text.letters, self.context, self.d_model, self.layers, HEADS);
        let config = config.with_norm_placement(self.norms).with_tied(false);
        let mut model = config.init_with(scheme, self.seed, &training)?;

        let fresh = model.valid();
        let start = step_zero(&text.batch(self, 0, &device), |tokens, probe| fresh.forward_with(tokens, probe))?;
        let moment = |reading: Option<&Reading>| reading.map_or(f64::NAN, |reading| reading.second_moment);
        let growth = moment(start.stream.last()) / moment(start.stream.first());
        let spread = gradient_spread(&model, text.batch(self, 0, &training));

        let mut optimizer = AdamWConfig::new().with_beta_2(0.95).with_weight_decay(0.1).init();
        let mut losses = Vec::with_capacity(self.steps);
        for step in 1..=self.steps {
            let loss = loss(&model, text.batch(self, step, &training));
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            let done = step as f64 / self.steps as f64;
            model = optimizer.step(self.lr * (10.0 * done).min(1.0 - 0.9 * done), model, gradients);
            losses.push(f64::from(loss.into_scalar::<f32>()));
        }
        let held_out = f64::from(loss(&model.valid(), text.held_out(self.context, &device)).into_scalar::<f32>());
        Ok(Outcome { step_zero: start.loss, growth, spread, losses, held_out })
    }
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
    rms.iter().copied().fold(0.0, f64::max) / rms.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Cicero, by letters; the last tenth is held out.
pub struct Text {
    tokens: Vec<i64>,
    pub letters: usize,
}

impl Text {
    pub fn new() -> Self {
        let mut letters: Vec<char> = lipsum::LIBER_PRIMUS.chars().collect();
        letters.sort_unstable();
        letters.dedup();
        let index = |c| letters.binary_search(&c).unwrap_or_default() as i64;
        Self { tokens: lipsum::LIBER_PRIMUS.chars().map(index).collect(), letters: letters.len() }
    }

    fn halves(&self) -> (&[i64], &[i64]) {
        self.tokens.split_at(self.tokens.len() * 9 / 10)
    }

    /// Pieces at places that depend on the seed and the step alone.
    fn batch(&self, run: &Run, step: usize, device: &Device) -> Batch {
        let (train, _) = self.halves();
        let mut places = [0.0f32; ROWS];
        let end = (train.len() - run.context - 1) as f64;
        let stream = Stream::new(run.seed, &format!("places of step {step}"));
        stream.fill(&Distribution::Uniform { low: 0.0, high: end }, 0, &mut places);
        pieces(train, places.map(|place| place as usize).into_iter(), run.context, device)
    }

    /// All of the text that is never trained on.
    fn held_out(&self, context: usize, device: &Device) -> Batch {
        let (_, rest) = self.halves();
        pieces(rest, (0..rest.len() - context - 1).step_by(context), context, device)
    }
}

fn pieces(text: &[i64], places: impl Iterator<Item = usize> + Clone, context: usize, device: &Device) -> Batch {
    let rows = |shift: usize| {
        let letters: Vec<i64> = places.clone().flat_map(|place| &text[place + shift..][..context]).copied().collect();
        let count = letters.len() / context;
        Tensor::<1, Int>::from_data(&*letters, device).reshape([count, context])
    };
    Batch::new(rows(0), rows(1))
}
