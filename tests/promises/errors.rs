//! Error texts, to the letter: where, what was found, what to do.

use burn::{
    module::{Module, Param},
    nn::{EmbeddingConfig, LinearConfig},
    tensor::Tensor,
};
use burn_init::{
    Blueprint, Depth, Dtype, Error, Factor, FactorKind, Family, Fan, Gpt2, Gpt2Normal, Growth, Init, Initializer,
    Layout, ModuleInit as _, Role, Rule, Scheme, Setup, StackPlace, VarianceScaling, Xavier, from_fn, schemes::Mup,
};

use crate::{
    support::device,
    trees::{Mixer, NanoBlock, NanoGpt, own, raw},
};

fn nano() -> NanoGpt {
    NanoGpt::new(2, 32, 100, 16, &device())
}

#[track_caller]
fn assert_text<T: std::fmt::Debug>(result: Result<T, Error>, text: &str) {
    assert_eq!(result.unwrap_err().to_string(), text);
}

#[test]
fn roles() {
    assert_text(
        Mixer::new(3, &device()).plan(&Gpt2::new()),
        "blocks.0.mixer.inn.weight [64, 64]: its role cannot be told: it is a Linear, and its name is not in the tables; \
         say which part each plays, for example\n    \
         .role(\"blocks.*.mixer.inn.weight\", Role::Linear)\n    \
         .role(\"blocks.*.mixer.out.weight\", Role::AttentionOutput)",
    );
    // The lines of the error settle it.
    let setup = Setup::new()
        .role("blocks.*.mixer.inn.weight", Role::Linear)
        .role("blocks.*.mixer.out.weight", Role::AttentionOutput);
    assert!(setup.plan(&Mixer::new(3, &device()), &Gpt2::new()).is_ok());
}

#[test]
fn rules() {
    assert_text(
        nano().plan(&Gpt2Normal::new()),
        "transformer.h.0.ln_1.gamma [32]: the scheme has no rule for the role norm_gain, nor for 9 more parameters; \
         add one with .with(Role::NormGain, Init::…), or keep it with .with(Role::NormGain, Init::Keep)",
    );
    assert_text(
        nano().plan(&Gpt2::new().depth_scaled(Depth::per_layer())),
        "transformer.h.0.attn.c_proj.weight [32, 32]: scaled for depth twice: 1/sqrt(2N), N = 2 and \
         1/sqrt(2), the additions up to layer 0; \
         apply .depth_scaled(…) once; Gpt2 and other whole schemes have it already",
    );
    assert_text(
        nano().plan(&from_fn(|_| Init::Keep).depth_scaled(Depth::total())),
        "transformer.h.0.attn.c_proj.weight [32, 32]: the factor 1/sqrt(2N), N = 2 is applied to a parameter that is kept; \
         put .with(…, Init::Keep) outside of the scaling, or give it an initialization",
    );
    assert_text(
        nano().plan(&Gpt2::new().with("c_attn", Init::Zeros)),
        "the pattern \"c_attn\" matches no parameter; paths look like transformer.wte.weight; \
         biases and gains are selected by name (\"**.bias\") or by role",
    );
    assert_text(
        LinearConfig::new(3, 4).init(&device()).plan(&Gpt2::new()),
        "the depth rule 1/sqrt(additions) covers no parameter; give the projections that write into the residual stream \
         their roles: .role(\"…\", Role::AttentionOutput), .role(\"…\", Role::MlpDown)",
    );
}

