//! A value is a function of seed, path and index, and goes into burn's parameter without changing anything else about it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, LinearLayout, conv::Conv2dConfig,
    },
    optim::{AdamWConfig, GradientsParams},
    tensor::{Device, Int, Tensor, bf16},
};
use burn_init::{
    Depth, Dtype, ErrorKind, Fill, Gpt2, Init, Initializer as _, Law, ModuleInit as _, Plan, Role, Scheme, Setup,
    TorchDefault, Xavier, from_fn,
    sample::{Distribution, Stream},
};

use crate::{
    support::{assert_std, device, values},
    trees::{Llama, NanoGpt},
};

fn nano(device: &Device) -> NanoGpt {
    NanoGpt::new(2, 32, 64, 16, device)
}

/// The values of version 1 of the streams, pinned: a change of any of them is value-breaking.
#[test]
fn stability() {
    let device = device();
    let gpt2 = values(&nano(&device).initialize(&Gpt2::new(), 42).unwrap());
    let torch = values(&nano(&device).initialize(&TorchDefault::new(), 42).unwrap());
    let cut = from_fn(|_| Init::truncated_normal(0.02, 2.0));
    let cut = values(&LinearConfig::new(8, 4).init(&device).initialize(&cut, 42).unwrap());
    let first = |values: &[f32]| [values[0], values[1], values[2]];
    let found = [
        first(&gpt2["transformer.wte.weight"]),
        first(&gpt2["transformer.h.1.mlp.c_proj.weight"]),
        first(&torch["transformer.h.0.attn.c_attn.bias"]),
        first(&cut["weight"]),
    ];
    assert_eq!(found, PINNED);
    let orthogonal = from_fn(|_| Init::orthogonal(1.0));
    let linear = LinearConfig::new(8, 4).with_bias(false).init(&device).initialize(&orthogonal, 42).unwrap();
    assert_eq!(first(&values(&linear)["weight"]), PINNED_ORTHOGONAL);
}

#[rustfmt::skip]
const PINNED: [[f32; 3]; 4] = [
    [0.03784199, 0.00079805567, -0.023364075],
    [0.009580758, -0.009387605, 0.0029105898],
    [-0.009329518, 0.050727077, -0.0038307356],
    [0.023348141, -0.021246405, 0.013263404],
];
const PINNED_ORTHOGONAL: [f32; 3] = [-0.03555117, -0.21714789, 0.37993875];

/// C47: twice, and on 8 threads at once.
#[test]
fn repeat_and_threads() {
    let reference = values(&nano(&device()).initialize(&Gpt2::new(), 1).unwrap());
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| values(&nano(&device()).initialize(&Gpt2::new(), 1).unwrap()))).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), reference));
    });
    assert_ne!(values(&nano(&device()).initialize(&Gpt2::new(), 2).unwrap()), reference);
}

fn on<T: Send>(_threads: usize, work: impl FnOnce() -> T + Send) -> T {
    #[cfg(feature = "rayon")]
    return rayon::ThreadPoolBuilder::new().num_threads(_threads).build().unwrap().install(work);
    #[cfg(not(feature = "rayon"))]
    work()
}

/// One parallel pass draws small and large tensors of either layout together: the bits are those of each stream alone, on any
/// number of threads, and progress is told in the order of the tree.
#[test]
fn many_tensors_in_one_pass() {
    let device = device();
    let model = || -> Vec<Linear> {
        let layout = |i: usize| if i.is_multiple_of(3) { LinearLayout::Col } else { LinearLayout::Row };
        let size = |i: usize| if i % 50 == 25 { (1500, 3000) } else { (i % 7 + 1, 37) };
        let linear = |i| LinearConfig::new(size(i).0, size(i).1).with_layout(layout(i)).init(&device);
        (0..240).map(linear).collect()
    };
    let scheme = from_fn(|_| Init::normal(0.02));
    let alone = |path: &str, len: usize| {
        let mut out = vec![0.0f32; len];
        Stream::new(1, path).fill(&Distribution::Normal { mean: 0.0, std: 0.02 }, 0, &mut out);
        out
    };
    let plan = model().plan(&scheme).unwrap();
    for threads in [1, 2, 5] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let setup = Setup::new().progress({
            let told = told.clone();
            move |progress| told.lock().unwrap().push((progress.path.to_string(), progress.done, progress.total))
        });
        let started = values(&on(threads, || setup.initialize(model(), &scheme, 1)).unwrap());
        assert_eq!(started.len(), 480);
        for (path, values) in &started {
            assert!(*values == alone(path, values.len()), "{path} on {threads} threads");
        }
        let told = told.lock().unwrap();
        let mut done = 0;
        for (path, so_far, total) in told.iter() {
            done += started[path].len() as u64;
            assert_eq!((*so_far, *total), (done, plan.num_params()), "{path}");
        }
        assert_eq!(done, plan.num_params());
        let paths: Vec<&String> = told.iter().map(|(path, ..)| path).collect();
        assert_eq!((paths[0].as_str(), paths[479].as_str(), paths.len()), ("0.weight", "239.bias", 480));
    }
}

