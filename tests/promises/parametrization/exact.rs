//! Multipliers on weights are the papers' forward passes: the same logits as by hand, on a model that knows nothing of them.

use burn::{module::Module, tensor::Tensor};
use burn_init::{
    Depth, ErrorKind, Gpt2, HuggingFace, Init, Initializer, NormPlacement, Role, Rule, Scheme, Setup, from_fn,
    parametrization::{BaseShapes, BaseSize},
    schemes::{DeepNet, Modified, Mup, T5, UMup},
    step_zero::{Activation, Architecture, Probe, StepZero},
};

use super::nano::{CONTEXT, HEADS, Hand, batch, by_hand, forward, nano};
use crate::{support::device, trees::NanoGpt};

const LAYERS: usize = 3;
const WIDTH: usize = 32;

fn setup() -> Setup {
    Setup::new().heads("**", HEADS as u64)
}

/// The scheme, with biases and shifts that are not 0, so that one which is left out shows.
fn with_biases(scheme: impl Initializer) -> impl Initializer {
    from_fn(move |param| {
        let rule: Option<Rule> = scheme.rule(param)?;
        Ok::<_, burn_init::Error>(rule.map(|rule| match param.role().is_bias() {
            true => Rule { init: Init::normal(0.3), ..rule },
            false => rule,
        }))
    })
}

/// Logits with what `scheme` attaches, and by hand on a model with the same stored values.
fn both(scheme: &dyn Initializer, layers: usize, hand: &Hand) -> [Tensor<3>; 2] {
    let device = device();
    let setup = if hand.post_norm { setup().norms("transformer.h.*", NormPlacement::Post) } else { setup() };
    let model = setup.initialize(nano(layers, WIDTH, &device), scheme, 5).unwrap();
    let stored: NanoGpt = nano(layers, WIDTH, &device).load_record(model.clone().into_record());
    let tokens = batch(2, &device).tokens;
    let attached = Hand { post_norm: hand.post_norm, ..Hand::default() };
    [
        by_hand(&model, tokens.clone(), &attached, &mut Probe::silent()),
        by_hand(&stored, tokens, hand, &mut Probe::silent()),
    ]
}

/// The largest difference, beside the spread of the logits.
fn difference([ours, theirs]: [Tensor<3>; 2]) -> f64 {
    let spread = f64::from(theirs.clone().square().mean().sqrt().into_scalar::<f32>());
    assert!(spread > 1e-6, "{spread}");
    f64::from((ours - theirs).abs().max().into_scalar::<f32>()) / spread
}

fn shapes(layers: usize) -> BaseShapes {
    let device = device();
    setup().base_shapes(&nano(layers, WIDTH, &device), &nano(2, WIDTH / 4, &device)).unwrap()
}

/// f32 rounds at 6e-8, some hundred operations deep.
const ROUNDING: f64 = 1e-4;

/// A foreign model, tied, with packed queries: heads of 8 in place of 2, so that scores go by sqrt(2)/8; logits by 1/4; tables by 3,
/// which the tied head must not see.
#[test]
fn mup() {
    let start = Gpt2::new().with_std(0.4);
    let mup = Mup::from(shapes(LAYERS)).with_start(start).with_tied(true);
    let mup = Mup { embedding_multiplier: 3.0, readout_multiplier: 5.0, ..mup };
    let hand = || Hand { scores: Some(2f64.sqrt() / 8.0), embedding: 3.0, logits: 5.0 / 4.0, ..Hand::default() };
    assert!(difference(both(&with_biases(mup.clone()), LAYERS, &hand())) < ROUNDING);
    // The comparison can fail: each part left out shows.
    for wrong in [
        Hand { scores: None, ..hand() },
        Hand { embedding: 1.0, ..hand() },
        Hand { logits: 1.25 * 3.0, ..hand() },
        Hand { residual: Box::new(|i| (1.0, if i == 5 { 1.01 } else { 1.0 })), ..hand() },
    ] {
        let off = difference(both(&with_biases(mup.clone()), LAYERS, &wrong));
        assert!(off > 10.0 * ROUNDING, "{off}");
    }
}

/// Branches of 8 layers over a base of 2.
#[test]
fn complete_p_and_depth_mup() {
    for (mup, branch) in [(Mup::complete_p(), 0.25), (Mup::depth(), 0.5)] {
        let mup = mup.with_base(shapes(8)).with_tied(true);
        let hand = Hand {
            scores: Some(2f64.sqrt() / 8.0),
            logits: 0.25,
            residual: Box::new(move |_| (1.0, branch)),
            ..Hand::default()
        };
        assert!(difference(both(&with_biases(mup), 8, &hand)) < ROUNDING);
    }
}