#[test]
fn numbers() {
    for (init, text) in [
        (Init::normal(-0.02), "normal(std = -0.02): std is negative; use 0 or more"),
        (Init::normal(f64::NAN), "normal(std = NaN): std is NaN; use 0 or more"),
        (Init::normal(f64::INFINITY), "normal(std = inf): std is out of range; use a number that fits f32"),
        (Init::constant(f64::NAN), "constant(NaN): value is not a finite number; use a number that fits f32"),
        (Init::Uniform { low: 1.0, high: 1.0 }, "uniform(1, 1): the interval is empty; use low < high, or a constant"),
        (
            Init::truncated_normal(0.02, -3.0),
            "truncated_normal(std = 0.02, +--3 sigma): the interval is empty; use low < high, in sigmas",
        ),
        (
            Init::TruncatedNormal { mean: 0.0, std: 0.02, low: 0.0, high: f64::INFINITY, compensated: false },
            "truncated_normal(std = 0.02, [0, inf] sigma): a bound is infinite; use a finite one: no normal lies beyond 7 sigmas",
        ),
        (
            Init::VarianceScaling(VarianceScaling { scale: -1.0, fan: Fan::In, family: Family::Normal }),
            "variance_scaling(-1 / fan_in, normal): scale is negative; use 0 or more",
        ),
        (Init::kaiming_normal(f64::NAN), "variance_scaling(NaN / fan_in, normal): scale is NaN; use 0 or more"),
    ] {
        assert_text(init.check(), text);
        let planned = nano().plan(&Gpt2::new().with("transformer.wte.weight", init));
        assert_text(planned, &format!("transformer.wte.weight [100, 32]: {text}"));
    }
    assert_text(
        nano().plan(&Gpt2::new().with_depth(Depth::count(0))),
        "transformer.h.0.attn.c_proj.weight [32, 32]: the depth factor 1/sqrt(0), given is inf; \
         use a count of 1 or more and a positive scale",
    );
}

