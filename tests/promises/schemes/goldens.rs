//! Each scheme held against what the original code drew: family, std within its sampling error, bounds, zeros, lengths.

use std::{collections::BTreeMap, path::Path};

use burn_init::{
    Entry, Factor, FactorKind, Init, Initializer, Law, Role, Rule, Scheme, Setup, from_fn,
    sample::Distribution,
    step_zero::{Activation, Architecture},
};
use serde::Deserialize;

use super::tree::build;
use crate::support::{std, values};

#[derive(Deserialize)]
pub struct Golden {
    pub dims: Dims,
    pub config: serde_json::Value,
    params: Vec<Row>,
    /// Names that share one storage; only the first of each group is in `params`.
    pub tied: Vec<Vec<String>>,
    step0_loss: Vec<StepZero>,
}

/// What the original's fresh models gave on random tokens.
#[derive(Deserialize)]
struct StepZero {
    vocab: Option<f64>,
    classes: Option<f64>,
    batch: Option<f64>,
    seq: Option<u64>,
    seeds: Option<Vec<u64>>,
    loss_mean: f64,
    logit_std_mean: f64,
}

#[derive(Deserialize)]
pub struct Dims {
    pub n_layer: Option<u64>,
    pub n_head: Option<u64>,
    d_model: f64,
}

#[derive(Deserialize)]
pub struct Row {
    #[serde(default)]
    pub name: String,
    pub shape: Vec<usize>,
    #[serde(default)]
    layout: String,
    #[serde(default)]
    pub role: String,
    pub layer: Option<usize>,
    pub slice_of: Option<String>,
    n_values: f64,
    pub mean: f64,
    pub std: f64,
    min: f64,
    max: f64,
    frac_zero: f64,
    std_error_of_std: Option<f64>,
    #[serde(default)]
    norms: BTreeMap<String, f64>,
    family: serde_json::Value,
}

impl Golden {
    pub fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(format!("{name}.json"));
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// The rows whose names begin with `part`, and those outside of every layer.
    pub fn rows(&self, part: &str) -> impl Iterator<Item = &Row> {
        const SIDES: [&str; 4] = ["encoder.", "decoder.", "enc.", "dec."];
        let shared = move |name: &str| SIDES.contains(&part) && !SIDES.iter().any(|side| name.starts_with(side));
        self.params.iter().filter(move |row| row.name.starts_with(part) || shared(&row.name))
    }
}

impl Row {
    /// The shape as the mathematics has it.
    pub fn in_out(&self) -> Vec<usize> {
        let matrix = self.shape.len() == 2 && self.layout.starts_with("[out");
        let table = matches!(self.role.as_str(), "token_embedding" | "position_embedding")
            || self.name.ends_with("embeddings.weight");
        match matrix && !table {
            true => vec![self.shape[1], self.shape[0]],
            false => self.shape.clone(),
        }
    }

    fn kind(&self) -> &str {
        self.family["kind"].as_str().unwrap_or_default()
    }

    pub fn error_of_std(&self) -> f64 {
        self.std_error_of_std.unwrap_or(self.std / (2.0 * self.n_values).sqrt())
    }

