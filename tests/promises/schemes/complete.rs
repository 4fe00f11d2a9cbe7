//! The registry is complete: every scheme goes through files, survives odd shapes, and stands in the guide.

use std::{collections::BTreeMap, path::Path};

use burn::{
    module::{Module, Param},
    nn::conv::{Conv2d, Conv2dConfig},
    tensor::Tensor,
};
use burn_init::{Dtype, ErrorKind, Init, Initializer, ModuleInit as _, Plan, Role, Scheme, Setup, from_fn};
use half::bf16;
use proptest::prelude::*;

use crate::{
    support::{device, setup_for, values},
    trees::{Llama, NanoGpt, raw},
};

/// A decoder, or an encoder and a decoder, with the scalars that some schemes are about.
#[derive(Module, Debug)]
pub struct Whole {
    llama: Option<Llama>,
    encoder: Option<Llama>,
    decoder: Option<Llama>,
    layer_scale: Param<Tensor<1>>,
    resweight: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Patches {
    patch_embed: Conv2d,
}

/// What the scheme is for: both sides, or equally many heads for queries and keys.
pub fn model(name: &str, [layers, d, kv, ff, vocab]: [usize; 5]) -> Whole {
    let kv = if name.starts_with("mimetic") { d } else { kv };
    let llama = || Some(Llama::new(layers, d, kv, ff, vocab, &device()));
    let both = name.contains("encoder-decoder");
    let [llama, encoder, decoder] = if both { [None, llama(), llama()] } else { [llama(), None, None] };
    let scalars = |n| raw([n], &device());
    Whole { llama, encoder, decoder, layer_scale: scalars(8), resweight: scalars(1) }
}

/// The scheme, and 1 for the scalars that are not its own.
pub fn or_ones(scheme: &Scheme) -> impl Initializer {
    scheme.or(from_fn(|_| Init::Ones))
}

#[test]
fn every_scheme_goes_through_files() {
    for (name, scheme, summary) in Scheme::all() {
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{name}: {summary}");
        assert_eq!(scheme.to_string(), name);
        assert_eq!(name.parse::<Scheme>().unwrap(), scheme);
        let json = serde_json::to_string(&scheme).unwrap();
        assert_eq!(json.parse::<Scheme>().unwrap(), scheme, "{json}");
        let toml = toml::to_string(&scheme).unwrap();
        assert_eq!(toml::from_str::<Scheme>(&toml).unwrap(), scheme, "{toml}");
        let named = toml::from_str::<Scheme>(&format!("scheme = \"{name}\"")).unwrap();
        assert_eq!(named, scheme, "{name}");
        let typo = toml::from_str::<Scheme>(&format!("scheme = \"{name}\"\nstdd = 0.1")).unwrap_err();
        assert!(typo.message().contains("unknown field `stdd`"), "{name}: {}", typo.message());
        // One letter less names it among the near ones.
        let typo = name[..name.len() - 1].parse::<Scheme>().unwrap_err().to_string();
        assert!(typo.contains(name), "{typo}");
    }
    // One that has no name prints as JSON, which parses.
    let nested = r#"{"scheme": "modified", "base": {"scheme": "t5", "fold_scale": false}, "head_std": 0.0}"#;
    let scheme: Scheme = nested.parse().unwrap();
    assert_eq!(scheme.to_string().parse::<Scheme>().unwrap(), scheme);
}

/// What a file may say in another way, and what it may not say.
#[test]
fn files_are_read_as_they_are_meant() {
    let read = |text: &str| toml::from_str::<Scheme>(text).map_err(|error| error.message().to_string());
    // The name of a depth rule is enough.
    let table = read("scheme = \"gpt2\"\ndepth = { rule = \"per_layer\" }").unwrap();
    assert_eq!(read("scheme = \"gpt2\"\ndepth = \"per_layer\"").unwrap(), table);
    let counted = read("scheme = \"gpt2\"\ndepth = { rule = { count = 24 }, roles = [\"mlp_down\"] }").unwrap();
    assert_eq!(counted.to_string().parse::<Scheme>().unwrap(), counted);
    let unknown = read("scheme = \"gpt2\"\ndepth = \"per layer\"").unwrap_err();
    assert!(unknown.contains("unknown variant `per layer`") && unknown.contains("`per_layer`"), "{unknown}");
    // A name in another case or with other hyphens finds the right one.
    for (typed, meant) in
        [("GPT2", "gpt2"), ("OLMo_Mitchell", "olmo-mitchell"), ("torchtitan llama3", "torchtitan-llama3")]
    {
        let error = typed.parse::<Scheme>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("unknown scheme \"{typed}\"; did you mean {meant}")), "{error}");
    }
    // NaN is not taken for an absent value.
    for field in [
        "position_std = nan",
        "std = nan",
        "std = inf",
        "depth = { rule = { power = { scale = nan, exponent = 0.5 } } }",
    ] {
        let error = read(&format!("scheme = \"gpt2\"\n{field}")).unwrap_err();
        assert!(error.contains("is no number that a scheme can use"), "{field}: {error}");
    }
    // Blanks around a name are none of it.
    assert_eq!(" gpt2\n".parse::<Scheme>().unwrap(), Scheme::gpt2());
    assert_eq!(r#" {"scheme": " gpt2 "}"#.parse::<Scheme>().unwrap(), Scheme::gpt2());
    // JSON's null is one.
    assert_eq!(r#"{"scheme": "gpt2", "position_std": null}"#.parse::<Scheme>().unwrap(), Scheme::gpt2());
    let twice = r#"{"scheme": "gpt2", "std": 0.01, "std": 0.02}"#.parse::<Scheme>().unwrap_err();
    assert!(twice.to_string().contains("the field `std` is given twice"), "{twice}");
}

/// C16: an option may not drop the depth rule.
#[test]
fn composed_in_a_file() {
    let file = "scheme = \"modified\"\nbase = \"xavier-normal\"\ndepth = { rule = \"total\" }\npadding_row = 3";
    let scheme: Scheme = toml::from_str(file).unwrap();
    let plan = Llama::new(12, 512, 512, 2048, 100, &device()).plan(&scheme).unwrap();
    let std = |path: &str| plan.get(path).unwrap().std();
    assert!((std("model.layers.3.self_attn.o_proj.weight") - 0.009021).abs() < 5e-7);
    assert!((std("model.layers.3.mlp.down_proj.weight") - 0.0057054).abs() < 5e-8);
    assert_eq!(plan.get("model.embed_tokens.weight").unwrap().rule().zero_row, Some(3));
    // Twice is once too often, and a change needs something to change.
    let twice: Scheme = r#"{"scheme": "modified", "base": "gpt2", "depth": {"rule": "total"}}"#.parse().unwrap();
    let model = || Llama::new(2, 32, 32, 64, 100, &device());
    assert_eq!(model().plan(&twice).unwrap_err().kind(), ErrorKind::ScaledTwice);
    assert_eq!(model().plan(&"rezero".parse::<Scheme>().unwrap()).unwrap_err().kind(), ErrorKind::Unmatched);
}

/// C35: the half-precision tensor is the f32 one rounded once, and everything is finite.
#[test]
fn every_scheme_rounds_once() {
    // A device without it, such as ndarray's, gives an error: values.rs.
    if !device().supports_dtype(burn::tensor::DType::BF16) {
        return;
    }
    for (name, scheme, _) in Scheme::all() {
        let setup = setup_for(name, 4);
        let start = |setup: Setup| {
            let model = model(name, [2, 32, 16, 48, 60]);
            values(&setup.initialize(model, &or_ones(&scheme), 3).unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        let (full, half) = (start(setup.clone()), start(setup.clone().dtype(Dtype::BF16)));
        for (path, values) in &full {
            assert!(values.iter().all(|value| value.is_finite()), "{name}: {path}");
            let rounded: Vec<f32> = values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect();
            assert_eq!(rounded, half[path], "{name}: {path}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(24),
        ..ProptestConfig::default()
    })]

    /// Whatever the widths: finite values, or an error.
    #[test]
    fn no_shape_panics(layers in 1usize..4, d in 1usize..9, kv in 1usize..9, ff in 1usize..9, heads in 0u64..5) {
        for (name, scheme, _) in Scheme::all() {
            let setup = setup_for(name, heads);
            let model = model(name, [layers, d, kv, ff, 5]);
            if let Ok(model) = setup.initialize(model, &or_ones(&scheme), 1) {
                prop_assert!(values(&model).values().flatten().all(|value| value.is_finite()), "{}", name);
            }
            // Packed, with positions and biases; and a convolution.
            if let Ok(model) = setup.initialize(NanoGpt::new(layers, d, 5, 3, &device()), &or_ones(&scheme), 1) {
                prop_assert!(values(&model).values().flatten().all(|value| value.is_finite()), "{}", name);
            }
            let patches = Conv2dConfig::new([kv, d], [ff, heads as usize + 1]).init(&device());
            if let Ok(patches) = setup.initialize(Patches { patch_embed: patches }, &or_ones(&scheme), 1) {
                prop_assert!(values(&patches).values().flatten().all(|value| value.is_finite()), "{}", name);
            }
        }
    }

    /// Empty dimensions, too.
    #[test]
    fn no_empty_shape_panics(d in 0usize..2, kv in 0usize..2, ff in 0usize..2, vocab in 0usize..2) {
        for (name, scheme, _) in Scheme::all() {
            let _ = setup_for(name, 1).initialize(model(name, [1, d, kv, ff, vocab]), &or_ones(&scheme), 1);
        }
    }
}

const ROLES: [Role; 7] = [
    Role::TokenEmbedding,
    Role::Query,
    Role::Value,
    Role::AttentionOutput,
    Role::MlpUp,
    Role::MlpDown,
    Role::OutputHead,
];

/// One row of the guide's table: the stds at d = 768, f = 2048, 12 layers, 12 heads; of the first and the last layer where they differ.
fn row(name: &str, plan: &Plan, summary: &str) -> String {
    let cell = |role: Role| {
        let entries: Vec<_> = plan.iter().filter(|entry| entry.spec().role() == role).collect();
        match &entries[0].rule().init {
            Init::Split(_) => return "joint".to_string(),
            Init::Fill(_) => return "unit".to_string(),
            _ => {}
        }
        let (first, last) = (entries[0].std(), entries[entries.len() - 1].std());
        let short = |std: f64| match std {
            std if std == 0.0 || std == 1.0 => format!("{std}"),
            std if std < 5e-4 => format!("{std:.1e}"),
            std => format!("{std:.4}"),
        };
        if first.to_bits() == last.to_bits() { short(first) } else { format!("{} … {}", short(first), short(last)) }
    };
    let cells: Vec<String> = ROLES.iter().map(|&role| cell(role)).collect();
    format!("| `{name}` | {} | {summary} |\n", cells.join(" | "))
}

/// The table of docs/schemes.md is what the schemes themselves give. `BURN_INIT_WRITE_DOCS=1` writes it anew.
#[test]
fn the_guide_lists_every_scheme() {
    let mut table = String::from("| scheme | table | query | value | attn. out | MLP up | MLP down | head | |\n");
    table += &format!("|---|{}---|\n", "---|".repeat(ROLES.len()));
    for (name, scheme, summary) in Scheme::all() {
        let model = model(name, [12, 768, 768, 2048, 1000]);
        let plan = setup_for(name, 12).plan(&model, &or_ones(&scheme));
        let plan = plan.unwrap_or_else(|error| panic!("{name}: {error}"));
        table += &row(name, &plan, summary);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemes.md");
    let guide = std::fs::read_to_string(&path).unwrap();
    // Its config file is one.
    let config = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config: BTreeMap<String, BTreeMap<String, toml::Value>> = toml::from_str(config).unwrap();
    for (table, fields) in config {
        let scheme: Result<Scheme, _> = toml::Value::Table(fields.into_iter().collect()).try_into();
        assert!(scheme.is_ok(), "[{table}]: {scheme:?}");
    }
    let (begin, end) = ("<!-- table: begin -->\n", "<!-- table: end -->");
    let (head, rest) = guide.split_once(begin).expect("the guide has a table");
    let (found, tail) = rest.split_once(end).expect("the table ends");
    if std::env::var("BURN_INIT_WRITE_DOCS").is_ok() {
        std::fs::write(&path, format!("{head}{begin}{table}{end}{tail}")).unwrap();
    } else {
        assert!(found == table, "docs/schemes.md is out of date: run this test with BURN_INIT_WRITE_DOCS=1");
    }
}
