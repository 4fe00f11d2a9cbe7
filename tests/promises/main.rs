//! One module for each promise.

mod support;
mod trees;

mod checkpoints;
mod coverage;
mod depth;
mod errors;
mod fans;
mod growth;
mod known_trees;
mod residual;
mod schemes;
mod shards;
mod values;