/// The weights of u-muP's residual, skip and branch, as its authors compute them: on the branches alone they are the same model.
#[test]
fn u_mup() {
    for (residual, ratio) in [(1.0, 1.0), (0.7, 2.0)] {
        let scheme = UMup { residual, residual_attention_ratio: ratio, attention: 1.5, ..UMup::new().with_tied(true) };
        let mlp = residual * (2.0 / (1.0 + ratio * ratio)).sqrt();
        let attention = ratio * mlp;
        let weights = move |i: usize| {
            let (attentions, mlps) = (i.div_ceil(2) as f64, (i / 2) as f64);
            let a: f64 = if i.is_multiple_of(2) { attention } else { mlp };
            let tau_squared = a * a / (LAYERS as f64 + attentions * attention * attention + mlps * mlp * mlp);
            let skip = 1.0 / (1.0 + tau_squared).sqrt();
            (skip, tau_squared.sqrt() * skip)
        };
        // The matrices' own 1/sqrt(fan_in) is by hand part of the stored values here.
        let folded = from_fn(move |param| {
            let rule: Option<Rule> = scheme.rule(param)?;
            Ok::<_, burn_init::Error>(rule.map(|rule| match param.role().is_weight() && param.layer().is_some() {
                true => {
                    let own = (param.fans().unwrap().fan_in as f64).powf(-0.5);
                    Rule { init: Init::normal(own), forward: rule.forward / own, ..rule }
                }
                false => rule,
            }))
        });
        let hand = Hand {
            scores: Some(1.5 / 8.0),
            logits: 1.0 / WIDTH as f64,
            residual: Box::new(weights),
            ..Hand::default()
        };
        // The norms' epsilon of 1e-5 sees streams of variance 2 that differ by the product of the skips, at most 2.
        let off = difference(both(&with_biases(folded), LAYERS, &hand));
        assert!(off < 1e-3, "{off}");
    }
}

/// `LN(alpha x + F(x))` is `LN(x + F(x) / alpha)`.
#[test]
fn deep_norm() {
    let alpha = (2.0 * LAYERS as f64).powf(0.25);
    let hand = || Hand { residual: Box::new(move |_| (alpha, 1.0)), post_norm: true, ..Hand::default() };
    assert!(difference(both(&with_biases(DeepNet::deepnorm()), LAYERS, &hand())) < 1e-3);
    // Without alpha, and with the model's own.
    let without = with_biases(DeepNet::deepnorm().without_alpha());
    assert!(difference(both(&without, LAYERS, &hand())) > 0.1);
    let own = Hand { residual: Box::new(|_| (1.0, 1.0)), ..hand() };
    assert!(difference(both(&without, LAYERS, &own)) < 1e-6);
}

