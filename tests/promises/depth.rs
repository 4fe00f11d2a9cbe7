//! What writes into the residual stream is scaled by the number of additions, once.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
};
use burn_init::{
    BurnDefault, Depth, ErrorKind, Gpt2, Gpt2Normal, Init, Initializer, ModuleInit as _, NeutralNorm, Plan, Role,
    Setup, StackPlace, Xavier, from_fn,
};

use crate::{
    support::{assert_std, device, std_agrees, values},
    trees::{NanoBlock, NanoGpt},
};

fn nano(layers: usize) -> NanoGpt {
    NanoGpt::new(layers, 32, 100, 16, &device())
}

/// The sigmas of the MLP's output projections, layer by layer.
fn down(plan: &Plan) -> Vec<f64> {
    plan.iter().filter(|entry| entry.spec().role() == Role::MlpDown).map(|entry| entry.std()).collect()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 5e-8, "{found:?}, expected {expected:?}");
    }
}

fn base() -> impl Initializer {
    Gpt2Normal::new().or(NeutralNorm::new())
}

/// C13: layers, additions or the index of the layer.
#[test]
fn depth_rules() {
    let model = nano(4);
    let plan = |depth: Depth| model.plan(&base().depth_scaled(depth)).unwrap();
    assert_close(&down(&plan(Depth::total())), &[0.0070711; 4]);
    assert_close(&down(&plan(Depth::per_layer())), &[0.0141421, 0.01, 0.0081650, 0.0070711]);
    assert_close(&down(&plan(Depth::layers())), &[0.01; 4]);
    assert_close(&down(&plan(Depth::count(16))), &[0.005; 4]);
    assert_close(&down(&plan(Depth::power(4.0, 0.25))), &[0.02 / 32f64.powf(0.25); 4]);
    // ALBERT: one layer used four times.
    let shared = Setup::new().stack("transformer.h", StackPlace::layers(4));
    assert_close(&down(&shared.plan(&nano(1), &Gpt2::new()).unwrap()), &[0.0070711]);
}

#[test]
fn chosen_roles() {
    let scheme = base().depth_scaled(Depth::total().on([Role::MlpIn, Role::MlpDown]));
    let plan = nano(2).plan(&scheme).unwrap();
    assert_eq!(plan.get("transformer.h.0.mlp.c_fc.weight").unwrap().std(), 0.01);
    assert_eq!(plan.get("transformer.h.0.mlp.c_proj.weight").unwrap().std(), 0.01);
    assert_eq!(plan.get("transformer.h.0.attn.c_proj.weight").unwrap().std(), 0.02);
}

/// C16: the base of the scheme does not matter.
#[test]
fn over_xavier() {
    let model = NanoGpt::new(12, 512, 100, 16, &device());
    let plan = model.plan(&Xavier::normal().depth_scaled(Depth::total())).unwrap();
    let std = |path: &str| plan.get(path).unwrap().std();
    assert!((std("transformer.h.7.attn.c_proj.weight") - 0.009021).abs() < 5e-7);
    assert!((std("transformer.h.7.mlp.c_proj.weight") - 0.0057054).abs() < 5e-8);
}

/// C12: a second depth factor is an error, and initializing twice gives what initializing once gives.
#[test]
fn twice_is_an_error_and_repeating_is_not() {
    let model = NanoGpt::new(12, 64, 100, 16, &device());
    let error = model.plan(&Gpt2::new().depth_scaled(Depth::total())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ScaledTwice);
    let error = model.plan(&base().depth_scaled(Depth::total()).depth_scaled(Depth::per_layer())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ScaledTwice);

    let once = model.initialize(&Gpt2::new(), 1).unwrap();
    let twice = once.clone().initialize(&Gpt2::new(), 1).unwrap();
    assert_eq!(values(&once), values(&twice));
    assert_std(&values(&twice)["transformer.h.5.mlp.c_proj.weight"], 0.0040825, "scaled once");
}

/// C15: a pipeline stage that is told its place has the table, the paths and the values of the whole.
#[test]
fn pipeline_stage() {
    let whole = nano(12).initialize(&Gpt2::new(), 3).unwrap();
    let blocks: Vec<NanoBlock> = (0..6).map(|_| NanoBlock::new(32, &device())).collect();
    let place = StackPlace::layers(12).first_layer(6);
    let setup = Setup::new().prefix("transformer.h").stack("transformer.h", place);
    let plan = setup.plan(&blocks, &Gpt2::new()).unwrap();
    assert_close(&down(&plan), &[0.0040825; 6]);
    let stage = values(&setup.initialize(blocks, &Gpt2::new(), 3).unwrap());
    let whole = values(&whole);
    for layer in 0..6 {
        let name = format!("{layer}.mlp.c_proj.weight");
        assert_eq!(stage[&name], whole[&format!("transformer.h.{}.mlp.c_proj.weight", layer + 6)]);
    }
    // Per layer, too.
    let per_layer = setup.plan(
        &(0..6).map(|_| NanoBlock::new(32, &device())).collect::<Vec<_>>(),
        &base().depth_scaled(Depth::per_layer()),
    );
    assert_close(&down(&per_layer.unwrap())[..1], &[0.02 / 14f64.sqrt()]);
}

