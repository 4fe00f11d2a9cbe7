//! Draws follow the distribution that is asked for. All seeds are fixed; the thresholds are those that a correct
//! generator misses once in some 100,000 runs.

use burn_init::sample::{Distribution, Stream, truncated_moments};
use libm::{erf, erfc};
use std::f64::consts::FRAC_1_SQRT_2;

/// Standard deviations that an estimate may be off by.
const SIGMAS: f64 = 4.5;
const MANY: usize = 10_000_000;
const NORMAL: Distribution = Distribution::Normal { mean: 0.0, std: 1.0 };

fn draw(seed: u64, path: &str, distribution: &Distribution, offset: u64, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    Stream::new(seed, path).fill(distribution, offset, &mut out);
    out
}

/// Kolmogorov and Smirnov's distance times the square root of the count, below 2.47 with probability 0.99999.
fn check_distribution(mut values: Vec<f32>, cdf: impl Fn(f64) -> f64) {
    values.sort_unstable_by(f32::total_cmp);
    let len = values.len() as f64;
    let distance = values
        .iter()
        .enumerate()
        .map(|(i, &x)| {
            let expected = cdf(f64::from(x));
            (expected - i as f64 / len).abs().max(((i + 1) as f64 / len - expected).abs())
        })
        .fold(0.0, f64::max);
    assert!(distance * len.sqrt() < 2.47, "distance {}", distance * len.sqrt());
}

fn phi(z: f64) -> f64 {
    0.5 * erfc(-z * FRAC_1_SQRT_2)
}

#[test]
fn ten_million_normals_follow_the_normal_distribution() {
    let values = draw(1, "normal", &NORMAL, 0, MANY);

    let mut moments = [0.0_f64; 7];
    for &x in &values {
        let (x, mut power) = (f64::from(x), 1.0);
        for moment in &mut moments[1..] {
            power *= x;
            *moment += power;
        }
    }
    // The k-th moment of n normals has the variance (m(2k) - m(k)^2) / n, with m(2k) = (2k - 1)!!.
    let exact = [1.0, 0.0, 1.0, 0.0, 3.0, 0.0, 15.0, 0.0, 105.0, 0.0, 945.0, 0.0, 10395.0];
    for k in 1..=6 {
        let (found, deviation) =
            (moments[k] / MANY as f64, ((exact[2 * k] - exact[k] * exact[k]) / MANY as f64).sqrt());
        assert!((found - exact[k]).abs() < SIGMAS * deviation, "moment {k}: {found}");
    }

    for (z, probability) in [(3.0, 2.699_796e-3), (4.0, 6.334_248e-5), (5.0, 5.733_031e-7)] {
        let expected = MANY as f64 * probability;
        let found = values.iter().filter(|x| f64::from(x.abs()) > z).count() as f64;
        assert!(
            (found - expected).abs() < SIGMAS * expected.sqrt() + 1.0,
            "{found} values beyond {z}, {expected} expected"
        );
    }

    // C34
    let largest = values.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
    assert!((4.8..6.5).contains(&largest), "the largest of them is {largest}");
    check_distribution(values, phi);
}

#[test]
fn ten_million_uniforms_follow_the_uniform_distribution() {
    let values = draw(1, "uniform", &Distribution::Uniform { low: -1.0, high: 3.0 }, 0, MANY);
    check_distribution(values, |x| 0.25 * (x + 1.0));
}

