//! The reference model: a decoder-only Transformer, built from burn-nn's layers.
//!
//! It is a model like any other: the crate gives it no privilege that yours would not have. Use it
//! to try a scheme, to test one, or as the start of your own.
//!
//! ```text
//! x = token_embedding(tokens) + position_embedding          resid_pre
//! for each block:
//!     x = x + attention(norm_1(x))                          attn_out, resid_mid
//!     x = x + mlp(norm_2(x))                                mlp_out, resid_post
//! logits = head(norm_final(x))                              final_norm, logits
//! ```
//!
//! The norms may stand [elsewhere](NormPlacement). After the additions, `x = norm_1(x + attention(x))`, there is no `norm_final`, and the point
//! `final_norm` is what the head reads.
//!
//! ```no_run
//! use burn_init::reference::TransformerConfig;
//! use burn_init::schemes::Scheme;
//!
//! # fn main() -> Result<(), burn_init::Error> {
//! let device = Default::default();
//! let config = TransformerConfig::new(50_257, 1024, 768, 12, 12);
//! let model = config.with_scheme(Scheme::gpt2()).with_seed(42).init(&device)?;
//! # Ok(()) }
//! ```

mod attention;
mod block;
mod config;
mod mlp;
mod presets;

use burn::module::Module;
use burn::nn::norm::Normalization;
use burn::nn::{Dropout, Embedding, Linear, RotaryEncoding};
use burn::tensor::{Bool, Int, Tensor};

use crate::step_zero::{Probe, Site};
use crate::{Error, ErrorKind};

pub use attention::Attention;
pub use block::Block;
pub use config::{Norm, Positions, TransformerConfig};
pub use mlp::Mlp;

pub use crate::{NormPlacement, step_zero::Activation};

/// A decoder-only Transformer. Made by [`TransformerConfig`].
#[derive(Module, Debug)]
pub struct Transformer {
    /// `[vocab, d_model]`; with a tied head it makes the logits, too.
    pub token_embedding: Embedding,
    /// `[context, d_model]`, with learned positions.
    pub position_embedding: Option<Embedding>,
    /// On the sum of the embeddings.
    pub dropout: Dropout,
    /// Shared by all blocks, with rotary positions. Not a parameter.
    pub rotary: Option<RotaryEncoding>,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The last norm; none with [`NormPlacement::Post`].
    pub norm_final: Option<Normalization>,
    /// `[d_model, vocab]`, without a bias; `None` when tied.
    pub head: Option<Linear>,
    context: usize,
}

impl Transformer {
    /// The logits `[batch, seq, vocab]` of tokens `[batch, seq]`.
    ///
    /// # Panics
    /// Where burn does, if the sequence is longer than the context or a token is not below the vocabulary.
    /// [`try_forward`](Self::try_forward) returns an error instead.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        self.forward_with(tokens, &mut Probe::silent())
    }

    /// [`forward`](Self::forward) after [`check`](Self::check).
    ///
    /// # Errors
    /// Tokens that do not fit the model.
    pub fn try_forward(&self, tokens: Tensor<2, Int>) -> Result<Tensor<3>, Error> {
        self.check(&tokens)?;
        Ok(self.forward(tokens))
    }

    /// [`forward`](Self::forward), showing `probe` each point of the residual stream and each branch.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_with(&self, tokens: Tensor<2, Int>, probe: &mut Probe<'_>) -> Tensor<3> {
        let [_, length] = tokens.dims();
        let device = tokens.device();
        let mut x = self.token_embedding.forward(tokens);
        if let Some(positions) = &self.position_embedding {
            let indices = Tensor::arange(0..length as i64, &device).unsqueeze();
            x = x + positions.forward(indices);
        }
        let mut x = self.dropout.forward(x);
        let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device);
        for (layer, block) in (0..).zip(&self.blocks) {
            x = block.forward(x, &mask, self.rotary.as_ref(), layer, probe);
        }
        if let Some(norm) = &self.norm_final {
            x = norm.forward(x);
        }
        probe.show(Site::FinalNorm, &x);
        let logits = match &self.head {
            Some(head) => head.forward(x),
            None => self.tied_head(x),
        };
        probe.show(Site::Logits, &logits);
        logits
    }

    /// Whether tokens `[batch, seq]` fit the model: the length of the sequence and each token. Reads the tokens
    /// back from the device.
    ///
    /// # Errors
    /// A sequence longer than the context or empty; a token outside of the vocabulary.
    pub fn check(&self, tokens: &Tensor<2, Int>) -> Result<(), Error> {
        let [batch, length] = tokens.dims();
        if batch == 0 || length == 0 {
            return Err(Error::config(format!("tokens have the shape [{batch}, {length}]"), "give at least one token"));
        }
        if length > self.context {
            return Err(Error::config(
                format!("a sequence of {length} tokens is longer than the context of {}", self.context),
                "cut it, or configure a longer context",
            ));
        }
        let [vocab, _] = self.token_embedding.weight.lazy_shape().dims();
        let values = tokens
            .try_to_vec_as::<i64>()
            .map_err(|reason| Error::new(ErrorKind::Measurement, format!("the tokens cannot be read: {reason}"), ""))?;
        match values.iter().find(|&&token| token < 0 || token as usize >= vocab) {
            Some(token) => Err(Error::config(format!("token {token} is outside of the vocabulary of {vocab}"), "")),
            None => Ok(()),
        }
    }

    /// `x E^T`, as one matrix product over batch and sequence.
    fn tied_head(&self, x: Tensor<3>) -> Tensor<3> {
        burn::tensor::module::linear(x, self.token_embedding.weight.val().transpose(), None)
    }
}

#[cfg(test)]
mod tests;
