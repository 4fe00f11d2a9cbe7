//! Any block of any parameter is what the whole has there, with the fans of the whole.

use std::{collections::HashSet, ops::Range};

use burn::{
    module::Module,
    nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, LinearConfig},
    tensor::{Device, Tensor, bf16, f16},
};
use burn_init::{
    Dtype, ErrorKind, Fill, Gpt2, Init, Initializer, ModuleInit as _, Plan, Role, Setup, StackPlace, TorchDefault,
    Xavier, from_fn,
};

use crate::{
    support::{device, std_agrees, values},
    trees::{NanoBlock, NanoGpt, StackedMoe},
};

/// The values of a block cut from a whole in row-major order.
fn block_of(whole: &[f32], shape: &[u64], ranges: &[Range<u64>]) -> Vec<f32> {
    let mut out = Vec::new();
    let count: u64 = ranges.iter().map(|range| range.end - range.start).product();
    for i in 0..count {
        let (mut rest, mut at, mut stride) = (i, 0, 1);
        for (range, &d) in ranges.iter().zip(shape).rev() {
            let len = range.end - range.start;
            at += (range.start + rest % len) * stride;
            (rest, stride) = (rest / len, stride * d);
        }
        out.push(whole[at as usize]);
    }
    out
}

/// C49: [512, 512] cut into row and column shards: pieces of the whole, no two alike, with the std of the whole.
#[test]
fn rows_and_columns() {
    let linear = LinearConfig::new(512, 512).with_bias(false).init(&device());
    let plan = linear.plan(&Xavier::normal()).unwrap();
    let whole = values(&linear.initialize(&Xavier::normal(), 7).unwrap()).remove("weight").unwrap();
    for axis in [0, 1] {
        for parts in [2u64, 4, 8] {
            let mut seen = HashSet::new();
            for part in 0..parts {
                let shard = plan.whole("weight", 7).unwrap().split(axis, part, parts).unwrap();
                let mut ranges = [0..512, 0..512];
                ranges[axis] = part * 512 / parts..(part + 1) * 512 / parts;
                let drawn = shard.values::<f32>().unwrap();
                assert_eq!(drawn, block_of(&whole, &[512, 512], &ranges), "axis {axis}, part {part} of {parts}");
                assert_eq!(drawn, plan.shard("weight", &ranges, 7).unwrap().values::<f32>().unwrap());
                // Not the sqrt(2 / (512 + 512 / parts)) of a shard that takes itself for the whole.
                assert!(std_agrees(&drawn, (2.0f64 / 1024.0).sqrt()));
                assert!(seen.insert(drawn.iter().map(|x| x.to_bits()).collect::<Vec<_>>()), "two shards are alike");
            }
        }
    }
}

/// C47: the same from 8 threads at once.
#[test]
fn threads() {
    let plan = NanoGpt::new(1, 32, 64, 16, &device()).plan(&TorchDefault::new()).unwrap();
    let draw = || plan.shard("transformer.h.0.mlp.c_fc.weight", [3..29, 5..120], 7).unwrap().values::<f32>().unwrap();
    let expected = draw();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
    });
}

/// A grid of workers puts the whole together again, for every number of them, in every precision.
#[test]
fn grids() {
    let linear = LinearConfig::new(72, 120).with_bias(false).init(&device());
    let plan = linear.plan(&Xavier::uniform()).unwrap();
    let whole = values(&linear.initialize(&Xavier::uniform(), 7).unwrap()).remove("weight").unwrap();
    for rows in [1u64, 2, 3, 4, 8] {
        for columns in [1u64, 2, 3, 4, 8] {
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let shard = plan.whole("weight", 7).unwrap().split(0, i, rows).unwrap().split(1, j, columns).unwrap();
                let ranges = [i * 72 / rows..(i + 1) * 72 / rows, j * 120 / columns..(j + 1) * 120 / columns];
                let expected = block_of(&whole, &[72, 120], &ranges);
                assert_eq!(shard.values::<f32>().unwrap(), expected);
                let half: Vec<bf16> = expected.iter().map(|&x| bf16::from_f32(x)).collect();
                assert_eq!(shard.values::<bf16>().unwrap(), half);
                let half: Vec<f16> = expected.iter().map(|&x| f16::from_f32(x)).collect();
                assert_eq!(shard.values::<f16>().unwrap(), half);
                let tensor = shard.tensor_as::<2>(&device(), Dtype::F32).unwrap();
                assert_eq!(tensor.dims().map(|d| d as u64), [72 / rows, 120 / columns]);
                assert_eq!(tensor.into_data().try_to_vec::<f32>().unwrap(), expected);
            }
        }
    }
}

