//! Growing a trained model draws what is new and leaves the rest bit for bit.

use burn::{
    module::{Module, list_param_ids},
    nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, LinearLayout},
    optim::{AdamWConfig, GradientsParams},
    tensor::{Device, Int, Tensor},
};
use burn_init::{
    ErrorKind, Gpt2, Growth, Init, Initializer as _, ModuleInit as _, Role, Setup, TorchDefault, Xavier, from_fn,
};

use crate::{
    support::{device, mean, values},
    trees::{Llama, NanoBlock, NanoGpt},
};

#[derive(Module, Debug)]
struct Model {
    wte: Embedding,
    norm: LayerNorm,
    lm_head: Linear,
}

fn model(vocab: usize, layout: LinearLayout, device: &Device) -> Model {
    Model {
        wte: EmbeddingConfig::new(vocab, 16).init(device),
        norm: LayerNormConfig::new(16).init(device),
        lm_head: LinearConfig::new(16, vocab).with_layout(layout).init(device),
    }
}

/// Columns `range` of a row-major `[_, width]`.
fn columns(values: &[f32], width: usize, range: std::ops::Range<usize>) -> Vec<f32> {
    values.chunks(width).flat_map(|row| row[range.clone()].to_vec()).collect()
}

/// By the scheme: new rows and outputs are those of a fresh model of the new size, whatever the layout.
#[test]
fn vocabulary_by_the_scheme() {
    let device = device();
    let scheme = TorchDefault::new();
    for layout in [LinearLayout::Row, LinearLayout::Col] {
        let trained = model(50, layout, &device).initialize(&scheme, 1).unwrap();
        let before = values(&trained);
        let ids = list_param_ids(&trained);
        let grown = Growth::vocabulary(70).drawn_by(&scheme).grow(trained, 2).unwrap();
        let fresh = values(&model(70, layout, &device).initialize(&scheme, 2).unwrap());
        let after = values(&grown);
        assert_eq!(after["wte.weight"][..50 * 16], before["wte.weight"]);
        assert_eq!(after["wte.weight"][50 * 16..], fresh["wte.weight"][50 * 16..]);
        assert_eq!(columns(&after["lm_head.weight"], 70, 0..50), before["lm_head.weight"]);
        assert_eq!(columns(&after["lm_head.weight"], 70, 50..70), columns(&fresh["lm_head.weight"], 70, 50..70));
        assert_eq!(after["lm_head.bias"][..50], before["lm_head.bias"]);
        assert_eq!(after["lm_head.bias"][50..], fresh["lm_head.bias"][50..]);
        assert_eq!(after["norm.gamma"], before["norm.gamma"]);
        // What grew is another parameter for an optimizer, what did not is the same.
        let kept = list_param_ids(&grown).iter().filter(|id| ids.contains(id)).count();
        assert_eq!((ids.len(), kept), (5, 2));
        let tokens = Tensor::<2, Int>::from_data([[3, 69]], &device);
        let logits = grown.lm_head.forward(grown.norm.forward(grown.wte.forward(tokens)));
        assert_eq!(logits.dims(), [1, 2, 70]);
        // The same size again changes nothing.
        assert_eq!(values(&Growth::vocabulary(70).drawn_by(&scheme).grow(grown, 3).unwrap()), after);
    }
}

/// Like the trained: the mean and the covariance of the new rows are those of the trained ones, up to what 4000 rows tell.
#[test]
fn mean_and_covariance_of_the_trained() {
    let device = device();
    let trained = model(40, LinearLayout::Row, &device).initialize(&TorchDefault::new(), 1).unwrap();
    let before = values(&trained);
    for spread in [1.0, 0.5] {
        let grown = values(&Growth::vocabulary(4040).like_trained(spread).grow(trained.clone(), 2).unwrap());
        let head = columns(&grown["lm_head.weight"], 4040, 40..4040);
        let head_before = &before["lm_head.weight"];
        let rows = |values: &[f32], at: usize| -> Vec<f32> { values.iter().skip(at).step_by(16).copied().collect() };
        let row = |values: &[f32], at: usize, len: usize| values[at * len..(at + 1) * len].to_vec();
        for (i, j) in [(0, 0), (3, 3), (0, 1), (5, 11)] {
            let new = (rows(&grown["wte.weight"][640..], i), rows(&grown["wte.weight"][640..], j));
            close(&new.0, &new.1, &rows(&before["wte.weight"], i), &rows(&before["wte.weight"], j), spread);
            let new = (row(&head, i, 4000), row(&head, j, 4000));
            close(&new.0, &new.1, &row(head_before, i, 40), &row(head_before, j, 40), spread);
        }
        assert_eq!(grown["wte.weight"][..640], before["wte.weight"]);
    }
    let at_the_mean = values(&Growth::vocabulary(41).like_trained(0.0).grow(trained, 2).unwrap());
    let first: Vec<f32> = before["wte.weight"].iter().step_by(16).copied().collect();
    assert!((f64::from(at_the_mean["wte.weight"][640]) - mean(&first)).abs() < 1e-6);
}

