//! Cases from the field, over every scheme that they touch.

use burn::module::Param;
use burn_init::{
    ErrorKind, FactorKind, Init, Initializer as _, Law, ModuleInit as _, Plan, Role, Scheme, Setup,
    sample::{Distribution, truncated_moments},
    schemes::Modified,
};

use super::complete::{model, or_ones};
use crate::{
    support::{device, setup_for, values},
    trees::{Llama, NanoGpt},
};

fn plan(name: &str, scheme: &Scheme, sizes: [usize; 5]) -> Plan {
    let plan = setup_for(name, 4).plan(&model(name, sizes), &or_ones(scheme));
    plan.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The product of the factors for depth.
fn depth(entry: &burn_init::Entry) -> f64 {
    let factors = entry.rule().factors.iter();
    factors.filter(|factor| factor.kind == FactorKind::Depth).map(|factor| factor.value).product()
}

/// C13: layers, additions or the index of the layer. The factor of the down projections of four layers, for every scheme.
#[test]
fn depth_factors_of_four_layers() {
    let per_layer = [0.5f64.sqrt(), 0.5, 0.408248, 0.353553];
    for (name, scheme, _) in Scheme::all() {
        let expected = match name {
            "gpt2"
            | "megatron"
            | "olmo-full-megatron"
            | "olmo-core-llama"
            | "torchtitan-qwen3-moe"
            | "modernbert"
            | "llm-foundry"
            | "mup"
            | "mup-sgd"
            | "mup-megatron"
            | "mup-cerebras" => [0.353553; 4],
            "olmo-mitchell"
            | "olmo-core-llama-depth"
            | "torchtitan-llama3"
            | "torchtitan-llama3-tied"
            | "torchtitan-gpt-oss"
            | "lingua-current-depth"
            | "vit-timm-fix-init" => per_layer,
            "megatron-hybrid" | "gpt-neox" => [0.5; 4],
            "litgpt" => [0.25; 4],
            "lingua-global-depth" => [0.316228; 4],
            "deepnorm" | "deepnorm-torchscale" => [0.420448; 4],
            "subln" | "subln-torchscale" => [1.442027; 4],
            // The encoder's, which comes first in the tree.
            "deepnorm-encoder-decoder" => [0.564125; 4],
            "deepnorm-encoder-decoder-torchscale" => [0.745683; 4],
            "subln-encoder-decoder" => [1.312405; 4],
            "t-fixup" => [0.408248; 4],
            "t-fixup-encoder" => [0.473762; 4],
            // What is 0 has no factor, and the others have none.
            _ => [1.0; 4],
        };
        let plan = plan(name, &scheme, [4, 32, 32, 48, 60]);
        let down = plan.iter().filter(|entry| entry.spec().role() == Role::MlpDown);
        for (entry, expected) in down.take(4).zip(expected) {
            let found = depth(entry);
            assert!((found / expected - 1.0).abs() < 2e-6, "{name}: {} {found}, {expected}", entry.spec().path());
            // The std is that of the init times the factor, so that none is lost on the way.
            let base = burn_init::Rule::from(entry.rule().init.clone()).law(entry.spec()).unwrap();
            assert!(entry.std().is_nan() || (entry.std() - base.std() * entry.rule().factor().abs()).abs() < 1e-12);
        }
    }
}

/// C16: depth scaling over any scheme is there, or is an error; it is never dropped.
#[test]
fn depth_over_every_scheme() {
    let (mut scaled, mut twice) = (0, 0);
    for (name, scheme, _) in Scheme::all() {
        let modified: Scheme = Modified { depth: burn_init::Depth::total(), ..Modified::of(scheme.clone()) }.into();
        let tree = model(name, [3, 32, 32, 48, 60]);
        match setup_for(name, 4).plan(&tree, &or_ones(&modified)) {
            Ok(plan) => {
                for entry in plan.iter().filter(|entry| entry.spec().writes().is_some()) {
                    let zero = entry.rule().init == Init::Zeros;
                    let factor = if zero { 1.0 } else { 1.0 / 6f64.sqrt() };
                    assert!((depth(entry) - factor).abs() < 1e-12, "{name}: {}", entry.spec().path());
                }
                scaled += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ScaledTwice, "{name}: {error}");
                twice += 1;
            }
        }
    }
    assert!(scaled >= 30 && twice >= 15, "{scaled}, {twice}");
}

