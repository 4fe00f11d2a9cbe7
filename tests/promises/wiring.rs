//! A forward pass that is not the one that the start was made for: what it does to the numbers at step zero is told, and only there.

use burn::module::Module as _;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation::softmax};
use burn_init::{
    Gpt2, Initializer, Scheme, TorchDefault,
    audit::Severity,
    reference::{Norm, NormPlacement, Positions, Transformer, TransformerConfig},
    step_zero::{Activation, Batch, Fault, Finding, Probe, Site, StepZero},
};

use crate::support::device;

const VOCAB: usize = 300;
const LENGTH: usize = 24;
const D: usize = 64;
const HEADS: usize = 4;
const ROWS: usize = 4;

/// How a forward pass is put together; the default is right.
#[derive(Clone, Copy)]
struct Wiring {
    residual: [bool; 2],
    /// Over scores of `[batch, heads, queries, keys]`.
    softmax: usize,
    masked: f32,
    /// Shows the probe the stream where the branch is due.
    sum_as_branch: bool,
}

const RIGHT: Wiring = Wiring { residual: [true; 2], softmax: 3, masked: f32::NEG_INFINITY, sum_as_branch: false };

fn gpt2() -> TransformerConfig {
    TransformerConfig::new(VOCAB, LENGTH, D, 2, HEADS)
}

fn llama() -> TransformerConfig {
    let config = gpt2().with_norm(Norm::RmsNorm).with_positions(Positions::Rotary);
    config.with_activation(Activation::SwiGlu).with_bias(false).with_tied(false)
}

/// [`Transformer::forward_with`], put together as told.
fn forward(model: &Transformer, tokens: Tensor<2, Int>, wiring: Wiring, probe: &mut Probe<'_>) -> Tensor<3> {
    let [rows, length] = tokens.dims();
    let device = tokens.device();
    let mut x = model.token_embedding.forward(tokens);
    if let Some(table) = &model.position_embedding {
        x = x + table.forward(Tensor::<1, Int>::arange(0..length as i64, &device).unsqueeze());
    }
    let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device).unsqueeze::<4>();
    let split = |x: Tensor<3>| x.reshape([rows, length, HEADS, D / HEADS]).swap_dims(1, 2);
    let turn = |x: Tensor<4>| model.rotary.as_ref().map_or(x.clone(), |rotary| rotary.forward(x));
    let add = |x: Tensor<3>, branch: Tensor<3>, kept: bool| if kept { x + branch } else { branch };
    for (layer, block) in (0..).zip(&model.blocks) {
        x = probe.pass(Site::ResidPre.in_layer(layer), x);
        let normed = block.norm_1.forward(x.clone());
        let attention = &block.attention;
        let query = turn(split(attention.query.forward(normed.clone())));
        let key = turn(split(attention.key.forward(normed.clone())));
        let scores = query.matmul(key.transpose()) / ((D / HEADS) as f64).sqrt();
        let scores = scores.mask_fill(mask.clone(), wiring.masked);
        probe.show(Site::AttnScores.in_layer(layer), &scores.clone().reshape([rows * HEADS, length, length]));
        let mixed = softmax(scores, wiring.softmax).matmul(split(attention.value.forward(normed)));
        let branch = attention.output.forward(mixed.swap_dims(1, 2).reshape([rows, length, D]));
        let sum = add(x, branch.clone(), wiring.residual[0]);
        probe.show(Site::AttnOut.in_layer(layer), if wiring.sum_as_branch { &sum } else { &branch });
        x = probe.pass(Site::ResidMid.in_layer(layer), sum);
        let branch = block.mlp.forward(block.norm_2.forward(x.clone()));
        let sum = add(x, branch.clone(), wiring.residual[1]);
        probe.show(Site::MlpOut.in_layer(layer), if wiring.sum_as_branch { &sum } else { &branch });
        x = probe.pass(Site::ResidPost.in_layer(layer), sum);
    }
    let x = model.norm_final.as_ref().unwrap().forward(x);
    probe.show(Site::FinalNorm, &x);
    match &model.head {
        Some(head) => head.forward(x),
        None => x.matmul(model.token_embedding.weight.val().transpose().unsqueeze::<3>()),
    }
}

fn batch(seed: u64) -> Batch {
    batch_on(seed, &device())
}

