//! What the reference model is made of.

use burn::config::Config;
use burn::nn::norm::{Normalization, NormalizationConfig};
use burn::nn::{DropoutConfig, EmbeddingConfig, LayerNormConfig, LinearConfig, RmsNormConfig, RotaryEncodingConfig};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::{Attention, Block, Mlp, Transformer};
use crate::schemes::Scheme;
use crate::step_zero::{Activation, Architecture};
use crate::{Error, Initializer, NormPlacement, Setup};

/// More is a slip of the keyboard: the bare tree of that many blocks takes gigabytes.
const MOST_LAYERS: usize = 100_000;

/// Which norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// Without the mean, over the standard deviation.
    LayerNorm,
    /// Over the root mean square.
    RmsNorm,
}

/// How the model learns where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positions {
    /// A table of one vector per position, added to the embedding.
    Learned,
    /// Queries and keys are rotated by their position (RoPE).
    Rotary,
    /// Not at all, but for the causal mask.
    None,
}

/// The configuration of a [`Transformer`]. JSON in and out as any burn
/// [`Config`]: every field must be there, so that a misspelt one is an error.
///
/// The default is GPT-2's: learned positions, LayerNorm, biases, GELU, an MLP of 4 d_model, a final norm, a tied head.
#[derive(Config, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Rows of the token embedding.
    pub vocab_size: usize,
    /// The longest sequence, in tokens.
    pub context: usize,
    /// The width of the residual stream.
    pub d_model: usize,
    /// The number of blocks N; the stream has 2N additions.
    pub n_layers: usize,
    /// Query heads, a divisor of d_model.
    pub n_heads: usize,
    /// Key and value heads, a divisor of the query heads.
    #[config(default = "n_heads")]
    pub n_kv_heads: usize,
    /// The width of the MLP.
    #[config(default = "d_model.saturating_mul(4)")]
    pub d_ff: usize,
    /// Which norm.
    #[config(default = "Norm::LayerNorm")]
    pub norm: Norm,
    /// Where the norms stand. Before the head stands one more, but for [`NormPlacement::Post`].
    #[config(default = "NormPlacement::Pre")]
    pub norm_placement: NormPlacement,
    /// Added to the variance in the norms.
    #[config(default = "1e-5")]
    pub norm_epsilon: f64,
    /// How positions come in.
    #[config(default = "Positions::Learned")]
    pub positions: Positions,
    /// The base of the rotary wavelengths.
    #[config(default = "10000.0")]
    pub rotary_theta: f32,
    /// The nonlinearity of the MLP; the gated ones add a third matrix.
    #[config(default = "Activation::Gelu")]
    pub activation: Activation,
    /// Whether the linear layers and LayerNorm have biases. The head has none.
    #[config(default = true)]
    pub bias: bool,
    /// Whether the token embedding is the head, too.
    #[config(default = true)]
    pub tied: bool,
    /// The probability of dropout on embeddings, attention weights and branches, in training.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// What [`init`](Self::init) starts the parameters with.
    #[config(default = "Scheme::gpt2()")]
    pub scheme: Scheme,
    /// The seed of [`init`](Self::init).
    #[config(default = 0)]
    pub seed: u64,
}

impl TransformerConfig {
    /// Builds the model and starts it with the configured scheme and seed. Where the scheme asks whether the head is tied and does not say
    /// itself, [`tied`](Self::tied) says it.
    ///
    /// # Errors
    /// A configuration that cannot be built, or that the scheme cannot start.
    pub fn init(&self, device: &Device) -> Result<Transformer, Error> {
        self.init_with(&self.scheme.clone().told_tied(self.tied), self.seed, device)
    }

