//! How variance accumulates over the 2N additions of a fresh model, and what its logits are then worth.
//!
//! Tolerances are those of a simulation of these models: a single seed of `Var(x_2N)` has a relative standard deviation of at
//! most 0.10 at d = 128, so a mean of 4 seeds has 0.05.

use burn::tensor::{Int, Tensor, TensorData};
use burn_init::{
    Depth, Gpt2, Init, Initializer, ModuleInit as _,
    reference::TransformerConfig,
    step_zero::{Batch, Probe, Site, StepZero, step_zero},
};
use proptest::prelude::*;

use crate::support::{device, values};

const LAYERS: [usize; 4] = [2, 4, 8, 16];
const SEEDS: u64 = 4;
const VOCAB: usize = 1000;

fn config(layers: usize, d_model: usize) -> TransformerConfig {
    TransformerConfig::new(VOCAB, 64, d_model, layers, 4)
}

/// Uniformly random tokens, by a multiplicative congruential generator.
fn tokens(count: usize, seed: u64) -> Vec<i64> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % VOCAB as u64) as i64
    };
    (0..count).map(|_| next()).collect()
}

fn batch(rows: usize, length: usize, seed: u64) -> Batch {
    let tensor =
        |seed| Tensor::<2, Int>::from_data(TensorData::new(tokens(rows * length, seed), [rows, length]), &device());
    Batch::new(tensor(2 * seed), tensor(2 * seed + 1))
}

fn measure(config: &TransformerConfig, scheme: &dyn Initializer, seed: u64) -> StepZero {
    let model = config.init_with(scheme, seed, &device()).unwrap();
    step_zero(&batch(2, 64, seed), |tokens, probe| model.forward_with(tokens, probe)).unwrap()
}

/// `Var(x_0)` and `Var(x_2N)`, each a mean over seeds.
fn ends(layers: usize, d_model: usize, scheme: &dyn Initializer, first_seed: u64) -> (f64, f64) {
    let config = config(layers, d_model);
    let (mut start, mut end) = (0.0, 0.0);
    for seed in first_seed..first_seed + SEEDS {
        let measured = measure(&config, scheme, seed);
        assert_eq!(measured.stream.len(), 2 * layers + 1);
        start += measured.stream[0].second_moment / SEEDS as f64;
        end += measured.stream.last().unwrap().second_moment / SEEDS as f64;
    }
    (start, end)
}

/// Least-squares slope of `ln y` against `ln N`.
fn slope(points: &[(usize, f64)]) -> f64 {
    let logs: Vec<_> = points.iter().map(|&(n, y)| ((n as f64).ln(), y.ln())).collect();
    let n = logs.len() as f64;
    let (mx, my) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
    logs.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>() / logs.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>()
}

/// The prediction of `Var(x_2N)`.
fn predicted(layers: usize, d_model: usize, scheme: &dyn Initializer) -> f64 {
    let config = config(layers, d_model);
    let plan = config.build(&device()).unwrap().plan(scheme).unwrap();
    plan.predict(&config.architecture()).unwrap().stream.last().unwrap().second_moment
}

fn level_agrees(measured: f64, predicted: f64) -> bool {
    // Four sampling standard deviations of a mean of four seeds.
    (predicted / 1.2..predicted * 1.2).contains(&measured)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(42),
        ..ProptestConfig::default()
    })]

    /// Unscaled, the stream grows with the number of layers; scaled, it does not.
    #[test]
    fn variance_over_depth(width in 4usize..7, first_seed in 0u64..1000) {
        let d_model = 32 * width;
        let unscaled = Gpt2::new().with_depth(Depth::none());
        let mut grown = Vec::new();
        let mut bounded = Vec::new();
        for layers in LAYERS {
            let (start, end) = ends(layers, d_model, &unscaled, first_seed);
            prop_assert!(level_agrees(end, predicted(layers, d_model, &unscaled)), "unscaled, N = {layers}: {end}");
            grown.push((layers, end - start));
            let (_, end) = ends(layers, d_model, &Gpt2::new(), first_seed);
            prop_assert!(level_agrees(end, predicted(layers, d_model, &Gpt2::new())), "scaled, N = {layers}: {end}");
            bounded.push((layers, end));
        }
        let (up, flat) = (slope(&grown), slope(&bounded));
        prop_assert!((0.95..1.25).contains(&up), "unscaled slope {up} at d = {d_model}");
        prop_assert!(flat.abs() < 0.12, "scaled slope {flat} at d = {d_model}");
    }

    /// The logits' std is `sigma sqrt(d)` whatever the stream, so depth scaling does not change it.
    #[test]
    fn logit_std(width in 2usize..5, seed in 0u64..1000) {
        let d_model = 64 * width;
        let config = config(4, d_model);
        let scaled = measure(&config, &Gpt2::new(), seed);
        let unscaled = measure(&config, &Gpt2::new().with_depth(Depth::none()), seed);
        let expected = 0.02 * (d_model as f64).sqrt();
        for measured in [&scaled, &unscaled] {
            // The epsilon of the norm takes up to 1e-5 of a stream of 1e-3 or more.
            prop_assert!((measured.logit_std / expected - 1.0).abs() < 0.03, "{} {expected}", measured.logit_std);
        }
        prop_assert!((scaled.logit_std / unscaled.logit_std - 1.0).abs() < 0.02);
    }

    /// The loss is the expected one within its sampling noise.
    #[test]
    fn loss_within_its_noise(seed in 0u64..1000) {
        let measured = measure(&config(3, 128), &Gpt2::new(), seed);
        prop_assert!((measured.loss - measured.expected_loss).abs() < measured.noise, "{measured:?}");
        let s = 0.02 * 128f64.sqrt();
        prop_assert!((measured.log_sum_exp - (1000f64.ln() + s * s / 2.0)).abs() < 0.01, "{}", measured.log_sum_exp);
    }
}