/// Numbers that the element type does not have: too large for it, or between 0 and its smallest.
#[test]
fn precision() {
    let or_gpt2 = |init: Init| Gpt2::new().with("transformer.wte.weight", init);
    let at = "transformer.wte.weight [100, 32]: ";
    for (init, text) in [
        (
            Init::normal(1e-300),
            "normal(std = 1.0000e-300): std is 1.0000e-300, and f32 has nothing between 0 and 1.4013e-45; use a larger number, or 0",
        ),
        (
            Init::constant(1e-46),
            "constant(1.0000e-46): value is 1.0000e-46, and f32 has nothing between 0 and 1.4013e-45; use a larger number, or 0",
        ),
        (Init::constant(1e39), "constant(1.0000e39): value is out of range; use a number that fits f32"),
    ] {
        assert_text(nano().plan(&or_gpt2(init)), &format!("{at}{text}"));
    }
    assert!(Init::kaiming_normal(1e-30).check().is_ok(), "the std is what has to fit, and not its square");
    let factor = |value: f64| Factor { kind: FactorKind::Other, value, because: "c".into() };
    let rule =
        |init: Init, value: f64| Gpt2::new().with("transformer.wte.weight", Rule::from(init).scaled(factor(value)));
    assert_text(
        nano().plan(&rule(Init::constant(1e30), 1e30)),
        &format!(
            "{at}with all factors the largest value is 1.0000e60, and f32 ends at 3.4028e38; use a smaller number"
        ),
    );
    assert_text(
        nano().plan(&rule(Init::normal(1e-30), 1e-30)),
        &format!(
            "{at}with all factors the std is 1.0000e-60, and f32 has nothing between 0 and 1.4013e-45; use a larger number, or 0"
        ),
    );
    assert_text(
        nano().plan(&rule(Init::normal(1.0), 1e-300)),
        &format!("{at}c is 1.0000e-300, and f32 has nothing between 0 and 1.4013e-45; use a larger number, or 0"),
    );
    let mup =
        |embedding_multiplier: f64| Mup { embedding_multiplier, ..Mup::new().with_tied(false).without_attention() };
    for (multiplier, found) in [
        (1e300, "f32 ends at 3.4028e38; use a smaller number"),
        (1e-300, "f32 has nothing between 0 and 1.4013e-45; use a larger number, or 0"),
    ] {
        assert_text(nano().plan(&mup(multiplier)), &format!("{at}forward multiplier is {multiplier:.4e}, and {found}"));
    }
    let rate = Rule { learning_rate: -1.0, ..Init::normal(1.0).into() };
    assert_text(
        nano().plan(&Gpt2::new().with("transformer.wte.weight", rate)),
        &format!("{at}learning rate multiplier is -1; use a finite number, 0 or more"),
    );
    // The precision that the values are to have decides, in a plan already.
    let half = |dtype: Dtype, scheme: &dyn Initializer| Setup::new().dtype(dtype).plan(&nano(), scheme);
    assert_text(
        half(Dtype::F16, &or_gpt2(Init::constant(1e5))),
        &format!("{at}the largest value is 100000, and f16 ends at 65504; use a smaller number, or another precision"),
    );
    assert_text(
        half(Dtype::F16, &or_gpt2(Init::normal(1e-8))),
        &format!(
            "{at}the std is 1.0000e-8, and f16 has nothing between 0 and 5.9605e-8; use a larger number, or 0, or another precision"
        ),
    );
    assert_text(
        half(Dtype::F16, &mup(1e5)),
        &format!(
            "{at}the forward multiplier is 100000, and f16 ends at 65504; use a smaller number, or another precision"
        ),
    );
    assert_text(
        half(Dtype::BF16, &or_gpt2(Init::normal(1e-42))),
        &format!(
            "{at}the std is 1.0000e-42, and bf16 has nothing between 0 and 9.1835e-41; use a larger number, or 0, or another precision"
        ),
    );
    assert!(half(Dtype::BF16, &or_gpt2(Init::constant(1e5))).is_ok());
    assert!(half(Dtype::F16, &or_gpt2(Init::normal(2e-5))).is_ok(), "subnormal numbers are numbers");
    let tree = Blueprint::new().linear("weight", [4, 4]);
    assert_text(
        tree.plan_with(&Setup::new().dtype(Dtype::F16), &from_fn(|_| Init::constant(1e5))),
        "weight [4, 4]: the largest value is 100000, and f16 ends at 65504; use a smaller number, or another precision",
    );
    let trained = LinearConfig::new(4, 4).init(&device());
    let plan = trained.plan(&from_fn(|_| Init::normal(1e-8))).unwrap();
    assert_text(
        plan.whole("weight", 1).unwrap().values::<half::f16>(),
        "weight [4, 4]: the std is 1.0000e-8, and f16 has nothing between 0 and 5.9605e-8; use a larger number, or 0, or another precision",
    );
    let setup = Setup::new().role("weight", Role::TokenEmbedding);
    let trained = setup.initialize(EmbeddingConfig::new(4, 2).init(&device()), &from_fn(|_| Init::Ones), 1).unwrap();
    let grown = |spread: f64| Growth::vocabulary(5).setup(setup.clone()).like_trained(spread).grow(trained.clone(), 1);
    assert_text(
        grown(1e300),
        "weight [4, 2]: with a spread of 1.0000e300 the largest new value is 9.8995e300, and f32 ends at 3.4028e38; \
         use a smaller spread",
    );
    assert!(grown(1.0).is_ok());
}

#[derive(Module, Debug)]
struct Packed {
    qkv: Param<Tensor<2>>,
}

#[test]
fn shapes_and_layouts() {
    assert_text(
        own::Linear::out_in(3, 4, true, &device()).plan(&Xavier::normal()),
        "weight [4, 3]: it stands in a struct named Linear, but does not fit [d_in, d_out] as burn-nn stores it; \
         state how it is stored: .layout(\"weight\", Layout::OutIn)",
    );
    let packed = Packed { qkv: raw([8, 24], &device()) };
    assert_text(
        packed.plan(&Xavier::normal()),
        "qkv [8, 24]: it is packed, and it cannot be seen which dimension is the output; \
         state how it is stored: .layout(\"qkv\", Layout::InOut) or Layout::OutIn",
    );
    let told = Setup::new().layout("qkv", Layout::InOut);
    assert!(told.plan(&packed, &Xavier::normal()).is_ok());
    assert_text(
        told.clone().packed("qkv", [(Role::Query, 8), (Role::Key, 4)]).plan(&packed, &Xavier::normal()),
        "qkv [8, 24]: the blocks have [8, 4] output columns, and the weight has 24; \
         give their widths: .packed(\"qkv\", [(Role::Query, …), (Role::Key, …)])",
    );
}