/// Where a multiplier would be another model, it is an error.
#[test]
fn where_the_norms_stand() {
    let plan = |setup: Setup, scheme: Scheme| setup.plan(&nano(LAYERS, WIDTH, &device()), &scheme);
    let error = plan(setup(), DeepNet::deepnorm().into()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::MissingFact, Some("transformer.h.0.attn.c_proj.weight")));
    assert_eq!(
        error.to_string(),
        "transformer.h.0.attn.c_proj.weight [32, 32]: DeepNorm is LN(alpha x + F(x)), and nothing says that this layer norms after \
         the addition; state it: .norms(\"**\", NormPlacement::Post), or say .without_alpha() if the model multiplies its skip itself; in a Pre-Norm \
         model alpha has no place, so take another scheme, such as gpt2 or subln"
    );
    // Half of the layers is not enough.
    let error = plan(setup().norms("transformer.h.0", NormPlacement::Post), DeepNet::deepnorm().into()).unwrap_err();
    assert_eq!(error.path(), Some("transformer.h.1.attn.c_proj.weight"));
    let told = plan(setup(), DeepNet::deepnorm().without_alpha().into()).unwrap();
    assert_eq!(
        told.warnings(),
        [
            "transformer.h.0.attn.c_proj.weight and 11 more: the model multiplies its skip by alpha = (2N)^1/4 = 1.5651 before the norm"
        ]
    );
    let error = plan(setup().norms("**", NormPlacement::Post), UMup::new().with_tied(true).into()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Config, Some("transformer.h.0.attn.c_proj.weight")));
    // The start of muP sees the model's norms, whatever is said of the base.
    let over = Mup::from(shapes(LAYERS)).with_start(DeepNet::deepnorm()).with_tied(true);
    let mup = plan(setup().norms("**", NormPlacement::Post), over.into()).unwrap();
    let output = mup.get("transformer.h.0.attn.c_proj.weight").unwrap();
    assert!((output.rule().forward - 6f64.powf(-0.25)).abs() < 1e-12, "{}", output.rule().forward);
    let typo = plan(setup().norms("layers.*", NormPlacement::Post), Scheme::gpt2()).unwrap_err();
    assert_eq!(typo.to_string(), ".norms(\"layers.*\", …) matches no layer; paths look like transformer.wte.weight");
    // A norm on the branch takes out what the stream should hear.
    let res_post = || setup().norms("**", NormPlacement::ResPost);
    let depth = Mup::complete_p().with_base(shapes(LAYERS)).with_tied(true);
    let error = plan(res_post(), depth.into()).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Config, Some("transformer.h.0.attn.c_proj.weight")));
    assert!(
        error.to_string().contains("the multiplier 0.66667 of its branch is to go here, and a norm after it"),
        "{error}"
    );
    let warned = plan(res_post(), Scheme::gpt2()).unwrap();
    assert!(
        warned.warnings()[0]
            .starts_with("transformer.h.0.attn.c_proj.weight and 5 more: scaled for depth, and the norm"),
        "{:?}",
        warned.warnings()
    );
    // Post-Norm and tied: the head reads the last norm of the last layer, which carries its multiplier.
    let last: Vec<_> =
        mup.iter().filter(|entry| entry.spec().is_final_norm()).map(|entry| entry.spec().path()).collect();
    assert_eq!(last, ["transformer.ln_f.gamma", "transformer.ln_f.beta"]);
    let facts = plan(setup().norms("**", NormPlacement::Post), Scheme::gpt2()).unwrap();
    let post = facts.iter().filter(|entry| entry.spec().norm_placement() == NormPlacement::Post).count();
    assert_eq!(post, facts.iter().filter(|entry| entry.spec().layer().is_some()).count());
    let file = serde_json::to_string(&setup().norms("transformer.h.*", NormPlacement::Post)).unwrap();
    assert_eq!(serde_json::from_str::<Setup>(&file).unwrap(), setup().norms("transformer.h.*", NormPlacement::Post));
    assert_ne!(setup().norms("**", NormPlacement::Post), setup());
}

/// Another start keeps what the parametrization says of the rest; a whole rule does not.
#[test]
fn another_start_keeps_the_multipliers() {
    let mup = || Mup::complete_p().with_base(shapes(LAYERS)).with_tied(true).with_zeros();
    let model = || nano(LAYERS, WIDTH, &device());
    let rule = |scheme: &dyn Initializer, path: &str| {
        setup().plan(&model(), scheme).unwrap().get(path).unwrap().rule().clone()
    };
    let (writes, reads) = ("transformer.h.1.mlp.c_proj.weight", "transformer.h.1.mlp.c_fc.weight");
    let own = rule(&mup(), writes);
    assert!((own.forward - 2.0 / 3.0).abs() < 1e-12 && own.learning_rate == 0.25, "{own:?}");
    let zero = Rule { init: Init::Zeros, factors: Vec::new(), ..own.clone() };
    assert_eq!(rule(&mup().with(writes, Init::Zeros), writes), zero);
    assert_eq!(rule(&mup().with(writes, Rule::from(Init::Zeros)), writes), Init::Zeros.into());
    assert_eq!(rule(&mup().with(reads, Init::normal(0.01)), reads).learning_rate, 0.25);
    let modified = Modified { zero_residual: true, position_std: Some(0.5), ..Modified::of(mup()) };
    assert_eq!(rule(&modified, writes), zero);
    let position = rule(&modified, "transformer.wpe.weight");
    assert_eq!((position.init, position.epsilon), (Init::normal(0.5), rule(&mup(), "transformer.wpe.weight").epsilon));
    assert_ne!(position.epsilon, 1.0);
    // Where the base has no answer there is nothing to keep.
    let silent = from_fn(move |param| match param.path() == writes {
        true => Err(param.error(ErrorKind::MissingFact, "unknown", "")),
        false => Ok(Some(Init::Ones)),
    });
    assert_eq!(rule(&silent.with(writes, Init::Zeros), writes), Init::Zeros.into());
    // A depth factor on top of the multiplier for depth is one too many.
    for twice in [
        setup().plan(&model(), &mup().depth_scaled(Depth::total())),
        setup().plan(&model(), &Modified { depth: Depth::per_layer(), ..Modified::of(mup()) }),
    ] {
        let error = twice.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ScaledTwice);
        assert!(
            error.to_string().contains("the scheme multiplies its branch by 0.66667 in the forward pass"),
            "{error}"
        );
    }
}

