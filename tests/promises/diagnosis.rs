//! Models made ill on purpose: the true cause comes first, by its name and with the parameters that cause it, and their healthy twins raise nothing.
//!
//! Four architectures: the reference tree as GPT-2 and as Llama, a model around burn-nn's encoder, and nanoGPT's names with a fused
//! projection. The last two know nothing of this crate but, the one, its probe.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        attention::generate_autoregressive_mask,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    tensor::{Bool, Device, Int, Tensor, TensorData, activation},
};
use burn_init::{
    Depth, Error, Gpt2, Init, Initializer, ModuleInit as _, Role, from_fn,
    reference::{Norm, NormPlacement, Positions, Transformer, TransformerConfig},
    step_zero::{Activation, Batch, Fault, Finding, Probe, Site, StepZero, measure},
};

use crate::{support::device, trees::NanoGpt};

const VOCAB: usize = 512;
const CONTEXT: usize = 32;
const D: usize = 64;
const LAYERS: usize = 4;
const HEADS: usize = 4;

fn batch(device: &Device) -> Batch {
    let mut state = 7u64;
    let mut tokens = || {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The last twelve rows are padding in one of the tests.
            ((state >> 33) % (VOCAB as u64 - 12)) as i64
        };
        let values: Vec<i64> = (0..4 * CONTEXT).map(next).collect();
        Tensor::<2, Int>::from_data(TensorData::new(values, [4, CONTEXT]), device)
    };
    Batch::new(tokens(), tokens())
}

/// A way to build a model, start it and run it.
struct Patient {
    name: &'static str,
    measure: fn(&dyn Initializer, &Batch, &Device) -> Result<StepZero, Error>,
    tied: bool,
    biased: bool,
    /// Shows the stream and the scores.
    probed: bool,
}

const PATIENTS: [Patient; 4] = [
    Patient { name: "gpt2", measure: gpt2, tied: true, biased: true, probed: true },
    Patient { name: "llama", measure: llama, tied: false, biased: false, probed: true },
    Patient { name: "encoder", measure: encoder, tied: false, biased: true, probed: false },
    Patient { name: "nanogpt", measure: nano, tied: true, biased: true, probed: true },
];

fn gpt2(scheme: &dyn Initializer, batch: &Batch, device: &Device) -> Result<StepZero, Error> {
    let config = TransformerConfig::new(VOCAB, CONTEXT, D, LAYERS, HEADS);
    measure(&config.init_with(scheme, 3, device)?, batch, Transformer::forward_with)
}

fn llama(scheme: &dyn Initializer, batch: &Batch, device: &Device) -> Result<StepZero, Error> {
    let config = TransformerConfig::new(VOCAB, CONTEXT, D, LAYERS, HEADS)
        .with_norm(Norm::RmsNorm)
        .with_positions(Positions::Rotary)
        .with_activation(Activation::SwiGlu)
        .with_n_kv_heads(2)
        .with_bias(false)
        .with_tied(false);
    measure(&config.init_with(scheme, 4, device)?, batch, Transformer::forward_with)
}

#[derive(Module, Debug)]
struct EncoderLm {
    token_embedding: Embedding,
    position_embedding: Embedding,
    encoder: TransformerEncoder,
    norm: LayerNorm,
    lm_head: Linear,
}

fn encoder(scheme: &dyn Initializer, batch: &Batch, device: &Device) -> Result<StepZero, Error> {
    let config = TransformerEncoderConfig::new(D, 4 * D, HEADS, LAYERS).with_norm_first(true).with_dropout(0.0);
    let model = EncoderLm {
        token_embedding: EmbeddingConfig::new(VOCAB, D).init(device),
        position_embedding: EmbeddingConfig::new(CONTEXT, D).init(device),
        encoder: config.init(device),
        norm: LayerNormConfig::new(D).init(device),
        lm_head: LinearConfig::new(D, VOCAB).with_bias(false).init(device),
    }
    .initialize(scheme, 5)?;
    measure(&model, batch, |model, tokens, _| {
        let [rows, length] = tokens.dims();
        let positions = Tensor::<1, Int>::arange(0..length as i64, &tokens.device()).unsqueeze();
        let mask = generate_autoregressive_mask(rows, length, &tokens.device());
        let x = model.token_embedding.forward(tokens) + model.position_embedding.forward(positions);
        let x = model.encoder.forward(TransformerEncoderInput::new(x).mask_attn(mask));
        model.lm_head.forward(model.norm.forward(x))
    })
}