#[test]
fn setups() {
    assert_text(
        Setup::new().role("nope.*", Role::Query).plan(&nano(), &Gpt2::new()),
        ".role(\"nope.*\", …) matches no parameter; paths look like transformer.wte.weight",
    );
    assert_text(
        Setup::new().stack("**", StackPlace::layers(1)).plan(&nano(), &Gpt2::new()),
        "the stack \"transformer.h\" shows 2 layers from layer 0 on, more than the 1 declared; correct the line .stack(…)",
    );
    assert_text(
        Setup::new().stack("**", StackPlace::layers(2).first_layer(2)).plan(&nano(), &Gpt2::new()),
        ".stack(\"**\", …) has 2 layers and begins at layer 2; begin at a layer below their number",
    );
    // Prefix and alias make paths.
    for (prefix, text) in [
        ("layers.", ".prefix(\"layers.\") has a dot too many; write .prefix(\"layers\")"),
        (".a", ".prefix(\".a\") has a dot too many; write .prefix(\"a\")"),
        ("a..b", ".prefix(\"a..b\") has a dot too many; write .prefix(\"a.b\")"),
        (".", ".prefix(\".\") names no module; leave it out"),
        ("*", ".prefix(\"*\") is a pattern, and not a path; write the names of the modules"),
    ] {
        assert_text(Setup::new().prefix(prefix).plan(&nano(), &Gpt2::new()), text);
    }
    let alias = |from: &str, to: &str| Setup::new().alias(from, to).plan(&nano(), &Gpt2::new());
    assert_text(alias("transformer", "model."), ".alias(…, \"model.\") has a dot too many; write .alias(…, \"model\")");
    assert_text(
        alias("transformer.", "x"),
        ".alias(\"transformer.\", …) has a dot too many; write .alias(\"transformer\", …)",
    );
    assert_text(
        alias("transformer.*", "x"),
        ".alias(\"transformer.*\", …) is a pattern, and not a path; write the names of the modules",
    );
    assert_text(alias("", "x"), ".alias(\"\", \"x\") names no module; to put it before every path: .prefix(\"x\")");
    assert!(alias("transformer", "").unwrap().get("wte.weight").is_some(), "an empty target takes names away");
    // The heads of attention are visible in no shape.
    let scheme = from_fn(|param| param.heads().map(|_| Some(Init::Zeros)));
    assert_text(
        NanoBlock::new(32, &device()).plan(&scheme),
        "ln_1.gamma [32]: the rule needs the number of attention heads, which no shape shows; state it: .heads(\"**\", 12)",
    );
    let told = Setup::new().heads("**", 4).plan(&NanoBlock::new(32, &device()), &scheme).unwrap();
    assert_eq!(told.get("attn.c_attn.weight").unwrap().spec().heads().unwrap(), 4);
}

