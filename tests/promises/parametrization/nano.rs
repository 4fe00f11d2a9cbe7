//! nanoGPT's forward pass over its own tree, with every multiplier by hand. Nothing of the crate is in it but the probe.

use burn::tensor::{Bool, Device, Int, Tensor, activation};
use burn_init::step_zero::{Batch, Probe, Site};

use crate::trees::NanoGpt;

pub const HEADS: usize = 4;
pub const VOCAB: usize = 24;
pub const CONTEXT: usize = 12;

pub fn nano(layers: usize, width: usize, device: &Device) -> NanoGpt {
    NanoGpt::new(layers, width, VOCAB, CONTEXT, device)
}

/// What a paper's forward pass has that nanoGPT's has not.
pub struct Hand {
    /// Times the query and key product, in place of 1/sqrt(h).
    pub scores: Option<f64>,
    pub embedding: f64,
    pub logits: f64,
    /// `x <- skip x + branch F(x)` at addition i.
    pub residual: Box<dyn Fn(usize) -> (f64, f64)>,
    pub post_norm: bool,
}

impl Default for Hand {
    fn default() -> Self {
        Self { scores: None, embedding: 1.0, logits: 1.0, residual: Box::new(|_| (1.0, 1.0)), post_norm: false }
    }
}

pub fn forward(model: &NanoGpt, tokens: Tensor<2, Int>, probe: &mut Probe<'_>) -> Tensor<3> {
    by_hand(model, tokens, &Hand::default(), probe)
}

pub fn by_hand(model: &NanoGpt, tokens: Tensor<2, Int>, hand: &Hand, probe: &mut Probe<'_>) -> Tensor<3> {
    let model = &model.transformer;
    let [batch, length] = tokens.dims();
    let device = tokens.device();
    let positions = Tensor::arange(0..length as i64, &device).unsqueeze();
    let mut x = (model.wte.forward(tokens) + model.wpe.forward(positions)) * hand.embedding;
    let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device);
    for (layer, block) in model.h.iter().enumerate() {
        let at = |site: Site| site.in_layer(layer as u64);
        probe.show(at(Site::ResidPre), &x);
        let read = if hand.post_norm { x.clone() } else { block.ln_1.forward(x.clone()) };
        let [_, _, width] = read.dims();
        let head = width / HEADS;
        let parts = block.attn.c_attn.forward(read).chunk(3, 2);
        let split = |x: &Tensor<3>| x.clone().reshape([batch, length, HEADS, head]).swap_dims(1, 2);
        let scale = hand.scores.unwrap_or(1.0 / (head as f64).sqrt());
        let scores = split(&parts[0]).matmul(split(&parts[1]).transpose()) * scale;
        let weights = activation::softmax(scores.mask_fill(mask.clone().unsqueeze::<4>(), f32::NEG_INFINITY), 3);
        let mixed = weights.matmul(split(&parts[2])).swap_dims(1, 2).reshape([batch, length, width]);
        let (skip, times) = (hand.residual)(2 * layer);
        let branch = block.attn.c_proj.forward(mixed) * times;
        probe.show(at(Site::AttnOut), &branch);
        x = x * skip + branch;
        if hand.post_norm {
            x = block.ln_1.forward(x);
        }
        probe.show(at(Site::ResidMid), &x);
        let read = if hand.post_norm { x.clone() } else { block.ln_2.forward(x.clone()) };
        let (skip, times) = (hand.residual)(2 * layer + 1);
        let branch = block.mlp.c_proj.forward(activation::gelu(block.mlp.c_fc.forward(read))) * times;
        probe.show(at(Site::MlpOut), &branch);
        x = x * skip + branch;
        if hand.post_norm {
            x = block.ln_2.forward(x);
        }
        probe.show(at(Site::ResidPost), &x);
    }
    let x = model.ln_f.forward(x) * hand.logits;
    probe.show(Site::FinalNorm, &x);
    let logits = x.matmul(model.wte.weight.val().transpose().unsqueeze());
    probe.show(Site::Logits, &logits);
    logits
}

/// The same pieces of a fixed sequence for everybody.
pub fn batch(rows: usize, device: &Device) -> Batch {
    let at = |i: usize| ((i * i + 3 * i) % 17 + i % 7) as i64;
    let row = |shift: usize| {
        let tokens: Vec<i64> = (0..rows * CONTEXT).map(|i| at(i + shift)).collect();
        Tensor::<1, Int>::from_data(tokens.as_slice(), device).reshape([rows, CONTEXT])
    };
    Batch::new(row(0), row(1))
}
