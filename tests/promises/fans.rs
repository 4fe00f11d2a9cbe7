//! Fans are the mathematical ones, whatever the memory layout, the packing or the layer.

use burn::{
    module::{Module, Param},
    nn::{
        BatchNormConfig, BiLstmConfig, EmbeddingConfig, GroupNormConfig, GruConfig, InstanceNormConfig,
        LayerNormConfig, Linear, LinearConfig, LinearLayout, LstmConfig, RmsNormConfig, SwiGluConfig,
        attention::{CrossAttentionConfig, MultiHeadAttentionConfig},
        conv::{Conv1dConfig, Conv2dConfig, Conv3dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig},
        transformer::{PositionWiseFeedForwardConfig, TransformerDecoderConfig, TransformerEncoderConfig},
    },
    tensor::Tensor,
};
use burn_init::{
    Depth, ErrorKind, Fan, Gpt2, Init, Initializer, Kaiming, Layout, ModuleInit as _, NeutralNorm, Role, Scheme, Setup,
    TorchDefault, VarianceScaling, Xavier, from_fn,
};

use crate::{
    support::{assert_std, device, values},
    trees::{own, raw},
};

#[derive(Module, Debug)]
struct Attention {
    qkv: Linear,
}

/// C20: each block of a packed projection has its own fans.
#[test]
fn packed_blocks() {
    let device = device();
    let attention = |width: usize| Attention { qkv: LinearConfig::new(512, width).with_bias(false).init(&device) };
    let plan = attention(1536).plan(&Xavier::normal()).unwrap();
    let blocks = plan.blocks("qkv.weight");
    assert_eq!(
        blocks.iter().map(|entry| entry.spec().role()).collect::<Vec<_>>(),
        [Role::Query, Role::Key, Role::Value]
    );
    for entry in blocks {
        assert!((entry.std() - 0.0441942).abs() < 5e-8, "{}", entry.std());
    }
    let setup = Setup::new().packed("qkv.weight", [(Role::Query, 512), (Role::Key, 128), (Role::Value, 128)]);
    let plan = setup.plan(&attention(768), &Xavier::normal()).unwrap();
    for (entry, expected) in plan.blocks("qkv.weight").iter().zip([0.0441942, 0.0559017, 0.0559017]) {
        assert!((entry.std() - expected).abs() < 5e-8, "{}", entry.std());
    }
    let drawn = values(&setup.initialize(attention(768), &Xavier::normal(), 1).unwrap()).remove("qkv.weight").unwrap();
    let columns = |range: std::ops::Range<usize>| -> Vec<f32> {
        drawn.chunks(768).flat_map(|row| row[range.clone()].to_vec()).collect()
    };
    assert_std(&columns(0..512), 0.0441942, "query");
    assert_std(&columns(512..640), 0.0559017, "key");
    assert_std(&columns(640..768), 0.0559017, "value");
    // Without the line it is an error that spells it out.
    let error = attention(768).plan(&Xavier::normal()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.to_string().contains(".packed(\"qkv.weight\", [(Role::Query, …)"), "{error}");
}

#[derive(Module, Debug)]
struct Gated {
    gate_up_proj: Linear,
}

/// Fused gate and up projections are two matrices side by side.
#[test]
fn packed_gate_and_up() {
    let model = Gated { gate_up_proj: LinearConfig::new(64, 352).with_bias(false).init(&device()) };
    let plan = model.plan(&Xavier::normal()).unwrap();
    let blocks = plan.blocks("gate_up_proj.weight");
    assert_eq!(blocks.iter().map(|entry| entry.spec().role()).collect::<Vec<_>>(), [Role::MlpGate, Role::MlpUp]);
    for entry in blocks {
        assert!((entry.std() - (2f64 / (64.0 + 176.0)).sqrt()).abs() < 1e-12);
    }
}

#[derive(Module, Debug)]
struct Blocks {
    h: Vec<NGptBlock>,
}

/// nGPT's: a gate inside of a map that has the name of one without.
#[derive(Module, Debug)]
struct NGptBlock {
    c_fc: Linear,
    mlp_c_proj: Linear,
}

