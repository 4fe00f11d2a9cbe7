//! Every published scheme gives what the paper says and what the code bases draw.

mod cases;
mod complete;
mod formulas;
pub mod goldens;
mod mimetic;
mod pinned;
mod primitives;
pub mod tree;
