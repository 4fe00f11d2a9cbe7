//! The rest of an abc-parametrization: forward multipliers on the tree, which dimensions grow, optimizer groups, and the check that it
//! all works.
//!
//! A [`Rule`](crate::Rule) says what a parameter starts as (`b`), what it is multiplied by in the forward pass (`a`) and how fast it
//! learns (`c`). Schemes such as [`Mup`](crate::schemes::Mup) fill all three; this module brings them to a model:
//!
//! - [`ModuleInit::initialize`](crate::ModuleInit::initialize) draws the values and puts the [`Multiplier`]s on, and
//!   [`ModuleInit::attach`](crate::ModuleInit::attach) the multipliers alone, for weights that come from a checkpoint;
//! - [`BaseShapes`] tells which dimensions grow, from a model and a smaller one of the same family;
//! - [`TrainingGroups`] are the multipliers of the optimizer, as plain data and as burn's groups;
//! - `coordinate_check` (feature `optim`) measures over several widths or depths whether activations keep their size while training.

mod base;
#[cfg(feature = "optim")]
mod coordinate;
mod groups;
mod multiplier;
#[cfg(feature = "optim")]
mod optimizer;

pub(crate) use base::head_width;
pub use base::{Base, BaseShapes, BaseSize, Widening};
#[cfg(feature = "optim")]
pub use coordinate::{Axis, CoordinateCheck, Coordinates, Slope};
pub use groups::{TrainingGroup, TrainingGroups};
pub use multiplier::Multiplier;
pub(crate) use multiplier::{Attach, Attached};
#[cfg(feature = "optim")]
pub use optimizer::Scaled;