fn nano(scheme: &dyn Initializer, batch: &Batch, device: &Device) -> Result<StepZero, Error> {
    let model = NanoGpt::new(LAYERS, D, VOCAB, CONTEXT, device).initialize(scheme, 6)?;
    measure(&model, batch, |model, tokens, probe| nano_forward(model, tokens, true, probe))
}

fn nano_forward(model: &NanoGpt, tokens: Tensor<2, Int>, positions: bool, probe: &mut Probe<'_>) -> Tensor<3> {
    let [rows, length] = tokens.dims();
    let device = tokens.device();
    let model = &model.transformer;
    let mut x = model.wte.forward(tokens);
    if positions {
        x = x + model.wpe.forward(Tensor::<1, Int>::arange(0..length as i64, &device).unsqueeze());
    }
    let mask = Tensor::<2, Bool>::tril_mask([length, length], 0, &device).unsqueeze::<4>();
    for (layer, block) in (0..).zip(&model.h) {
        x = probe.pass(Site::ResidPre.in_layer(layer), x);
        let [query, key, value] =
            block.attn.c_attn.forward(block.ln_1.forward(x.clone())).chunk(3, 2).try_into().unwrap();
        let split = |x: Tensor<3>| x.reshape([rows, length, HEADS, D / HEADS]).swap_dims(1, 2);
        let scores = split(query).matmul(split(key).transpose()) / ((D / HEADS) as f64).sqrt();
        let scores = scores.mask_fill(mask.clone(), f32::NEG_INFINITY);
        probe.show(Site::AttnScores.in_layer(layer), &scores.clone().reshape([rows * HEADS, length, length]));
        let mixed = activation::softmax(scores, 3).matmul(split(value)).swap_dims(1, 2).reshape([rows, length, D]);
        let branch = block.attn.c_proj.forward(mixed);
        probe.show(Site::AttnOut.in_layer(layer), &branch);
        x = probe.pass(Site::ResidMid.in_layer(layer), x + branch);
        let hidden = activation::gelu(block.mlp.c_fc.forward(block.ln_2.forward(x.clone())));
        let branch = block.mlp.c_proj.forward(hidden);
        probe.show(Site::MlpOut.in_layer(layer), &branch);
        x = probe.pass(Site::ResidPost.in_layer(layer), x + branch);
    }
    let x = model.ln_f.forward(x);
    probe.show(Site::FinalNorm, &x);
    x.matmul(model.wte.weight.val().transpose().unsqueeze::<3>())
}

/// A way to make a model ill, what must be found first, and a part of the path that must be named.
struct Illness {
    fault: Fault,
    scheme: Box<dyn Initializer>,
    named: &'static str,
    needs: fn(&Patient) -> bool,
}

fn any(_: &Patient) -> bool {
    true
}

/// Answers for the parameters that `pick` picks.
fn start(pick: fn(&burn_init::ParamSpec) -> bool, init: Init) -> impl Initializer {
    from_fn(move |param| pick(param).then(|| init.clone()))
}

