//! Numbers for weights: uniform, normal, truncated normal and orthogonal, each a function of (seed, path, index) and of nothing
//! else.
//!
//! A [`Stream`] belongs to one parameter. Any range of it can be drawn at any time, in any order and on any thread, and has
//! the same bits on every machine. To this end
//!
//! - the words come from a counter-based generator, Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011), keyed by the seed, whose
//!   counter holds the index and a hash of the path;
//! - they become values by additions, multiplications, divisions and square roots as IEEE 754 defines them, and by integer
//!   operations. There is no fused multiply-add, no libm and no intrinsic in the way of a value: logarithm, sine, cosine,
//!   error function and quantile are polynomials of our own;
//! - loops over 64 lanes are left to the compiler's vectorizer and compiled for AVX2 and AVX-512 as well as for the baseline;
//! - sums of many terms, in orthogonal matrices and singular values, have a fixed order.
//!
//! A change of any drawn value is a value-breaking change and counts [`STREAM_VERSION`] up.

mod dispatch;
mod distribution;
mod element;
mod log;
mod normal;
mod orthogonal;
mod philox;
mod pieces;
mod special;
mod split;
mod stream;
mod truncated;
mod uniform;

#[cfg(test)]
mod exact;

pub use distribution::Distribution;
pub use element::Element;
pub(crate) use element::holds;
pub(crate) use pieces::each;
pub use special::truncated_moments;
pub use stream::Stream;
pub(crate) use stream::fnv_1a;

/// Version of the mapping from (seed, path, index) to values: another one at each change of any drawn value.
pub const STREAM_VERSION: u32 = 1;