    /// Whether the law that a scheme gave is the one that the original drew from.
    pub fn agrees(&self, entry: &Entry) -> Result<(), String> {
        let n = self.n_values;
        let check = |ok: bool, what: &str, theirs: f64, ours: f64| match ok {
            true => Ok(()),
            false => Err(format!("{}: {what} is {theirs} in the original, {ours} here", self.name)),
        };
        let law = entry.law();
        if let Law::Constant(value) = law {
            check(self.std == 0.0, "std", self.std, 0.0)?;
            return check((self.mean - value).abs() <= 1e-6 * value.abs(), "value", self.mean, *value);
        }
        let rows = entry.spec().shape()[0] as f64;
        let zeros = if entry.rule().zero_row.is_some() { 1.0 / rows } else { 0.0 };
        check((self.frac_zero - zeros).abs() < 1e-4, "share of zeros", self.frac_zero, zeros)?;
        if let Law::Orthogonal { .. } = law {
            // Its squares have a fixed sum.
            return check((self.std / law.std() - 1.0).abs() < 1e-3, "std", self.std, law.std());
        }
        let Law::Draw(distribution) = law else { return Ok(()) };
        let expected = law.std() * (1.0 - zeros).sqrt();
        check((self.std - expected).abs() <= 5.0 * self.error_of_std(), "std", self.std, expected)?;
        check((self.mean - law.mean()).abs() <= 5.0 * expected / n.sqrt(), "mean", self.mean, law.mean())?;
        // A cut at the absolute values +-2 lets an exact -2 through, 100 sigma out; no family fits that.
        let outlier = self.min == -2.0 && expected < 0.1;
        // Of about a thousand uniform values a normal cut below 1.5 sigma is as likely a fit.
        let nearly_uniform = n < 5000.0 && self.family["bounds_in_sigma"].as_f64().is_some_and(|bound| bound < 1.5);
        let fitted = self.kind() != "undetermined" && !outlier && !nearly_uniform;
        match distribution {
            Distribution::Normal { std, .. } => {
                check(!fitted || self.kind() == "normal", &format!("family {}", self.kind()), self.std, *std)
            }
            Distribution::Uniform { low, high } => {
                check(!fitted || self.kind() == "uniform", &format!("family {}", self.kind()), self.std, law.std())?;
                // The largest of n uniforms is within 20/n of the bound but once in 5e8 times.
                let near = |theirs: f64, bound: f64| {
                    let short = (bound - theirs).abs() / (high - low);
                    (*low..=*high).contains(&(theirs * (1.0 - 1e-6))) && short <= 20.0 / n
                };
                check(near(self.max, *high), "upper bound", self.max, *high)?;
                check(near(self.min, *low), "lower bound", self.min, *low)
            }
            Distribution::TruncatedNormal { std, low, high, .. } => {
                let family = format!("family {}", self.kind());
                check(!fitted || self.kind() == "truncated_normal", &family, self.std, *std)?;
                check(self.max <= high * std * (1.0 + 1e-6), "upper bound", self.max, high * std)?;
                check(self.min >= low * std * (1.0 + 1e-6), "lower bound", self.min, low * std)?;
                match self.family["bounds_in_sigma"].as_f64() {
                    // By maximum likelihood, with an error of about 1 %.
                    Some(bound) => check((bound / high - 1.0).abs() < 0.03, "bound in sigmas", bound, *high),
                    None => Ok(()),
                }
            }
        }
    }
}

