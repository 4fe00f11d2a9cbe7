//! Models that everybody knows, by name.

use super::{Activation, Norm, Positions, TransformerConfig};

impl TransformerConfig {
    /// Six layers, 12 branches, in the size of nanoGPT's character model: d 384, 6 heads, context 256.
    pub fn six_layers(vocab_size: usize) -> Self {
        Self::new(vocab_size, 256, 384, 6, 6)
    }

    /// GPT-2 small: 12 layers, d 768, 124,439,808 parameters.
    pub fn gpt2_small() -> Self {
        Self::gpt2(768, 12, 12)
    }

    /// GPT-2 medium: 24 layers, d 1024, 354,823,168 parameters.
    pub fn gpt2_medium() -> Self {
        Self::gpt2(1024, 24, 16)
    }

    /// GPT-2 large: 36 layers, d 1280, 774,030,080 parameters.
    pub fn gpt2_large() -> Self {
        Self::gpt2(1280, 36, 20)
    }

    /// GPT-2 XL: 48 layers, d 1600, 1,557,611,200 parameters.
    pub fn gpt2_xl() -> Self {
        Self::gpt2(1600, 48, 25)
    }

    /// A small Llama, in the shape of llama2.c's smallest story teller: 6 layers, d 288, 15,191,712 parameters.
    pub fn llama_small() -> Self {
        Self::new(32_000, 256, 288, 6, 6)
            .with_d_ff(768)
            .with_norm(Norm::RmsNorm)
            .with_positions(Positions::Rotary)
            .with_activation(Activation::SwiGlu)
            .with_bias(false)
    }

    fn gpt2(d_model: usize, n_layers: usize, n_heads: usize) -> Self {
        Self::new(50_257, 1024, d_model, n_layers, n_heads).with_activation(Activation::GeluTanh)
    }
}
