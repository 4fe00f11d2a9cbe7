//! The names of real code bases, from the golden files: what share of their parameters is told without a line written, and that
//! neither a role nor the number of additions to a stream is told wrongly.

use std::path::Path;

use serde::Deserialize;

use super::{Leaf, Role, Setup, resolve};

#[derive(Deserialize)]
struct Golden {
    dims: Dims,
    params: Vec<Row>,
}

#[derive(Deserialize)]
struct Dims {
    n_layer: Option<u64>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    shape: Vec<u64>,
    layout: String,
    role: String,
    slice_of: Option<String>,
}

impl Row {
    fn is_table(&self) -> bool {
        matches!(self.role.as_str(), "token_embedding" | "position_embedding" | "value_embedding")
            || self.name.ends_with("embeddings.weight")
    }

    /// The leaf that burn would show for it.
    fn leaf(&self, id: u64) -> Leaf {
        let segments: Vec<String> = self.name.split('.').map(String::from).collect();
        let holder = match self.shape.len() {
            2 if self.is_table() => "Struct:Embedding",
            2 => "Struct:Linear",
            4 => "Struct:Conv2d",
            1 if self.role.starts_with("norm") => "Struct:LayerNorm",
            1 if self.name.ends_with("bias") => "Struct:Linear",
            _ => "Struct:Model",
        };
        let last = segments.len() - 1;
        let container = |i: usize| match segments[i].parse::<u64>() {
            Ok(_) => "Vec",
            Err(_) if i == last && last > 0 => holder,
            Err(_) => "Struct:Module",
        };
        let containers = (0..segments.len()).map(|i| container(i).to_string()).collect();
        let mut shape = self.shape.clone();
        if shape.len() == 2 && !self.is_table() && self.layout.starts_with("[out") {
            shape.swap(0, 1);
        }
        Leaf { segments, containers, id, shape, initialized: false, quantized: false }
    }

    /// The roles that are right; none if the tables cannot know.
    fn right(&self) -> &'static [Role] {
        match self.role.as_str() {
            "token_embedding" => &[Role::TokenEmbedding],
            "position_embedding" => &[Role::PositionEmbedding, Role::RelativeBias],
            "cls_token" => &[Role::ClassToken],
            "patch_embedding" => &[Role::PatchEmbedding],
            "query" => &[Role::Query],
            "key" => &[Role::Key],
            "value" => &[Role::Value],
            "fused_qkv" => &[Role::Query, Role::Key, Role::Value],
            "attention_output" => &[Role::AttentionOutput],
            "mlp_in" => &[Role::MlpIn],
            "mlp_gate" => &[Role::MlpGate],
            "mlp_up" => &[Role::MlpUp],
            // nGPT's first map of the MLP has the name of one without a gate: it is asked for.
            "fused_gate_up" if self.name.ends_with("c_fc.weight") => &[],
            "fused_gate_up" if self.name.ends_with("ff_proj.weight") => &[Role::MlpUp, Role::MlpGate],
            "fused_gate_up" => &[Role::MlpGate, Role::MlpUp],
            "mlp_down" => &[Role::MlpDown],
            "output_head" => &[Role::OutputHead],
            "norm_gain" => &[Role::NormGain],
            "norm_bias" => &[Role::NormBias],
            "bias" | "mlp_bias" | "bias_of_scaled" | "head_bias" => &[Role::Bias],
            "layer_scale" => &[Role::LayerScale],
            "residual_scalars" if self.name.ends_with("resweight") => &[Role::BranchScale],
            "scale_vector" if self.name.ends_with("_alpha") => &[Role::LayerScale],
            "other" if self.name.ends_with("token_type_embeddings.weight") => &[Role::TypeEmbedding],
            "other" if self.name.ends_with("dense.weight") => &[Role::Linear],
            // A linear map beside the layers, with no part in the stream.
            "gate" if !self.name.contains(".h.") => &[Role::Linear],
            _ => &[],
        }
    }
}

/// Rows, those told rightly, and what is told wrongly.
fn cover(name: &str) -> (usize, usize, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(format!("{name}.json"));
    let golden: Golden = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let rows: Vec<&Row> = golden.params.iter().filter(|row| row.slice_of.is_none()).collect();
    let leaves: Vec<Leaf> = rows.iter().enumerate().map(|(id, row)| row.leaf(id as u64)).collect();
    // Packed blocks of unlike widths are asked for.
    let Ok(sites) = resolve(&leaves, &Setup::new()) else { return (rows.len(), 0, Vec::new()) };
    let (mut right, mut wrong) = (0, Vec::new());
    // An unknown one in a stack is an error before any depth is counted.
    let counted = !sites.unknown.iter().any(|one| one.in_stack);
    for site in sites.known.iter().filter(|site| counted && site.specs[0].role.writes()) {
        let (spec, layers) = (&site.specs[0], golden.dims.n_layer.unwrap_or_default());
        let branches = if name.starts_with("hf_t5") && spec.path.starts_with("decoder") { 3 } else { 2 } * layers;
        // CaiT's second stack has two layers.
        let branches = if spec.path.starts_with("blocks_token_only") { 4 } else { branches };
        if spec.writes.is_none_or(|writes| writes.of != branches) {
            wrong.push(format!("{name}: {} writes {:?}, and is one of {branches}", spec.path, spec.writes));
        }
    }
    for site in &sites.known {
        let row = rows[site.leaf];
        let told: Vec<Role> = site.specs.iter().map(|spec| spec.role).collect();
        let ok = match row.role.as_str() {
            "fused_qkv" | "fused_gate_up" => told == row.right(),
            _ => told.iter().all(|role| row.right().contains(role)),
        };
        match ok {
            true => right += 1,
            false => wrong.push(format!("{name}: {} is told {told:?}, and is {}", row.name, row.role)),
        }
    }
    (rows.len(), right, wrong)
}

const FILES: &[&str] = &[
    "nanogpt_l6_d384",
    "hf_gpt2",
    "hf_llama",
    "hf_olmo2",
    "hf_bert_mlm",
    "hf_modernbert_mlm",
    "hf_t5",
    "hf_t5_v1_1_untied",
    "nanochat",
    "ngpt",
    "olmo_mitchell",
    "torchtitan_llama3",
    "torchtitan_qwen3_debugmodel",
    "timm_vit_default",
    "timm_vit_layerscale",
    "timm_cait",
    "torchscale_decoder_deepnorm",
    "torchscale_decoder_subln",
    "x_transformers_default",
];

#[test]
fn names_of_real_code_bases() {
    let mut report = String::new();
    let mut wrong = Vec::new();
    let (mut all, mut told) = (0, 0);
    for name in FILES {
        let (rows, right, mistakes) = cover(name);
        report += &format!("{name}: {right} of {rows}\n");
        all += rows;
        told += right;
        wrong.extend(mistakes);
    }
    assert!(wrong.is_empty(), "{report}{}", wrong.join("\n"));
    // Nine in ten without a line; the rest is asked for: unlike packed widths, scales of one code base's own, fused gates.
    assert!(told * 100 >= all * 89, "{report}{told} of {all}");
}