fn batch_on(seed: u64, device: &Device) -> Batch {
    let mut state = seed;
    let mut tokens = || {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % VOCAB as u64) as i64
        };
        let values: Vec<i64> = (0..ROWS * LENGTH).map(next).collect();
        Tensor::<2, Int>::from_data(TensorData::new(values, [ROWS, LENGTH]), device)
    };
    Batch::new(tokens(), tokens())
}

fn measure(config: &TransformerConfig, scheme: &dyn Initializer, seed: u64, wiring: Wiring) -> Option<StepZero> {
    let setup = config.setup();
    let model = setup.initialize(config.build(&device()).unwrap(), scheme, seed).ok()?;
    Some(setup.measure(&model, &batch(seed), |model, tokens, probe| forward(model, tokens, wiring, probe)).unwrap())
}

fn first(s: &StepZero) -> Finding {
    s.findings().into_iter().next().unwrap_or_else(|| panic!("{s}"))
}

fn accused(s: &StepZero) -> Option<Finding> {
    s.findings().into_iter().find(|finding| matches!(finding.fault, Fault::NoResidual | Fault::SoftmaxDimension))
}

/// The pass of this file is that of the reference model, and raises nothing.
#[test]
fn the_right_wiring() {
    for config in [gpt2(), llama()] {
        let model = config.init_with(&Gpt2::new(), 1, &device()).unwrap();
        let tokens = batch(1).tokens;
        let ours = forward(&model, tokens.clone(), RIGHT, &mut Probe::silent());
        ours.into_data().assert_approx_eq::<f32>(&model.forward(tokens).into_data(), Default::default());
        assert_eq!(measure(&config, &Gpt2::new(), 1, RIGHT).unwrap().findings(), []);
    }
}

#[test]
fn missing_additions() {
    for (residual, count) in [([false; 2], "4 of 4"), ([false, true], "2 of 4"), ([true, false], "2 of 4")] {
        for config in [gpt2(), llama()] {
            for seed in 1..4 {
                let ill = measure(&config, &Gpt2::new(), seed, Wiring { residual, ..RIGHT }).unwrap();
                let found = first(&ill);
                assert_eq!((found.fault, found.severity), (Fault::NoResidual, Severity::Error), "{ill}");
                assert!(found.cause.contains(&format!("after {count} branches")), "{found}");
            }
        }
    }
    let ill = measure(&gpt2(), &Gpt2::new(), 1, Wiring { residual: [false; 2], ..RIGHT }).unwrap();
    let (pre, branch) = (ill.stream[0].second_moment, ill.branches[0].second_moment);
    let due = format!(
        "0.resid_mid is 0.attn_out, with a second moment of {branch:.2e} where {pre:.2e} + {branch:.2e} is due"
    );
    assert!(first(&ill).cause.ends_with(&due), "{}", first(&ill));
}

/// Whoever shows the sum as the branch has a wrong probe and a sound model: it is said, too, and is no error.
#[test]
fn a_misplaced_probe() {
    let found = first(&measure(&gpt2(), &Gpt2::new(), 1, Wiring { sum_as_branch: true, ..RIGHT }).unwrap());
    assert_eq!((found.fault, found.severity), (Fault::NoResidual, Severity::Warning));
    assert!(found.todo.contains("show the probe the branch before the addition"), "{found}");
}

#[test]
fn a_softmax_over_queries() {
    for config in [gpt2(), llama()] {
        for (seed, masked) in [(1, f32::NEG_INFINITY), (2, -1e4), (3, f32::NEG_INFINITY)] {
            let ill = measure(&config, &Gpt2::new(), seed, Wiring { softmax: 2, masked, ..RIGHT }).unwrap();
            let found = first(&ill);
            assert_eq!((found.fault, found.severity), (Fault::SoftmaxDimension, Severity::Error), "{ill}");
            assert!(found.cause.contains("over the queries: by its mask"), "{found}");
        }
    }
}

/// With masks of -inf such a softmax makes NaN, with others it makes all positions alike.
#[test]
fn a_softmax_over_heads_or_batch() {
    for config in [gpt2(), llama()] {
        for dim in [0, 1] {
            for seed in 1..4 {
                let ill = measure(&config, &Gpt2::new(), seed, Wiring { softmax: dim, masked: -1e4, ..RIGHT }).unwrap();
                let found = first(&ill);
                assert_eq!((found.fault, found.severity), (Fault::SoftmaxDimension, Severity::Warning), "{ill}");
                assert!(found.cause.contains("over heads or batch"), "{found}");
            }
        }
    }
    let model = gpt2().init_with(&Gpt2::new(), 1, &device()).unwrap();
    let infinite = burn_init::step_zero::measure(&model, &batch(1), |model, tokens, probe| {
        forward(model, tokens, Wiring { softmax: 1, ..RIGHT }, probe)
    });
    let error = infinite.unwrap_err().to_string();
    assert!(
        error.starts_with("0.attn_out holds a value that is not finite, and the scores before it are finite"),
        "{error}"
    );
    assert!(error.contains("take the softmax over the keys"), "{error}");
}

