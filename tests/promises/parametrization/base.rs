//! Which dimensions grow, from two models that are never drawn.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
};
use burn_init::{
    ErrorKind, Init, Initializer, ModuleInit as _, NormPlacement, Plan, Role, Scheme, Setup, from_fn,
    parametrization::{BaseShapes, BaseSize, Widening},
    schemes::{Modified, Mup, UMup},
};

use super::nano::nano;
use crate::{
    support::device,
    trees::{Llama, Moe, NanoGpt, Vit},
};

fn text<T: std::fmt::Debug>(result: Result<T, burn_init::Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn told_from_shapes() {
    let device = device();
    let shapes = nano(6, 64, &device).base_shapes(&nano(2, 16, &device)).unwrap();
    for (path, growth) in [
        ("transformer.wte.weight", Widening::Input(4.0)),
        ("transformer.wpe.weight", Widening::Input(4.0)),
        ("transformer.h.5.attn.c_attn.weight", Widening::Hidden { fan_in: 4.0, fan_out: 4.0 }),
        ("transformer.h.5.attn.c_attn.bias", Widening::Input(4.0)),
        ("transformer.h.0.mlp.c_proj.weight", Widening::Hidden { fan_in: 4.0, fan_out: 4.0 }),
        ("transformer.h.0.ln_1.gamma", Widening::Input(4.0)),
        ("transformer.ln_f.beta", Widening::Input(4.0)),
    ] {
        assert_eq!(shapes.widening(path), Some(growth), "{path}");
    }
    assert_eq!(shapes.widening("transformer.h.6.ln_1.gamma"), None);
    // A file has the pair, and a table shows it once for all layers.
    let file = serde_json::to_string(&shapes).unwrap();
    assert_eq!(serde_json::from_str::<BaseShapes>(&file).unwrap(), shapes);
    let table = shapes.to_string();
    assert!(table.contains("transformer.h.*.mlp.c_fc.weight"), "{table}");
    assert_eq!(table.lines().count(), 1 + 20, "{table}");

    // An MLP ratio of its own, and key and value heads that grow.
    let llama = |d, kv, ff| Llama::new(2, d, kv, ff, 50, &device);
    let shapes = llama(64, 32, 300).base_shapes(&llama(32, 16, 100)).unwrap();
    let growth = |path: &str| shapes.widening(path).unwrap();
    assert_eq!(growth("model.layers.1.mlp.down_proj.weight"), Widening::Hidden { fan_in: 3.0, fan_out: 2.0 });
    assert_eq!(growth("model.layers.1.self_attn.k_proj.weight"), Widening::Hidden { fan_in: 2.0, fan_out: 2.0 });
    assert_eq!(growth("lm_head.weight"), Widening::Output(2.0));
    // A router reads out, and the patches of an image are inputs of a fixed number.
    let shapes = Moe::new(2, &device).base_shapes(&Moe::new(2, &device)).unwrap();
    assert_eq!(shapes.widening("layers.0.mlp.gate.weight"), Some(Widening::Fixed));
    let shapes = Vit::new(&device).base_shapes(&Vit::new(&device)).unwrap();
    assert_eq!(shapes.widening("patch_embed.weight"), Some(Widening::Fixed));
}

#[test]
fn nothing_is_drawn() {
    let (model, base) = (nano(2, 64, &device()), nano(2, 16, &device()));
    model.base_shapes(&base).unwrap();
    assert!(!model.transformer.wte.weight.is_initialized() && !base.transformer.wte.weight.is_initialized());
}

#[test]
fn what_may_not_grow() {
    let device = device();
    let gpt = |vocab, context| NanoGpt::new(2, 32, vocab, context, &device);
    assert_eq!(
        text(gpt(200, 16).base_shapes(&gpt(100, 16))),
        "transformer.wte.weight [200, 32]: its rows go from 100 in the base model to 200; \
         only widths may differ: build the base model with the same vocabulary, context, experts and kernels"
    );
    assert!(
        text(gpt(100, 32).base_shapes(&gpt(100, 16)))
            .starts_with("transformer.wpe.weight [32, 32]: its rows go from 16")
    );
    let llama = |d, kv, vocab| Llama::new(2, d, kv, 2 * d, vocab, &device);
    assert_eq!(
        text(llama(64, 16, 50).base_shapes(&llama(32, 16, 50))),
        "model.layers.0.self_attn.k_proj.weight [64, 16]: its inputs grow from 32 to 64 and its 16 outputs do not; \
         let both grow: give the base model fewer or narrower key and value heads"
    );
    assert!(llama(64, 16, 50).base_shapes(&llama(32, 8, 50)).is_ok(), "the advice settles it");
    let mlp = |d, ff| Llama::new(2, d, d, ff, 50, &device);
    assert!(
        text(mlp(64, 64).base_shapes(&mlp(32, 64))).ends_with("let both grow: give the base model fewer outputs, too")
    );
    // A plain network's last layer has to be called what it is.
    let regression = |d| LinearConfig::new(d, 1).with_bias(false).init(&device);
    assert_eq!(regression(64).base_shapes(&regression(32)).unwrap_err().kind(), ErrorKind::Widening);
    let setup = Setup::new().role("weight", Role::OutputHead);
    assert_eq!(
        setup.base_shapes(&regression(64), &regression(32)).unwrap().widening("weight"),
        Some(Widening::Output(2.0))
    );

    let (bias, none) = (LinearConfig::new(4, 4).init(&device), LinearConfig::new(4, 4).with_bias(false).init(&device));
    assert!(text(bias.base_shapes(&none)).starts_with("bias [4]: the base model has no such parameter"));
    assert!(
        text(none.base_shapes(&bias)).starts_with("bias [4]: the base model has this parameter, and the model has not")
    );
    let (matrix, table) = (nano(2, 32, &device), nano(2, 8, &device));
    let shapes = matrix.base_shapes(&table).unwrap();
    // Shapes of another model.
    let other = Setup::new().heads("**", 4).plan(&nano(2, 64, &device), &Mup::from(shapes).with_tied(true));
    assert_eq!(
        text(other),
        "transformer.wte.weight [24, 64]: the base shapes were made for the shape [24, 32]; \
         make the base shapes anew for this model"
    );
}

/// A model that is narrower than its base is allowed, and said.
#[test]
fn narrower_than_the_base() {
    let device = device();
    let (wide, narrow) = (nano(2, 32, &device), nano(2, 8, &device));
    let setup = Setup::new().heads("**", 4);
    let warnings = |scheme: &dyn Initializer, model: &NanoGpt| setup.plan(model, scheme).unwrap().warnings().to_vec();
    let mup = |model: &NanoGpt, base: &NanoGpt| Mup::from(setup.base_shapes(model, base).unwrap()).with_tied(true);
    let text = "the model is narrower than its base (8 against 32), so that multipliers go the other way; if that is not \
                meant, base_shapes(&model, &base) takes the model first";
    let swapped = mup(&narrow, &wide);
    assert_eq!(warnings(&swapped, &narrow), [text]);
    assert!(warnings(&mup(&wide, &narrow), &wide).is_empty());
    assert!(warnings(&mup(&wide, &wide), &wide).is_empty());
    // Whatever stands around it, and in a file.
    let around = Scheme::from(Modified::of(swapped.clone())).with("transformer.wpe.weight", Init::Zeros).padding_row(0);
    assert_eq!(warnings(&around, &narrow), [text]);
    let plan = setup.plan(&narrow, &swapped).unwrap();
    let file: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(setup.plan(&narrow, &file).unwrap(), plan);
    let size = Mup::new().with_base(BaseSize { width: 64, head_width: 8, layers: 2 }).with_tied(true);
    assert_eq!(
        warnings(&size, &wide),
        [
            "the model is narrower than its base (32 against 64), so that multipliers go the other way; if that is not meant, \
          state its width: Mup::new().with_base(BaseSize { width: 64, ..BaseSize::default() })"
        ]
    );
}

/// Numbers alone give what the shapes of a model of that size give.
#[test]
fn a_size_in_numbers() {
    let device = device();
    let setup = Setup::new().heads("**", 4);
    let llama =
        |layers, d: usize, heads: u64| (Llama::new(layers, d, d, 2 * d, 50, &device), Setup::new().heads("**", heads));
    let ((model, wide), (base, narrow)) = (llama(8, 64, 4), llama(2, 16, 2));
    let keep = from_fn(|_| Init::Keep);
    let shapes = BaseShapes::new(&wide.plan(&model, &keep).unwrap(), &narrow.plan(&base, &keep).unwrap()).unwrap();
    let size = BaseSize { width: 16, head_width: 8, layers: 2 };
    for mup in [Mup::new(), Mup::sgd(), Mup::complete_p(), Mup::megatron(), Mup::cerebras()] {
        let by_shapes = setup.plan(&model, &mup.clone().with_base(shapes.clone())).unwrap();
        let by_size = setup.plan(&model, &mup.with_base(size)).unwrap();
        assert!(by_shapes.diff(&by_size).is_empty(), "{}", by_shapes.diff(&by_size));
    }
    let zero = Mup::new().with_base(BaseSize { width: 0, ..size });
    let error = setup.plan(&model, &zero).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidValue, None));
    assert_eq!(error.to_string(), "base.size.width is 0; use 1 or more");
    let of = |size: BaseSize| text(size.check());
    assert_eq!(of(BaseSize { head_width: 0, ..size }), "base.size.head_width is 0; use 1 or more");
    assert_eq!(of(BaseSize { layers: 0, ..size }), "base.size.layers is 0; use 1 or more");
}

