//! Starts Transformers right, and proves it before the first training step.
#![deny(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

mod depth;
mod error;
mod initializer;
mod param;
mod plan;
mod role;
mod rule;
pub mod sample;
pub mod schemes;
mod tree;

pub use depth::{Depth, DepthScaled};
pub use error::{Error, ErrorKind};
pub use initializer::{Answer, FromFn, Initializer, Only, Or, With, from_fn};
pub use param::{Block, Branch, Fans, ParamSpec, Stack};
pub use plan::{Entry, Plan};
pub use role::{Dtype, Layout, PackedBlock, Progress, Role, Select, Setup, StackPlace};
pub use rule::{Factor, FactorKind, Family, Fan, Fill, FillContext, Init, Law, Rule, VarianceScaling};
pub use schemes::{BurnDefault, Gpt2, Gpt2Normal, Kaiming, LeCun, NeutralNorm, Scheme, TorchDefault, Xavier};
pub use tree::ModuleInit;
