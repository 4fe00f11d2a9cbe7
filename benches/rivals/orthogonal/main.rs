//! Haar-distributed matrices by this crate, and by the QR factorization of a Gaussian matrix with faer and nalgebra:
//! milliseconds, and a hash of the values in f32, which should be the same on any number of threads.
//!
//! `cargo run --release --manifest-path benches/rivals/orthogonal/Cargo.toml -- 2` for the number of threads.

use std::time::Instant;

use burn_init::sample::{Distribution, Stream};

const STREAM: &str = "attn.query.weight";
const REPEATS: usize = 5;

/// Column-major.
fn gaussian(rows: usize, cols: usize) -> Vec<f64> {
    let mut out = vec![0.0; rows * cols];
    Stream::new(42, STREAM).fill(&Distribution::Normal { mean: 0.0, std: 1.0 }, 0, &mut out);
    out
}

fn store(out: &mut [f32], cols: usize, q: impl Fn(usize, usize) -> f64, r: impl Fn(usize) -> f64) {
    let signs: Vec<f64> = (0..cols).map(|i| r(i).signum()).collect();
    for (i, row) in out.chunks_mut(cols).enumerate() {
        for (j, value) in row.iter_mut().enumerate() {
            *value = (q(i, j) * signs[j]) as f32;
        }
    }
}

fn burn_init(rows: usize, cols: usize, out: &mut [f32]) {
    Stream::new(42, STREAM).orthogonal(rows, cols, 1.0, out);
}

fn faer(rows: usize, cols: usize, out: &mut [f32]) {
    let gaussian = gaussian(rows, cols);
    let qr = faer::MatRef::from_column_major_slice(&gaussian, rows, cols).qr();
    let (q, r) = (qr.compute_thin_Q(), qr.thin_R());
    store(out, cols, |i, j| q[(i, j)], |i| r[(i, i)]);
}

fn nalgebra(rows: usize, cols: usize, out: &mut [f32]) {
    let qr = nalgebra::DMatrix::from_vec(rows, cols, gaussian(rows, cols)).qr();
    let (q, r) = (qr.q(), qr.r());
    store(out, cols, |i, j| q[(i, j)], |i| r[(i, i)]);
}

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |threads| threads.parse().expect("a number of threads"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    faer::set_global_parallelism(if threads == 1 { faer::Par::Seq } else { faer::Par::rayon(threads) });
    for (rows, cols) in [(1024, 1024), (4096, 1024)] {
        let draws: [(&str, fn(usize, usize, &mut [f32])); 3] =
            [("burn-init", burn_init), ("faer", faer), ("nalgebra", nalgebra)];
        for (name, draw) in draws {
            let mut out = vec![0.0; rows * cols];
            let mut times: Vec<f64> = (0..REPEATS)
                .map(|_| {
                    let start = Instant::now();
                    pool.install(|| draw(rows, cols, &mut out));
                    1e3 * start.elapsed().as_secs_f64()
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let hash = out.iter().fold(0u64, |hash, x| {
                hash.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(x.to_bits())
            });
            println!("{rows} x {cols}, {threads} threads, {name}: median {:.1} ms, hash {hash:016x}", times[REPEATS / 2]);
        }
    }
}