    /// Builds the model and starts it with any initializer.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_with(&self, initializer: &dyn Initializer, seed: u64, device: &Device) -> Result<Transformer, Error> {
        self.setup().initialize(self.build(device)?, initializer, seed)
    }

    /// What the tree of parameters does not show, for planning and initializing by hand: the number of heads, and norms that
    /// do not stand before the branches.
    pub fn setup(&self) -> Setup {
        let setup = Setup::new().heads("**", self.n_heads as u64);
        match self.norm_placement {
            NormPlacement::Pre => setup,
            placement => setup.norms("blocks.*", placement),
        }
    }

    /// Builds the model without a value in it: burn's parameters are lazy, so nothing is drawn or allocated until one is read
    /// (the table of rotary angles apart). Plan it, or initialize it.
    ///
    /// # Errors
    /// A configuration that cannot be built.
    pub fn build(&self, device: &Device) -> Result<Transformer, Error> {
        self.validate()?;
        let table = |rows| EmbeddingConfig::new(rows, self.d_model).init(device);
        let learned = self.positions == Positions::Learned;
        let rotary = RotaryEncodingConfig::new(self.context, self.d_head()).with_theta(self.rotary_theta);
        let head = LinearConfig::new(self.d_model, self.vocab_size).with_bias(false);
        Ok(Transformer {
            token_embedding: table(self.vocab_size),
            position_embedding: learned.then(|| table(self.context)),
            dropout: DropoutConfig::new(self.dropout).init(),
            rotary: (self.positions == Positions::Rotary).then(|| rotary.init(device)),
            blocks: (0..self.n_layers).map(|_| self.block(device)).collect(),
            norm_final: (self.norm_placement != NormPlacement::Post).then(|| self.norm(device)),
            head: (!self.tied).then(|| head.init(device)),
            context: self.context,
        })
    }

    /// Whether such a model can be built.
    ///
    /// # Errors
    /// The first thing that does not fit, and what would.
    pub fn validate(&self) -> Result<(), Error> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("context", self.context),
            ("d_model", self.d_model),
            ("n_layers", self.n_layers),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("d_ff", self.d_ff),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(Error::config(format!("{name} is 0"), "use 1 or more"));
        }
        let divides = |name: &str, whole: usize, by: &str, part: usize| {
            if whole.is_multiple_of(part) {
                return Ok(());
            }
            Err(Error::config(format!("{name} {whole} is not divisible by {by} {part}"), "choose a divisor"))
        };
        divides("d_model", self.d_model, "n_heads", self.n_heads)?;
        divides("n_heads", self.n_heads, "n_kv_heads", self.n_kv_heads)?;
        if self.positions == Positions::Rotary {
            if !self.d_head().is_multiple_of(2) {
                return Err(Error::config(
                    format!("rotary positions turn pairs, and a head is {} wide", self.d_head()),
                    "choose n_heads so that d_model / n_heads is even",
                ));
            }
            if !(self.rotary_theta > 0.0 && self.rotary_theta.is_finite()) {
                return Err(Error::config(format!("rotary_theta is {}", self.rotary_theta), "use a positive number"));
            }
        }
        if !(self.norm_epsilon > 0.0 && self.norm_epsilon.is_finite()) {
            return Err(Error::config(format!("norm_epsilon is {}", self.norm_epsilon), "use a positive number"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::config(format!("dropout is {}", self.dropout), "use a number from 0 to below 1"));
        }
        self.check_size()
    }

    /// What [`Plan::predict`](crate::Plan::predict) needs to know beside the plan: sequences as long as the
    /// context, of uniformly random tokens.
    pub fn architecture(&self) -> Architecture {
        Architecture::new(self.activation, self.norm_epsilon, self.tied, self.context as u64)
    }

    /// The blocks and the largest table must be addressable.
    fn check_size(&self) -> Result<(), Error> {
        if self.n_layers > MOST_LAYERS {
            return Err(Error::config(format!("n_layers is {}", self.n_layers), format!("use {MOST_LAYERS} or less")));
        }
        let widest = self.d_ff.max(self.vocab_size).max(self.context).max(self.d_model);
        match widest.checked_mul(self.d_model) {
            Some(count) if count <= isize::MAX as usize / 8 => Ok(()),
            _ => {
                Err(Error::config(format!("a table of {widest} x {} is too large", self.d_model), "use smaller sizes"))
            }
        }
    }

    fn d_head(&self) -> usize {
        self.d_model / self.n_heads
    }

    fn block(&self, device: &Device) -> Block {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(self.bias).init(device);
        let dropout = || DropoutConfig::new(self.dropout).init();
        let (d_model, d_kv) = (self.d_model, self.n_kv_heads * self.d_head());
        let second = || (self.norm_placement == NormPlacement::Sandwich).then(|| self.norm(device));
        Block {
            norm_1: self.norm(device),
            attention: Attention {
                query: linear(d_model, d_model),
                key: linear(d_model, d_kv),
                value: linear(d_model, d_kv),
                output: linear(d_model, d_model),
                weights_dropout: dropout(),
                dropout: dropout(),
                n_heads: self.n_heads,
                n_kv_heads: self.n_kv_heads,
            },
            norm_2: self.norm(device),
            mlp: Mlp {
                linear_in: linear(d_model, self.d_ff),
                linear_gate: self.activation.is_gated().then(|| linear(d_model, self.d_ff)),
                linear_out: linear(self.d_ff, d_model),
                dropout: dropout(),
                activation: self.activation,
            },
            norm_1_after: second(),
            norm_2_after: second(),
            norm_placement: self.norm_placement,
        }
    }

    fn norm(&self, device: &Device) -> Normalization {
        let epsilon = self.norm_epsilon;
        match self.norm {
            Norm::LayerNorm => {
                NormalizationConfig::from(LayerNormConfig::new(self.d_model).with_epsilon(epsilon).with_bias(self.bias))
            }
            Norm::RmsNorm => RmsNormConfig::new(self.d_model).with_epsilon(epsilon).into(),
        }
        .init(device)
    }
}