/// A norm of queries takes the multiplier of the scores out again.
#[test]
fn normed_queries() {
    let olmo2 = HuggingFace::from_json(
        r#"{"model_type": "olmo2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 100}"#,
    )
    .unwrap();
    let base = BaseSize { width: 32, head_width: 8, layers: 2 };
    let error = olmo2.plan(&Mup::new().with_base(base)).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Config, Some("model.layers.0.self_attn.q_proj.weight")));
    assert!(
        error.to_string().contains("the multiplier 0.70711 of the scores is to go here, and a norm after it"),
        "{error}"
    );
    let plan = olmo2.plan(&Mup::new().with_base(base).without_attention()).unwrap();
    let normed: Vec<_> =
        plan.iter().filter(|entry| entry.spec().is_normed()).map(|entry| entry.spec().role()).collect();
    assert_eq!(normed[..4], [Role::Query, Role::Key, Role::AttentionOutput, Role::MlpDown]);
    // At the base there is nothing to lose.
    let same = BaseSize { width: 64, head_width: 16, layers: 2 };
    assert!(olmo2.plan(&Mup::new().with_base(same)).is_ok());
    let architecture = Architecture::new(Activation::SwiGlu, 1e-6, false, 32);
    let predicted = plan.predict(&architecture).unwrap();
    assert_eq!(predicted, plan.predict(&architecture.with_qk_norm(true)).unwrap());
}

/// The bias of a packed projection has a gradient through the factor of each block.
#[test]
fn gradients_of_a_packed_bias() {
    let wide = |width| nano(LAYERS, width, &device());
    let shapes = setup().base_shapes(&wide(128), &wide(8)).unwrap();
    let scheme = Mup::from(shapes).with_start(Gpt2::new().with_std(0.2)).with_tied(true);
    let device = device().autodiff();
    let model = setup().initialize(nano(LAYERS, 128, &device), &scheme, 3).unwrap();
    let measured = setup().measure(&model, &batch(6, &device), forward).unwrap();
    let architecture = Architecture::new(Activation::Gelu, 1e-5, true, CONTEXT as u64).with_sequences(6);
    let predicted = setup().plan(&model, &scheme).unwrap().predict(&architecture).unwrap();
    let norm = |start: &StepZero| {
        let path = "transformer.h.1.attn.c_attn.bias";
        start.gradients.iter().find(|gradient| gradient.path == path).unwrap().norm.unwrap()
    };
    // The first block's factor, a quarter, taken for the whole makes it four times as much.
    let ratio = norm(&measured) / norm(&predicted);
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
}

/// T5's attention without `1/sqrt(h)`, on one that has it; and its tied head.
#[test]
fn t5() {
    let hand = Hand { scores: Some(1.0), logits: 1.0 / (WIDTH as f64).sqrt(), ..Hand::default() };
    assert!(difference(both(&with_biases(T5::new().with_tied(true)), LAYERS, &hand)) < ROUNDING);
    let plain = |scheme: T5| setup().plan(&nano(2, WIDTH, &device()), &scheme.with_tied(false)).unwrap();
    assert!(plain(T5::unscaled()).iter().all(|entry| entry.rule().forward == 1.0));
    assert!(plain(T5::scaled()).iter().all(|entry| entry.rule().forward == 1.0));
}

/// At the size of the base model nothing is attached and nothing differs.
#[test]
fn at_the_base_there_is_nothing() {
    let device = device();
    let model = || nano(2, WIDTH, &device);
    let shapes = setup().base_shapes(&model(), &model()).unwrap();
    let start: Scheme = "gpt2".parse().unwrap();
    let mup = Mup::from(shapes).with_tied(true);
    let (with, without) = (setup().plan(&model(), &mup).unwrap(), setup().plan(&model(), &start).unwrap());
    assert!(with.diff(&without).is_empty(), "{}", with.diff(&without));
    let started = setup().initialize(model(), &mup, 1).unwrap();
    assert_eq!(super::attach::attached(&started), []);
    let tokens = batch(1, &device).tokens;
    let plain = setup().initialize(model(), &start, 1).unwrap();
    let logits = |model: &NanoGpt| forward(model, tokens.clone(), &mut Probe::silent()).into_data();
    logits(&started).assert_eq(&logits(&plain), true);
}
