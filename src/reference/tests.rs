use burn::config::Config;
use burn::tensor::{Device, Int, Tensor};

use super::*;
use crate::ModuleInit as _;
use crate::parametrization::BaseSize;
use crate::schemes::{Gpt2, Modified, Mup, Scheme, T5, UMup};
use crate::step_zero::Point;

fn tiny() -> TransformerConfig {
    TransformerConfig::new(11, 8, 16, 2, 4)
}

fn tokens(values: [i64; 6]) -> Tensor<2, Int> {
    Tensor::from_data([values], &Device::default())
}

fn values(logits: Tensor<3>) -> Vec<f32> {
    logits.try_into_vec_as::<f32>().unwrap()
}

#[test]
fn every_option_gives_finite_logits() {
    let device = Device::default();
    for norm in [Norm::LayerNorm, Norm::RmsNorm] {
        for positions in [Positions::Learned, Positions::Rotary, Positions::None] {
            for (activation, bias, tied, kv) in [
                (Activation::Gelu, true, true, 4),
                (Activation::GeluTanh, false, true, 2),
                (Activation::Relu, true, false, 1),
                (Activation::SquaredRelu, true, true, 4),
                (Activation::Silu, false, false, 2),
                (Activation::SwiGlu, false, false, 4),
                (Activation::GeGlu, true, false, 4),
                (Activation::ReGlu, false, true, 4),
            ] {
                let config = tiny()
                    .with_norm(norm)
                    .with_positions(positions)
                    .with_activation(activation)
                    .with_bias(bias)
                    .with_tied(tied)
                    .with_n_kv_heads(kv);
                let model = config.init(&device).unwrap();
                let logits = model.forward(tokens([0, 1, 2, 3, 4, 10]));
                assert_eq!(logits.dims(), [1, 6, 11]);
                assert!(values(logits).iter().all(|z| z.is_finite()), "{config}");
            }
        }
    }
}

#[test]
fn no_position_sees_a_later_token() {
    for positions in [Positions::Learned, Positions::Rotary, Positions::None] {
        let model = tiny().with_positions(positions).init(&Device::default()).unwrap();
        let one = values(model.forward(tokens([1, 2, 3, 4, 5, 6])));
        let other = values(model.forward(tokens([1, 2, 3, 4, 9, 6])));
        assert_eq!(one[..4 * 11], other[..4 * 11]);
        assert_ne!(one[4 * 11..5 * 11], other[4 * 11..5 * 11]);
    }
}

#[test]
fn a_tied_head_is_the_embedding() {
    let model = tiny().init(&Device::default()).unwrap();
    let mut normed = None;
    let mut listener = |point: Point, x: &Tensor<3>| {
        if point.site == Site::FinalNorm {
            normed = Some(x.clone());
        }
    };
    let logits = model.forward_with(tokens([0, 1, 2, 3, 4, 10]), &mut Probe::new(&mut listener));
    let table = model.token_embedding.weight.val().transpose().unsqueeze::<3>();
    let by_hand = values(normed.unwrap().matmul(table));
    // Sums of 16 products in another order: 16 roundings of numbers below 1.
    for (a, b) in values(logits).iter().zip(by_hand) {
        assert!((a - b).abs() < 16.0 * f32::EPSILON, "{a} {b}");
    }
}

/// With equal key and value heads, one shared head is the same as one each.
#[test]
fn grouped_heads_serve_their_group() {
    let device = Device::default();
    let full = tiny().with_bias(false).init(&device).unwrap();
    let mut grouped = tiny().with_bias(false).with_n_kv_heads(2).init(&device).unwrap();
    let mut repeated = full.clone();
    for (grouped, full) in grouped.blocks.iter_mut().zip(&mut repeated.blocks) {
        let heads = |weight: Tensor<2>| weight.slice([0..16, 0..8]);
        let twice = |weight: Tensor<2>| weight.reshape([16, 2, 1, 4]).repeat_dim(2, 2).reshape([16, 16]);
        for (small, large) in [
            (&mut grouped.attention.key, &mut full.attention.key),
            (&mut grouped.attention.value, &mut full.attention.value),
        ] {
            let part = heads(large.weight.val());
            small.weight = burn::module::Param::from_tensor(part.clone());
            large.weight = burn::module::Param::from_tensor(twice(part));
        }
        grouped.attention.query = full.attention.query.clone();
        grouped.attention.output = full.attention.output.clone();
        grouped.mlp = full.mlp.clone();
    }
    grouped.token_embedding = repeated.token_embedding.clone();
    grouped.position_embedding = repeated.position_embedding.clone();
    let one = values(grouped.forward(tokens([1, 2, 3, 4, 5, 6])));
    let other = values(repeated.forward(tokens([1, 2, 3, 4, 5, 6])));
    assert_eq!(one, other);
}

#[test]
fn the_probe_sees_every_point_in_order() {
    let model = tiny().init(&Device::default()).unwrap();
    let mut seen = Vec::new();
    let mut listener = |point: Point, x: &Tensor<3>| seen.push((point.to_string(), x.dims()[2]));
    model.forward_with(tokens([0, 1, 2, 3, 4, 5]), &mut Probe::new(&mut listener));
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "0.resid_pre 0.attn_scores 0.attn_out 0.resid_mid 0.mlp_out 0.resid_post \
         1.resid_pre 1.attn_scores 1.attn_out 1.resid_mid 1.mlp_out 1.resid_post final_norm logits"
    );
    assert_eq!(seen.last().unwrap().1, 11);
}