/// C20: packed, each of query, key and value starts as it would alone; only the scheme whose original takes the three as one does not.
#[test]
fn packed_as_apart() {
    const AS_ONE: [&str; 1] = ["vit-jax"];
    // Those of scalars need them in the tree, and muP has to be told whether the table is the head.
    let others = |name: &str| {
        let told = ["rezero", "skipinit", "layerscale", "complete-p"].contains(&name) || name.contains("mup");
        told || name.contains("encoder-decoder")
    };
    for (name, scheme, _) in Scheme::all().into_iter().filter(|(name, ..)| !others(name)) {
        let setup = setup_for(name, 4);
        let packed = setup.plan(&NanoGpt::new(2, 32, 60, 8, &device()), &or_ones(&scheme)).unwrap();
        let apart = setup.plan(&Llama::new(2, 32, 32, 48, 60, &device()), &or_ones(&scheme)).unwrap();
        for role in [Role::Query, Role::Key, Role::Value] {
            let std = |plan: &Plan| plan.iter().find(|entry| entry.spec().role() == role).unwrap().std();
            let (packed, apart) = (std(&packed), std(&apart));
            let same = packed.to_bits() == apart.to_bits() || (packed / apart - 1.0).abs() < 1e-12;
            // torch-transformer takes three of them as one even where they stand apart.
            assert!(same || AS_ONE.contains(&name), "{name}, {role}: {packed}, {apart}");
        }
    }
}

/// C31 and C32: every truncated start stays within its bounds, in bfloat16 within the rounded ones, and its std is that of the cut.
#[test]
fn truncated_starts() {
    let mut held = 0;
    let has_half = device().supports_dtype(burn::tensor::DType::BF16);
    for (name, scheme, _) in Scheme::all() {
        let setup = setup_for(name, 4);
        let plan = plan(name, &scheme, [1, 64, 64, 96, 200]);
        let truncated =
            |entry: &&burn_init::Entry| matches!(entry.law(), Law::Draw(Distribution::TruncatedNormal { .. }));
        if !plan.iter().any(|entry| truncated(&entry)) {
            continue;
        }
        let start =
            |setup: Setup| values(&setup.initialize(model(name, [1, 64, 64, 96, 200]), &or_ones(&scheme), 5).unwrap());
        let full = start(setup.clone());
        let half = if has_half { start(setup.dtype(burn_init::Dtype::BF16)) } else { full.clone() };
        for entry in plan.iter().filter(truncated) {
            let Law::Draw(Distribution::TruncatedNormal { std, low, high, .. }) = *entry.law() else { unreachable!() };
            let cut = match high {
                2.0 => 0.879626,
                3.0 => 0.986578,
                high => truncated_moments(-high, high).1,
            };
            assert!(low == -high && (entry.std() / (std * cut) - 1.0).abs() < 1e-6, "{name}");
            let (full, half) = (&full[entry.spec().path()], &half[entry.spec().path()]);
            let bound = (high * std) as f32;
            assert!(full.iter().all(|value| value.abs() <= bound * (1.0 + f32::EPSILON)), "{name}");
            let rounded = if has_half { half::bf16::from_f32(bound).to_f32() } else { bound };
            assert!(half.iter().all(|value| value.abs() <= rounded * (1.0 + f32::EPSILON)), "{name}");
            // None is moved to the bound.
            assert!(full.iter().filter(|value| value.abs() == bound).count() <= 1, "{name}");
            let measured = crate::support::std(full);
            let error = 5.0 / (2.0 * full.len() as f64).sqrt();
            assert!((measured / entry.std() - 1.0).abs() < error, "{name}: {measured}, {}", entry.std());
            held += 1;
        }
    }
    assert!(held > 80, "{held}");
}

/// C41: with a padding row exactly that row is 0, and all else is as it would be without, whatever the scheme.
#[test]
fn padding_over_every_scheme() {
    let sizes = [1, 16, 16, 24, 10];
    for (name, scheme, _) in Scheme::all() {
        if name == "bert-hf" {
            continue; // It has one of its own: goldens.rs.
        }
        let setup = setup_for(name, 4);
        let without = values(&setup.initialize(model(name, sizes), &or_ones(&scheme), 2).unwrap());
        let with = values(&setup.initialize(model(name, sizes), &or_ones(&scheme).padding_row(3), 2).unwrap());
        for (path, values) in &without {
            let mut expected = values.clone();
            if path.ends_with("embed_tokens.weight") {
                assert!(expected.chunks(16).all(|row| row.iter().any(|&value| value != 0.0)), "{name}");
                expected[3 * 16..4 * 16].fill(0.0);
            }
            assert_eq!(with[path], expected, "{name}: {path}");
        }
        let tree = model(name, sizes);
        let beyond = setup.plan(&tree, &or_ones(&scheme).padding_row(10)).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::Shape, "{name}");
    }
}

/// C35: what no scheme may do to a parameter that it does not know.
#[test]
fn what_is_not_told_is_an_error() {
    #[derive(burn::module::Module, Debug)]
    struct Odd {
        llama: Llama,
        gate_of_its_own: Param<burn::tensor::Tensor<1>>,
    }
    for (name, scheme, _) in Scheme::all().into_iter().filter(|(name, ..)| !name.contains("encoder-decoder")) {
        let gate_of_its_own = crate::trees::raw([4], &device());
        let tree = Odd { llama: Llama::new(1, 32, 32, 48, 60, &device()), gate_of_its_own };
        let error = tree.plan(&scheme).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnknownRole | ErrorKind::Unmatched), "{name}: {error}");
    }
}
