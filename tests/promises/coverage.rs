//! Every parameter once, buffers and adapters never, and only what was asked for.

use burn::{
    module::{Lora, Module, Param, ParamGroup},
    nn::{BatchNorm, BatchNormConfig, EmbeddingConfig, Linear, LinearConfig},
    tensor::{Device, Tensor},
};
use burn_init::{
    ErrorKind, Gpt2, Gpt2Normal, Init, Initializer, ModuleInit as _, NeutralNorm, Role, Setup, Xavier, from_fn,
};

use crate::{
    support::{assert_std, device, values},
    trees::{Mixer, NanoGpt, Vit},
};

fn nan<const D: usize>(shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    Param::from_tensor(Tensor::full(shape, f32::NAN, device))
}

#[derive(Module, Debug)]
struct Scaled {
    vit: Vit,
    gate: Param<Tensor<1>>,
}

/// C38: poisoned with NaN, nothing stays poisoned; what has no rule is an error or an explicit "kept".
#[test]
fn every_parameter_once() {
    let device = device();
    let mut vit = Vit::new(&device);
    vit.cls_token = nan([1, 1, 32], &device);
    vit.pos_embed = nan([1, 16, 32], &device);
    vit.head.weight = nan([32, 10], &device);
    let model = Scaled { vit, gate: nan([1], &device) };
    let setup = Setup::new().role("gate", Role::BranchScale);
    let error = setup.plan(&model, &Gpt2::new()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NoRule, Some("gate")));

    let scheme = Gpt2::new().with("gate", Init::Keep);
    let started = values(&setup.initialize(model.clone(), &scheme, 1).unwrap());
    for (path, values) in &started {
        assert_eq!(values.iter().any(|x| x.is_nan()), path == "gate", "{path}");
    }
    let scheme = Gpt2::new().with(Role::BranchScale, Init::Zeros);
    assert_eq!(values(&setup.initialize(model, &scheme, 1).unwrap())["gate"], [0.0]);
}

/// C40: biases are exactly 0. C39: gains are exactly 1, and exactly 0 if they are stored as an offset.
#[test]
fn biases_and_gains() {
    let device = device();
    let linear = LinearConfig::new(256, 4096).init(&device).initialize(&Xavier::normal(), 3).unwrap();
    assert!(values(&linear)["bias"].iter().all(|&x| x == 0.0));
    let model = NanoGpt::new(2, 32, 50, 8, &device);
    for (path, values) in values(&model.clone().initialize(&Gpt2::new(), 3).unwrap()) {
        match path.rsplit('.').next().unwrap() {
            "gamma" => assert!(values.iter().all(|&x| x == 1.0), "{path}"),
            "beta" | "bias" => assert!(values.iter().all(|&x| x == 0.0), "{path}"),
            _ => assert!(values.iter().all(|&x| x != 0.0 && x != 1.0), "{path}"),
        }
    }
    let setup = Setup::new().role("**.gamma", Role::NormGainOffset);
    let offset = values(&setup.initialize(model, &Gpt2::new(), 3).unwrap());
    assert!(offset["transformer.ln_f.gamma"].iter().all(|&x| x == 0.0));
}

#[derive(Module, Debug)]
struct WithNorm {
    conv: Linear,
    norm: BatchNorm,
}

/// C53: running statistics keep their values, in the model and in its clones, and are listed as buffers.
#[test]
fn buffers_are_kept() {
    let device = device();
    let model = WithNorm { conv: LinearConfig::new(4, 4).init(&device), norm: BatchNormConfig::new(4).init(&device) };
    let clone = model.clone();
    let plan = model.plan(&Xavier::normal()).unwrap();
    assert_eq!(plan.get("norm.running_mean").unwrap().spec().role(), Role::Buffer);
    assert_eq!(plan.num_params(), 4 * 4 + 4 + 4 + 4);
    let everything = from_fn(|_| Init::constant(7.0));
    let model = model.initialize(&everything, 1).unwrap();
    for model in [values(&model), values(&clone)] {
        assert_eq!(model["norm.running_mean"], [0.0; 4]);
        assert_eq!(model["norm.running_var"], [1.0; 4]);
    }
    assert_eq!(values(&model)["norm.gamma"], [7.0; 4]);
}

