//! A tree that burn's users write is understood without a line written for it.

use burn::{
    module::Module,
    nn::{
        LstmConfig, SwiGluConfig,
        attention::MultiHeadAttentionConfig,
        conv::{Conv1dConfig, Conv2dConfig},
        transformer::{PositionWiseFeedForwardConfig, TransformerDecoderConfig, TransformerEncoderConfig},
    },
};
use burn_init::{Depth, Gpt2, Layout, ModuleInit as _, Plan, Role, Setup, TorchDefault};

use crate::{
    support::{assert_std, device, values},
    trees::{Either, Llama, Moe, NanoBlock, NanoGpt, StackedMoe, Vit, Wrapped, WriteUp, raw},
};

fn sigmas(plan: &Plan, role: Role) -> Vec<f64> {
    plan.iter().filter(|entry| entry.spec().role() == role).map(|entry| entry.std()).collect()
}

#[track_caller]
fn assert_all(plan: &Plan, role: Role, count: usize, sigma: f64) {
    let found = sigmas(plan, role);
    assert_eq!(found.len(), count, "{role}");
    assert!(found.iter().all(|s| (s - sigma).abs() < 1e-12), "{role}: {found:?}, expected {sigma}");
}

/// The table of issue C10: 0.02 everywhere, 0.0040825 on the 24 projections that write into the stream.
#[test]
fn nanogpt_at_gpt2_small() {
    let model = NanoGpt::new(12, 768, 50257, 1024, &device());
    let plan = model.plan(&Gpt2::new()).unwrap();
    assert_eq!(plan.num_params(), 124_439_808);
    assert_all(&plan, Role::TokenEmbedding, 1, 0.02);
    assert_all(&plan, Role::PositionEmbedding, 1, 0.02);
    for role in [Role::Query, Role::Key, Role::Value, Role::MlpIn] {
        assert_all(&plan, role, 12, 0.02);
    }
    for role in [Role::AttentionOutput, Role::MlpDown] {
        assert_all(&plan, role, 12, 0.02 / 24f64.sqrt());
        assert!((sigmas(&plan, role)[0] - 0.0040825).abs() < 5e-8);
    }
    // The bias of the packed projection has a line for each block, as its weight.
    assert_all(&plan, Role::Bias, 72, 0.0);
    for entry in plan.iter().filter(|entry| entry.spec().role().is_gain()) {
        assert_eq!(entry.law().mean(), 1.0);
    }
    assert_eq!(plan.get("transformer.h.11.mlp.c_proj.weight").unwrap().spec().writes().unwrap().index, 23);
    assert!(plan.warnings().is_empty(), "{:?}", plan.warnings());
}

#[test]
fn llama() {
    let plan = Llama::new(4, 64, 32, 176, 100, &device()).plan(&Gpt2::new()).unwrap();
    for role in [Role::Query, Role::Key, Role::Value, Role::MlpGate, Role::MlpUp] {
        assert_all(&plan, role, 4, 0.02);
    }
    for role in [Role::AttentionOutput, Role::MlpDown] {
        assert_all(&plan, role, 4, 0.02 / 8f64.sqrt());
    }
    assert_all(&plan, Role::OutputHead, 1, 0.02);
    assert_eq!(sigmas(&plan, Role::NormGain).len(), 9);
}

#[test]
fn the_write_up() {
    let plan = WriteUp::new(6, 32, 100, &device()).plan(&Gpt2::new()).unwrap();
    for role in [Role::AttentionOutput, Role::MlpDown] {
        assert_all(&plan, role, 6, 0.02 / 12f64.sqrt());
        assert!((sigmas(&plan, role)[0] - 0.0057735).abs() < 5e-8);
    }
    assert_eq!(plan.get("blocks.3.mlp.2.weight").unwrap().spec().role(), Role::MlpDown);
    assert_all(&plan, Role::MlpIn, 6, 0.02);
}

#[test]
fn burn_nn_encoder_and_decoder_in_one_tree() {
    let device = device();
    let encoder = TransformerEncoderConfig::new(32, 64, 4, 4).init(&device);
    let decoder = TransformerDecoderConfig::new(32, 64, 4, 4).init(&device);
    let model = (encoder, decoder);
    let plan = model.plan(&Gpt2::new()).unwrap();
    for entry in &plan {
        let decodes = entry.spec().path().starts_with("1.");
        if entry.spec().role().writes() {
            // Three additions a layer with cross-attention (C13), two without; each stream has its own count.
            let additions = if decodes { 12 } else { 8 };
            assert_eq!(entry.spec().writes().unwrap().of, additions, "{}", entry.spec().path());
            let expected = if decodes { 0.0057735 } else { 0.0070711 };
            assert!((entry.std() - expected).abs() < 5e-8, "{}", entry.spec().path());
        }
    }
    assert_eq!(sigmas(&plan, Role::AttentionOutput).len(), 12);
}

#[test]
fn burn_nn_layers_on_their_own() {
    let device = device();
    let roles = |plan: Plan| plan.iter().map(|entry| entry.spec().role()).collect::<Vec<_>>();
    use Role::*;
    let attention = MultiHeadAttentionConfig::new(32, 4).init(&device).plan(&Gpt2::new()).unwrap();
    assert_eq!(roles(attention), [Query, Bias, Key, Bias, Value, Bias, AttentionOutput, Bias]);
    let mlp = PositionWiseFeedForwardConfig::new(32, 64).init(&device).plan(&Gpt2::new()).unwrap();
    assert_eq!(roles(mlp), [MlpIn, Bias, MlpDown, Bias]);
    let plain = Gpt2::new().with_depth(Depth::none());
    let gated = SwiGluConfig::new(32, 64).init(&device).plan(&plain).unwrap();
    assert_eq!(roles(gated), [MlpGate, MlpUp]);
    assert_eq!(roles(Conv1dConfig::new(3, 8, 5).init(&device).plan(&plain).unwrap()), [Convolution, Bias]);
    assert_eq!(roles(Conv2dConfig::new([3, 8], [5, 5]).init(&device).plan(&plain).unwrap()), [Convolution, Bias]);
    let lstm = LstmConfig::new(8, 16, true).init(&device).plan(&plain).unwrap();
    assert_eq!(roles(lstm)[..4], [RecurrentInput, Bias, RecurrentHidden, Bias]);
}