/// Mean of `a` and covariance of `a` and `b` over new rows against those over trained rows, within five standard errors.
fn close(a: &[f32], b: &[f32], trained_a: &[f32], trained_b: &[f32], spread: f64) {
    let covariance = |a: &[f32], b: &[f32]| {
        let (mean_a, mean_b) = (mean(a), mean(b));
        let sum: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - mean_a) * (f64::from(b) - mean_b)).sum();
        sum / (a.len() - 1) as f64
    };
    let n = a.len() as f64;
    let [aa, bb, ab] = [(trained_a, trained_a), (trained_b, trained_b), (trained_a, trained_b)]
        .map(|(a, b)| covariance(a, b) * spread * spread);
    assert!((mean(a) - mean(trained_a)).abs() < 5.0 * (aa / n).sqrt());
    assert!((covariance(a, b) - ab).abs() < 5.0 * ((aa * bb + ab * ab) / n).sqrt(), "{} {ab}", covariance(a, b));
}

/// A longer context, selected by path.
#[test]
fn positions() {
    let device = device();
    let trained = NanoGpt::new(2, 32, 50, 16, &device).initialize(&Gpt2::new(), 1).unwrap();
    let before = values(&trained);
    let grown = Growth::rows("transformer.wpe.weight", 24).drawn_by(&Gpt2::new()).grow(trained, 2).unwrap();
    let fresh = values(&NanoGpt::new(2, 32, 50, 24, &device).initialize(&Gpt2::new(), 2).unwrap());
    for (path, after) in values(&grown) {
        let old = &before[&path];
        assert_eq!(after[..old.len()], *old, "{path}");
        match path.as_str() {
            "transformer.wpe.weight" => assert_eq!(after[old.len()..], fresh[&path][old.len()..]),
            _ => assert_eq!(after.len(), old.len()),
        }
    }
}

#[derive(Module, Debug)]
struct Tied {
    wte: Embedding,
    lm_head: Embedding,
}

/// Two fields with one parameter grow alike and stay one.
#[test]
fn ties() {
    let table = Setup::new().role("weight", Role::TokenEmbedding);
    let wte = table.initialize(EmbeddingConfig::new(20, 8).init(&device()), &Xavier::normal(), 1).unwrap();
    let tied = || Tied { wte: wte.clone(), lm_head: wte.clone() };
    let setup = Setup::new().role("lm_head.weight", Role::OutputHead);
    let scheme = Xavier::normal();
    for growth in [Growth::vocabulary(24).drawn_by(&scheme), Growth::vocabulary(24)] {
        let grown = growth.setup(setup.clone()).grow(tied(), 2).unwrap();
        assert_eq!(grown.wte.weight.id, grown.lm_head.weight.id);
        let after = values(&grown);
        assert_eq!(after["wte.weight"], after["lm_head.weight"]);
        assert_eq!(after["wte.weight"].len(), 24 * 8);
    }
}

/// What grew trains, and what was frozen stays frozen.
#[test]
fn training_goes_on() {
    let device = device().autodiff();
    let mut trained = model(50, LinearLayout::Row, &device).initialize(&TorchDefault::new(), 1).unwrap();
    trained.norm = trained.norm.no_grad();
    let grown = Growth::vocabulary(60).grow(trained, 2).unwrap();
    let before = values(&grown);
    let tokens = Tensor::<2, Int>::from_data([[3, 59]], &device);
    let loss = grown.lm_head.forward(grown.norm.forward(grown.wte.forward(tokens))).powi_scalar(2).mean();
    let grads = GradientsParams::from_grads(loss.backward(), &grown);
    let stepped = values(&AdamWConfig::new().init().step(1e-2, grown, grads));
    let moved = |path: &str, at: usize| before[path][at] != stepped[path][at];
    assert!(moved("wte.weight", 59 * 16) && moved("lm_head.weight", 59) && moved("lm_head.bias", 59));
    assert!(!moved("norm.gamma", 0));
}

