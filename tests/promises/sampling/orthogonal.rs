//! Orthogonal matrices are orthogonal, and drawn by the Haar measure.

use burn_init::sample::Stream;

fn matrix(seed: u64, rows: usize, cols: usize, gain: f64) -> Vec<f32> {
    let mut out = vec![0.0; rows * cols];
    Stream::new(seed, "weight").orthogonal(rows, cols, gain, &mut out);
    out
}

/// C37.
#[test]
fn the_gram_matrix_of_the_shorter_side_is_the_squared_gain() {
    for (rows, cols, gain) in
        [(64, 64, 1.0), (64, 256, 1.0), (256, 64, 1.0), (32, 48, 2.0), (1, 7, 1.0), (300, 40, 0.5)]
    {
        let q = matrix(42, rows, cols, gain);
        let at = |i: usize, k: usize| f64::from(if rows >= cols { q[k * cols + i] } else { q[i * cols + k] });
        for i in 0..rows.min(cols) {
            for j in 0..=i {
                let dot: f64 = (0..rows.max(cols)).map(|k| at(i, k) * at(j, k)).sum();
                let expected = if i == j { gain * gain } else { 0.0 };
                assert!((dot - expected).abs() < 1e-6 * gain * gain, "{rows} x {cols}: ({i}, {j}) is {dot}");
            }
        }
    }
}

/// Moments of the Haar measure on O(n): `E tr Q = 0`, `E (tr Q)^2 = 1`, `E tr Q^2 = 1` and `E q^4 = 3 / (n (n + 2))`. A QR without
/// fixed signs fails the first one by far, each of its diagonal entries being biased.
#[test]
fn square_matrices_are_haar() {
    const N: usize = 4;
    const DRAWS: usize = 40_000;
    let (mut trace, mut trace_2, mut trace_of_square, mut fourth, mut determinants) =
        (0.0, 0.0, 0.0, [0.0; N * N], 0.0);
    for seed in 0..DRAWS as u64 {
        let q = matrix(seed, N, N, 1.0);
        let at = |i: usize, j: usize| f64::from(q[i * N + j]);
        let t: f64 = (0..N).map(|i| at(i, i)).sum();
        trace += t;
        trace_2 += t * t;
        trace_of_square +=
            (0..N).flat_map(|i| (0..N).map(move |j| (i, j))).map(|(i, j)| at(i, j) * at(j, i)).sum::<f64>();
        fourth.iter_mut().zip(&q).for_each(|(sum, &q)| *sum += f64::from(q).powi(4));
        determinants += determinant::<N>(std::array::from_fn(|i| std::array::from_fn(|j| at(i, j))));
    }
    let n = DRAWS as f64;
    // Each quantity's deviation is about 1, the trace's square's is sqrt(2); the determinant is a fair sign.
    assert!((trace / n).abs() < 4.5 / n.sqrt(), "trace {}", trace / n);
    assert!((trace_2 / n - 1.0).abs() < 4.5 * (2.0 / n).sqrt(), "squared trace {}", trace_2 / n);
    assert!((trace_of_square / n - 1.0).abs() < 4.5 * (2.0 / n).sqrt(), "trace of the square {}", trace_of_square / n);
    assert!((determinants / n).abs() < 4.5 / n.sqrt(), "determinants {}", determinants / n);
    // E q^8 = 105 / (4 * 6 * 8 * 10) bounds the deviation of a fourth power by 0.21.
    for sum in fourth {
        assert!((sum / n - 3.0 / 24.0).abs() < 4.5 * 0.21 / n.sqrt(), "fourth moment {}", sum / n);
    }
}

fn determinant<const N: usize>(mut m: [[f64; N]; N]) -> f64 {
    let mut result = 1.0;
    for k in 0..N {
        let pivot = (k..N).max_by(|&a, &b| m[a][k].abs().total_cmp(&m[b][k].abs())).unwrap();
        if pivot != k {
            m.swap(pivot, k);
            result = -result;
        }
        let row = m[k];
        result *= row[k];
        for below in &mut m[k + 1..] {
            let factor = below[k] / row[k];
            below.iter_mut().zip(&row).for_each(|(below, row)| *below -= factor * row);
        }
    }
    result
}

/// The rows of a wide matrix and the columns of a tall one are uniform on the sphere: entries have the variance 1 / long.
#[test]
fn rectangles_are_spread_evenly() {
    for (rows, cols) in [(3, 10), (10, 3), (10, 1)] {
        const DRAWS: usize = 20_000;
        let mut sums = vec![(0.0, 0.0); rows * cols];
        for seed in 0..DRAWS as u64 {
            for (sum, q) in sums.iter_mut().zip(matrix(seed, rows, cols, 1.0)) {
                sum.0 += f64::from(q);
                sum.1 += f64::from(q * q);
            }
        }
        // E q^2 = 1/10 and E q^4 = 3/120.
        for (mean, square) in sums.into_iter().map(|(a, b)| (a / DRAWS as f64, b / DRAWS as f64)) {
            assert!(mean.abs() < 4.5 * (0.1 / DRAWS as f64).sqrt(), "{rows} x {cols}: mean {mean}");
            assert!((square - 0.1).abs() < 4.5 * (0.015 / DRAWS as f64).sqrt(), "{rows} x {cols}: square {square}");
        }
    }
}

#[cfg(feature = "rayon")]
#[test]
fn the_size_of_the_pool_changes_nothing() {
    let draw = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| [matrix(42, 200, 150, 1.0), matrix(42, 130, 300, 1.0)])
    };
    let one = draw(1);
    assert_eq!(draw(2), one);
    assert_eq!(draw(7), one);
}

/// C37: a vocabulary-sized table takes seconds and 8 bytes an entry besides its output.
#[test]
#[ignore = "seconds, and half a gigabyte"]
fn a_table_of_a_vocabulary_is_drawn() {
    const COLS: usize = 768;
    let q = matrix(42, 50257, COLS, 1.0);
    for (i, j) in [(0, 0), (0, 1), (3, 700), (400, 401), (767, 767), (767, 0)] {
        let dot: f64 = q.chunks(COLS).map(|row| f64::from(row[i]) * f64::from(row[j])).sum();
        assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-6, "({i}, {j}) is {dot}");
    }
}

#[test]
fn empty_matrices_are_drawn() {
    assert!(matrix(1, 0, 5, 1.0).is_empty() && matrix(1, 5, 0, 1.0).is_empty());
}