/// A map that is twice as wide as the next one reads is asked for, and not taken for one without a gate.
#[test]
fn a_gate_under_another_name() {
    let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(&device());
    let model = |wide| Blocks { h: vec![NGptBlock { c_fc: linear(64, wide), mlp_c_proj: linear(256, 64) }] };
    let scheme = Gpt2::new().with_depth(Depth::none());
    assert_eq!(model(256).plan(&scheme).unwrap().get("h.0.c_fc.weight").unwrap().spec().role(), Role::MlpIn);
    let error = model(512).plan(&scheme).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownRole);
    assert_eq!(
        error.to_string(),
        "h.0.c_fc.weight [64, 512]: it is twice as wide as the last map of its MLP reads, so it holds a gate, too, and which half is which \
         cannot be seen; say which part it plays, for example .packed(\"h.*.c_fc.weight\", [Role::MlpGate, Role::MlpUp])"
    );
    let told = Setup::new().packed("h.*.c_fc.weight", [Role::MlpUp, Role::MlpGate]);
    let plan = told.plan(&model(512), &Xavier::normal()).unwrap();
    assert_eq!(
        plan.blocks("h.0.c_fc.weight").iter().map(|e| e.spec().role()).collect::<Vec<_>>(),
        [Role::MlpUp, Role::MlpGate]
    );
    let one = Setup::new().role("h.*.c_fc.weight", Role::MlpIn).plan(&model(512), &scheme).unwrap();
    assert_eq!(one.get("h.0.c_fc.weight").unwrap().spec().role(), Role::MlpIn);
}

/// Query, key and value under the name that GPT-NeoX, BLOOM and Falcon give them: asked for with the line that settles it.
#[test]
fn query_key_value() {
    #[derive(Module, Debug)]
    struct Attention {
        query_key_value: Linear,
        dense: Linear,
    }
    #[derive(Module, Debug)]
    struct Block {
        attention: Attention,
    }
    #[derive(Module, Debug)]
    struct Model {
        layers: Vec<Block>,
    }
    let linear = |from, to| LinearConfig::new(from, to).init(&device());
    let model = |columns| {
        let block = || Block { attention: Attention { query_key_value: linear(64, columns), dense: linear(64, 64) } };
        Model { layers: vec![block(), block()] }
    };
    let found = "its name is that of query, key and value in one, as blocks or head by head, and which of these cannot be seen; \
                 say which part it plays, for example .packed(\"layers.*.attention.query_key_value.weight\", ";
    for (columns, blocks) in [
        (192, "[Role::Query, Role::Key, Role::Value])"),
        (96, "[(Role::Query, 64), (Role::Key, 16), (Role::Value, 16)])"),
    ] {
        let error = model(columns).plan(&Gpt2::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownRole);
        let path = format!("layers.0.attention.query_key_value.weight [64, {columns}]");
        assert_eq!(error.to_string(), format!("{path}: {found}{blocks}"));
    }
    let told = Setup::new().packed("layers.*.attention.query_key_value.weight", [Role::Query, Role::Key, Role::Value]);
    assert!(told.plan(&model(192), &Gpt2::new()).is_ok());
}

/// C22: both layouts of burn's Linear have the same fans and, for one path and seed, the same logical matrix.
#[test]
fn transposed_storage() {
    let device = device();
    let scheme = || Init::kaiming_uniform(1.0 / 3f64.sqrt());
    let scheme = from_fn(move |_| scheme());
    for (d_in, d_out, expected) in [(64, 1024, 0.0721688), (1024, 64, 0.0180422)] {
        let linear = |layout| LinearConfig::new(d_in, d_out).with_bias(false).with_layout(layout).init(&device);
        let row = linear(LinearLayout::Row).initialize(&scheme, 11).unwrap();
        let col = linear(LinearLayout::Col).initialize(&scheme, 11).unwrap();
        assert_eq!(row.plan(&scheme).unwrap(), linear(LinearLayout::Col).plan(&scheme).unwrap());
        assert!((row.plan(&scheme).unwrap().get("weight").unwrap().std() - expected).abs() < 5e-8);
        assert_eq!(col.weight.val().dims(), [d_in, d_out]);
        assert_eq!(values(&row), values(&col));
        assert_std(&values(&row)["weight"], expected, "drawn");
        // Already initialized, a column-major weight is replaced in the same shape.
        let again = col.initialize(&scheme, 12).unwrap();
        assert_eq!(again.weight.val().dims(), [d_in, d_out]);
        assert_eq!(values(&again), values(&row.initialize(&scheme, 12).unwrap()));
    }
    // Forward passes agree: 64 terms, each rounded, summed in another order.
    let x = Tensor::<2>::random([3, 64], burn::tensor::Distribution::Default, &device);
    let row = LinearConfig::new(64, 8).init(&device).initialize(&TorchDefault::new(), 1).unwrap();
    let col = LinearConfig::new(64, 8).with_layout(LinearLayout::Col).init(&device);
    let col = col.initialize(&TorchDefault::new(), 1).unwrap();
    let difference = (row.forward(x.clone()) - col.forward(x)).abs().max().into_scalar::<f32>();
    assert!(difference < 64.0 * f32::EPSILON, "{difference}");
}