/// Column-parallel workers have their part of the query, of the key and of the value, and of the packed bias.
#[test]
fn packed_projections() {
    let model = NanoGpt::new(2, 48, 64, 16, &device());
    let blocks_differ = from_fn(|param| match param.role() {
        Role::Query => Some(Init::normal(0.3)),
        Role::Key => Some(Init::truncated_normal(0.2, 2.0)),
        Role::Value => Some(Init::Ones),
        _ => None,
    });
    for scheme in [&TorchDefault::new() as &dyn Initializer, &blocks_differ.or(TorchDefault::new())] {
        let plan = model.plan(&scheme).unwrap();
        let whole = values(&model.clone().initialize(&scheme, 7).unwrap());
        let (weight, bias) = ("transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn.bias");
        for parts in [2u64, 3, 4, 8] {
            for part in 0..parts {
                let (len, columns) = (48 / parts, |block: u64| block * 48 + part * 48 / parts);
                let shard = plan.whole(weight, 7).unwrap().split(1, part, parts).unwrap();
                assert_eq!(shard.shape(), [48, 3 * len]);
                let blocks =
                    [0, 1, 2].map(|b| block_of(&whole[weight], &[48, 144], &[0..48, columns(b)..columns(b) + len]));
                let rows = (0..48).flat_map(|row| {
                    blocks.iter().flat_map(move |block| block[row * len as usize..][..len as usize].to_vec())
                });
                assert_eq!(shard.values::<f32>().unwrap(), rows.collect::<Vec<_>>(), "part {part} of {parts}");
                let shard = plan.whole(bias, 7).unwrap().split(0, part, parts).unwrap();
                let biases = [0, 1, 2]
                    .map(|b| block_of(&whole[bias], &[144], std::slice::from_ref(&(columns(b)..columns(b) + len))));
                assert_eq!(shard.values::<f32>().unwrap(), biases.concat());
                // Rows are cut straight through the blocks.
                let shard = plan.whole(weight, 7).unwrap().split(0, part, parts).unwrap();
                let rows = block_of(&whole[weight], &[48, 144], &[part * len..(part + 1) * len, 0..144]);
                assert_eq!(shard.values::<f32>().unwrap(), rows);
            }
        }
    }
}

/// Stacked experts: whole experts to a worker, or a part of each.
#[test]
fn experts() {
    let model = StackedMoe::new(2, &device());
    let orthogonal = from_fn(|param| param.experts().map(|_| Init::orthogonal(1.5))).or(Gpt2::new());
    for scheme in [&Xavier::normal() as &dyn Initializer, &orthogonal] {
        let plan = model.plan(&scheme).unwrap();
        let whole = values(&model.clone().initialize(&scheme, 7).unwrap());
        let stacked = || plan.iter().map(|entry| entry.spec()).filter(|spec| spec.experts().is_some());
        assert_eq!(stacked().count(), 6);
        let cuts = (0..3).flat_map(|axis| [2u64, 4, 8].map(|parts| (axis, parts)));
        for (spec, (axis, parts)) in stacked().flat_map(|spec| cuts.clone().map(move |cut| (spec, cut))) {
            let (path, shape) = (spec.path(), spec.shape());
            if !shape[axis].is_multiple_of(parts) {
                let error = plan.whole(path, 7).unwrap().split(axis, 0, parts).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Shape);
                continue;
            }
            for part in 0..parts {
                let mut ranges: Vec<_> = shape.iter().map(|&d| 0..d).collect();
                ranges[axis] = part * shape[axis] / parts..(part + 1) * shape[axis] / parts;
                let shard = plan.whole(path, 7).unwrap().split(axis, part, parts).unwrap();
                assert_eq!(shard.values::<f32>().unwrap(), block_of(&whole[path], shape, &ranges), "{path} {ranges:?}");
            }
        }
    }
}