/// LoRA starts as the identity: `B` stays 0, `A` stays as it is, and the base is drawn.
#[test]
fn adapters_are_kept() {
    let device = device();
    let model = LinearConfig::new(16, 16).with_bias(false).init(&device).apply_lora(Lora::new(2, 4.0));
    let before = values(&model);
    let plan = model.plan(&Xavier::normal()).unwrap();
    assert_eq!(plan.iter().filter(|entry| entry.spec().role() == Role::Adapter).count(), 2);
    let after = values(&model.initialize(&Xavier::normal(), 1).unwrap());
    assert_eq!(before["weight.lora.a"], after["weight.lora.a"]);
    assert!(after["weight.lora.b"].iter().all(|&x| x == 0.0));
    assert_ne!(before["weight"], after["weight"]);
}

/// C10: a rule that matches nothing is an error that names it.
#[test]
fn nothing_matches_silently() {
    let model = || NanoGpt::new(2, 32, 50, 8, &device());
    let unmatched: [Box<dyn Initializer>; 3] = [
        Box::new(Gpt2::new().with("transformer.h.*.attn.out_proj.weight", Init::Zeros)),
        Box::new(Gpt2::new().with(Role::Router, Init::Zeros)),
        Box::new(Xavier::normal().only("lm_head.**").or(Gpt2::new())),
    ];
    for scheme in &unmatched {
        assert_eq!(model().plan(scheme).unwrap_err().kind(), ErrorKind::Unmatched);
    }
    for setup in [
        Setup::new().role("x", Role::Query),
        Setup::new().parallel("h.*"),
        Setup::new().heads("x.**", 4),
        Setup::new().packed("x", [Role::Query]),
        Setup::new().layout("x", burn_init::Layout::OutIn),
        Setup::new().stack("h", burn_init::StackPlace::layers(3)),
    ] {
        assert_eq!(setup.plan(&model(), &Gpt2::new()).unwrap_err().kind(), ErrorKind::Unmatched, "{setup:?}");
    }
}

#[derive(Module, Debug)]
struct Classifier {
    body: Mixer,
    embedding: burn::nn::Embedding,
    head: Linear,
}

/// Only what holds no value, or only a part: the rest stays, and nobody asks what part it plays.
#[test]
fn missing_and_only() {
    let device = device();
    let classifier = || Classifier {
        body: Mixer::new(2, &device),
        embedding: EmbeddingConfig::new(10, 64).init(&device),
        head: LinearConfig::new(64, 3).init(&device),
    };
    let known = Setup::new().role("body.**", Role::Linear);
    let scheme = || Gpt2Normal::new().or(NeutralNorm::new());

    let loaded = known.initialize(classifier(), &scheme(), 1).unwrap();
    let with_new_head = Classifier { head: LinearConfig::new(64, 3).init(&device), ..loaded.clone() };
    let completed = values(&with_new_head.initialize_missing(&scheme(), 2).unwrap());
    let (before, fresh) = (values(&loaded), values(&known.initialize(classifier(), &scheme(), 2).unwrap()));
    for (path, values) in &completed {
        assert_eq!(values, if path.starts_with("head") { &fresh[path] } else { &before[path] }, "{path}");
    }

    let only = values(&loaded.clone().initialize_only("head.weight", &scheme(), 2).unwrap());
    assert_eq!(only["head.weight"], fresh["head.weight"]);
    assert_eq!(only["embedding.weight"], before["embedding.weight"]);
    let by_role = values(&loaded.clone().initialize_only(Role::TokenEmbedding, &scheme(), 2).unwrap());
    assert_eq!(by_role["embedding.weight"], fresh["embedding.weight"]);
    assert_eq!(by_role["head.weight"], before["head.weight"]);
    let group = ParamGroup::from_path("head.weight");
    let by_group = values(&loaded.clone().initialize_only(group, &scheme(), 2).unwrap());
    assert_eq!(by_group["head.weight"], fresh["head.weight"]);

    let error = loaded.clone().initialize_only("heads.weight", &scheme(), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unmatched);
    let error = loaded.initialize_only("body.**.out.weight", &scheme(), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownRole);
}

/// All errors come before the first value is replaced: a clone that shares nothing yet stays lazy.
#[test]
fn errors_come_first() {
    let model = NanoGpt::new(2, 32, 50, 8, &device());
    let clone = model.clone();
    assert!(model.initialize(&Gpt2::new().with("**.c_fc.weight", Init::normal(f64::NAN)), 1).is_err());
    assert!(!clone.transformer.wte.weight.is_initialized());
}