#[test]
fn truncated_normals_follow_the_truncated_distribution() {
    for (low, high, len) in [
        (-2.0, 2.0, MANY),
        (-3.0, 3.0, MANY),
        (-1.0, 1.0, MANY / 10),
        (-1.0, 3.0, MANY / 10),
        (-6.0, 6.0, MANY / 10),
        (0.0, f64::INFINITY, MANY / 10),
        (2.0, 4.0, MANY / 10),
        (-8.0, -5.0, MANY / 10),
    ] {
        let values = draw(1, "truncated", &Distribution::TruncatedNormal { mean: 0.0, std: 1.0, low, high }, 0, len);
        let (mean, std) = truncated_moments(low, high);
        let n = len as f64;
        let found = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let found_std = (values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!((found - mean).abs() < SIGMAS * std / n.sqrt(), "[{low}, {high}]: mean {found}, not {mean}");
        // No cut normal here has a kurtosis above 9.
        assert!(
            (found_std / std - 1.0).abs() < SIGMAS * (2.0 / n).sqrt(),
            "[{low}, {high}]: std {found_std}, not {std}"
        );
        // From the nearer tail, so that the far ones keep their digits.
        let side = if high < 0.0 { -1.0 } else { 1.0 };
        let above = |z: f64| erfc(side * z * FRAC_1_SQRT_2);
        let (from, to) = (above(low), above(high));
        check_distribution(values, |z| (above(z) - from) / (to - from));
    }
}

/// C32.
#[test]
fn the_moments_of_a_cut_normal() {
    for (cut, std) in [(1.0, 0.539_560), (2.0, 0.879_626), (3.0, 0.986_578)] {
        let (mean, found) = truncated_moments(-cut, cut);
        assert!(mean == 0.0 && (found - std).abs() < 5e-7, "{cut}: {mean}, {found}");
    }
    let (mean, std) = truncated_moments(-1.0, 3.0);
    assert!(
        (mean - 0.282_786_110_727_154).abs() < 1e-14 && (std - 0.784_946_963_404_426).abs() < 1e-14,
        "{mean}, {std}"
    );
}

/// The correlation of two sequences that should have none, of the values and of their squares.
fn check_independent(a: &[f32], b: &[f32], what: &str) {
    let n = a.len().min(b.len()) as f64;
    let (mut values, mut squares) = (0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (f64::from(a), f64::from(b));
        values += a * b;
        squares += (a * a - 1.0) * (b * b - 1.0) / 2.0;
    }
    let (values, squares) = (values / n.sqrt(), squares / n.sqrt());
    assert!(values.abs() < SIGMAS && squares.abs() < SIGMAS, "{what}: {values} and {squares} standard deviations");
}

#[test]
fn neighbours_are_independent() {
    const LEN: usize = 1_000_000;
    let base = draw(1, "blocks.0.weight", &NORMAL, 0, LEN);
    for seed in [0, 2, 3, 1 << 32, 1 | 1 << 63] {
        check_independent(&base, &draw(seed, "blocks.0.weight", &NORMAL, 0, LEN), &format!("seed {seed}"));
    }
    for path in ["blocks.1.weight", "blocks.0.weighs", "blocks.0.bias", "", "Blocks.0.weight"] {
        check_independent(&base, &draw(1, path, &NORMAL, 0, LEN), &format!("path {path:?}"));
    }
    for lag in [1, 2, 3, 4, 32, 63, 64, 65, 128, 192, 256, 512, 768, 1024, 4096] {
        check_independent(&base, &base[lag..], &format!("lag {lag}"));
    }
    check_independent(&base, &draw(1, "blocks.0.weight", &NORMAL, 1 << 34, LEN), "an offset of 2^34");
}

/// The two normals of one radius, in 16 x 16 equally likely cells: chi squared of 255 degrees of freedom.
#[test]
fn the_two_values_of_a_pair_are_independent() {
    const LEN: usize = 1 << 22;
    let values = draw(3, "pairs", &NORMAL, 0, LEN);
    let mut cells = [[0_u32; 16]; 16];
    let cell = |z: f32| ((8.0 * (1.0 + erf(f64::from(z) * FRAC_1_SQRT_2))) as usize).min(15);
    for half in values.chunks(128) {
        for i in 0..64 {
            cells[cell(half[i])][cell(half[i + 64])] += 1;
        }
    }
    let expected = (LEN / 2) as f64 / 256.0;
    let chi_squared: f64 = cells.iter().flatten().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    assert!((chi_squared - 255.0).abs() < SIGMAS * (2.0 * 255.0_f64).sqrt(), "{chi_squared}");
}

/// What [`Distribution::check`] accepts has its values within the bounds; what it refuses has a reason.
#[test]
fn numbers_that_mean_nothing() {
    let cut = |std: f64, low: f64, high: f64| Distribution::TruncatedNormal { mean: 0.0, std, low, high };
    let normal = |mean: f64, std: f64| Distribution::Normal { mean, std };
    let uniform = |low: f64, high: f64| Distribution::Uniform { low, high };
    let narrow = 1.0 + 2f64.powi(-20);
    for (distribution, reason) in [
        (normal(0.0, -1.0), "standard deviation"),
        (normal(0.0, f64::NAN), "standard deviation"),
        (normal(0.0, f64::INFINITY), "standard deviation"),
        (normal(f64::NAN, 1.0), "reach"),
        (normal(0.0, 1e38), "reach"),
        (uniform(1.0, 1.0), "empty"),
        (uniform(1.0, -1.0), "empty"),
        (uniform(f64::NAN, 1.0), "empty"),
        (uniform(0.0, f64::INFINITY), "reach"),
        (cut(1.0, 2.0, -2.0), "empty"),
        (cut(1.0, 1.0, narrow - 1e-9), "narrower"),
        (cut(1.0, 11.0, 12.0), "away"),
        (cut(-1.0, -2.0, 2.0), "standard deviation"),
    ] {
        let error = distribution.check().unwrap_err().to_string();
        assert!(error.contains(reason), "{distribution:?}: {error}");
    }
    for (low, high) in [(-2.0, 2.0), (1.0, narrow + 1e-6), (9.9, f64::INFINITY), (-1e-7, 1e-7), (-3.0, -3.0 + 1e-5)] {
        let distribution = cut(1.0, low, high);
        distribution.check().unwrap();
        let mut values = [0.0_f64; 4096];
        Stream::new(1, "narrow").fill(&distribution, 0, &mut values);
        assert!(values.iter().all(|z| (low..=high).contains(z)), "({low}, {high})");
    }
    uniform(0.0, 1.0).check().unwrap();
    normal(0.0, 0.0).check().unwrap();
}