/// A new head on a trained body, by `initialize_missing`.
#[test]
fn a_new_head() {
    let device = device();
    let mut model = Llama::new(2, 16, 16, 32, 20, &device).initialize(&Gpt2::new(), 1).unwrap();
    let before = values(&model);
    model.lm_head = LinearConfig::new(16, 5).with_bias(false).init(&device);
    let after = values(&model.initialize_missing(&Gpt2::new(), 2).unwrap());
    let fresh = Linear { ..LinearConfig::new(16, 5).with_bias(false).init(&device) };
    let setup = Setup::new().prefix("lm_head").role("lm_head.weight", Role::OutputHead);
    let fresh = values(&setup.initialize(fresh, &Gpt2::new().with_depth(burn_init::Depth::none()), 2).unwrap());
    for (path, values) in after {
        let expected = if path == "lm_head.weight" { &fresh["weight"] } else { &before[&path] };
        assert_eq!(values, *expected, "{path}");
    }
}

/// Layers put on top, and one put between: only they are drawn, scaled for the depth that there is now.
#[test]
fn added_layers() {
    let device = device();
    for at in [4, 2] {
        let mut model = NanoGpt::new(4, 32, 50, 16, &device).initialize(&Gpt2::new(), 1).unwrap();
        let before = values(&model);
        model.transformer.h.insert(at, NanoBlock::new(32, &device));
        let plan = model.plan(&Gpt2::new()).unwrap();
        let down = plan.get(&format!("transformer.h.{at}.mlp.c_proj.weight")).unwrap();
        assert!((down.std() - 0.02 / 10f64.sqrt()).abs() < 1e-9);
        let after = values(&model.initialize_missing(&Gpt2::new(), 2).unwrap());
        let fresh = values(&NanoGpt::new(5, 32, 50, 16, &device).initialize(&Gpt2::new(), 2).unwrap());
        let mut new = 0;
        for (path, values) in after {
            let mut segments: Vec<String> = path.split('.').map(String::from).collect();
            let layer = (segments[1] == "h").then(|| segments[2].parse::<usize>().unwrap());
            if layer == Some(at) {
                assert_eq!(values, fresh[&path], "{path}");
                new += 1;
                continue;
            }
            if let Some(layer) = layer.filter(|&layer| layer > at) {
                segments[2] = (layer - 1).to_string();
            }
            assert_eq!(values, before[&segments.join(".")], "{path}");
        }
        assert_eq!(new, 12);
    }
}

#[test]
fn what_cannot_grow() {
    let device = device();
    let started = || model(50, LinearLayout::Row, &device).initialize(&TorchDefault::new(), 1).unwrap();
    let message = |growth: Growth<'_>| growth.grow(started(), 2).unwrap_err().to_string();
    assert_eq!(
        message(Growth::vocabulary(49)),
        "wte.weight [50, 16]: it has 50 rows, more than the 49 it is to have; give a larger size; rows are never taken away"
    );
    assert_eq!(
        message(Growth::rows("lm_head.weight", 60)),
        "lm_head.weight [16, 50]: it has the role output_head, and only tables grow by rows; select a table of vectors"
    );
    assert!(message(Growth::rows("wpe.weight", 60)).starts_with("the pattern \"wpe.weight\" matches no parameter"));
    assert_eq!(message(Growth::vocabulary(60).like_trained(f64::NAN)), "the spread is NaN; use a finite number");
    for size in [u64::MAX, u64::MAX / 16, 1 << 56] {
        for growth in [Growth::vocabulary(size).drawn_by(&Gpt2::new()), Growth::vocabulary(size)] {
            let error = growth.grow(started(), 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Shape);
            assert_eq!(
                error.to_string(),
                format!("wte.weight [50, 16]: there is no memory for {size} rows of it; give a smaller size")
            );
        }
    }
    let keep = from_fn(|_| Init::Keep);
    assert_eq!(Growth::vocabulary(60).drawn_by(&keep).grow(started(), 2).unwrap_err().kind(), ErrorKind::NoRule);
    let error = Growth::vocabulary(60).grow(model(50, LinearLayout::Row, &device), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFact);
    let linear = LinearConfig::new(4, 4).init(&device).initialize(&Xavier::normal(), 1).unwrap();
    assert_eq!(Growth::vocabulary(60).grow(linear, 2).unwrap_err().kind(), ErrorKind::Unmatched);
    let patterns = Xavier::normal().with("no.such", Init::Zeros);
    assert_eq!(Growth::vocabulary(60).drawn_by(&patterns).grow(started(), 2).unwrap_err().kind(), ErrorKind::Unmatched);
}
