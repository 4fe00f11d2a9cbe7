//! One module for each promise.

mod support;
mod trees;

mod audit;
#[cfg(feature = "checkpoint")]
mod audit_files;
mod checkpoints;
mod coverage;
mod depth;
mod diagnosis;
mod errors;
mod fans;
mod growth;
mod known_trees;
mod parametrization;
mod pictures;
mod residual;
mod sampling;
mod schemes;
mod shards;
mod theory;
mod values;
mod wiring;