/// A model that is shallower than its base is allowed, and said where the depth counts.
#[test]
fn shallower_than_the_base() {
    let device = device();
    let (deep, shallow) = (nano(4, 32, &device), nano(2, 32, &device));
    let setup = Setup::new().heads("**", 4);
    let warnings =
        |scheme: Mup, model: &NanoGpt| setup.plan(model, &scheme.with_tied(true)).unwrap().warnings().to_vec();
    let over = |mup: Mup, base: &NanoGpt| mup.with_base(setup.base_shapes(&shallow, base).unwrap());
    let text = "the model is shallower than its base (2 layers against 4), so that the multipliers of depth go the other way; \
                if that is not meant, ";
    assert_eq!(
        warnings(over(Mup::complete_p(), &deep), &shallow),
        [format!("{text}base_shapes(&model, &base) takes the model first")]
    );
    let size = BaseSize { width: 32, head_width: 8, layers: 4 };
    assert_eq!(
        warnings(Mup::depth().with_base(size), &shallow),
        [format!(
            "{text}state its layers: Mup::complete_p().with_base(BaseSize {{ layers: 2, ..BaseSize::default() }})"
        )]
    );
    assert!(warnings(over(Mup::new(), &deep), &shallow).is_empty());
    assert!(warnings(over(Mup::complete_p(), &shallow), &shallow).is_empty());
    assert!(warnings(Mup::complete_p().with_base(BaseSize { layers: 2, ..size }), &deep).is_empty());
}