#[test]
fn overrides_by_pattern_role_and_closure() {
    let device = device();
    let scheme = from_fn(|param| (param.role() == Role::Query).then_some(Init::Zeros))
        .or(Gpt2::new().with(Role::PositionEmbedding, Init::normal(0.01)))
        .with("transformer.h.1.mlp.c_fc.weight", Init::truncated_normal_compensated(0.02, 2.0));
    let started = values(&NanoGpt::new(2, 64, 500, 200, &device).initialize(&scheme, 1).unwrap());
    assert_std(&started["transformer.wpe.weight"], 0.01, "positions");
    assert_std(&started["transformer.h.1.mlp.c_fc.weight"], 0.02, "compensated");
    let bound = 2.0 * 0.02 / 0.879_626;
    assert!(started["transformer.h.1.mlp.c_fc.weight"].iter().all(|x| f64::from(x.abs()) <= bound * 1.0001));
    let packed = &started["transformer.h.0.attn.c_attn.weight"];
    for row in packed.chunks(192) {
        assert!(row[..64].iter().all(|&x| x == 0.0) && row[64..].iter().all(|&x| x != 0.0));
    }
}

/// C41: the padding token's row is exactly 0, and the others are as they would be without it.
#[test]
fn padding_row() {
    let table = || vec![EmbeddingConfig::new(10, 16).init(&device())];
    let setup = Setup::new().role("0.weight", Role::TokenEmbedding);
    let scheme = || Gpt2Normal::new();
    let plain = values(&setup.initialize(table(), &scheme(), 1).unwrap()).remove("0.weight").unwrap();
    let padded = values(&setup.initialize(table(), &scheme().padding_row(3), 1).unwrap()).remove("0.weight").unwrap();
    for (row, (padded, plain)) in padded.chunks(16).zip(plain.chunks(16)).enumerate() {
        assert!(plain.iter().all(|&x| x != 0.0), "row {row} without padding");
        assert_eq!(padded, if row == 3 { &[0.0; 16] } else { plain }, "row {row}");
    }
    let error = setup.plan(&table(), &scheme().padding_row(10)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0.weight [10, 16]: row 10 is to be 0, and the parameter with the role token_embedding has 10 rows; \
         give a row of the table of token vectors, counted from 0"
    );
}

/// A quantised base cannot be drawn, and need not stand in the way of the rest.
#[test]
fn quantised_parameters() {
    use burn::{
        module::Quantizer,
        tensor::quantization::{Calibration, QuantScheme},
    };
    // burn's ndarray backend cannot quantise this way.
    let device = Device::flex();
    let body = LinearConfig::new(32, 32).with_bias(false).init(&device).initialize(&Xavier::normal(), 1).unwrap();
    let mut quantizer = Quantizer::new(Calibration::MinMax, QuantScheme::default());
    let model = vec![body.quantize_weights(&mut quantizer), LinearConfig::new(32, 4).init(&device)];
    let error = model.plan(&Xavier::normal()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Quantized, Some("0.weight")));
    let model = model.initialize_missing(&Xavier::normal(), 1).unwrap();
    assert!(model[1].weight.is_initialized());
}

/// Two parameters at one path would have the same values.
#[test]
fn one_path_each() {
    let model = vec![LinearConfig::new(4, 4).init(&device()), LinearConfig::new(4, 4).init(&device())];
    let error = Setup::new().alias("1", "0").plan(&model, &Xavier::normal()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Config, Some("0.weight")));
}

/// A group selects what no role is known of, too, and then its role is asked for.
#[test]
fn groups_select_the_unknown() {
    let mixer = crate::trees::Mixer::new(2, &device());
    let group = ParamGroup::from_path("blocks.1.mixer.inn.weight");
    let error = mixer.initialize_only(group, &Xavier::normal(), 1).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::UnknownRole, Some("blocks.1.mixer.inn.weight")));
}

/// A packed parameter is started as a whole: no block of it is kept, or selected, on its own.
#[test]
fn blocks_are_not_started_alone() {
    let model = NanoGpt::new(2, 32, 50, 8, &device());
    let error = model.plan(&Gpt2::new().with(Role::Key, Init::Keep)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "transformer.h.0.attn.c_attn.weight [32, 96]: one block of the packed parameter is kept while another is drawn; \
         keep all of its blocks or none"
    );
    let error = model.clone().initialize_only(Role::Query, &Gpt2::new(), 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "transformer.h.0.attn.c_attn.weight [32, 96]: the role query selects a block of a packed parameter, which is started \
         as a whole; select it by its path: \"transformer.h.0.attn.c_attn.weight\""
    );
    assert!(model.initialize_only("**.c_attn.weight", &Gpt2::new(), 1).is_ok());
}

/// Layers that are clones of one would all start alike, and only one of them would train.
#[test]
fn cloned_layers() {
    let block = crate::trees::NanoBlock::new(32, &device());
    let error = vec![block.clone(), block].plan(&Gpt2::new()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Config, Some("0.ln_1.gamma")));
}

