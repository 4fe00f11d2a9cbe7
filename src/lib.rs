//! Starts Transformers right, and proves it before the first training step.
//!
//! Weight initialization for [burn](https://burn.dev) models: any module tree, published schemes, the same bits from
//! the same seed everywhere, and an answer to the question what a model does before it has learned anything.
//!
//! **Start** any burn module with one line; nothing is missed and nothing is drawn twice:
//!
//! ```
//! use burn::{nn::transformer::TransformerEncoderConfig, tensor::Device};
//! use burn_init::prelude::*;
//!
//! # fn main() -> Result<(), burn_init::Error> {
//! let device = Device::flex();
//! let model = TransformerEncoderConfig::new(64, 256, 4, 6).init(&device);   // burn is lazy: nothing drawn
//! let model = model.initialize(&Gpt2::new(), 42)?;                          // everything drawn once
//! # Ok(()) }
//! ```
//!
//! **See** what will happen, without drawing:
//!
//! ```
//! # use burn::{nn::transformer::TransformerEncoderConfig, tensor::Device};
//! # use burn_init::prelude::*;
//! # fn main() -> Result<(), burn_init::Error> {
//! # let model = TransformerEncoderConfig::new(64, 256, 4, 6).init(&Device::flex());
//! let plan = model.plan(&Gpt2::new())?;
//! println!("{plan:#}");      // path, role, shape, distribution, sigma, branch, because
//! assert_eq!(format!("{:.7}", plan.get("layers.0.mha.output.weight").unwrap().std()), "0.0057735");
//! # Ok(()) }
//! ```
//!
//! **Prove** it, predicted and measured side by side:
//!
//! ```
//! use burn::tensor::{Device, Int, Tensor};
//! use burn_init::{prelude::*, reference::TransformerConfig, step_zero::{Batch, step_zero}};
//!
//! # fn main() -> Result<(), burn_init::Error> {
//! let device = Device::flex();
//! let config = TransformerConfig::new(1000, 32, 64, 6, 4);                  // a small GPT-2
//! let model = config.init(&device)?;
//! let tokens = Tensor::<1, Int>::arange(0..33, &device);
//! let batch = Batch::new(tokens.clone().slice(0..32).unsqueeze(), tokens.slice(1..33).unsqueeze());
//!
//! let measured = step_zero(&batch, |tokens, probe| model.forward_with(tokens, probe))?;
//! let predicted = model.plan(&config.scheme)?.predict(&config.architecture())?;
//! println!("{}", measured.beside(&predicted));
//! assert!((measured.loss - predicted.loss).abs() < 0.3);                    // 32 targets are few
//! # Ok(()) }
//! ```
//!
//! # Where things are
//!
//! | | |
//! |---|---|
//! | [`ModuleInit`], [`Setup`] | the methods on every burn module; what is about the tree and not about the scheme |
//! | [`schemes`], [`Scheme`] | published schemes, and the registry that names them |
//! | [`Initializer`], [`from_fn`], [`Depth`] | your own schemes, and composition: `.or`, `.with`, `.only`, `.depth_scaled` |
//! | [`ParamSpec`], [`Role`], [`Init`], [`Rule`] | what is known about a parameter, and what it starts as, as data |
//! | [`Plan`], [`PlanDiff`], [`Lock`] | the scheme met with the tree: dry run, report, record, replay; what changed; a start pinned for CI |
//! | [`audit`] | an existing model or file of weights against a plan; the scheme that comes closest |
//! | [`step_zero`] | loss, logits, stream and gradients of a fresh model: predicted, measured, and what is wrong in words |
//! | [`Shard`], [`Blueprint`], [`HuggingFace`] | any block of any parameter; trees without tensors, for models that fit nowhere |
//! | [`mod@checkpoint`] | streams of initialized values to safetensors and burnpack files (feature `checkpoint`) |
//! | [`Growth`] | more rows for trained tables |
//! | `plot` | the same as pictures, with the feature of that name |
//! | [`parametrization`] | muP and its kin on any model: forward multipliers, base shapes, optimizer groups, coordinate check |
//! | [`mod@reference`] | a decoder-only Transformer to try schemes on |
//! | [`sample`] | addressable random numbers: a value is a function of seed, path and index |
//!
//! The crate names no backend: burn 0.22 chooses it at run time by its `Device`. A program enables one by a feature of
//! burn or the feature of the same name here (`flex`, `ndarray`, `wgpu`, `vulkan`, `metal`, `cuda`, `rocm`, `remote`).
#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

pub mod audit;
mod blueprint;
#[cfg(feature = "checkpoint")]
pub mod checkpoint;
mod depth;
mod diff;
mod error;
mod grow;
mod hugging_face;
mod initializer;
mod lock;
mod param;
pub mod parametrization;
mod plan;
#[cfg(feature = "plot")]
pub mod plot;
pub mod reference;
mod role;
mod rule;
pub mod sample;
pub mod schemes;
mod shard;
pub mod step_zero;
mod tree;

pub use blueprint::Blueprint;
pub use depth::{Depth, DepthScaled};
pub use diff::{Change, PlanDiff};
pub use error::{Error, ErrorKind};
pub use grow::Growth;
pub use hugging_face::HuggingFace;
pub use initializer::{Answer, FromFn, Initializer, Only, Or, PaddingRow, Replacement, With, from_fn};
pub use lock::Lock;
pub use param::{Block, Branch, Fans, ParamSpec, Stack};
pub use plan::{Entry, Plan};
pub use role::{Dtype, Layout, NormPlacement, PackedBlock, Progress, Role, Select, Setup, StackPlace};
pub use rule::{Factor, FactorKind, Family, Fan, Fill, FillContext, Init, Law, Rule, Side, Split, VarianceScaling};
pub use schemes::{BurnDefault, Gpt2, Gpt2Normal, Kaiming, LeCun, NeutralNorm, Scheme, TorchDefault, Xavier};
pub use shard::Shard;
pub use tree::ModuleInit;

/// What most programs need, without a clash with `burn::prelude::*`.
pub mod prelude {
    pub use crate::{
        Depth, Dtype, Gpt2, Gpt2Normal, Init, Initializer, Kaiming, Layout, LeCun, ModuleInit as _, NeutralNorm,
        NormPlacement, ParamSpec, Plan, Role, Rule, Scheme, Setup, StackPlace, TorchDefault, Xavier, from_fn,
    };
}

/// The code blocks of the guides, compiled and run as tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/your-own.md")]
    mod your_own {}
    #[doc = include_str!("../docs/reproducibility.md")]
    mod reproducibility {}
    #[cfg(feature = "checkpoint")]
    #[doc = include_str!("../docs/audit.md")]
    mod audit {}
    #[doc = include_str!("../docs/checkpoints.md")]
    mod checkpoints {}
    #[cfg(feature = "optim")]
    #[doc = include_str!("../docs/parametrizations.md")]
    mod parametrizations {}
}
