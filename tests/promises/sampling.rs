//! A value is a function of the seed, the path and the index, follows its distribution, and stays what it is.

mod addressable;
mod distributions;
mod orthogonal;
mod rounding;
mod stability;
