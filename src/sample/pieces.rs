//! Work that can be done in any order: in parallel with the `rayon` feature.

/// Calls `f` with each piece of `length` values and its number, on all threads of the current pool.
pub(crate) fn each<T: Send>(values: &mut [T], length: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    #[cfg(feature = "rayon")]
    if values.len() > length {
        use rayon::prelude::*;
        return values.par_chunks_mut(length).enumerate().for_each(|(i, piece)| f(i, piece));
    }
    values.chunks_mut(length).enumerate().for_each(|(i, piece)| f(i, piece));
}

/// Does both, at the same time where there is a thread for each.
pub(crate) fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    #[cfg(feature = "rayon")]
    return rayon::join(a, b);
    #[cfg(not(feature = "rayon"))]
    (a(), b())
}