/// Each of these faults leaves the band of the level: the property above can fail.
#[test]
fn mutants_leave_the_band() {
    let (layers, d_model) = (8, 128);
    let scaled = predicted(layers, d_model, &Gpt2::new());
    let end = |scheme: &dyn Initializer| ends(layers, d_model, scheme, 0).1;
    assert!(level_agrees(end(&Gpt2::new()), scaled));
    let branch = Gpt2::new().with("blocks.*.mlp.linear_out.weight", Init::normal(0.02));
    assert!(!level_agrees(end(&branch), scaled), "one branch left unscaled");
    let halved = Gpt2::new().with_depth(Depth::count(layers as u64));
    assert!(!level_agrees(end(&halved), scaled), "N taken for 2N");
    let wide = Gpt2::new().with_std(0.022);
    assert!(!level_agrees(end(&wide), scaled), "a std off by 10 %");
}

/// The fresh model itself: neutral norms, no biases, and a tied head that reads the normed stream.
#[test]
fn the_fresh_model() {
    let config = config(2, 32);
    let model = config.init(&device()).unwrap();
    for (path, values) in values(&model) {
        match path.rsplit('.').next().unwrap() {
            "gamma" => assert!(values.iter().all(|&x| x == 1.0), "{path}"),
            "beta" | "bias" => assert!(values.iter().all(|&x| x == 0.0), "{path}"),
            _ => {}
        }
    }
    let mut normed = None;
    let mut listen = |point: burn_init::step_zero::Point, x: &Tensor<3>| {
        if point.site == Site::FinalNorm {
            normed = Some(x.clone());
        }
    };
    let batch = batch(2, 8, 1);
    let logits = model.forward_with(batch.tokens.clone(), &mut Probe::new(&mut listen));
    let by_hand = normed.unwrap().matmul(model.token_embedding.weight.val().transpose().unsqueeze());
    assert!((logits - by_hand).abs().max().into_scalar::<f32>() < 1e-6);

    // LayerNorm acts on each token alone, and attention looks back only: another last token changes nothing before it.
    let normed = |tokens: Tensor<2, Int>| {
        let mut seen = None;
        let mut listen = |point: burn_init::step_zero::Point, x: &Tensor<3>| {
            if point.site == Site::FinalNorm {
                seen = Some(x.clone());
            }
        };
        model.forward_with(tokens, &mut Probe::new(&mut listen));
        seen.unwrap()
    };
    let [rows, length] = batch.tokens.dims();
    let changed = batch.tokens.clone().slice_assign([0..rows, length - 1..length], Tensor::ones([rows, 1], &device()));
    let (a, b) = (normed(batch.tokens), normed(changed));
    let before = |x: &Tensor<3>| x.clone().slice([0..rows, 0..length - 1]).into_data();
    assert_eq!(before(&a), before(&b));
    assert_ne!(a.into_data(), b.into_data());
    let norm = model.norm_final.as_ref().unwrap();
    let x = Tensor::<2>::random([4, 32], burn::tensor::Distribution::Default, &device());
    let together = norm.forward(x.clone()).into_data().try_to_vec::<f32>().unwrap();
    let alone: Vec<f32> =
        (0..4).flat_map(|i| norm.forward(x.clone().narrow(0, i, 1)).into_data().try_to_vec::<f32>().unwrap()).collect();
    approx::assert_abs_diff_eq!(together.as_slice(), alone.as_slice(), epsilon = 1e-6);
}

/// C51: one step moves every parameter; the key biases, whose gradient is zero by softmax's invariance, are no exception to worry about.
#[test]
fn one_step_moves_everything() {
    use burn::optim::{AdamWConfig, GradientsParams};
    let device = device().autodiff();
    let model = config(2, 32).init(&device).unwrap();
    let before = values(&model);
    let on = |data: Vec<i64>| Tensor::<2, Int>::from_data(TensorData::new(data, [2, 64]), &device);
    let logits = model.forward(on(tokens(128, 1)));
    let loss = burn::nn::loss::CrossEntropyLossConfig::new()
        .init(&device)
        .forward(logits.reshape([128, VOCAB]), on(tokens(128, 2)).reshape([128]));
    let grads = GradientsParams::from_grads(loss.backward(), &model);
    let after = values(&AdamWConfig::new().init().step(1e-3, model, grads));
    for (path, before) in before {
        let moved = before.iter().zip(&after[&path]).any(|(a, b)| a != b);
        assert!(moved || path.ends_with("key.bias"), "{path} did not move");
    }
}
