//! Reductions over pieces of a tensor, whose results do not depend on the number of threads.

/// `f(index, piece)` for each whole piece of `size` values, in order; on all threads with the `rayon` feature.
pub(super) fn map<T: Send>(values: &[f32], size: usize, f: impl Fn(usize, &[f32]) -> T + Sync) -> Vec<T> {
    let size = size.max(1);
    #[cfg(feature = "rayon")]
    {
        use rayon::prelude::*;
        values.par_chunks_exact(size).enumerate().map(|(i, piece)| f(i, piece)).collect()
    }
    #[cfg(not(feature = "rayon"))]
    values.chunks_exact(size).enumerate().map(|(i, piece)| f(i, piece)).collect()
}