/// File, part of the model, scheme, and the names that are left out because the scheme has no role for them.
type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("nanogpt_l6_d384", "", "gpt2", &[]),
    ("hf_gpt2", "", "gpt2", &[]),
    ("hf_llama", "", r#"{"scheme": "hf-llama", "padding_row": 0}"#, &[]),
    ("hf_olmo2", "", r#"{"scheme": "hf-llama", "padding_row": 1}"#, &[]),
    ("hf_bert_mlm", "", "bert-hf", &["cls.predictions.bias"]),
    ("hf_modernbert_mlm", "", "modernbert", &["decoder.bias"]),
    ("hf_t5", "encoder.", "t5-hf", &[]),
    ("hf_t5", "decoder.", "t5-hf", &[]),
    ("hf_t5_v1_1_untied", "encoder.", "t5-hf", &[]),
    ("hf_t5_v1_1_untied", "decoder.", "t5-hf", &[]),
    ("nanochat", "", "nanochat",
     &["resid_lambdas", "x0_lambdas", "smear_lambda", "backout_lambda", "smear_gate", "value_embeds", "ve_gate"]),
    ("ngpt", "", "ngpt", &["sz", "sqk", "suv"]),
    ("olmo_mitchell", "", "olmo-mitchell", &[]),
    ("olmo_full_megatron", "", "olmo-full-megatron", &[]),
    ("olmo_normal", "", "olmo-normal", &[]),
    ("torchtitan_llama3", "", "torchtitan-llama3", &[]),
    ("torchtitan_llama3_tied", "", "torchtitan-llama3-tied", &[]),
    ("torchtitan_qwen3_debugmodel", "", "torchtitan-qwen3", &[]),
    ("torchtitan_qwen3_debugmodel_non_fused_qkv", "", "torchtitan-qwen3", &[]),
    // Before its vectors get length 1, nGPT is GPT-2 with another std.
    ("ngpt_before_normalisation", "", 
     r#"{"scheme": "modified", "base": {"scheme": "gpt2", "std": 0.08838834764831845}, "layer_scale": 0.08838834764831845}"#,
     &["sz", "sqk", "suv"]),
    ("torch_modules", "mha_256_4.", "torch-transformer-layer", &[]),
    ("torch_modules", "mha_256_4_add_bias_kv.", "torch-transformer-layer", &["bias", "out_proj"]),
    ("torch_modules", "encoder_layer_256_4_1024.", "torch-transformer-layer", &[]),
    ("torch_modules", "decoder_layer_256_4_1024.", "torch-transformer-layer", &[]),
    ("torch_modules", "transformer_256_4_2_2_1024.encoder.", "torch-transformer", &[]),
    ("torch_modules", "transformer_256_4_2_2_1024.decoder.", "torch-transformer", &[]),
    ("rezero", "enc.", "rezero", &[]),
    ("rezero", "dec.", "rezero", &[]),
    ("tfixup_layers", "encoder.", "t-fixup-encoder", &[]),
    ("tfixup_layers", "decoder.", "t-fixup", &[]),
    ("timm_vit_default", "", "vit-timm", &[]),
    ("timm_vit_layerscale", "", "vit-timm", &[]),
    ("timm_vit_jax", "", "vit-jax", &[]),
    ("timm_vit_jax_fix_init", "", r#"{"scheme": "vit-jax", "depth": {"rule": "per_layer"}}"#, &[]),
    ("timm_vit_moco", "", "vit-moco", &[]),
    ("timm_cait", "", "vit-cait", &["proj_l", "proj_w", "blocks_token_only"]),
    ("torchscale_decoder_deepnorm", "", "deepnorm-torchscale", &[]),
    ("torchscale_decoder_subln", "", "subln-torchscale", &[]),
    ("torchscale_decoder_preln", "", "preln-torchscale", &[]),
    // Tables by Kaiming's fan, the rest PyTorch's.
    ("x_transformers_default", "", r#"{"scheme": "modified", "base": "torch-default", "embedding_std": 0.125}"#, &[]),
    ("x_transformers_glu_rmsnorm", "", r#"{"scheme": "modified", "base": "torch-default", "embedding_std": 0.125}"#, &[]),
    ("x_transformers_l2norm_embed", "",
     r#"{"scheme": "modified", "base": "torch-default", "embedding_std": 1e-5, "position_std": 1e-5}"#, &[]),
];

fn scheme(text: &str) -> Scheme {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A packed row is compared with each of its blocks, a slice with the block of its role.
pub fn blocks<'a>(plan: &'a burn_init::Plan, row: &Row, paths: &BTreeMap<String, String>) -> Option<Vec<&'a Entry>> {
    let path = paths.get(row.slice_of.as_ref().unwrap_or(&row.name))?;
    let role = row.slice_of.as_ref().map(|_| row.role.parse::<Role>().unwrap());
    let blocks = plan.blocks(path).iter();
    Some(blocks.filter(|entry| role.is_none_or(|role| entry.spec().role() == role)).collect())
}

/// How many rows agree, and what is said of the others.
fn compare(&(file, part, ..): &Case, scheme: &dyn Initializer, left_out: &[&str]) -> (usize, Vec<String>) {
    let golden = Golden::read(file);
    let (tree, setup, paths) = build(&golden, part);
    let plan = setup.plan(&tree, scheme).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (mut agree, mut differ) = (0, Vec::new());
    for row in golden.rows(part) {
        if left_out.iter().any(|name| row.name.contains(name)) {
            continue;
        }
        let entries = blocks(&plan, row, &paths).unwrap_or_else(|| panic!("{file}: {} has no place", row.name));
        assert!(!entries.is_empty(), "{file}: {}", row.name);
        match entries.into_iter().try_for_each(|entry| row.agrees(entry)) {
            Ok(()) => agree += 1,
            Err(what) => differ.push(format!("{file}: {what}")),
        }
    }
    (agree, differ)
}

#[test]
fn laws_agree() {
    let mut rows = 0;
    let mut differ = Vec::new();
    for case in CASES {
        let (agree, wrong) = compare(case, &scheme(case.2), case.3);
        rows += agree;
        differ.extend(wrong);
    }
    assert!(differ.is_empty(), "{rows} rows agree, {} do not:\n{}", differ.len(), differ.join("\n"));
    assert!(rows > 1000, "{rows}");
}

/// The comparison can fail: with every std 10 % larger each drawn row differs that has values enough: those
/// whose own error is below a tenth by the 5 errors of the tolerance and 3 more.
#[test]
fn laws_off_by_a_tenth_do_not_agree() {
    for case in CASES {
        let scheme = scheme(case.2);
        let larger = from_fn(|param| {
            let rule = scheme.rule(param)?;
            Ok(rule.map(|rule| rule.scaled(Factor { kind: FactorKind::Other, value: 1.1, because: "1.1".into() })))
        });
        let (_, differ) = compare(case, &larger, case.3);
        for row in Golden::read(case.0).rows(case.1) {
            let left_out = case.3.iter().any(|name| row.name.contains(name)) || !row.norms.is_empty();
            if row.std > 0.0 && 8.0 * row.error_of_std() < 0.09 * row.std && !left_out {
                assert!(differ.iter().any(|what| what.contains(&row.name)), "{}: {} does not tell", case.0, row.name);
            }
        }
    }
}

/// T-Fixup before its factors: its own rules without them, and the values with the `1/sqrt(2)` that the original takes back then.
#[test]
fn tfixup_before_its_factors() {
    for (part, name) in [("encoder.", "t-fixup-encoder"), ("decoder.", "t-fixup")] {
        let after = scheme(name);
        let before = from_fn(|param| {
            let rule = after.rule(param)?;
            Ok(rule.map(|rule| match param.role() {
                Role::Value => Init::xavier_uniform(0.5f64.sqrt()).into(),
                _ => Rule { factors: Vec::new(), ..rule },
            }))
        });
        let (agree, differ) = compare(&("tfixup_layers_before", part, name, &[]), &before, &[]);
        assert!(differ.is_empty() && agree >= 10, "{agree} agree, {differ:?}");
        let (_, differ) = compare(&("tfixup_layers_before", part, name, &[]), &after, &[]);
        assert!(differ.len() >= 4, "{differ:?}");
    }
}

/// What shares its storage there is one parameter here: one line of the plan, drawn once, with the same bits at every path.
#[test]
fn ties_are_ties() {
    let mut held = 0;
    for &(file, part, name, _) in CASES {
        let golden = Golden::read(file);
        let (tree, setup, paths) = build(&golden, part);
        let plan = setup.plan(&tree, &scheme(name)).unwrap();
        let drawn = values(&setup.initialize(tree, &scheme(name), 7).unwrap());
        let lines: std::collections::BTreeSet<&str> = plan.iter().map(|entry| entry.spec().path()).collect();
        for group in &golden.tied {
            let Some(owner) = paths.get(&group[0]) else {
                assert_eq!(group[0], "cls.predictions.bias", "{file}: a tie without a place");
                continue;
            };
            // The plan's line stands under one of the names, and tells the others.
            assert_eq!(group.iter().filter(|name| lines.contains(paths[*name].as_str())).count(), 1, "{file}");
            let line = plan.get(owner).unwrap();
            assert_eq!(line.tied().len(), group.len() - 1, "{file}");
            for name in &group[1..] {
                let path = &paths[name];
                assert!(std::ptr::eq(plan.get(path).unwrap(), line), "{file}: {name}");
                assert_eq!(drawn[path], drawn[owner], "{file}: {name}");
                held += 1;
            }
        }
        let tied = plan.iter().filter(|entry| !entry.tied().is_empty()).count();
        assert_eq!(tied, golden.tied.iter().filter(|group| paths.contains_key(&group[0])).count(), "{file}");
    }
    assert!(held >= 15, "{held}");
}

/// The original's loss on random tokens and the spread of its logits, from the plan alone. The head meets a normed vector, so that the logits
/// have the std `sigma sqrt(d)`, and cost `ln V + s^2 / 2` where no word stands out.
#[test]
fn step_zero_agrees() {
    let mut held = Vec::new();
    for &(file, part, name, _) in CASES {
        // Unit vectors, and logits that T5 divides by sqrt(d) if it is told to.
        if file.starts_with("ngpt") || file.starts_with("hf_t5") {
            continue;
        }
        let golden = Golden::read(file);
        let (tree, setup, _) = build(&golden, part);
        for (factor, agrees) in [(1.0, true), (1.1, false)] {
            let scheme = scheme(name);
            let larger = from_fn(|param| {
                let because = "factor".to_string();
                let rule = scheme.rule(param)?;
                Ok(rule.map(|rule| rule.scaled(Factor { kind: FactorKind::Other, value: factor, because })))
            });
            let plan = setup.plan(&tree, &larger).unwrap();
            let role = |role: Role| plan.iter().find(|entry| entry.spec().role() == role);
            for step in &golden.step0_loss {
                let head = role(Role::OutputHead).or_else(|| role(Role::TokenEmbedding)).unwrap();
                let std = head.std() * golden.dims.d_model.sqrt();
                if let Some(classes) = step.classes {
                    // A hundred classes and single images tell little, but for a head of zeros.
                    if std == 0.0 {
                        assert!(step.logit_std_mean == 0.0 && (step.loss_mean - classes.ln()).abs() < 1e-5, "{file}");
                        held.push(file);
                    }
                    continue;
                }
                let near = (step.logit_std_mean / std - 1.0).abs() < 0.03;
                assert_eq!(near, agrees, "{file}: logits of std {} there, {std} here", step.logit_std_mean);
                let samples =
                    step.batch.unwrap() * step.seq.unwrap() as f64 * step.seeds.as_ref().unwrap().len() as f64;
                let loss = step.vocab.unwrap().ln() + std * std / 2.0;
                // The spread of the target's logit over all samples; the normal law is right to a hundredth of its term.
                let error = 5.0 * std / samples.sqrt() + 0.01 * std * std;
                let apart = (step.loss_mean - loss).abs();
                assert!(!agrees || apart < error, "{file}: {} there, {loss} here, {error}", step.loss_mean);
                held.push(file);
            }
        }
    }
    held.dedup();
    assert!(held.len() >= 15, "{held:?}");
}

/// The same from the prediction, for the plain decoders that it covers.
#[test]
fn predictions_agree() {
    let cases = [
        ("nanogpt_l6_d384", "gpt2", Activation::Gelu, 1e-5, true),
        ("hf_gpt2", "gpt2", Activation::Gelu, 1e-5, true),
        ("hf_llama", "hf-llama", Activation::SwiGlu, 1e-6, false),
        ("olmo_mitchell", "olmo-mitchell", Activation::SwiGlu, 1e-5, false),
        ("olmo_full_megatron", "olmo-full-megatron", Activation::SwiGlu, 1e-5, false),
        ("olmo_normal", "olmo-normal", Activation::SwiGlu, 1e-5, false),
        ("torchscale_decoder_deepnorm", "deepnorm-torchscale", Activation::Gelu, 1e-5, false),
        ("torchscale_decoder_preln", "preln-torchscale", Activation::Gelu, 1e-5, false),
    ];
    for (file, name, activation, epsilon, tied) in cases {
        let golden = Golden::read(file);
        let (tree, setup, _) = build(&golden, "");
        let step = &golden.step0_loss[0];
        let architecture = Architecture::new(activation, epsilon, tied, step.seq.unwrap());
        let predicted = setup.plan(&tree, &scheme(name)).unwrap().predict(&architecture).unwrap();
        let samples = step.batch.unwrap() * step.seq.unwrap() as f64 * step.seeds.as_ref().unwrap().len() as f64;
        let error = 5.0 * predicted.logit_std / samples.sqrt() + 0.01 * predicted.logit_std.powi(2);
        assert!((step.loss_mean - predicted.loss).abs() < error, "{file}: {} there, {predicted}", step.loss_mean);
        assert!((step.logit_std_mean / predicted.logit_std - 1.0).abs() < 0.03, "{file}: {predicted}");
    }
}

/// The values, too: what is drawn here has the std of what was drawn there, within the errors of both.
#[test]
fn draws_agree() {
    for &(file, part, name, left_out) in CASES {
        let golden = Golden::read(file);
        let (tree, setup, paths) = build(&golden, part);
        let plan = setup.plan(&tree, &scheme(name)).unwrap();
        let drawn = values(&setup.initialize(tree, &scheme(name), 7).unwrap());
        for row in golden.rows(part).filter(|row| !left_out.iter().any(|name| row.name.contains(name))) {
            for entry in blocks(&plan, row, &paths).unwrap() {
                let ours = block(&drawn[entry.spec().path()], entry);
                let error = row.error_of_std().hypot(std(&ours) / (2.0 * ours.len() as f64).sqrt());
                let what = format!("{file}: {}: {} there, {} here", row.name, row.std, std(&ours));
                assert!((row.std - std(&ours)).abs() <= 5.0 * error + 1e-9, "{what}");
                lengths(row, &ours, entry);
            }
        }
    }
}

fn block(values: &[f32], entry: &Entry) -> Vec<f32> {
    let Some(block) = entry.spec().block() else { return values.to_vec() };
    let columns = *entry.spec().shape().last().unwrap() as usize;
    let range = block.start as usize..(block.start + block.len) as usize;
    values.chunks(columns).flat_map(|row| row[range.clone()].to_vec()).collect()
}

/// Where the original's rows or columns have one length, so have ours. Theirs are stored [out, in].
fn lengths(row: &Row, ours: &[f32], entry: &Entry) {
    if row.norms.is_empty() {
        return;
    }
    let table = row.role == "token_embedding";
    let ours_by_rows = table || row.norms.contains_key("column_l2_norm");
    let columns = entry.spec().block().map_or(*entry.spec().shape().last().unwrap(), |block| block.len) as usize;
    let mut lengths = vec![0.0f64; if ours_by_rows { ours.len() / columns } else { columns }];
    for (i, value) in ours.iter().enumerate() {
        lengths[if ours_by_rows { i / columns } else { i % columns }] += f64::from(*value).powi(2);
    }
    assert!(lengths.iter().all(|length| (length.sqrt() - 1.0).abs() < 1e-5), "{}", row.name);
}

/// GPT-NeoX's functions, which were called on single tensors at d = 256.
#[test]
fn neox_functions() {
    #[derive(Deserialize)]
    struct Table {
        table: Vec<Call>,
    }

    #[derive(Deserialize)]
    struct Call {
        function: String,
        num_layers: usize,
        std: f64,
        std_error_of_std: f64,
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/gpt_neox_init_functions.json");
    let table: Table = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut held = 0;
    for call in table.table {
        let (name, role) = match call.function.as_str() {
            "normal" => ("megatron", Role::Query),
            "scaled_normal" => ("megatron", Role::MlpDown),
            "single_residual_scaled_normal" => ("megatron-hybrid", Role::MlpDown),
            "small_init" => ("gpt-neox", Role::Query),
            "wang_init" => ("gpt-neox", Role::MlpDown),
            _ => continue,
        };
        let model = crate::trees::NanoGpt::new(call.num_layers, 256, 10, 10, &crate::support::device());
        let plan = Setup::new().plan(&model, &scheme(name)).unwrap();
        let law = plan.iter().find(|entry| entry.spec().role() == role).unwrap().std();
        assert!(
            (law - call.std).abs() <= 5.0 * call.std_error_of_std,
            "{}: {} there, {law} here",
            call.function,
            call.std
        );
        held += 1;
    }
    assert!(held >= 50, "{held}");
}