/// Orthogonal matrices, fills, constants and padding rows are cut from the whole.
#[test]
fn every_law() {
    let model = NanoGpt::new(1, 32, 64, 16, &device());
    let scheme = from_fn(|param| match param.role() {
        Role::Query | Role::Value | Role::MlpDown => Some(Init::orthogonal(0.7)),
        Role::PositionEmbedding => Some(Init::Fill(Fill::named("sinusoidal"))),
        Role::MlpIn => Some(Init::Fill(Fill::named("unit_columns"))),
        Role::NormBias => Some(Init::constant(0.25)),
        _ => None,
    })
    .or(TorchDefault::new())
    .padding_row(3);
    let plan = model.plan(&scheme).unwrap();
    let whole = values(&model.initialize(&scheme, 7).unwrap());
    for (path, expected) in &whole {
        let all = plan.whole(path, 7).unwrap();
        let shape = all.shape();
        assert_eq!(all.values::<f32>().unwrap(), *expected, "{path}");
        let ranges: Vec<_> = shape.iter().map(|&d| d / 5..d - d / 3).collect();
        let block = plan.shard(path, &ranges, 7).unwrap();
        assert_eq!(block.values::<f32>().unwrap(), block_of(expected, &shape, &ranges), "{path} {ranges:?}");
        let row = shape[0] / 4..shape[0] / 4 + 1;
        let ranges: Vec<_> = std::iter::once(row).chain(shape[1..].iter().map(|&d| 0..d)).collect();
        let row = plan.shard(path, &ranges, 7).unwrap().values::<f32>().unwrap();
        assert_eq!(row, block_of(expected, &shape, &ranges), "{path} {ranges:?}");
        let empty: Vec<_> = shape.iter().map(|_| 1..1).collect();
        assert!(plan.shard(path, &empty, 7).unwrap().values::<f32>().unwrap().is_empty());
    }
    let down = plan.shard("transformer.h.0.mlp.c_proj.weight", [0..1, 0..1], 7).unwrap();
    assert_eq!(down.workspace_bytes(4), 128 * 32 * (8 + 4));
    assert_eq!(plan.shard("transformer.wte.weight", [0..1, 0..1], 7).unwrap().workspace_bytes(4), 0);
}

/// Workers that hold a column shard of the first matrix and a row shard of the second compute together what the whole MLP does.
#[test]
fn a_tensor_parallel_mlp() {
    let device = device();
    let model = NanoGpt::new(1, 48, 64, 16, &device);
    let plan = model.plan(&TorchDefault::new()).unwrap();
    let mlp = &model.initialize(&TorchDefault::new(), 7).unwrap().transformer.h[0].mlp;
    let x = plan.whole("transformer.wpe.weight", 7).unwrap().tensor::<2>(&device).unwrap();
    let relu = |x: Tensor<2>| burn::tensor::activation::relu(x);
    let whole = mlp.c_proj.forward(relu(mlp.c_fc.forward(x.clone())));
    for parts in [2u64, 3, 4, 8] {
        let worker = |part: u64| {
            let shard = |name: &str, axis: usize| {
                plan.whole(&format!("transformer.h.0.mlp.{name}"), 7).unwrap().split(axis, part, parts).unwrap()
            };
            let bias = shard("c_fc.bias", 0).tensor::<1>(&device).unwrap().unsqueeze::<2>();
            let hidden = relu(x.clone().matmul(shard("c_fc.weight", 1).tensor(&device).unwrap()) + bias);
            hidden.matmul(shard("c_proj.weight", 0).tensor::<2>(&device).unwrap())
        };
        let sum = (1..parts).fold(worker(0), |sum, part| sum + worker(part));
        let bias = plan.whole("transformer.h.0.mlp.c_proj.bias", 7).unwrap().tensor::<1>(&device).unwrap();
        let distance = (sum + bias.unsqueeze::<2>() - whole.clone()).abs().max().into_scalar::<f32>();
        // Sums of 192 terms of order 1 in another order.
        assert!(distance < 192.0 * f32::EPSILON * 4.0, "{parts} workers: {distance}");
    }
}

#[derive(Module, Debug)]
struct FirstStage {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<NanoBlock>,
}

#[derive(Module, Debug)]
struct LastStage {
    h: Vec<NanoBlock>,
    ln_f: LayerNorm,
}

/// Every stage of a pipeline, told its place or given the plan of the whole, draws what the whole draws.
#[test]
fn pipeline_stages() {
    let device = device();
    let scheme = TorchDefault::new().or(Gpt2::new()).depth_scaled(burn_init::Depth::per_layer());
    let whole_plan = NanoGpt::new(5, 32, 64, 16, &device).plan(&scheme).unwrap();
    let whole = values(&NanoGpt::new(5, 32, 64, 16, &device).initialize(&scheme, 3).unwrap());
    let blocks = |count: usize| (0..count).map(|_| NanoBlock::new(32, &device)).collect();
    let setup = |first: u64| {
        let place = StackPlace::layers(5).branches(10).first_layer(first);
        Setup::new().prefix("transformer").stack("transformer.h", place)
    };
    let first = || FirstStage {
        wte: EmbeddingConfig::new(64, 32).init(&device),
        wpe: EmbeddingConfig::new(16, 32).init(&device),
        h: blocks(2),
    };
    let last = || LastStage { h: blocks(3), ln_f: LayerNormConfig::new(32).init(&device) };
    let mut seen = 0;
    let mut check = |stage: std::collections::BTreeMap<String, Vec<f32>>, first: usize| {
        for (path, drawn) in stage {
            let mut segments: Vec<String> = path.split('.').map(String::from).collect();
            if segments[0] == "h" {
                segments[1] = (segments[1].parse::<usize>().unwrap() + first).to_string();
            }
            assert_eq!(drawn, whole[&format!("transformer.{}", segments.join("."))], "{path}");
            seen += 1;
        }
    };
    check(values(&setup(0).initialize(first(), &scheme, 3).unwrap()), 0);
    check(values(&setup(2).initialize(last(), &scheme, 3).unwrap()), 2);
    check(values(&setup(2).initialize(last(), &whole_plan, 3).unwrap()), 2);
    assert_eq!(seen, 2 + 5 * 12 + 1 + 3 * 12 + 1 + 2);
}