/// C24: each layer of burn-nn with each scheme gives a plan or a named error, and the values of the plan.
#[test]
fn every_layer_with_every_scheme() {
    fn check<M: Module>(name: &str, model: impl Fn() -> M) {
        // A table that stands alone has no name to tell tokens from positions by.
        let setup = if name == "Embedding" { Setup::new().role("weight", Role::TokenEmbedding) } else { Setup::new() };
        for (scheme_name, scheme, _) in Scheme::all() {
            match setup.plan(&model(), &scheme) {
                Ok(plan) => {
                    let started = values(&setup.initialize(model(), &scheme, 2).unwrap());
                    assert!(started.values().flatten().all(|x| x.is_finite()), "{name} {scheme_name}");
                    assert!(!plan.is_empty());
                }
                // A single layer has no depth, no heads, no head: the error says which.
                Err(error) => {
                    let named =
                        matches!(error.kind(), ErrorKind::Unmatched | ErrorKind::MissingFact | ErrorKind::NoRule);
                    let plain = ["torch-default", "burn-default", "xavier-normal", "kaiming-uniform"];
                    assert!(named && !plain.contains(&scheme_name), "{name} {scheme_name}: {error}");
                }
            }
        }
    }
    let device = &device();
    check("Linear", || LinearConfig::new(6, 4).init(device));
    check("Embedding", || EmbeddingConfig::new(6, 4).init(device));
    check("Conv1d", || Conv1dConfig::new(3, 4, 2).init(device));
    check("Conv2d", || Conv2dConfig::new([3, 4], [2, 2]).init(device));
    check("Conv3d", || Conv3dConfig::new([3, 4], [2, 2, 2]).init(device));
    check("ConvTranspose1d", || ConvTranspose1dConfig::new([3, 4], 2).init(device));
    check("ConvTranspose2d", || ConvTranspose2dConfig::new([3, 4], [2, 2]).init(device));
    check("LayerNorm", || LayerNormConfig::new(4).init(device));
    check("RmsNorm", || RmsNormConfig::new(4).init(device));
    check("GroupNorm", || GroupNormConfig::new(2, 4).init(device));
    check("InstanceNorm", || InstanceNormConfig::new(4).init(device));
    check("BatchNorm", || BatchNormConfig::new(4).init(device));
    check("MultiHeadAttention", || MultiHeadAttentionConfig::new(8, 2).init(device));
    check("CrossAttention", || CrossAttentionConfig::new(8, 8, 2, 2, 4).init(device));
    check("PositionWiseFeedForward", || PositionWiseFeedForwardConfig::new(8, 16).init(device));
    check("SwiGlu", || SwiGluConfig::new(8, 16).init(device));
    check("TransformerEncoder", || TransformerEncoderConfig::new(8, 16, 2, 2).init(device));
    check("TransformerDecoder", || TransformerDecoderConfig::new(8, 16, 2, 2).init(device));
    check("Lstm", || LstmConfig::new(4, 6, true).init(device));
    check("BiLstm", || BiLstmConfig::new(4, 6, true).init(device));
    check("Gru", || GruConfig::new(4, 6, true).init(device));
}

/// C25, C26: a uniform's bound and its std, and Xavier's.
#[test]
fn formulas() {
    let device = device();
    let plan = LinearConfig::new(96, 10).init(&device).plan(&Kaiming::uniform()).unwrap();
    let entry = plan.get("weight").unwrap();
    assert_eq!(entry.law().to_string(), "uniform(+-0.25)");
    assert!((entry.std() - 0.144338).abs() < 5e-7);
    let plan = LinearConfig::new(100, 50).init(&device).plan(&Xavier::normal()).unwrap();
    assert!((plan.get("weight").unwrap().std() - 0.1154701).abs() < 5e-8);
    let plan = LinearConfig::new(100, 50).init(&device).plan(&Xavier::uniform()).unwrap();
    assert!((plan.get("weight").unwrap().std() - 0.1154701).abs() < 5e-8);
    // A convolution sums over its kernel.
    let plan = Conv2dConfig::new([16, 32], [3, 3]).init(&device).plan(&TorchDefault::new()).unwrap();
    assert_eq!(plan.get("weight").unwrap().spec().fans().unwrap().fan_in, 144);
    assert_eq!(plan.get("bias").unwrap().law().to_string(), "uniform(+-0.083333)");
}

