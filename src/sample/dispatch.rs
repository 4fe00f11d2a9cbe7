//! The same Rust, compiled once for the baseline and again for the wider vectors of the machine it runs on.
//!
//! No copy can contain an instruction whose result differs: Rust never contracts a product and a sum into a fused one, and
//! additions, multiplications, square roots and conversions are IEEE operations in every width.

/// A piece of work that is worth compiling for each instruction set. `run` must be `#[inline(always)]`.
pub(super) trait Job {
    fn run(self);
}

/// Runs the job with the widest vectors there are.
#[multiversion::multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(super) fn dispatch(job: impl Job) {
    job.run();
}