/// C56: a block on its own is warned about; told its stack and its path, it has the values of the whole.
#[test]
fn block_on_its_own() {
    let block = NanoBlock::new(32, &device());
    let plan = block.plan(&Gpt2::new()).unwrap();
    assert_eq!(
        plan.warnings(),
        [
            "a stack of one layer at the root: if it is part of a deeper model, say so with .stack(\"**\", StackPlace::layers(N))"
        ]
    );
    assert_close(&down(&plan), &[0.0141421]);
    let setup = Setup::new().prefix("transformer.h.3").stack("**", StackPlace::layers(12).first_layer(3));
    let plan = setup.plan(&block, &Gpt2::new()).unwrap();
    assert!(plan.warnings().is_empty());
    assert_close(&down(&plan), &[0.0040825]);
    let part = values(&setup.initialize(block, &Gpt2::new(), 3).unwrap());
    let whole = values(&nano(12).initialize(&Gpt2::new(), 3).unwrap());
    assert_eq!(part["attn.c_proj.weight"], whole["transformer.h.3.attn.c_proj.weight"]);
}

/// C57: there is nothing to scale in a parameter that is kept. `.with` outside of the scaling is final, inside it is scaled.
#[test]
fn keep_and_overrides() {
    let kept = from_fn(|param| param.writes().map(|_| Init::Keep)).or(base()).depth_scaled(Depth::total());
    assert_eq!(nano(2).plan(&kept).unwrap_err().kind(), ErrorKind::ScaledKept);

    let path = "transformer.h.0.mlp.c_proj.weight";
    let outside = base().depth_scaled(Depth::total()).with("**.mlp.c_proj.weight", Init::normal(0.5));
    assert_eq!(nano(2).plan(&outside).unwrap().get(path).unwrap().std(), 0.5);
    let inside = base().with("**.mlp.c_proj.weight", Init::normal(0.5)).depth_scaled(Depth::total());
    assert_eq!(nano(2).plan(&inside).unwrap().get(path).unwrap().std(), 0.25);
    let zero = base().with(Role::MlpDown, Init::Zeros).depth_scaled(Depth::total());
    assert_eq!(down(&nano(2).plan(&zero).unwrap()), [0.0, 0.0]);
}

/// C10: the same draws, divided: to one rounding of the product in f32.
#[test]
fn scaled_is_unscaled_divided() {
    let plain = values(&nano(6).initialize(&Gpt2::new().with_depth(Depth::none()), 9).unwrap());
    let scaled = values(&nano(6).initialize(&Gpt2::new(), 9).unwrap());
    for (path, values) in &plain {
        let divisor = if path.ends_with("c_proj.weight") { 12f64.sqrt() } else { 1.0 };
        for (&a, &b) in values.iter().zip(&scaled[path]) {
            // Either value is rounded once: half a unit in the last place each.
            let expected = f64::from(a) / divisor;
            assert!(
                (f64::from(b) - expected).abs() <= expected.abs() * f64::from(f32::EPSILON),
                "{path}: {b} {expected}"
            );
        }
    }
}

/// The checks above can fail: three faults of the field, each caught.
#[test]
fn mutants_are_caught() {
    let path = "transformer.h.3.mlp.c_proj.weight";
    let measured = |scheme: &dyn Initializer| {
        values(&NanoGpt::new(6, 64, 100, 16, &device()).initialize(scheme, 5).unwrap()).remove(path).unwrap()
    };
    let expected = 0.02 / 12f64.sqrt();
    assert!(std_agrees(&measured(&Gpt2::new()), expected));
    let unscaled = Gpt2::new().with(path, Init::normal(0.02));
    assert!(!std_agrees(&measured(&unscaled), expected), "one branch left unscaled");
    let layers = Gpt2::new().with_depth(Depth::count(6));
    assert!(!std_agrees(&measured(&layers), expected), "N taken for 2N");
    let wide = Gpt2::new().with_std(0.022);
    assert!(!std_agrees(&measured(&wide), expected), "a std off by 10 %");
    assert!(!std_agrees(&measured(&BurnDefault::new()), expected), "burn's default");
}

#[derive(Module, Debug)]
struct FlatBlock {
    wo: Linear,
    fc2: Linear,
}

/// Attention and MLP that stand side by side in one struct are two additions all the same.
#[test]
fn flat_blocks() {
    let linear = || LinearConfig::new(64, 64).with_bias(false).init(&device());
    let model: Vec<FlatBlock> = (0..4).map(|_| FlatBlock { wo: linear(), fc2: linear() }).collect();
    let setup = Setup::new().role("*.wo.weight", Role::AttentionOutput);
    let plan = setup.plan(&model, &base().depth_scaled(Depth::total())).unwrap();
    assert_close(&plan.iter().map(|entry| entry.std()).collect::<Vec<_>>(), &[0.0070711; 8]);
}
