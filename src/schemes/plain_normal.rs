//! One normal for everything.

use serde::{Deserialize, Serialize};

use super::parts::weights;
use crate::{
    error::Error,
    initializer::Initializer,
    param::ParamSpec,
    role::Role,
    rule::{Family, Rule},
};

/// One std for every matrix and table, no depth scaling: Hugging Face's Llama, Mistral, Qwen and OLMo 2, and BERT.
///
/// | role | start |
/// |---|---|
/// | every matrix and table | std 0.02; normal, or for [BERT](Self::bert) cut at 2 sigma and not compensated (0.01759 is realised) |
/// | row of the padding token | 0, if `padding_row` is set |
/// | every bias | 0 |
/// | norm gain, norm bias | 1, 0 |
///
/// Source: `_init_weights` of Hugging Face's `LlamaPreTrainedModel` and `BertPreTrainedModel`; google-research/bert, `modeling.py`
/// (`create_initializer`). Hugging Face's BERT does not cut, Google's does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlainNormal {
    /// Std of everything that is drawn (`initializer_range`).
    pub std: f64,
    /// Family of the draws.
    pub family: Family,
    /// The padding token, whose row of the token table is 0 (`pad_token_id`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding_row: Option<u64>,
}

impl Default for PlainNormal {
    fn default() -> Self {
        Self { std: 0.02, family: Family::Normal, padding_row: None }
    }
}

impl PlainNormal {
    /// `N(0, 0.02)`: Hugging Face's Llama and its kin. They have a padding row only where the tokenizer has a padding token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Google's BERT: cut at 2 sigma.
    pub fn bert() -> Self {
        Self { family: Family::TruncatedNormal { bound: 2.0, compensated: false }, ..Self::default() }
    }

    /// Hugging Face's BERT: not cut, and token 0 is the padding.
    pub fn bert_hf() -> Self {
        Self { padding_row: Some(0), ..Self::default() }
    }
}

impl Initializer for PlainNormal {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        weights(param, |param| {
            let zero_row = self.padding_row.filter(|_| param.role() == Role::TokenEmbedding);
            Ok(Rule { zero_row, ..Rule::from(self.family.with_std(self.std)) })
        })
    }
}
