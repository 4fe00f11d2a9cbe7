//! Every published scheme gives what the paper says and what the code bases draw.

mod formulas;
mod goldens;
mod tree;