/// No scheme, seed or model that is put together right is accused, and few that are not get away.
#[test]
fn nobody_is_accused() {
    let (mut sound, mut told) = (0, 0);
    for config in [gpt2(), llama()] {
        for (name, scheme, _) in Scheme::all() {
            for seed in 1..3 {
                let Some(healthy) = measure(&config, &scheme, seed, RIGHT) else { continue };
                assert_eq!(accused(&healthy), None, "{name} {seed}\n{healthy}");
                sound += 1;
            }
            let Some(gone) = measure(&config, &scheme, 1, Wiring { residual: [false; 2], ..RIGHT }) else { continue };
            assert_eq!(accused(&gone).map(|finding| finding.fault), Some(Fault::NoResidual), "{name}\n{gone}");
            let Some(turned) = measure(&config, &scheme, 1, Wiring { softmax: 2, ..RIGHT }) else { continue };
            told += usize::from(accused(&turned).is_some_and(|finding| finding.fault == Fault::SoftmaxDimension));
        }
    }
    assert!(sound >= 200);
    // Drawn biases, wide scores and branches that start at 0 hide it.
    assert!(8 * told >= 3 * sound, "{told} of {}", sound / 2);
    // PyTorch's biases are most of what its branches add.
    assert_eq!(accused(&measure(&gpt2(), &TorchDefault::new(), 1, RIGHT).unwrap()), None);
}

/// Nor is a model whose norms stand elsewhere.
#[test]
fn nobody_is_accused_with_other_norms() {
    let mut sound = 0;
    for placement in [NormPlacement::Post, NormPlacement::ResPost, NormPlacement::Sandwich] {
        let config = gpt2().with_norm_placement(placement);
        for (name, scheme, _) in Scheme::all() {
            let Ok(model) = config.init_with(&scheme, 1, &device()) else { continue };
            let healthy = config.setup().measure(&model, &batch(1), Transformer::forward_with).unwrap();
            assert_eq!(accused(&healthy), None, "{placement} {name}\n{healthy}");
            assert!(name != "gpt2" || healthy.check().is_ok(), "{placement}\n{healthy}");
            sound += 1;
        }
    }
    assert!(sound >= 120, "{sound}");
}

/// Where dropout is at work, a measurement notes it: on a device with autodiff, unless its layers are frozen.
#[test]
fn dropout_is_noted() {
    let notes = |dropout: f64, autodiff: bool, frozen: bool| {
        let device = if autodiff { device().autodiff() } else { device() };
        let model = gpt2().with_dropout(dropout).init_with(&Gpt2::new(), 1, &device).unwrap();
        let model = if frozen { model.freeze() } else { model };
        let measured = burn_init::step_zero::measure(&model, &batch_on(1, &device), Transformer::forward_with).unwrap();
        assert_eq!(measured.to_string().contains("note: dropout"), !measured.notes.is_empty());
        measured.notes
    };
    let noted = notes(0.1, true, false);
    // On the embeddings, and in each layer on the weights and both branches.
    let told = "dropout is at work in 7 layers, with a probability of up to 0.1: ";
    assert!(noted.len() == 1 && noted[0].starts_with(told), "{noted:?}");
    assert_eq!(notes(0.1, false, false), [""; 0]);
    assert_eq!(notes(0.1, true, true), [""; 0]);
    assert_eq!(notes(0.0, true, false), [""; 0]);
    // burn's own encoder has a dropout of 0.1 unless it is told otherwise, and no probe.
    let device = device().autodiff();
    let encoder = burn::nn::transformer::TransformerEncoderConfig::new(16, 32, 2, 1).init(&device);
    let measured = burn_init::step_zero::measure(&encoder, &batch_on(1, &device), |_, tokens, _| {
        Tensor::<3>::zeros([tokens.dims()[0], tokens.dims()[1], VOCAB], &tokens.device())
    });
    assert!(measured.unwrap().notes[0].contains("up to 0.1"));
}
