//! Half precision is single precision rounded once; bounds hold in every precision.

use burn_init::sample::{Distribution, Element, Stream, truncated_moments};
use half::{bf16, f16};

fn fill<E: Element>(distribution: &Distribution, len: usize) -> Vec<E> {
    let mut out = vec![E::default(); len];
    Stream::new(42, "weight").fill(distribution, 0, &mut out);
    out
}

/// C35, at the scales of weights and at the ends of `f16`: subnormal, and beyond the largest.
#[test]
fn half_precision_is_single_precision_rounded_once() {
    for std in [1e-8, 1e-6, 1e-4, 0.02, 1.0, 3e4] {
        let distributions = [
            Distribution::Uniform { low: -std, high: 2.0 * std },
            Distribution::Normal { mean: 0.0, std },
            Distribution::TruncatedNormal { mean: 0.0, std, low: -3.0, high: 3.0 },
        ];
        for distribution in &distributions {
            let single = fill::<f32>(distribution, 100_000);
            let brain = fill::<bf16>(distribution, single.len());
            let half = fill::<f16>(distribution, single.len());
            assert!(single.iter().all(|x| x.is_finite()));
            for (i, &x) in single.iter().enumerate() {
                assert_eq!(brain[i].to_bits(), bf16::from_f32(x).to_bits(), "{distribution:?}: {x:e}");
                assert_eq!(half[i].to_bits(), f16::from_f32(x).to_bits(), "{distribution:?}: {x:e}");
            }
        }
    }
}

/// The scaling is done in `f64`: a depth-scaled draw is the unscaled one divided, to the two roundings of the results.
#[test]
fn scaling_costs_one_rounding() {
    let factor = 1.0 / 24.0_f64.sqrt();
    let plain = fill::<f32>(&Distribution::Normal { mean: 0.0, std: 0.02 }, 100_000);
    let scaled = fill::<f32>(&Distribution::Normal { mean: 0.0, std: 0.02 * factor }, 100_000);
    for (plain, scaled) in plain.into_iter().zip(scaled) {
        let exact = f64::from(plain) * factor;
        assert!((f64::from(scaled) / exact - 1.0).abs() < 1.001 * f64::from(f32::EPSILON), "{plain:e}: {scaled:e}");
    }
}

/// C31: a million draws at 3 sigmas. Values are never moved to a bound: the share of those that are rounded to it is
/// what a density that is smooth there gives the outermost half cell of the type.
#[test]
fn truncated_values_keep_their_bounds_in_half_precision() {
    fn check<E: Element + Into<f64>>(std: f64, spacing: f64, round: fn(f64) -> E) {
        const LEN: usize = 1_000_000;
        let (_, unit_std) = truncated_moments(-3.0, 3.0);
        for (std, expected) in [(std, std * unit_std), (std / unit_std, std)] {
            let values = fill::<E>(&Distribution::TruncatedNormal { mean: 0.0, std, low: -3.0, high: 3.0 }, LEN);
            let bound: f64 = round(3.0 * std).into();
            let values: Vec<f64> = values.into_iter().map(Into::into).collect();
            assert!(values.iter().all(|x| x.abs() <= bound));
            let mean = values.iter().sum::<f64>() / LEN as f64;
            let second = values.iter().map(|x| x * x).sum::<f64>() / LEN as f64;
            assert!(mean.abs() < 1e-4 && mean.abs() < 4.5 * expected / (LEN as f64).sqrt(), "mean {mean}");
            assert!((second.sqrt() / expected - 1.0).abs() < 0.005, "std {} is not {expected}", second.sqrt());

            // The cell that rounds to the bound reaches at most one spacing below the true bound.
            let density = (-4.5_f64).exp() / (2.0 * std::f64::consts::PI).sqrt() / 0.997_300_2;
            let most = 2.0 * LEN as f64 * density * 1.5 * spacing / std;
            let at_bound = values.iter().filter(|x| x.abs() == bound).count() as f64;
            assert!(at_bound <= most + 4.5 * most.sqrt(), "{at_bound} values at the bound, at most {most} expected");
        }
    }
    // 3 sigmas lie between 2^-5 and 2^-4: the spacing is 2^-12 with 8 significant bits and 2^-15 with 11.
    check::<bf16>(0.02, 1.0 / 4096.0, bf16::from_f64);
    check::<f16>(0.02, 1.0 / 32768.0, f16::from_f64);
}

#[test]
fn bounds_hold_in_single_precision() {
    for (low, high) in [(-0.1, 0.1), (-1.0, 1.0), (-2.0, 2.0), (-3.0, 3.0), (-0.7, 1.9), (0.5, 2.0), (-8.0, -4.0)] {
        let values = fill::<f32>(&Distribution::TruncatedNormal { mean: 0.0, std: 1.0, low, high }, 1_000_000);
        let (least, most) = values.iter().fold((f32::MAX, f32::MIN), |(a, b), &x| (a.min(x), b.max(x)));
        assert!(f64::from(least) >= low && f64::from(most) <= high, "[{least}, {most}] is not in [{low}, {high}]");
    }
}

#[test]
fn uniform_values_keep_their_bounds_and_their_symmetry() {
    let values = fill::<f32>(&Distribution::Uniform { low: -0.25, high: 0.25 }, 1_000_000);
    assert!(values.iter().all(|x| x.abs() <= 0.25 && *x != 0.0));
    // C25: bound 0.25, std 0.144338; the estimate's relative deviation is sqrt((9/5 - 1) / 4 n).
    let second = values.iter().map(|&x| f64::from(x * x)).sum::<f64>() / 1e6;
    assert!((second.sqrt() / 0.144_337_567 - 1.0).abs() < 4.5 * (0.2e-6_f64).sqrt());
}