/// The multipliers of depth are for branches that add up.
#[test]
fn depth_over_post_norm() {
    let model = nano(2, 32, &device());
    let setup = Setup::new().heads("**", 4).norms("**", NormPlacement::Post);
    let warnings = |mup: Mup| {
        let mup = mup.with_base(setup.base_shapes(&model, &nano(2, 8, &device())).unwrap()).with_tied(true);
        setup.plan(&model, &mup).unwrap().warnings().to_vec()
    };
    let text = "transformer.h.0.attn.c_proj.weight: the multipliers of depth are derived for Pre-Norm models, in whose stream the \
                branches add up; a norm after the addition resets it in every layer, so use mup without a depth";
    assert_eq!(warnings(Mup::complete_p()), [text]);
    assert_eq!(warnings(Mup::depth()), [text]);
    // Without a depth in the start, which has warnings of its own.
    assert!(warnings(Mup { depth: None, ..Mup::complete_p() }).is_empty());
}

/// A layer that only the model has goes by the base's last one, which is a guess where the base's are not alike.
#[test]
fn layers_that_are_not_alike() {
    #[derive(Module, Debug)]
    struct Mlp {
        fc1: Linear,
        fc2: Linear,
    }
    #[derive(Module, Debug)]
    struct Stack {
        layers: Vec<Mlp>,
    }
    let device = device();
    let stack = |d: usize, widths: &[usize]| {
        let linear = |from, to| LinearConfig::new(from, to).with_bias(false).init(&device);
        Stack { layers: widths.iter().map(|&ff| Mlp { fc1: linear(d, ff), fc2: linear(ff, d) }).collect() }
    };
    let model = stack(16, &[64, 128, 64, 128]);
    let warnings = |base: &Stack| {
        let mup = Mup::from(model.base_shapes(base).unwrap()).with_tied(false);
        model.plan(&mup).unwrap().warnings().to_vec()
    };
    assert_eq!(
        warnings(&stack(8, &[16, 32])),
        [
            "layers.2.fc1.weight: the base model has no such layer and its layers differ among themselves, so that its last one, [8, 32], \
          may not be the one that this grew from; build the base model with as many layers as the model"
        ]
    );
    assert!(warnings(&stack(8, &[16, 32, 16, 32])).is_empty());
    assert!(warnings(&stack(8, &[16, 16])).is_empty());
}

