//! One module for each promise.

mod support;
mod trees;

mod coverage;
mod depth;
mod errors;
mod fans;
mod known_trees;
mod parametrization;
mod residual;
mod schemes;
mod values;
