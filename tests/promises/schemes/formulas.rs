//! Formulas held against numbers that were worked out by hand from the papers.

use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    tensor::Tensor,
};
use burn_init::{Blueprint, Initializer as _, ModuleInit as _, Plan, Role, Role::*, Scheme, Setup, schemes::Fixup};

use crate::{
    support::{device, setup_for},
    trees::{Llama, NanoGpt, StackedMoe, Vit, raw},
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
    ("torch-transformer", MlpDown, 0.0266501, 0.0266501),
    ("torch-transformer-layer", MlpDown, 0.0127578, 0.0127578),
    ("torchtitan-gpt-oss", TokenEmbedding, 0.02, 0.02),
    ("torchtitan-gpt-oss", Query, 0.0141421, 0.00408248),
    ("torchtitan-gpt-oss", MlpGate, 0.0141421, 0.00408248),
    ("torchtitan-gpt-oss", MlpDown, 0.0141421, 0.00408248),
    ("torchtitan-gpt-oss", OutputHead, 0.0356001, 0.0356001),
    ("xformers-small", Query, 0.0228218, 0.0228218),
    ("xformers-small", OutputHead, 0.0204808, 0.0204808),
    ("xformers-small", MlpUp, 0.0266501, 0.0266501),
    ("xformers-small", TokenEmbedding, 0.02, 0.02),
    ("levanter-gpt2", TokenEmbedding, 0.0000256921, 0.0000256921),
    ("levanter-gpt2", Query, 0.0356001, 0.0356001),
    ("levanter-gpt2", MlpDown, 0.0218005, 0.0218005),
    ("levanter-llama", TokenEmbedding, 0.00128461, 0.00128461),
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
    for row in LLAMA {
        let scheme: Scheme = row.0.parse().unwrap();
        assert_row(&setup_for(row.0, 12).plan(&model, &scheme).unwrap(), row);
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

#[derive(Module, Debug)]
struct Sides {
    encoder: Llama,
    decoder: Llama,
}

fn sides(encoder: usize, decoder: usize) -> Sides {
    let side = |layers| Llama::new(layers, 768, 768, 2048, 100, &device());
    Sides { encoder: side(encoder), decoder: side(decoder) }
}

/// An encoder with a decoder: the first parameter is the encoder's, the last the decoder's.
#[test]
fn encoder_with_decoder() {
    let rows: &[Row] = &[
        ("deepnorm-encoder-decoder", Query, 0.0360844, 0.0360844),
        ("deepnorm-encoder-decoder", Value, 0.0179336, 0.0123876),
        ("deepnorm-encoder-decoder-torchscale", Value, 0.0136862, 0.00715197),
        ("subln-encoder-decoder", AttentionOutput, 0.0558330, 0.0613474),
    ];
    for row in rows {
        assert_row(&setup_for(row.0, 4).plan(&sides(6, 6), &row.0.parse::<Scheme>().unwrap()).unwrap(), row);
    }
    let scheme: Scheme = "deepnorm-encoder-decoder".parse().unwrap();
    let setup = setup_for("deepnorm", 4);
    let plan = setup.plan(&sides(6, 6), &scheme).unwrap();
    let alphas: Vec<f64> = ["encoder", "decoder"]
        .map(|side| plan.get(&format!("{side}.model.layers.0.mlp.down_proj.weight")).unwrap().rule().forward.recip())
        .into();
    assert!((alphas[0] - 1.417938).abs() < 1e-6 && (alphas[1] - 2.059767).abs() < 1e-6, "{alphas:?}");
    // The encoder's factor knows the decoder's depth or says what to set.
    let error = sides(6, 4).plan(&scheme).unwrap_err();
    assert!(error.to_string().ends_with("set decoder_layers to 4"), "{error}");
    let told: Scheme = r#"{"scheme": "encoder-decoder", "decoder": {"scheme": "deepnet", "part": "decoder"},
        "encoder": {"scheme": "deepnet", "part": "encoder", "decoder_layers": 4}}"#
        .parse()
        .unwrap();
    assert_row(&setup.plan(&sides(6, 4), &told).unwrap(), &("told", Value, 0.0183938, 0.0137091));
    // A tree without sides is none.
    let error = Llama::new(2, 64, 64, 96, 100, &device()).plan(&scheme).unwrap_err();
    assert!(error.to_string().starts_with("no path has a segment \"encoder\""), "{error}");
}

/// A side that is told to be another one, or none, has the factors of that.
#[test]
fn sides_that_do_not_fit() {
    use burn_init::{
        Initializer,
        schemes::{DeepNet, EncoderDecoder, Modified},
    };
    let setup = setup_for("deepnorm", 4);
    let error = |scheme: Scheme| setup.plan(&sides(2, 2), &scheme).unwrap_err().to_string();
    let (encoder, decoder) = (DeepNet::deepnorm().encoder(), DeepNet::deepnorm().decoder());
    let todo = |side: &str| {
        format!(
            "EncoderDecoder::of takes the encoder's scheme first; call .{side}() on this one, or in a file set part = \"{side}\""
        )
    };
    for (scheme, found, side) in [
        (EncoderDecoder::of(decoder, encoder), "a decoder", "encoder"),
        (EncoderDecoder::of(encoder, encoder), "an encoder", "decoder"),
        (EncoderDecoder::of(encoder, DeepNet::deepnorm()), "a stack alone", "decoder"),
        (EncoderDecoder::of(Modified::of(decoder), encoder), "a decoder", "encoder"),
    ] {
        let found = format!("the scheme of the {side} is DeepNet's for {found}; {}", todo(side));
        assert_eq!(error(scheme.into()), found);
    }
    // Without a factor there are no sides, and other schemes have none.
    let preln = DeepNet::torchscale_preln();
    assert!(setup.plan(&sides(2, 2), &EncoderDecoder::of(preln, preln)).is_ok());
    assert!(setup.plan(&sides(2, 2), &EncoderDecoder::of(encoder, Scheme::gpt2())).is_ok());

    for part in [DeepNet::deepnorm(), decoder] {
        let text = "decoder_layers is 4, and only the factor of an encoder goes by the depth of its decoder; \
                    leave decoder_layers out, or call .encoder()";
        assert_eq!(error(DeepNet { decoder_layers: Some(4), ..part }.into()), text);
    }
    let warnings = |setup: &burn_init::Setup, scheme: DeepNet| {
        let alone = Llama::new(2, 64, 64, 96, 100, &device());
        setup.plan(&alone, &scheme).unwrap().warnings().to_vec()
    };
    assert!(warnings(&setup, DeepNet::deepnorm()).is_empty());
    for (scheme, side) in [(encoder, "encoder"), (decoder, "decoder")] {
        assert_eq!(
            warnings(&setup, scheme),
            [format!(
                "the factors of DeepNet are those of the {side} of an encoder with a decoder, and no path has a segment \"{side}\"; \
                 in a tree of its own .prefix(\"{side}\") says so, and for a stack alone leave out .{side}()"
            )]
        );
        assert!(warnings(&setup.clone().prefix(side), scheme).is_empty());
    }
    let both = |scheme: &dyn Initializer| setup.plan(&sides(2, 2), scheme).unwrap().warnings().to_vec();
    assert_eq!(
        both(&DeepNet::deepnorm()),
        ["the tree has an encoder and a decoder, and the factors of DeepNet are those of a stack alone; \
          EncoderDecoder has those of each side"]
    );
    assert!(both(&EncoderDecoder::deepnorm()).is_empty());
}

#[derive(Module, Debug)]
struct GptOss {
    layers: Vec<GptOssLayer>,
}

#[derive(Module, Debug)]
struct GptOssLayer {
    self_attn: GptOssAttention,
    mlp: GptOssMoe,
}

#[derive(Module, Debug)]
struct GptOssAttention {
    q_proj: Linear,
    o_proj: Linear,
    sinks: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct GptOssMoe {
    router: Linear,
    experts: Vec<GptOssExpert>,
}

#[derive(Module, Debug)]
struct GptOssExpert {
    up_proj: Linear,
    down_proj: Linear,
}

/// torchtitan's GPT-OSS scales the biases of experts and the sinks by depth, and no other bias.
#[test]
fn gpt_oss() {
    let linear = |from, to| LinearConfig::new(from, to).init(&device());
    let expert = || GptOssExpert { up_proj: linear(64, 96), down_proj: linear(96, 64) };
    let layer = || GptOssLayer {
        self_attn: GptOssAttention { q_proj: linear(64, 64), o_proj: linear(64, 64), sinks: raw([4], &device()) },
        mlp: GptOssMoe { router: linear(64, 2), experts: vec![expert(), expert()] },
    };
    let model = GptOss { layers: vec![layer(), layer()] };
    let plan = model.plan(&"torchtitan-gpt-oss".parse::<Scheme>().unwrap()).unwrap();
    for (path, expected) in [
        ("self_attn.q_proj.weight", [0.0141421, 0.01]),
        ("self_attn.q_proj.bias", [0.0; 2]),
        ("self_attn.o_proj.bias", [0.0; 2]),
        ("self_attn.sinks", [0.0141421, 0.01]),
        ("mlp.router.weight", [0.0141421, 0.01]),
        ("mlp.router.bias", [0.0; 2]),
        ("mlp.experts.1.up_proj.weight", [0.0141421, 0.01]),
        ("mlp.experts.1.up_proj.bias", [0.0141421, 0.01]),
        ("mlp.experts.0.down_proj.bias", [0.0141421, 0.01]),
    ] {
        for (layer, expected) in expected.into_iter().enumerate() {
            let found = plan.get(&format!("layers.{layer}.{path}")).unwrap().std();
            assert!((found - expected).abs() < 5e-8, "{layer}, {path}: {found}");
        }
    }
    // No other scheme answers for a sink.
    let error = model.plan(&Scheme::gpt2()).unwrap_err();
    assert!(error.to_string().contains("no rule for the role attention_sink"), "{error}");
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
    // Schemes for models without norms, on one that has them.
    for (name, called) in [("t-fixup", "T-Fixup"), ("fixup", "Fixup")] {
        assert_eq!(
            warnings(name),
            [format!(
                "model.layers.0.input_layernorm.gamma and 4 more: {called} starts a model without normalization, and this is a \
                 norm; take the norms out, or use a scheme for a model with them"
            )]
        );
    }
    let without = Blueprint::new().linear("h.0.attn.c_proj.weight", [4, 4]).linear("h.1.attn.c_proj.weight", [4, 4]);
    assert!(without.plan(&Fixup::new()).unwrap().warnings().is_empty());
    let part = Fixup::new().only("model.layers.0.**").or(Scheme::gpt2());
    assert!(setup.plan(&model, &part).unwrap().warnings().is_empty(), "the norms are not its own");
    let error = model.plan(&"t5".parse::<Scheme>().unwrap()).unwrap_err();
    assert!(error.to_string().contains("state it: .heads(\"**\", 12)"), "{error}");
}