#[test]
fn what_cannot_be_built_is_an_error() {
    let config = |change: fn(&mut TransformerConfig)| {
        let mut config = tiny();
        change(&mut config);
        config.init(&Device::default()).unwrap_err().to_string()
    };
    assert_eq!(config(|c| c.n_layers = 0), "n_layers is 0; use 1 or more");
    assert_eq!(config(|c| c.n_layers = usize::MAX), format!("n_layers is {}; use 100000 or less", usize::MAX));
    assert_eq!(config(|c| c.n_heads = 3), "d_model 16 is not divisible by n_heads 3; choose a divisor");
    assert_eq!(config(|c| c.n_kv_heads = 3), "n_heads 4 is not divisible by n_kv_heads 3; choose a divisor");
    assert_eq!(
        config(|c| (c.positions, c.n_heads, c.n_kv_heads) = (Positions::Rotary, 16, 16)),
        "rotary positions turn pairs, and a head is 1 wide; choose n_heads so that d_model / n_heads is even"
    );
    assert_eq!(config(|c| c.norm_epsilon = 0.0), "norm_epsilon is 0; use a positive number");
    assert_eq!(config(|c| c.dropout = 1.0), "dropout is 1; use a number from 0 to below 1");
    assert_eq!(config(|c| c.dropout = f64::NAN), "dropout is NaN; use a number from 0 to below 1");
    assert_eq!(
        config(|c| c.d_ff = usize::MAX),
        format!("a table of {} x 16 is too large; use smaller sizes", usize::MAX)
    );
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let device = Device::default();
    let model = tiny().init(&device).unwrap();
    let error = |tokens: Tensor<2, Int>| model.try_forward(tokens).unwrap_err().to_string();
    assert_eq!(
        error(Tensor::zeros([2, 9], &device)),
        "a sequence of 9 tokens is longer than the context of 8; cut it, or configure a longer context"
    );
    assert_eq!(error(tokens([0, 0, 11, 0, 0, 0])), "token 11 is outside of the vocabulary of 11");
    assert_eq!(error(tokens([0, 0, -1, 0, 0, 0])), "token -1 is outside of the vocabulary of 11");
    assert!(model.try_forward(tokens([0; 6])).is_ok());
}

#[test]
fn json_in_and_out() {
    let config = TransformerConfig::llama_small().with_scheme(Scheme::gpt2()).with_seed(7);
    let json = config.to_string();
    assert_eq!(TransformerConfig::load_binary(json.as_bytes()).unwrap(), config);
    assert!(json.contains(r#""positions": "rotary""#), "{json}");
    let typo = json.replace("\"tied\"", "\"tyed\"");
    let error = TransformerConfig::load_binary(typo.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("missing field `tied`"), "{error}");
}

#[test]
fn parameters_of_the_presets() {
    for (config, count) in [
        (TransformerConfig::gpt2_small(), 124_439_808),
        (TransformerConfig::gpt2_medium(), 354_823_168),
        (TransformerConfig::gpt2_large(), 774_030_080),
        (TransformerConfig::gpt2_xl(), 1_557_611_200),
        (TransformerConfig::llama_small(), 15_191_712),
    ] {
        let plan = config.build(&Device::default()).unwrap().plan(&Gpt2::new()).unwrap();
        assert_eq!(plan.num_params(), count);
    }
}

/// T5's query depends on the width of a head, which no shape shows: the config tells it.
#[test]
fn the_config_knows_its_heads() {
    let config = tiny().with_scheme("t5".parse().unwrap());
    let plan = config.setup().plan(&config.build(&Device::default()).unwrap(), &config.scheme).unwrap();
    let std = plan.get("blocks.0.attention.query.weight").unwrap().std();
    // (d_model d_head)^-1/2 with d_model 16 and d_head 4.
    assert!((std - 0.125).abs() < 1e-12, "{std}");
    assert!(config.init(&Device::default()).is_ok());
}

/// A tied head's multiplier is on the norm before it; the config knows which head it has, and what the scheme says goes first.
#[test]
fn the_config_knows_its_head() {
    let init = |tied: bool, scheme: Scheme| tiny().with_tied(tied).with_scheme(scheme).init(&Device::default());
    let gain = |model: &Transformer| match model.norm_final.as_ref().unwrap() {
        Normalization::Layer(norm) => norm.gamma.val().into_data().try_to_vec::<f32>().unwrap()[0],
        other => panic!("{other:?}"),
    };
    // Of width 16, and muP's base 64 wide.
    let mup = || Mup::new().with_base(BaseSize { width: 64, head_width: 4, layers: 2 });
    let over = |scheme: Scheme| Scheme::from(Modified { padding_row: Some(0), ..Modified::of(scheme) });
    for (scheme, tied, untied) in [
        (mup().into(), 4.0, 1.0),
        (over(mup().into()), 4.0, 1.0),
        (UMup::new().into(), 1.0 / 16.0, 1.0),
        (T5::new().into(), 0.25, 1.0),
    ] {
        assert_eq!(gain(&init(true, Scheme::clone(&scheme)).unwrap()), tied, "{scheme}");
        assert_eq!(gain(&init(false, Scheme::clone(&scheme)).unwrap()), untied, "{scheme}");
        // By hand nobody says it.
        let by_hand = tiny().init_with(&scheme, 0, &Device::default());
        assert!(by_hand.is_err() || gain(&by_hand.unwrap()) == untied, "{scheme}");
    }
    assert_eq!(gain(&init(true, mup().with_tied(false).into()).unwrap()), 1.0);
}

#[test]
fn the_same_seed_gives_the_same_logits() {
    let logits = |seed| {
        let model = tiny().with_seed(seed).init(&Device::default()).unwrap();
        values(model.forward(tokens([1, 2, 3, 4, 5, 6])))
    };
    assert_eq!(logits(1), logits(1));
    assert_ne!(logits(1), logits(2));
}
