//! Values that must not change. A change here is a value-breaking change: it needs another `STREAM_VERSION` and a line in
//! the CHANGELOG.

use burn_init::sample::{Distribution, Element, STREAM_VERSION, Stream, truncated_moments};
use half::{bf16, f16};

const UNIFORM: Distribution = Distribution::Uniform { low: -1.0, high: 1.0 };
const NORMAL: Distribution = Distribution::Normal { mean: 0.0, std: 1.0 };
const CUT: Distribution = Distribution::TruncatedNormal { mean: 0.0, std: 0.02, low: -3.0, high: 3.0 };
const WIDE: Distribution = Distribution::TruncatedNormal { mean: 1.0, std: 0.5, low: -2.0, high: 6.0 };
const TAIL: Distribution = Distribution::TruncatedNormal { mean: 0.0, std: 1.0, low: f64::NEG_INFINITY, high: -4.0 };

fn first<E: Element>(distribution: &Distribution) -> [E; 4] {
    let mut out = [E::default(); 4];
    Stream::new(42, "blocks.0.attn.query.weight").fill(distribution, 254, &mut out);
    out
}

/// All bits of 100,000 values in one number.
fn digest(distribution: &Distribution) -> u64 {
    let mut out = vec![0.0_f32; 100_000];
    Stream::new(42, "blocks.0.attn.query.weight").fill(distribution, 0, &mut out);
    out.iter().fold(0, |sum: u64, x| sum.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(x.to_bits()))
}

#[test]
fn the_version_of_the_stream() {
    assert_eq!(STREAM_VERSION, 1);
}

#[test]
fn uniform() {
    assert_eq!(first::<f32>(&UNIFORM), [0.8586753, 0.52011824, -0.3306812, 0.32405826]);
    assert_eq!(digest(&UNIFORM), 16869679416140306591);
}

#[test]
fn normal() {
    assert_eq!(first::<f32>(&NORMAL), [-0.5598477, 0.035150584, 0.45841488, -1.829577]);
    assert_eq!(first::<f64>(&NORMAL), first::<f32>(&NORMAL).map(f64::from));
    assert_eq!(first::<bf16>(&NORMAL), first::<f32>(&NORMAL).map(bf16::from_f32));
    assert_eq!(first::<f16>(&NORMAL), first::<f32>(&NORMAL).map(f16::from_f32));
    assert_eq!(digest(&NORMAL), 16230859613873088723);
}

#[test]
fn truncated_normal() {
    assert_eq!(first::<f32>(&CUT), [0.029247174, 0.014084714, -0.0085171545, 0.008336221]);
    assert_eq!(digest(&CUT), 4735408864882595116);
    assert_eq!(first::<f32>(&WIDE), [1.741434, 1.3620825, 0.80706435, 1.2195673]);
    assert_eq!(digest(&WIDE), 15830506121527788550);
    assert_eq!(first::<f32>(&TAIL), [-4.017311, -4.0644603, -4.251884, -4.0965557]);
    assert_eq!(digest(&TAIL), 16664454395285699229);
}

/// These set a compensated standard deviation, to the last bit.
#[test]
fn moments() {
    assert_eq!(truncated_moments(-2.0, 2.0), (0.0, 0.8796256610342398));
    assert_eq!(truncated_moments(-3.0, 3.0), (0.0, 0.9865783925581086));
}

#[test]
fn orthogonal() {
    let mut out = [0.0_f64; 6];
    Stream::new(42, "weight").orthogonal(3, 2, 1.0, &mut out);
    assert_eq!(
        out,
        [
            0.602960014204756,
            0.7775433996343644,
            -0.43060285964342904,
            0.5055654813349713,
            0.6715805227499537,
            -0.3739382379051033
        ]
    );
    let mut out = vec![0.0_f32; 130 * 70];
    Stream::new(42, "weight").orthogonal(70, 130, 1.0, &mut out);
    let digest = out
        .iter()
        .fold(0, |sum: u64, x| sum.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(x.to_bits()));
    assert_eq!(digest, 785264431116060943);
}