/// Lists that may be one stream are counted apart, and the plan says so.
#[test]
fn split_streams_are_warned_about() {
    let blocks = || (0..2).map(|_| crate::trees::NanoBlock::new(32, &device())).collect::<Vec<_>>();
    let plan = vec![blocks(), blocks()].plan(&Gpt2::new()).unwrap();
    assert!(
        plan.warnings()[0].starts_with("\"0\", \"1\" are taken as residual streams of their own"),
        "{:?}",
        plan.warnings()
    );
    let place = burn_init::StackPlace::layers(4).branches(8);
    let setup = Setup::new().stack("0", place).stack("1", place.first_layer(2));
    let told = setup.plan(&vec![blocks(), blocks()], &Gpt2::new()).unwrap();
    assert_eq!(told.get("1.2.mlp.c_proj.weight").unwrap().std(), 0.02 / 8f64.sqrt());
}

/// Numbers that no float holds are found before anything is drawn.
#[test]
fn values_in_range() {
    use burn_init::{Blueprint, Dtype, Factor, FactorKind, Initializer, Rule, StackPlace};
    let linear = || LinearConfig::new(4, 4).init(&device());
    let huge = Factor { kind: FactorKind::Other, value: 1e300, because: "1e300".into() };
    let scheme = from_fn(move |_| Rule::from(Init::normal(0.02)).scaled(huge.clone()));
    assert_eq!(linear().plan(&scheme).unwrap_err().kind(), ErrorKind::InvalidValue);
    let large = from_fn(|_| Init::constant(1e6));
    assert!(linear().initialize(&large, 1).is_ok());
    let error = Setup::new().dtype(Dtype::F16).initialize(linear(), &large, 1).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::Config), "{error}");
    let model = NanoGpt::new(2, 32, 50, 8, &device());
    for place in [StackPlace::layers(u64::MAX), StackPlace::layers(u64::MAX).first_layer(u64::MAX - 1)] {
        let error = Setup::new().stack("**", place).plan(&model, &Gpt2::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
    }
    let few = Setup::new().stack("**", StackPlace::layers(2).branches(1)).plan(&model, &Gpt2::new());
    assert_eq!(few.unwrap_err().kind(), ErrorKind::InvalidValue);
    let packed = Setup::new().packed("weight", [(Role::Query, u64::MAX), (Role::Key, 2)]);
    assert_eq!(packed.plan(&linear(), &Xavier::normal()).unwrap_err().kind(), ErrorKind::Shape);
    // Sizes and layers that no machine counts.
    let huge = u64::MAX / 2;
    for tree in [
        Blueprint::new().parameter("pos_embed", [huge, huge, 4]),
        Blueprint::new().parameter("h.0.mlp.experts.w2", [huge, huge, 4]),
        Blueprint::new().linear("attn.qkv.weight", [huge, 4]),
    ] {
        for scheme in [&Xavier::normal() as &dyn Initializer, &from_fn(|_| Init::orthogonal(1.0)), &Gpt2::new()] {
            if let Ok(plan) = tree.plan(scheme) {
                assert!(plan.lock(1).is_err(), "{plan}");
            }
        }
    }
    let far = Blueprint::new().linear(format!("h.{}.attn.c_proj.weight", u64::MAX), [4, 4]);
    assert_eq!(far.plan(&Gpt2::new()).unwrap().iter().next().unwrap().spec().layer(), Some(0), "no index of a layer");
    let joined = Blueprint::new().linear("q.weight", [2, huge]).linear("k.weight", [2, huge + 2]);
    let plan = joined.plan(&Xavier::normal()).unwrap();
    let keys = burn_init::checkpoint::Keys::new().join(["q.weight", "k.weight"], "qk.weight");
    let error = burn_init::checkpoint::Checkpoint::new(&plan, 1).keys(keys).files().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    // Each factor fits, and their product does not.
    let ten = (0..10).map(|_| Factor { kind: FactorKind::Other, value: 1e38, because: "1e38".into() });
    let rule = ten.fold(Rule::from(Init::constant(0.0)), Rule::scaled);
    let error = linear().plan(&from_fn(move |_| rule.clone())).unwrap_err().to_string();
    assert_eq!(error, "weight [4, 4]: the product of all factors is inf; use smaller ones");
    let alias = Setup::new().alias("no_such", "x");
    assert_eq!(alias.plan(&linear(), &Xavier::normal()).unwrap_err().kind(), ErrorKind::Unmatched);
}