#[derive(Module, Debug)]
struct Wide {
    extra: Linear,
    transformer: crate::trees::NanoTransformer,
}

/// C46: one more unrelated layer, or another order of first access, changes nothing else.
#[test]
fn order_and_extra_layers() {
    let device = device();
    let reference = values(&nano(&device).initialize(&Gpt2::new(), 1).unwrap());
    let wide = Wide { extra: LinearConfig::new(5, 5).init(&device), transformer: nano(&device).transformer };
    let _ = wide.extra.weight.val();
    let wide = values(&wide.initialize(&Gpt2::new(), 1).unwrap());
    for (path, values) in reference {
        assert_eq!(wide[&path], values, "{path}");
    }
}

/// C49: a shard draws its range by the law of the whole, which a plan tells without the tensor; so the fans are the whole's.
#[test]
fn shards_follow_the_plan_of_the_whole() {
    const SIDE: usize = 512;
    let linear = LinearConfig::new(SIDE, SIDE).with_bias(false).init(&device());
    let plan = linear.plan(&Xavier::normal()).unwrap();
    let entry = plan.get("weight").unwrap();
    let Law::Draw(distribution) = entry.law() else { panic!("{}", entry.law()) };
    let stream = Stream::new(7, entry.stream_path());
    let draw = |offset: usize, len: usize| {
        let mut out = vec![0.0f32; len];
        stream.fill(distribution, offset as u64, &mut out);
        out
    };
    let whole = values(&linear.initialize(&plan, 7).unwrap()).remove("weight").unwrap();
    for count in [2, 4, 8] {
        let width = SIDE / count;
        for shard in 0..count {
            let rows = draw(shard * width * SIDE, width * SIDE);
            assert_eq!(rows, whole[shard * width * SIDE..][..width * SIDE], "rows, {shard} of {count}");
            assert_std(&rows, (2.0 / (2 * SIDE) as f64).sqrt(), "a shard of rows");
            for row in 0..SIDE {
                let at = row * SIDE + shard * width;
                assert_eq!(draw(at, width), whole[at..][..width], "columns, {shard} of {count}");
            }
        }
    }
}

/// C45: a clone of a started model is equal to it.
#[test]
fn clones() {
    let model = nano(&device()).initialize(&Gpt2::new(), 1).unwrap();
    assert_eq!(values(&model.clone()), values(&model));
    let record = model.clone().into_record();
    let loaded = nano(&device()).load_record(record);
    assert_eq!(values(&loaded), values(&model));
}