fn illnesses() -> Vec<Illness> {
    let gpt2 = Gpt2::new;
    let branches = 2.0 * LAYERS as f64;
    let table = |param: &burn_init::ParamSpec| matches!(param.role(), Role::OutputHead | Role::TokenEmbedding);
    let writes = |param: &burn_init::ParamSpec| param.writes().is_some();
    let ill = |fault, scheme: Box<dyn Initializer>, named, needs| Illness { fault, scheme, named, needs };
    vec![
        ill(Fault::LogitsTooWide, Box::new(start(table, Init::normal(1.0)).or(gpt2())), "", any),
        ill(Fault::DepthUnscaled, Box::new(gpt2().with_depth(Depth::none())), "", any),
        ill(Fault::DepthScaledTwice, Box::new(start(writes, Init::normal(0.02 / branches)).or(gpt2())), "", any),
        ill(Fault::DepthWrong, Box::new(start(writes, Init::normal(0.02 / 96f64.sqrt())).or(gpt2())), "", any),
        ill(
            Fault::BranchOutOfScale,
            Box::new(start(|p| p.role() == Role::MlpDown && p.layer() == Some(2), Init::normal(0.02)).or(gpt2())),
            "2.",
            any,
        ),
        ill(
            Fault::BranchOutOfScale,
            Box::new(
                start(|p| p.role() == Role::AttentionOutput && p.layer() == Some(1), Init::normal(0.2)).or(gpt2()),
            ),
            "1.",
            any,
        ),
        ill(
            Fault::BranchOutOfScale,
            Box::new(start(|p| p.role() == Role::MlpDown, Init::normal(0.02)).or(gpt2())),
            "3.",
            any,
        ),
        ill(
            Fault::GainNotOne,
            Box::new(start(|p| p.role() == Role::NormGain && p.layer().is_some(), Init::constant(0.5)).or(gpt2())),
            "norm",
            |patient| patient.name != "nanogpt",
        ),
        ill(
            Fault::Dead,
            Box::new(start(|p| p.role() == Role::NormGain && p.layer().is_none(), Init::Zeros).or(gpt2())),
            "",
            any,
        ),
        ill(
            Fault::BiasNotZero,
            Box::new(start(|p| p.role() == Role::Bias, Init::normal(0.02)).or(gpt2())),
            "bias",
            |patient| patient.biased,
        ),
        ill(
            Fault::BiasNotZero,
            Box::new(start(|p| p.role() == Role::Bias, Init::normal(0.5)).or(gpt2())),
            "bias",
            |patient| patient.biased,
        ),
        ill(
            Fault::ScoresTooWide,
            Box::new(start(|p| matches!(p.role(), Role::Query | Role::Key), Init::normal(0.2)).or(gpt2())),
            "",
            |patient| patient.probed,
        ),
        ill(
            Fault::CopiesInput,
            Box::new(
                start(|p| p.writes().is_some(), Init::Zeros)
                    .or(start(|p| p.role() == Role::TokenEmbedding, Init::normal(0.115)))
                    .or(gpt2()),
            ),
            "",
            |patient| patient.tied,
        ),
        ill(
            Fault::NormEpsilon,
            Box::new(
                start(|p| matches!(p.role(), Role::TokenEmbedding | Role::PositionEmbedding), Init::normal(0.001))
                    .or(gpt2()),
            ),
            "",
            |patient| patient.probed,
        ),
        ill(
            Fault::DeadFirstStep,
            Box::new(start(|p| p.role() == Role::OutputHead, Init::Zeros).or(gpt2())),
            "head",
            |patient| !patient.tied,
        ),
    ]
}

#[test]
fn healthy_models_raise_nothing() {
    let device = device().autodiff();
    for patient in &PATIENTS {
        let healthy = (patient.measure)(&Gpt2::new(), &batch(&device), &device).unwrap();
        assert_eq!(healthy.findings(), [], "{}", patient.name);
        assert!(healthy.check().is_ok());
        assert!(!healthy.parameters.is_empty() && !healthy.gradients.is_empty());
    }
}