/// C15: wrappers change the paths and nothing else.
#[test]
fn wrappers_options_enums_and_tuples() {
    let device = device();
    let table = |plan: &Plan| plan.iter().map(|entry| (entry.spec().role(), entry.std())).collect::<Vec<_>>();
    let bare = NanoGpt::new(3, 32, 100, 16, &device).plan(&Gpt2::new()).unwrap();
    let wrapped = Wrapped { inner: Wrapped { inner: NanoGpt::new(3, 32, 100, 16, &device) } };
    let wrapped = wrapped.plan(&Gpt2::new()).unwrap();
    assert_eq!(table(&bare), table(&wrapped));
    assert!(wrapped.get("inner.inner.transformer.wte.weight").is_some());

    let either = vec![Either::Plain(NanoBlock::new(32, &device)), Either::Plain(NanoBlock::new(32, &device))];
    let plan = either.plan(&Gpt2::new()).unwrap();
    assert_all(&plan, Role::MlpDown, 2, 0.01);
    let pair = (NanoBlock::new(32, &device), NanoBlock::new(32, &device));
    assert_all(&pair.plan(&Gpt2::new()).unwrap(), Role::MlpDown, 2, 0.01);
}

/// A raw packed weight without the word, as some code bases have it.
#[derive(Module, Debug)]
struct BareAttention {
    qkv: burn::module::Param<burn::tensor::Tensor<2>>,
    qkv_bias: burn::module::Param<burn::tensor::Tensor<1>>,
}

/// The bias of a raw `qkv` has its blocks and its fans, so that PyTorch's biases are within `1/sqrt(fan_in)`.
#[test]
fn a_bias_beside_a_bare_weight() {
    let model = BareAttention { qkv: raw([32, 96], &device()), qkv_bias: raw([96], &device()) };
    let setup = Setup::new().packed("qkv", [Role::Query, Role::Key, Role::Value]).layout("qkv", Layout::InOut);
    let plan = setup.plan(&model, &TorchDefault::new()).unwrap();
    let biases = plan.blocks("qkv_bias");
    assert_eq!(biases.len(), 3);
    for (entry, role) in biases.iter().zip([Role::Query, Role::Key, Role::Value]) {
        assert_eq!(entry.spec().weight_role(), Some(role));
        assert!((entry.std() - (1.0 / 96f64).sqrt()).abs() < 1e-12, "{}", entry.std());
    }
}

#[test]
fn vit_with_raw_parameters() {
    let plan = Vit::new(&device()).plan(&Gpt2::new()).unwrap();
    let role = |path: &str| plan.get(path).unwrap().spec().role();
    assert_eq!(role("cls_token"), Role::ClassToken);
    assert_eq!(role("pos_embed"), Role::PositionEmbedding);
    assert_eq!(role("patch_embed.weight"), Role::PatchEmbedding);
    assert_eq!(role("head.weight"), Role::OutputHead);
    assert_all(&plan, Role::AttentionOutput, 2, 0.01);
}

/// All experts of a layer, the shared one too, are one addition.
#[test]
fn mixtures_of_experts() {
    let device = device();
    let plan = Moe::new(3, &device).plan(&Gpt2::new()).unwrap();
    assert_all(&plan, Role::MlpDown, 15, 0.02 / 6f64.sqrt());
    assert_all(&plan, Role::Router, 3, 0.02);

    let model = StackedMoe::new(3, &device).initialize(&Gpt2::new(), 7).unwrap();
    let plan = model.plan(&Gpt2::new()).unwrap();
    assert_all(&plan, Role::MlpDown, 3, 0.02 / 6f64.sqrt());
    let down = plan.get("layers.1.moe.down_proj").unwrap().spec();
    assert_eq!((down.experts(), down.fans().unwrap().fan_in), (Some(4), 64));
    assert_std(&values(&model)["layers.1.moe.down_proj"], 0.02 / 6f64.sqrt(), "stacked experts");
}

/// C13: one addition a layer if attention and MLP are added together.
#[test]
fn parallel_blocks() {
    let model = NanoGpt::new(4, 32, 100, 16, &device());
    assert_all(&model.plan(&Gpt2::new()).unwrap(), Role::MlpDown, 4, 0.02 / 8f64.sqrt());
    let plan = Setup::new().parallel("transformer.h.*").plan(&model, &Gpt2::new()).unwrap();
    assert_all(&plan, Role::MlpDown, 4, 0.01);
    assert_all(&plan, Role::AttentionOutput, 4, 0.01);
}

#[test]
fn measured_stds_at_gpt2_small_agree_with_the_plan() {
    let model = NanoGpt::new(12, 768, 50257, 1024, &device()).initialize(&Gpt2::new(), 42).unwrap();
    let plan = model.plan(&Gpt2::new()).unwrap();
    for (path, values) in values(&model) {
        let entry = plan.get(&path).unwrap();
        match entry.std() {
            0.0 => assert!(values.iter().all(|&x| f64::from(x) == entry.law().mean()), "{path}"),
            std => assert_std(&values, std, &path),
        }
    }
    assert_eq!(model.num_params(), 124_439_808);
}
