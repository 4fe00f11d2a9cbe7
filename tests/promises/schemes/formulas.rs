//! Formulas held against numbers that were worked out by hand from the papers.

use burn_init::{ModuleInit as _, Plan, Role, Role::*, Scheme, Setup};

use crate::{
    support::device,
    trees::{Llama, NanoGpt, StackedMoe, Vit},
};

/// The stds of the first and the last layer, or of the only parameter with that role.
type Row = (&'static str, Role, f64, f64);

/// Llama at d = 768, f = 2048, 12 layers, 12 heads.
#[rustfmt::skip]
const LLAMA: &[Row] = &[
    ("gpt2", AttentionOutput, 0.00408248, 0.00408248),
    ("gpt2-released", AttentionOutput, 0.02, 0.02),
    ("megatron", Query, 0.02, 0.02),
    ("megatron", AttentionOutput, 0.00408248, 0.00408248),
    ("megatron", MlpDown, 0.00408248, 0.00408248),
    ("megatron", MlpUp, 0.02, 0.02),
    ("megatron", OutputHead, 0.02, 0.02),
    ("megatron-hybrid", MlpDown, 0.00577350, 0.00577350),
    ("gpt-neox", TokenEmbedding, 0.0228218, 0.0228218),
    ("gpt-neox", Key, 0.0228218, 0.0228218),
    ("gpt-neox", MlpGate, 0.0228218, 0.0228218),
    ("gpt-neox", OutputHead, 0.0228218, 0.0228218),
    ("gpt-neox", AttentionOutput, 0.00601407, 0.00601407),
    ("gpt-neox", MlpDown, 0.00601407, 0.00601407),
    ("litgpt", MlpUp, 0.0228218, 0.0228218),
    ("litgpt", MlpDown, 0.00300703, 0.00300703),
    ("small-init", MlpDown, 0.0228218, 0.0228218),
    ("olmo-mitchell", TokenEmbedding, 0.0356001, 0.0356001),
    ("olmo-mitchell", Value, 0.0356001, 0.0356001),
    ("olmo-mitchell", AttentionOutput, 0.0251731, 0.00726684),
    ("olmo-mitchell", MlpDown, 0.0154153, 0.00445001),
    ("olmo-mitchell", OutputHead, 0.0356001, 0.0356001),
    ("olmo-full-megatron", TokenEmbedding, 0.0197316, 0.0197316),
    ("olmo-full-megatron", MlpUp, 0.0197316, 0.0197316),
    ("olmo-full-megatron", MlpDown, 0.00402769, 0.00402769),
    ("olmo-full-megatron", OutputHead, 0.0356001, 0.0356001),
    ("olmo-normal", MlpDown, 0.02, 0.02),
    ("olmo-core-llama", TokenEmbedding, 1.0, 1.0),
    ("olmo-core-llama", MlpGate, 0.0197316, 0.0197316),
    ("olmo-core-llama", MlpUp, 0.00402769, 0.00402769),
    ("olmo-core-llama", MlpDown, 0.00402769, 0.00402769),
    ("olmo-core-llama-depth", AttentionOutput, 0.0139523, 0.00402769),
    ("torchtitan-llama3", TokenEmbedding, 1.0, 1.0),
    ("torchtitan-llama3", Value, 0.02, 0.02),
    ("torchtitan-llama3", AttentionOutput, 0.0141421, 0.00408248),
    ("torchtitan-llama3", MlpGate, 0.02, 0.02),
    ("torchtitan-llama3", MlpUp, 0.0141421, 0.00408248),
    ("torchtitan-llama3", MlpDown, 0.0141421, 0.00408248),
    ("torchtitan-llama3", OutputHead, 0.0356001, 0.0356001),
    ("torchtitan-llama3-tied", TokenEmbedding, 0.0356001, 0.0356001),
    ("torchtitan-qwen3", MlpDown, 0.02, 0.02),
    ("torchtitan-qwen3-moe", MlpDown, 0.00408248, 0.00408248),
    ("torchtitan-qwen3-moe", MlpUp, 0.02, 0.02),
    ("lingua", AttentionOutput, 0.0356001, 0.0356001),
    ("lingua", MlpDown, 0.0218005, 0.0218005),
    ("lingua-global-depth", MlpDown, 0.00427543, 0.00427543),
    // Cut at 3 sqrt(26) of its own sigmas, which is not at all.
    ("lingua-global-depth", AttentionOutput, 0.00707673, 0.00707673),
    ("lingua-current-depth", MlpDown, 0.0154153, 0.00445001),
    ("hf-llama", AttentionOutput, 0.02, 0.02),
    ("bert", TokenEmbedding, 0.0175925, 0.0175925),
    ("bert", MlpDown, 0.0175925, 0.0175925),
    ("bert-hf", MlpDown, 0.02, 0.02),
    ("modernbert", Query, 0.0175925, 0.0175925),
    ("modernbert", AttentionOutput, 0.00359106, 0.00359106),
    ("modernbert", OutputHead, 0.0317408, 0.0317408),
    ("t5", TokenEmbedding, 1.0, 1.0),
    ("t5", Query, 0.00451055, 0.00451055),
    ("t5", Key, 0.0360844, 0.0360844),
    ("t5", AttentionOutput, 0.0360844, 0.0360844),
    ("t5", MlpUp, 0.0360844, 0.0360844),
    ("t5", MlpDown, 0.0220971, 0.0220971),
    ("t5-hf", MlpDown, 0.0220971, 0.0220971),
    ("t5-scaled", Query, 0.0360844, 0.0360844),
    ("nanochat", TokenEmbedding, 0.8, 0.8),
    ("nanochat", Query, 0.0360844, 0.0360844),
    ("nanochat", AttentionOutput, 0.0, 0.0),
    ("nanochat", MlpUp, 0.0144338, 0.0144338),
    ("nanochat", MlpDown, 0.0, 0.0),
    ("nanochat", OutputHead, 0.001, 0.001),
    ("modded-nanogpt", AttentionOutput, 0.0180422, 0.0180422),
    ("modded-nanogpt", MlpDown, 0.0, 0.0),
    ("modded-nanogpt-medium", Query, 0.0360844, 0.0360844),
    ("modded-nanogpt-2024", Query, 0.0208333, 0.0208333),
    ("modded-nanogpt-2024", OutputHead, 0.0, 0.0),
    ("vit-timm", Query, 0.02, 0.02),
    ("vit-timm-fix-init", AttentionOutput, 0.0141421, 0.00408248),
    ("vit-moco", MlpUp, 0.0266501, 0.0266501),
    ("vit-jax", OutputHead, 0.0, 0.0),
    ("deepnorm", TokenEmbedding, 0.0360844, 0.0360844),
    ("deepnorm", Query, 0.0360844, 0.0360844),
    ("deepnorm", Value, 0.0115279, 0.0115279),
    ("deepnorm", MlpUp, 0.00851395, 0.00851395),
    ("deepnorm", MlpDown, 0.00851395, 0.00851395),
    ("subln", Value, 0.0643280, 0.0643280),
    ("subln", Key, 0.0360844, 0.0360844),
    ("t-fixup", TokenEmbedding, 0.0111934, 0.0111934),
    ("t-fixup", Query, 0.0255155, 0.0255155),
    ("t-fixup", Value, 0.0111934, 0.0111934),
    ("t-fixup", MlpDown, 0.00826690, 0.00826690),
    ("t-fixup-encoder", AttentionOutput, 0.0129897, 0.0129897),
    ("fixup", MlpUp, 0.00543993, 0.00543993),
    ("fixup", MlpDown, 0.0, 0.0),
    ("zero-residual", AttentionOutput, 0.0, 0.0),
    ("zero-residual", MlpUp, 0.02, 0.02),
    ("llm-foundry", MlpDown, 0.00637888, 0.00637888),
    ("torch-transformer", Query, 0.0255155, 0.0255155),
    ("xavier-normal", MlpDown, 0.0266501, 0.0266501),
    ("kaiming-normal", MlpDown, 0.03125, 0.03125),
    ("torch-default", MlpDown, 0.0127578, 0.0127578),
];

#[track_caller]
fn assert_row(plan: &Plan, &(name, role, first, last): &Row) {
    let found: Vec<f64> = plan.iter().filter(|entry| entry.spec().role() == role).map(|entry| entry.std()).collect();
    for (found, expected) in [(found.first(), first), (found.last(), last)] {
        let found = *found.unwrap_or_else(|| panic!("{name} has no {role}"));
        // Literals have six digits.
        assert!((found - expected).abs() <= 5e-6 * expected, "{name}, {role}: {found}, expected {expected}");
    }
}

#[test]
fn llama() {
    let model = Llama::new(12, 768, 768, 2048, 1000, &device());
    let setup = Setup::new().heads("**", 12);
    for row in LLAMA {
        let scheme: Scheme = row.0.parse().unwrap();
        assert_row(&setup.plan(&model, &scheme).unwrap(), row);
    }
}

/// NeoX: learned positions as the tables, no gate; packed queries, keys and values.
#[test]
fn nanogpt() {
    let model = NanoGpt::new(12, 768, 1000, 64, &device());
    let rows: &[Row] = &[
        ("gpt2-released", PositionEmbedding, 0.01, 0.01),
        ("gpt-neox", PositionEmbedding, 0.0228218, 0.0228218),
        ("gpt-neox", MlpDown, 0.00601407, 0.00601407),
        // 768 and 768 outputs for each of three, or 768 and 2304 as one.
        ("vit-moco", Query, 0.0360844, 0.0360844),
        ("vit-jax", Query, 0.0255155, 0.0255155),
        ("vit-jax", MlpIn, 0.0228218, 0.0228218),
    ];
    for row in rows {
        assert_row(&model.plan(&row.0.parse::<Scheme>().unwrap()).unwrap(), row);
    }
}

/// Experts: OLMo-core and torchtitan scale routers by depth, OLMo-core the gates of experts, too.
#[test]
fn experts() {
    let model = StackedMoe::new(2, &device());
    let rows: &[Row] = &[
        ("torchtitan-llama3", Router, 0.0141421, 0.01),
        ("torchtitan-llama3", MlpGate, 0.02, 0.02),
        ("torchtitan-llama3", MlpUp, 0.0141421, 0.01),
        ("olmo-core-llama", MlpGate, 0.00986578, 0.00986578),
        ("megatron", Router, 0.02, 0.02),
        ("megatron", MlpDown, 0.01, 0.01),
    ];
    for row in rows {
        assert_row(&model.plan(&row.0.parse::<Scheme>().unwrap()).unwrap(), row);
    }
}

#[test]
fn vit() {
    let model = Vit::new(&device());
    let rows: &[Row] = &[
        ("vit-timm", PatchEmbedding, 1.0 / 144f64.sqrt(), 1.0 / 144f64.sqrt()),
        ("vit-timm", ClassToken, 1e-6, 1e-6),
        ("vit-jax", PatchEmbedding, 1.0 / 48f64.sqrt(), 1.0 / 48f64.sqrt()),
        ("vit-big-vision", PositionEmbedding, 1.0 / 32f64.sqrt(), 1.0 / 32f64.sqrt()),
        ("vit-big-vision", ClassToken, 0.0, 0.0),
        ("vit-jax", OutputHead, 0.0, 0.0),
    ];
    for row in rows {
        assert_row(&model.plan(&row.0.parse::<Scheme>().unwrap()).unwrap(), row);
    }
    // The MLP's biases of jax and of no other.
    let bias = |name: &str| {
        let plan = model.plan(&name.parse::<Scheme>().unwrap()).unwrap();
        ["blocks.0.mlp.c_fc.bias", "blocks.0.attn.c_attn.bias", "patch_embed.bias"]
            .map(|path| plan.get(path).unwrap().std())
    };
    assert_eq!(bias("vit-jax"), [1e-6, 0.0, 0.0]);
    for name in ["vit-moco", "vit-timm"] {
        let [mlp, attention, patch] = bias(name);
        assert!(mlp == 0.0 && attention == 0.0 && (patch - 1.0 / 144f64.sqrt()).abs() < 1e-9);
    }
}

/// A scheme that needs the model to do something says so.
#[test]
fn needs_are_warnings() {
    let model = Llama::new(2, 64, 64, 128, 100, &device());
    let setup = Setup::new().heads("**", 4);
    let warnings = |name: &str| setup.plan(&model, &name.parse::<Scheme>().unwrap()).unwrap().warnings().to_vec();
    assert_eq!(
        warnings("t5"),
        [
            "model.embed_tokens.weight: if the head is tied to this table, divide the logits by sqrt(d), or say .with_tied(true)"
        ]
    );
    assert!(warnings("megatron").is_empty());
    let error = model.plan(&"t5".parse::<Scheme>().unwrap()).unwrap_err();
    assert!(error.to_string().contains("state it: .heads(\"**\", 12)"), "{error}");
}