/// What muP corrects is the start of a base model, which has no corrections yet.
#[test]
fn plain_starts() {
    let model = nano(2, 32, &device());
    let error = |start: Scheme| {
        let error =
            Setup::new().heads("**", 4).plan(&model, &Mup::new().with_start(start).with_tied(true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    let text = |name: &str| {
        format!(
            "the start is {name}, which has multipliers and rates of its own; the start of muP is a plain scheme, such as gpt2"
        )
    };
    assert_eq!(error("complete-p".parse().unwrap()), text("mup"));
    assert_eq!(error("u-mup".parse().unwrap()), text("u-mup"));
    assert_eq!(error(Modified::of(Mup::sgd()).into()), text("mup"));
}

/// Settings that multiply to a number below the smallest one.
#[test]
fn multipliers_that_vanish() {
    let model = nano(2, 32, &device());
    let error = |scheme: &dyn Initializer| {
        let error = Setup::new().heads("**", 4).plan(&model, scheme).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        error.to_string()
    };
    let found = "its forward multiplier is too small for a number and comes out as 0, which takes it out of the model; \
                 use settings of the scheme that are nearer to 1";
    let u_mup = UMup { residual_attention_ratio: 1e200, ..UMup::new().with_tied(true) };
    assert_eq!(error(&u_mup), format!("transformer.h.0.attn.c_proj.weight [32, 32]: {found}"));
    let size = BaseSize { width: 8, head_width: 8, layers: 2 };
    let mup = Mup { readout_multiplier: f64::from_bits(1), ..Mup::new().with_base(size).with_tied(true) };
    assert_eq!(error(&mup), format!("transformer.ln_f.gamma [32]: {found}"));
}

/// What the scheme has to be told.
#[test]
fn tied_and_heads() {
    let device = device();
    let shapes = || nano(2, 32, &device).base_shapes(&nano(2, 8, &device)).unwrap();
    let setup = Setup::new().heads("**", 4);
    assert_eq!(
        text(setup.plan(&nano(2, 32, &device), &Mup::new())),
        "transformer.wte.weight [24, 32]: the tree has no head, so that this table may be the head, too, whose logits are to be \
         multiplied once; say .with_tied(true) if it is, .with_tied(false) if the model has no head"
    );
    // Heads that no base model stated, and that nobody stated.
    let mup = Mup::from(shapes()).with_tied(true);
    assert_eq!(
        text(setup.plan(&nano(2, 32, &device), &mup)),
        "transformer.h.0.attn.c_attn.weight [8, 24]: the base model does not show the number of its heads; \
         state it in the Setup of the base model: .heads(\"**\", 4)"
    );
    assert!(Setup::new().plan(&nano(2, 32, &device), &mup.without_attention()).is_ok());
    // A number that fits the model only.
    let three = Setup::new().heads("**", 3);
    let mup = Mup::from(three.base_shapes(&nano(2, 24, &device), &nano(2, 8, &device)).unwrap()).with_tied(true);
    assert_eq!(
        text(three.plan(&nano(2, 24, &device), &mup)),
        "transformer.h.0.attn.c_attn.weight [8, 24]: 3 heads do not divide the 8 columns of the query of the base model; \
         plan the base model with a Setup of its own, .heads(\"**\", 4), and use BaseShapes::new"
    );
    let llama = Llama::new(2, 32, 32, 64, 50, &device);
    assert_eq!(
        text(setup.plan(&llama, &Mup::new().with_tied(true))),
        "lm_head.weight [32, 50]: the tree has a head of its own, and the scheme is told that it is tied; leave out .with_tied(true)"
    );
    // A second depth factor.
    let twice = Mup::complete_p().with_start(burn_init::Gpt2::new());
    assert_eq!(
        text(setup.plan(&llama, &twice)),
        "model.layers.0.self_attn.o_proj.weight [32, 32]: scaled for depth twice: by 1/sqrt(2N), N = 2 and by the multiplier of its \
         branch; start it without a depth factor: Gpt2::new().with_depth(Depth::none())"
    );
    let sgd = Mup { depth: Some(1.0), ..Mup::sgd() };
    assert_eq!(setup.plan(&llama, &sgd).unwrap_err().kind(), ErrorKind::Config);
}
