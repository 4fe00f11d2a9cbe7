//! Each scheme held against what the original code drew: family, std within its sampling error, bounds, zeros, lengths.

use std::{collections::BTreeMap, path::Path};

use burn_init::{Entry, Factor, FactorKind, Initializer, Law, Role, Scheme, Setup, from_fn, sample::Distribution};
use serde::Deserialize;

use super::tree::build;
use crate::support::{std, values};

#[derive(Deserialize)]
pub struct Golden {
    pub dims: Dims,
    params: Vec<Row>,
}

#[derive(Deserialize)]
pub struct Dims {
    pub n_layer: Option<u64>,
    pub n_head: Option<u64>,
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
    mean: f64,
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
        let parted = |name: &str| ["encoder.", "decoder.", "enc.", "dec."].iter().any(|part| name.starts_with(part));
        self.params.iter().filter(move |row| row.name.starts_with(part) || (!part.is_empty() && !parted(&row.name)))
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
        let fitted = self.kind() != "undetermined" && !(self.min == -2.0 && expected < 0.1);
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
    // Tables by Kaiming's fan, the rest PyTorch's; its gains are offsets.
    ("x_transformers_default", "", r#"{"scheme": "modified", "base": "torch-default", "embedding_std": 0.125}"#,
     &["gamma", "final_norm"]),
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
