//! The tokens that step zero is measured on.

use burn::tensor::{Int, Tensor};

/// Tokens and what should follow each of them.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What the model reads, `[batch, seq]`.
    pub tokens: Tensor<2, Int>,
    /// What it should predict at each position, `[batch, seq]`.
    pub targets: Tensor<2, Int>,
    /// The vocabulary that counts; the width of the logits where `None`.
    pub vocab: Option<u64>,
}

impl Batch {
    /// A batch whose vocabulary is as wide as the logits.
    pub fn new(tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Self {
        Self { tokens, targets, vocab: None }
    }

    /// Says that only the first `vocab` rows of a padded table are tokens. Logits beyond may be -inf.
    pub fn with_vocab(mut self, vocab: u64) -> Self {
        self.vocab = Some(vocab);
        self
    }
}