fn message<T: std::fmt::Debug>(result: Result<T, burn_init::Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn what_does_not_fit() {
    let linear = LinearConfig::new(6, 4).init(&device());
    let plan = linear.plan(&Xavier::normal().with("bias", Init::Keep)).unwrap();
    let whole = || plan.whole("weight", 1).unwrap();
    assert_eq!(message(plan.whole("wieght", 1)), "wieght: the plan has no such parameter; did you mean weight?");
    assert_eq!(
        message(plan.whole("bias", 1)),
        "bias [4]: it is kept, so that the plan does not tell its values; take them from the model, or give it a rule"
    );
    assert_eq!(
        message(whole().slice(std::slice::from_ref(&(0..6)))),
        "weight [6, 4]: the ranges [0..6] do not fit the parameter of shape [6, 4]; give 2 ranges within [6, 4]"
    );
    assert_eq!(
        message(whole().slice([0..3, 0..4]).unwrap().slice([0..4, 0..4])),
        "weight [6, 4]: the ranges [0..4, 0..4] do not fit the block of shape [3, 4]; give 2 ranges within [3, 4]"
    );
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = [3..1, 0..4];
    assert_eq!(plan.shard("weight", reversed, 1).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(
        message(whole().split(0, 0, 4)),
        "weight [6, 4]: 6 indices do not split into 4 equal parts; give a dimension and a number of parts that divides it evenly"
    );
    assert_eq!(message(whole().split(0, 3, 3)), "weight [6, 4]: there is no part 3 of 3; count the parts from 0");
    assert_eq!(message(whole().split(0, 0, 0)), "weight [6, 4]: there is no part 0 of 0; count the parts from 0");
    assert_eq!(whole().split(2, 0, 1).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(whole().fill(&mut [0.0f32; 5]).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(whole().tensor::<3>(&device()).unwrap_err().kind(), ErrorKind::Shape);
    let large = LinearConfig::new(6, 4).with_bias(false).init(&device()).plan(&from_fn(|_| Init::constant(1e5)));
    let large = large.unwrap();
    assert_eq!(large.whole("weight", 1).unwrap().values::<f16>().unwrap_err().kind(), ErrorKind::InvalidValue);
    assert_eq!(large.whole("weight", 1).unwrap().values::<f32>().unwrap(), [1e5; 24]);
    let ramp = Fill::new("ramp", |_, out: &mut [f32]| out.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32));
    let bound = linear.plan(&from_fn(|_| Init::Fill(ramp.clone()))).unwrap();
    let read: Plan = serde_json::from_str(&serde_json::to_string(&bound).unwrap()).unwrap();
    assert_eq!(read.whole("weight", 1).unwrap().values::<f32>().unwrap_err().kind(), ErrorKind::Parse);
    assert_eq!(read.bind(&ramp).whole("bias", 1).unwrap().values::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0]);
    let giant = LinearConfig::new(1 << 30, 1 << 31).with_bias(false).init(&device()).plan(&Xavier::normal()).unwrap();
    assert!(message(giant.whole("weight", 1).unwrap().values::<f32>()).contains("take a smaller block"));
    assert_eq!(Plan::default().whole("weight", 1).unwrap_err().kind(), ErrorKind::Unmatched);
}

/// A worker needs memory for its block alone: one of 2^61 bytes is cut from.
#[test]
fn a_block_of_a_giant() {
    let giant = LinearConfig::new(1 << 29, 1 << 30).with_bias(false).init(&device()).plan(&Xavier::normal()).unwrap();
    let corner = giant.shard("weight", [(1 << 29) - 2..1 << 29, (1 << 30) - 3..1 << 30], 1).unwrap();
    let drawn = corner.values::<f32>().unwrap();
    assert_eq!(drawn.len(), 6);
    let row: Tensor<2> = giant
        .shard("weight", [(1 << 29) - 1..1 << 29, (1 << 30) - 3..1 << 30], 1)
        .and_then(|row| row.tensor(&Device::flex()))
        .unwrap();
    assert_eq!(row.into_data().convert::<f32>().try_to_vec::<f32>().unwrap(), drawn[3..]);
}