/// C55: a user's own Linear under burn-nn's name.
#[test]
fn own_layers() {
    let device = device();
    let error = own::Linear::out_in(96, 10, true, &device).plan(&Kaiming::normal()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layout);
    assert_eq!(
        error.to_string(),
        "weight [10, 96]: it stands in a struct named Linear, but does not fit [d_in, d_out] as burn-nn stores it; \
         state how it is stored: .layout(\"weight\", Layout::OutIn)"
    );
    let setup = Setup::new().layout("weight", Layout::OutIn);
    let model = own::Linear::out_in(96, 10, true, &device);
    let plan = setup.plan(&model, &Kaiming::normal()).unwrap();
    assert_eq!(plan.get("weight").unwrap().spec().shape(), [96, 10]);
    assert_eq!(plan.get("weight").unwrap().spec().fans().unwrap().fan_in, 96);
    // The same logical matrix as burn's, stored transposed.
    let model = setup.initialize(model, &Kaiming::normal(), 4).unwrap();
    let burn = LinearConfig::new(96, 10).init(&device).initialize(&Kaiming::normal(), 4).unwrap();
    assert_eq!(model.weight.val().transpose().into_data(), burn.weight.val().into_data());
}

#[derive(Module, Debug)]
struct Raw {
    w_q: Param<Tensor<2>>,
    gate: Param<Tensor<1>>,
}

#[test]
fn raw_parameters_tell_what_they_lack() {
    let device = device();
    let model = Raw { w_q: raw([16, 8], &device), gate: raw([1], &device) };
    let error = model.plan(&Xavier::normal()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::UnknownRole, Some("gate")));
    let setup = Setup::new().role("gate", Role::BranchScale);
    let scheme = Xavier::normal().with(Role::BranchScale, Init::Zeros);
    let error = setup.plan(&model, &scheme).unwrap_err();
    assert_eq!(
        error.to_string(),
        "w_q [16, 8]: the rule needs fan_in and fan_out, which this parameter does not show; \
         state how it is stored: .layout(\"w_q\", Layout::InOut) or Layout::OutIn"
    );
    let setup = setup.layout("w_q", Layout::InOut);
    assert!((setup.plan(&model, &scheme).unwrap().get("w_q").unwrap().std() - (2f64 / 24.0).sqrt()).abs() < 1e-12);
    // A fan for a scalar is the same error in the same place.
    let error = setup.plan(&model, &Xavier::normal().with(Role::BranchScale, Init::xavier_normal(1.0))).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::MissingFact, Some("gate")));
}

#[test]
fn burns_own_initializers_convert() {
    use burn::module::Initializer as Burn;
    assert_eq!(Init::from(Burn::Normal { mean: 0.0, std: 0.02 }), Init::normal(0.02));
    assert_eq!(Init::from(Burn::XavierUniform { gain: 2.0 }), Init::xavier_uniform(2.0));
    assert_eq!(Init::from(Burn::Orthogonal { gain: 2.0 }), Init::orthogonal(2.0));
    let fan_out = Init::from(Burn::KaimingNormal { gain: 1.0, fan_out_only: true });
    assert!(matches!(fan_out, Init::VarianceScaling(VarianceScaling { fan: Fan::Out, .. })));
    // And are rules like others, without their trap: the bias of a Linear is not drawn by the rule of its weight.
    let scheme = from_fn(|param| param.role().is_weight().then(|| Init::from(Burn::Normal { mean: 0.0, std: 0.02 })))
        .or(from_fn(|param| param.role().is_bias().then_some(Init::Zeros)))
        .or(NeutralNorm::new());
    let started = LinearConfig::new(8, 8).init(&device()).initialize(&scheme, 1).unwrap();
    assert!(values(&started)["bias"].iter().all(|&x| x == 0.0));
}