/// C35: half precision is the f32 tensor rounded once, and finite, for every scheme.
#[test]
fn half_precision() {
    let device = device();
    if !device.supports_dtype(burn::tensor::DType::BF16) {
        let error = Setup::new().dtype(Dtype::BF16).initialize(nano(&device), &Gpt2::new(), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        return;
    }
    let setup = Setup::new().heads("**", 4);
    for (name, scheme, _) in Scheme::all() {
        let full = match setup.initialize(nano(&device), &scheme, 1) {
            Ok(model) => values(&model),
            // A scheme for what this tree has not, such as an encoder's, or that has to be told more of it.
            Err(error) if matches!(error.kind(), ErrorKind::Unmatched | ErrorKind::MissingFact) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        let half = setup.clone().dtype(Dtype::BF16).initialize(nano(&device), &scheme, 1).unwrap();
        assert_eq!(half.transformer.wte.weight.val().dtype(), burn::tensor::DType::BF16);
        for (path, values) in values(&half) {
            let rounded: Vec<f32> = full[&path].iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
            assert_eq!(values, rounded, "{name} {path}");
            assert!(values.iter().all(|x| x.is_finite()));
        }
    }
}

/// C36: the values of a shorter tensor are the first ones of a longer one, and no position is constant over seeds.
#[test]
fn odd_lengths() {
    let device = device();
    let scheme = from_fn(|_| Init::normal(1.0));
    let bias = |length: usize, seed: u64| {
        let linear = LinearConfig::new(1, length).init(&device).initialize(&scheme, seed).unwrap();
        values(&linear).remove("bias").unwrap()
    };
    let long = bias(1024, 1);
    for length in [1, 2, 3, 5, 7, 8, 9, 63, 64, 65, 1023] {
        assert_eq!(bias(length, 1), long[..length]);
    }
    let other = bias(1024, 2);
    assert!(long.iter().zip(&other).all(|(a, b)| a != b));
}

/// C37: the shorter side is orthonormal, whatever the shape; a matrix that would take hours is refused.
#[test]
fn orthogonal() {
    let device = device();
    for (rows, columns, gain) in [(64, 64, 1.0), (64, 256, 1.0), (256, 64, 1.0), (32, 48, 2.0)] {
        let scheme = from_fn(move |_| Init::orthogonal(gain));
        let linear = LinearConfig::new(rows, columns).with_bias(false).init(&device).initialize(&scheme, 1).unwrap();
        let w = linear.weight.val();
        let gram = if rows < columns { w.clone().matmul(w.transpose()) } else { w.clone().transpose().matmul(w) };
        let n = rows.min(columns);
        for (i, x) in gram.into_data().try_to_vec::<f32>().unwrap().into_iter().enumerate() {
            let expected = if i / n == i % n { gain * gain } else { 0.0 };
            assert!((f64::from(x) - expected).abs() < 1e-5 * gain * gain, "{rows} x {columns}: {x}");
        }
    }
    let giant = LinearConfig::new(50_000, 50_000).with_bias(false).init(&device);
    let error = giant.plan(&from_fn(|_| Init::orthogonal(1.0))).unwrap_err();
    assert_eq!(error.kind(), burn_init::ErrorKind::Shape);
}

/// Each block of a packed projection and each expert is a matrix of its own.
#[test]
fn orthogonal_blocks() {
    let device = device();
    let orthogonal = from_fn(|param| param.role().is_weight().then(|| Init::orthogonal(1.0)))
        .or(Gpt2::new().with_depth(Depth::none()));
    let model = nano(&device).initialize(&orthogonal, 1).unwrap();
    let packed = model.transformer.h[0].attn.c_attn.weight.val();
    for block in packed.chunk(3, 1) {
        let gram = block.clone().transpose().matmul(block);
        let distance = (gram - Tensor::eye(32, &device)).abs().max().into_scalar::<f32>();
        assert!(distance < 1e-5, "{distance}");
    }
}

/// A convolution `[out, in, k, k]` is the matrix `[out, in k k]`, as in PyTorch: its rows are orthonormal, or its columns if it has more rows.
#[test]
fn orthogonal_convolutions() {
    let device = device();
    for (channels, kernel, gain) in [([3, 16], [4, 4], 1.0), ([2, 40], [3, 3], 2.0), ([8, 8], [1, 1], 1.0)] {
        let conv = Conv2dConfig::new(channels, kernel).with_bias(false).init(&device);
        let scheme = from_fn(move |_| Init::orthogonal(gain));
        let [out, rest] = [channels[1], channels[0] * kernel[0] * kernel[1]];
        let std = conv.plan(&scheme).unwrap().get("weight").unwrap().std();
        assert!((std - gain / (out.max(rest) as f64).sqrt()).abs() < 1e-12);
        let w = conv.initialize(&scheme, 1).unwrap().weight.val().reshape([out, rest]);
        let gram = if out <= rest { w.clone().matmul(w.transpose()) } else { w.clone().transpose().matmul(w) };
        let n = out.min(rest);
        let distance = (gram - Tensor::eye(n, &device) * (gain * gain)).abs().max().into_scalar::<f32>();
        assert!(distance < 1e-5, "{channels:?}, {kernel:?}: {distance}");
    }
}

#[derive(Module, Debug)]
struct Tied {
    wte: Embedding,
    norm: LayerNorm,
    lm_head: Embedding,
}

/// C54: two fields with one Param are drawn once, from the stream of the smallest path, and the plan warns.
#[test]
fn ties() {
    let device = device();
    let wte = EmbeddingConfig::new(20, 8).init(&device);
    let lm_head = wte.clone();
    let model = Tied { wte, norm: LayerNormConfig::new(8).init(&device), lm_head };
    let setup = Setup::new().role("lm_head.weight", Role::OutputHead);
    let scheme = Gpt2::new().with_depth(Depth::none()).with(Role::TokenEmbedding, Init::normal(0.5));
    let plan = setup.plan(&model, &scheme).unwrap();
    let entry = plan.get("lm_head.weight").unwrap();
    assert_eq!(entry.spec().path(), "wte.weight");
    assert_eq!((entry.stream_path(), entry.std()), ("lm_head.weight", 0.5));
    assert_eq!(plan.num_params(), 20 * 8 + 16);
    assert_eq!(plan.warnings().len(), 1);
    assert!(plan.warnings()[0].contains("burn's optimizer will move only one"), "{}", plan.warnings()[0]);
    let started = values(&setup.initialize(model, &scheme, 1).unwrap());
    assert_eq!(started["wte.weight"], started["lm_head.weight"]);
    assert!(started["wte.weight"].iter().any(|&x| x != 0.0));
}

/// Progress ends at its total: a tied parameter counts once, and one that is kept does not.
#[test]
fn progress_counts_what_is_started() {
    let device = device();
    let wte = EmbeddingConfig::new(20, 8).init(&device);
    let model = Tied { lm_head: wte.clone(), wte, norm: LayerNormConfig::new(8).init(&device) };
    let last = Arc::new(Mutex::new((0, 0)));
    let setup = Setup::new().role("lm_head.weight", Role::OutputHead).progress({
        let last = last.clone();
        move |progress| *last.lock().unwrap() = (progress.done, progress.total)
    });
    let scheme = Gpt2::new().with_depth(Depth::none()).with("norm.gamma", Init::Keep);
    setup.initialize(model, &scheme, 1).unwrap();
    assert_eq!(*last.lock().unwrap(), (20 * 8 + 8, 20 * 8 + 8));
}

#[derive(Default)]
struct Identities(Vec<(ParamId, bool)>);

impl ModuleVisitor for Identities {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push((param.id, param.base().is_require_grad()));
    }
}

/// C51: ids and gradient settings survive, frozen stays frozen, and one step moves every trainable parameter that is used.
#[test]
fn identity_and_training() {
    let device = device().autodiff();
    let identities = |model: &Llama| {
        let mut found = Identities::default();
        model.visit(&mut found);
        found.0
    };
    for started_before in [false, true] {
        let mut model = Llama::new(2, 16, 16, 32, 20, &device);
        model.lm_head = model.lm_head.no_grad();
        let ids_before = burn::module::list_param_ids(&model);
        if started_before {
            model = model.initialize(&TorchDefault::new(), 9).unwrap();
        }
        let model = model.initialize(&Gpt2::new(), 1).unwrap();
        let after = identities(&model);
        assert_eq!(after.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids_before);
        assert_eq!(after.iter().filter(|(_, grad)| !grad).count(), 1, "only the frozen head has no gradient");

        let before = values(&model);
        let tokens = Tensor::<1, Int>::arange(0..20, &device).reshape([1, 20]);
        let h = model.model.embed_tokens.forward(tokens);
        let layer = &model.model.layers[0];
        let h = h.clone()
            + layer.self_attn.o_proj.forward(layer.self_attn.v_proj.forward(layer.input_layernorm.forward(h)));
        let loss = model.lm_head.forward(model.model.norm.forward(h)).powi_scalar(2).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let mut optimizer = AdamWConfig::new().init();
        let after: BTreeMap<_, _> = values(&optimizer.step(1e-3, model, grads));
        let used = ["model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight", "model.norm.gamma"];
        for path in used {
            assert!(before[path].iter().zip(&after[path]).any(|(a, b)| a != b), "{path} did not move");
        }
        assert_eq!(before["lm_head.weight"], after["lm_head.weight"], "frozen");
    }
}

/// A plan from a file replays the experiment.
#[test]
fn a_plan_replays() {
    let device = device();
    let scheme = Xavier::normal().with(Role::PositionEmbedding, Init::Fill(Fill::named("sinusoidal")));
    let plan = nano(&device).plan(&scheme).unwrap();
    let file = serde_json::to_string(&plan).unwrap();
    let read: Plan = serde_json::from_str(&file).unwrap();
    assert_eq!(read, plan);
    let direct = values(&nano(&device).initialize(&scheme, 1).unwrap());
    assert_eq!(values(&nano(&device).initialize(&read, 1).unwrap()), direct);
    let positions = &direct["transformer.wpe.weight"];
    assert!((positions[32] - 1f32.sin()).abs() < 1e-7 && (positions[33] - 1f32.cos()).abs() < 1e-7);

    let other = NanoGpt::new(3, 32, 64, 16, &device).plan(&read).unwrap_err();
    assert_eq!(other.kind(), burn_init::ErrorKind::Shape);
    let shallow: Plan = NanoGpt::new(2, 32, 64, 16, &device).plan(&Gpt2::new()).unwrap();
    let deep = NanoGpt::new(4, 32, 64, 16, &device).plan(&Gpt2::new()).unwrap();
    assert_ne!(shallow, deep);
    let error = NanoGpt::new(2, 32, 64, 16, &device).plan(&deep).unwrap_err();
    assert!(error.to_string().contains("2 layers with 4 additions here, 4 layers with 8 additions there"), "{error}");
    let wider = NanoGpt::new(2, 64, 64, 16, &device).plan(&read).unwrap_err();
    assert_eq!(wider.kind(), burn_init::ErrorKind::Shape);
    let stale = file.replace("\"stream_version\":1", "\"stream_version\":0");
    assert!(serde_json::from_str::<Plan>(&stale).unwrap_err().to_string().contains("would draw other values"));

    // Lines that were edited so that they do not make up their parameters.
    let weight = "transformer.h.0.attn.c_attn.weight [32, 96]: ";
    for (from, to, text) in [
        (
            r#"{"index":1,"start":32,"len":32}"#,
            r#"{"index":1,"start":32,"len":64}"#,
            "its blocks do not stand side by side",
        ),
        (
            r#"{"index":1,"start":32,"len":32}"#,
            r#"{"index":7,"start":32,"len":32}"#,
            "its blocks do not stand side by side",
        ),
        (r#""shape":[32,96]"#, r#""shape":[32,90]"#, "its blocks are of parameters of different shapes"),
        (
            r#""block":{"index":0,"#,
            r#""experts":5,"block":{"index":0,"#,
            "its first dimension is not that of its experts",
        ),
    ] {
        let edited = file.replacen(from, to, 1);
        assert_ne!(edited, file, "{from}");
        let error = serde_json::from_str::<Plan>(&edited).unwrap_err().to_string();
        assert!(error.starts_with("transformer.h.0.attn.c_attn.weight [32, 9") && error.contains(text), "{error}");
    }
    let again = file.replace("transformer.h.1.attn.c_attn.weight", "transformer.h.0.attn.c_attn.weight");
    let error = serde_json::from_str::<Plan>(&again).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{weight}the plan has this path in two places")), "{error}");
}

/// A fill of the user's own is bound by name.
#[test]
fn named_fills() {
    let device = device();
    let ramp = || Fill::new("ramp", |_, out: &mut [f32]| out.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32));
    let scheme = from_fn(move |_| Init::Fill(ramp()));
    let model = || LinearConfig::new(3, 2).with_bias(false).init(&device);
    let plan = model().plan(&scheme).unwrap();
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    let error = model().initialize(&read, 1).unwrap_err();
    assert_eq!(error.kind(), burn_init::ErrorKind::Parse);
    let started = model().initialize(&read.bind(&ramp()), 1).unwrap();
    assert_eq!(values(&started)["weight"], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

/// A renamed field and another wrapper keep their values if told.
#[test]
fn prefix_and_alias() {
    let device = device();
    let linear = || LinearConfig::new(8, 8).init(&device);
    let plain = values(&vec![linear()].initialize(&Xavier::normal(), 1).unwrap()).remove("0.weight").unwrap();
    let prefixed = Setup::new().prefix("0").initialize(linear(), &Xavier::normal(), 1).unwrap();
    assert_eq!(values(&prefixed)["weight"], plain);
    let moved = Setup::new().alias("0.0", "0").initialize(vec![vec![linear()]], &Xavier::normal(), 1).unwrap();
    assert_eq!(values(&moved)["0.0.weight"], plain);
    assert_std(&plain, (2f64 / 16.0).sqrt(), "xavier");
}
