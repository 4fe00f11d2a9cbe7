//! What several examples need.
#![allow(dead_code)]

use std::{path::PathBuf, str::FromStr};

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_init::{
    Error, Scheme,
    sample::{Distribution, Stream},
    step_zero::Batch,
};

/// A scheme on the command line: a name, JSON, or either with a label before it: `wide={"scheme": "gpt2", "std": 0.05}`.
#[derive(Debug, Clone)]
pub struct Named {
    pub label: String,
    pub scheme: Scheme,
}

impl FromStr for Named {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (label, scheme) = match text.split_once('=') {
            Some((label, scheme)) if !label.contains('{') => (label, scheme),
            _ => (text, text),
        };
        Ok(Self { label: label.into(), scheme: scheme.parse()? })
    }
}

/// Sequences of uniformly random tokens, each to be followed by the next.
pub fn random_batch(vocab: usize, sequences: usize, length: usize, seed: u64, device: &Device) -> Batch {
    let mut values = vec![0.0f32; sequences * (length + 1)];
    Stream::new(seed, "tokens").fill(&Distribution::Uniform { low: 0.0, high: vocab as f64 }, 0, &mut values);
    let tokens: Vec<i64> = values.iter().map(|&value| (value as i64).min(vocab as i64 - 1)).collect();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(tokens, [sequences, length + 1]), device);
    Batch::new(tokens.clone().slice([0..sequences, 0..length]), tokens.slice([0..sequences, 1..length + 1]))
}

/// Where an example writes if it is not told.
pub fn target(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())).join(name)
}