/// C58: a typo in a file is an error that lists what is near or known.
#[test]
fn files() {
    assert_text("gtp2".parse::<Scheme>(), "unknown scheme \"gtp2\"; did you mean gpt2?");
    assert_text("mitchel".parse::<Scheme>(), "unknown scheme \"mitchel\"; did you mean olmo-mitchell?");
    let known = "qqq".parse::<Scheme>().unwrap_err().to_string();
    assert_eq!(known, format!("unknown scheme \"qqq\"; known are {}", Scheme::names().join(", ")));
    let toml = |text: &str| toml::from_str::<Scheme>(text);
    let message = |text: &str| toml(text).unwrap_err().message().to_string();
    assert_eq!(
        message("scheme = \"gpt2\"\nstdd = 0.1"),
        "in the scheme gpt2: unknown field `stdd`, expected one of `std`, `position_std`, `depth`"
    );
    assert_eq!(
        message("scheme = \"gpt2-release\""),
        "unknown scheme \"gpt2-release\"; did you mean gpt2-released or gpt2?"
    );
    // A value that is wrong is told by its field, however deep.
    assert_eq!(
        message("scheme = \"gpt2\"\nposition_std = 0.1\nstd = \"wide\""),
        "in the scheme gpt2, field `std`: invalid type: string \"wide\", expected f64"
    );
    assert_eq!(
        message("scheme = \"modified\"\nhead_std = 0.1\n[base]\nscheme = \"gpt2\"\nstd = [1]"),
        "in the scheme modified, field `base`: in the scheme gpt2, field `std`: invalid type: sequence, expected f64"
    );
    assert_eq!(
        message("scheme = \"gpt2\"\nstd = 0.1\ndepth = { ruel = \"total\" }"),
        "in the scheme gpt2, field `depth`: unknown field `ruel`, expected `rule` or `roles`"
    );
    assert_eq!(message("scheme = \"modified\"\nhead_std = 0.1"), "in the scheme modified: missing field `base`");
    assert_eq!(
        message("scheme = \"gpt2\"\ndepth = { rule = \"total\", roles = [] }"),
        "in the scheme gpt2, field `depth`: `roles` is empty, so that nothing is scaled; \
         leave it out for what writes into the stream, or use rule = \"none\""
    );
    assert_text(
        nano().plan(&Gpt2::new().with_depth(Depth::total().on([]))),
        "the depth rule names no role, so that nothing is scaled; \
         leave out .on([]) for what writes into the stream, or use Depth::none()",
    );
    // A kind is no scheme, but for those that are called alike.
    assert_text(
        "modified".parse::<Scheme>(),
        "\"modified\" is a kind of scheme, and does not say which; \
         use rezero or skipinit or layerscale or zero-residual or llm-foundry, or give its fields: {\"scheme\": \"modified\", …}",
    );
    assert!("T5".parse::<Scheme>().unwrap_err().to_string().contains("did you mean t5"));
    assert!(message("std = 0.1").starts_with("the key `scheme` is missing; known are gpt2, "));
    assert_eq!(toml("scheme = \"gpt2-released\"").unwrap(), Gpt2::released().into());
    let thicker = toml("scheme = \"gpt2-released\"\nstd = 0.03").unwrap();
    assert_eq!(thicker, Gpt2 { std: 0.03, ..Gpt2::released() }.into());
    let per_layer = toml("scheme = \"gpt2\"\ndepth = { rule = \"per_layer\" }").unwrap();
    assert_eq!(per_layer, Gpt2::new().with_depth(Depth::per_layer()).into());
    for (name, scheme, _) in Scheme::all() {
        assert_eq!(name.parse::<Scheme>().unwrap(), scheme);
        assert_eq!(scheme.to_string(), name);
        assert_eq!(toml::from_str::<Scheme>(&toml::to_string(&scheme).unwrap()).unwrap(), scheme);
        assert_eq!(serde_json::from_str::<Scheme>(&format!("\"{name}\"")).unwrap(), scheme);
    }
    let setup = serde_json::from_str::<Setup>(r#"{"rolles": []}"#).unwrap_err().to_string();
    assert!(setup.starts_with("unknown field `rolles`, expected one of `roles`"), "{setup}");
    assert!(serde_json::from_str::<Init>(r#"{"truncated_normal": {"std": 0.02, "low": 3, "high": -3}}"#).is_err());
}
