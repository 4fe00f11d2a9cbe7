//! Every published scheme gives what the paper says and what the code bases draw.

mod complete;
mod formulas;
pub mod goldens;
mod pinned;
mod primitives;
pub mod tree;