#[test]
fn the_true_cause_comes_first() {
    let device = device().autodiff();
    let (mut cases, mut wrong) = (0, Vec::new());
    for illness in illnesses() {
        for patient in PATIENTS.iter().filter(|patient| (illness.needs)(patient)) {
            let found = (patient.measure)(&illness.scheme, &batch(&device), &device).unwrap();
            let findings = found.findings();
            let first = findings.first();
            let named = |finding: &Finding| finding.parameters.iter().any(|path| path.contains(illness.named));
            cases += 1;
            if !first.is_some_and(|first| first.fault == illness.fault && (illness.named.is_empty() || named(first))) {
                wrong.push(format!("{} {:?}: {}", patient.name, illness.fault, found));
            }
        }
    }
    assert!(cases >= 45, "{cases}");
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// C09: one row with 50 times the std of the rest is named by its index.
#[test]
fn one_loud_row_is_named() {
    let device = device();
    let config = TransformerConfig::new(1000, 32, 64, 2, 4);
    let mut model = config.init_with(&Gpt2::new(), 1, &device).unwrap();
    let healthy = measure(&model, &batch(&device), Transformer::forward_with).unwrap();
    assert!(healthy.findings().iter().all(|finding| finding.fault != Fault::RowOutOfScale));
    model.token_embedding.weight = model.token_embedding.weight.map(|table| {
        let loud = table.clone().slice([123..124, 0..64]) * 50.0;
        table.slice_assign([123..124, 0..64], loud)
    });
    let ill = measure(&model, &batch(&device), Transformer::forward_with).unwrap();
    let first = &ill.findings()[0];
    assert_eq!(
        (first.fault, first.parameters.as_slice()),
        (Fault::RowOutOfScale, ["token_embedding.weight".to_string()].as_slice())
    );
    assert!(first.cause.starts_with("row 123 of a table has std 0.8792, 43.9 times"), "{}", first.cause);
}

/// C08: twelve rows of padding that nobody masks.
#[test]
fn padding_is_told() {
    let device = device();
    let model = TransformerConfig::new(VOCAB, CONTEXT, D, 2, HEADS).init_with(&Gpt2::new(), 1, &device).unwrap();
    let ill = measure(&model, &batch(&device).with_vocab(500), Transformer::forward_with).unwrap();
    assert_eq!(ill.findings()[0].fault, Fault::PaddingCounts);
    let masked = measure(&model, &batch(&device).with_vocab(500), |model, tokens, probe| {
        let logits = model.forward_with(tokens, probe);
        let [rows, length, _] = logits.dims();
        let padding = Tensor::<3>::full([rows, length, 12], f32::NEG_INFINITY, &logits.device());
        Tensor::cat(vec![logits.slice([0..rows, 0..length, 0..500]), padding], 2)
    });
    assert!(masked.unwrap().check().is_ok());
}

/// C05: gain 0 kills every gradient of the body; a zero head does so for one step only.
#[test]
fn dead_for_ever_and_dead_for_a_step() {
    let device = device().autodiff();
    let body = |s: &StepZero| {
        let inner = |g: &&burn_init::step_zero::Gradient| g.path.starts_with("blocks") && g.norm > Some(0.0);
        s.gradients.iter().filter(inner).count()
    };
    let head = |s: &StepZero| s.gradients.iter().find(|g| g.path == "head.weight").unwrap().norm.unwrap();
    let gain = start(|p| p.role() == Role::NormGain && p.layer().is_none(), Init::Zeros).or(Gpt2::new());
    let dead = llama(&gain, &batch(&device), &device).unwrap();
    assert!((dead.loss - dead.ln_vocab()).abs() < 1e-6);
    assert_eq!((body(&dead), head(&dead)), (0, 0.0));
    assert_eq!(dead.findings()[0].parameters, ["norm_final.Rms.gamma"]);
    assert!(dead.check().is_err());
    let zero = start(|p| p.role() == Role::OutputHead, Init::Zeros).or(Gpt2::new());
    let waiting = llama(&zero, &batch(&device), &device).unwrap();
    assert!((waiting.loss - waiting.ln_vocab()).abs() < 1e-6);
    assert!(body(&waiting) == 0 && head(&waiting) > 0.0);
    assert!(waiting.check().is_ok(), "a zero head is a note");
}

#[test]
fn a_parameter_outside_of_the_graph_is_named() {
    let device = device().autodiff();
    let model = NanoGpt::new(LAYERS, D, VOCAB, CONTEXT, &device).initialize(&Gpt2::new(), 6).unwrap();
    let ill = measure(&model, &batch(&device), |m, tokens, probe| nano_forward(m, tokens, false, probe)).unwrap();
    let first = &ill.findings()[0];
    assert_eq!(
        (first.fault, first.parameters.as_slice()),
        (Fault::NoGradient, ["transformer.wpe.weight".to_string()].as_slice())
    );
}

/// What only a loop of the user's can do wrong.
#[test]
fn a_reported_loss_is_explained() {
    let device = device();
    let healthy = gpt2(&Gpt2::new(), &batch(&device), &device).unwrap();
    let positions = (4 * CONTEXT) as f64;
    let fault = |loss: f64| healthy.clone().with_reported_loss(loss).findings().first().map(|finding| finding.fault);
    assert_eq!(fault(healthy.loss), None);
    assert_eq!(fault(healthy.loss * positions), Some(Fault::LossIsSum));
    assert_eq!(fault(healthy.loss / 2f64.ln()), Some(Fault::LossInBits));
    assert_eq!(fault(healthy.loss * 32.0), Some(Fault::LossIsSum));
    assert_eq!(fault(healthy.loss.exp()), Some(Fault::LossIsPerplexity));
    assert_eq!(fault(healthy.loss * 0.5), Some(Fault::Unexplained));
}

/// Faults that take a depth or a dtype beyond a test's size, by numbers put into a healthy measurement.
#[test]
fn deep_and_narrow_faults() {
    let device = device().autodiff();
    let healthy = gpt2(&Gpt2::new(), &batch(&device), &device).unwrap();
    let fault = |change: fn(&mut StepZero)| {
        let mut ill = healthy.clone();
        change(&mut ill);
        ill.findings().first().map(|finding| finding.fault)
    };
    assert_eq!(fault(|_| {}), None);
    assert_eq!(fault(|s| s.stream[5].correlation = Some(0.93)), Some(Fault::TokensCollapse));
    let slope = |s: &mut StepZero, factor: f64| {
        for (i, reading) in s.stream.iter_mut().enumerate() {
            reading.gradient = Some(factor.powi(i as i32));
        }
    };
    assert_eq!(fault(|s| s.branches[1].second_moment = s.stream[8].second_moment), Some(Fault::FirstBranchDominates));
    let mut ill = healthy.clone();
    slope(&mut ill, 0.2);
    assert_eq!(ill.findings()[0].fault, Fault::GradientsExplode);
    slope(&mut ill, 5.0);
    assert_eq!(ill.findings()[0].fault, Fault::GradientsVanish);
    slope(&mut ill, 2.0);
    assert_eq!(ill.findings(), []);
    let half = |s: &mut StepZero| s.parameters.iter_mut().for_each(|parameter| parameter.precision = Some(11));
    let mut ill = healthy.clone();
    half(&mut ill);
    assert_eq!(ill.findings(), []);
    ill.gradients[3].norm = Some(1e-7);
    let first = ill.findings().remove(0);
    assert_eq!((first.fault, first.parameters), (Fault::HalfPrecision, vec![ill.gradients[3].path.clone()]));
    ill.stream[4].second_moment = 2e8;
    assert_eq!(ill.findings()[0].fault, Fault::HalfPrecision);
}

fn first(s: &StepZero) -> (Fault, String) {
    let finding = s.findings().into_iter().next().unwrap_or_else(|| panic!("{s}"));
    let text = finding.to_string();
    (finding.fault, text)
}

/// Faults that look like others: the one that causes them is named.
#[test]
fn no_innocent_parameter_is_named() {
    let device = device().autodiff();
    let start = |pick: fn(&burn_init::ParamSpec) -> bool, init: Init| start(pick, init).or(Gpt2::new());

    let gain = llama(
        &start(|p| p.role() == Role::NormGain && p.layer().is_none(), Init::constant(30.0)),
        &batch(&device),
        &device,
    );
    let (fault, text) = first(&gain.unwrap());
    assert!(
        fault == Fault::LogitsTooWide && text.contains("the final norm gives") && text.contains("norm_final"),
        "{text}"
    );

    let qkv =
        nano(&start(|p| p.role() == Role::Value && p.layer() == Some(1), Init::normal(0.6)), &batch(&device), &device);
    let (fault, text) = first(&qkv.unwrap());
    assert!(fault == Fault::MatrixOutOfScale && text.contains("h.1.attn.c_attn.weight"), "{text}");

    let alike = llama(&start(|p| p.role() == Role::TokenEmbedding, Init::constant(0.02)), &batch(&device), &device);
    assert_eq!(first(&alike.unwrap()).0, Fault::TokensAlike);

    let drowned = gpt2(&start(|p| p.role() == Role::PositionEmbedding, Init::normal(2.0)), &batch(&device), &device);
    assert_eq!(first(&drowned.unwrap()).0, Fault::PositionsDrown);

    let head = llama(&start(|p| p.role() == Role::OutputHead, Init::Ones), &batch(&device), &device);
    let (_, text) = first(&head.unwrap());
    assert!(text.contains("all rows of the head are the same"), "{text}");

    let config = TransformerConfig::new(VOCAB, CONTEXT, D, 2, HEADS);
    let model = config.init_with(&Gpt2::new(), 1, &device).unwrap();
    let loud = measure(&model, &batch(&device), |m, tokens, probe| m.forward_with(tokens, probe) * 20.0);
    let (fault, text) = first(&loud.unwrap());
    assert!(fault == Fault::LogitsTooWide && text.contains("times what the head's std makes"), "{text}");

    let mut unshifted = batch(&device);
    unshifted.targets = unshifted.tokens.clone();
    assert_eq!(first(&measure(&model, &unshifted, Transformer::forward_with).unwrap()).0, Fault::TargetsAreInputs);
}

/// A row of an untied head is one of its columns.
#[test]
fn one_loud_row_of_a_head_is_named() {
    let device = device();
    let config = TransformerConfig::new(VOCAB, CONTEXT, D, 2, HEADS).with_tied(false);
    let mut model = config.init_with(&Gpt2::new(), 1, &device).unwrap();
    let head = model.head.as_mut().unwrap();
    head.weight = head.weight.clone().map(|table| {
        let loud = table.clone().slice([0..D, 77..78]) * 200.0;
        table.slice_assign([0..D, 77..78], loud)
    });
    let (fault, text) = first(&measure(&model, &batch(&device), Transformer::forward_with).unwrap());
    assert!(fault == Fault::RowOutOfScale && text.contains("row 77") && text.contains("head.weight"), "{text}");
}

/// Published schemes differ on purpose: none of them is an error, and warnings are only what their own numbers say.
#[test]
fn published_schemes_are_no_faults() {
    let device = device();
    let config = TransformerConfig::new(VOCAB, CONTEXT, D, LAYERS, HEADS)
        .with_norm(Norm::RmsNorm)
        .with_positions(Positions::Rotary)
        .with_activation(Activation::SwiGlu)
        .with_bias(false)
        .with_tied(false);
    // Kaiming's gain makes scores of std 2, mimetic ones are wide on purpose; modded-nanogpt's table is small for an epsilon of 1e-5, and a
    // quarter of muP's base width multiplies the logits by 4.
    let wide = ["kaiming-normal", "kaiming-uniform", "llm-foundry", "mimetic", "modded-nanogpt", "mup-cerebras"];
    let (mut sound, mut alarms) = (0, Vec::new());
    for (name, scheme, _) in burn_init::Scheme::all() {
        let placement = if name.starts_with("deepnorm") { NormPlacement::Post } else { NormPlacement::Pre };
        let config = config.clone().with_norm_placement(placement);
        let setup = config.setup();
        let Ok(model) = config.build(&device).and_then(|model| setup.initialize(model, &scheme, 3)) else { continue };
        let found = setup.measure(&model, &batch(&device), Transformer::forward_with).unwrap();
        // Multipliers scale for depth as well as factors do.
        if ["u-mup", "complete-p", "depth-mup"].contains(&name) || placement == NormPlacement::Post {
            let depth = |finding: &Finding| [Fault::DepthUnscaled, Fault::DepthWrong].contains(&finding.fault);
            assert!(!found.findings().iter().any(depth), "{name}\n{found}");
        }
        match found.check() {
            Ok(()) => sound += 1,
            Err(_) if wide.contains(&name) => {}
            Err(error) => alarms.push(format!("{name}: {error}")),
        }
    }
    assert!(sound >= 40 && alarms.is_empty(), "{sound}\n{}", alarms.join("\n"));
}

#[test]
fn odd_models_do_not_panic() {
    let device = device().autodiff();
    let config = TransformerConfig::new(VOCAB, CONTEXT, D, 2, HEADS);
    let model = config.init_with(&Gpt2::new(), 1, &device).unwrap();
    // Logits without a graph have no gradients.
    let cut = measure(&model, &batch(&device), |m, tokens, _| m.forward(tokens).detach()).unwrap();
    assert!(cut.gradients.iter().all(|gradient| gradient.norm.is_none()));
    // A token that the table does not have is told before the forward pass.
    let mut outside = batch(&device);
    outside.tokens = outside.tokens.clone() + VOCAB as i64;
    let error = measure(&model, &outside, Transformer::forward_with).unwrap_err().to_string();
    assert!(error.contains("is outside of the vocabulary"), "{error}");
    // Two tokens only.
    let two = TransformerConfig::new(2, 8, 64, 2, 4).init_with(&Gpt2::new(), 1, &device).unwrap();
    let tokens = Tensor::<2, Int>::from_data([[0i64, 1, 1, 0, 1, 0, 0, 1]], &device);
    let targets = Tensor::<2, Int>::from_data([[1i64, 1, 0, 1, 0, 0, 1, 0]], &device);
    let measured = measure(&two, &Batch::new(tokens, targets), Transformer::forward_with).unwrap();
    assert!(measured.findings().iter().all(|finding| finding.fault != Fault::Dead), "{measured}");

    let shown = |site: burn_init::step_zero::Point, shape: [usize; 3]| {
        let x = Tensor::<3>::zeros(shape, &device);
        let result = measure(&model, &batch(&device), |m, tokens, probe| {
            probe.show(Site::ResidPre.in_layer(0), &Tensor::zeros([4, CONTEXT, D], &device));
            probe.show(site, &x);
            m.forward(tokens)
        });
        result.unwrap_err().to_string()
    };
    assert!(shown(Site::ResidMid.in_layer(0), [4, CONTEXT, 0]).contains("it is empty"));
    assert!(shown(Site::ResidMid.in_layer(0), [4, CONTEXT, D + 1]).contains("another width"));
    assert!(shown(Site::ResidMid.in_layer(0), [2, CONTEXT, D]).contains("another batch or length"));
    assert!(shown(Site::AttnScores.into(), [4, CONTEXT, CONTEXT]).contains("it belongs to no layer"));
    assert!(shown(Site::AttnScores.in_layer(0), [4, CONTEXT, 3]).contains("[batch * heads, seq, seq]"));

    // Masks without infinity.
    let masked = measure(&model, &batch(&device), |m, tokens, probe| {
        let mask = Tensor::<2, Bool>::tril_mask([CONTEXT, CONTEXT], 0, &device).unsqueeze::<3>();
        probe.show(Site::AttnScores.in_layer(0), &Tensor::zeros([1, CONTEXT, CONTEXT], &device).mask_fill(mask, -1e9));
        m.forward(tokens)
    });
    assert_eq!(masked.unwrap().attention[0].std, 0.0);

    let healthy = gpt2(&Gpt2::new(), &batch(&device), &device).unwrap();
    assert!(StepZero::mean(&[StepZero::mean(&[healthy.clone(), healthy.clone()]).unwrap(), healthy]).is_err());
}
