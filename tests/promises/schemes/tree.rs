//! A model with exactly the parameters that a golden file lists.

use std::collections::BTreeMap;

use burn::{
    module::{Module, Param},
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::Tensor,
};
use burn_init::{NormPlacement, Role, Setup, StackPlace};

use super::goldens::{Golden, Row};
use crate::{support::device, trees::raw};

#[derive(Module, Debug, Default)]
pub struct Tree {
    token_embedding: Option<Embedding>,
    position_embedding: Option<Embedding>,
    image_positions: Option<Param<Tensor<3>>>,
    type_embedding: Option<Embedding>,
    class_token: Option<Param<Tensor<3>>>,
    patch_embedding: Option<Conv2d>,
    layers: Vec<Layer>,
    norm: Option<LayerNorm>,
    offset_norm: Option<LayerNorm>,
    /// The token embedding under the other names that it has in the original.
    tied: Vec<Embedding>,
    dense: Option<Linear>,
    head: Option<Linear>,
}

#[derive(Module, Debug, Default)]
struct Layer {
    query: Option<Linear>,
    key: Option<Linear>,
    value: Option<Linear>,
    qkv: Option<Linear>,
    attention_output: Option<Linear>,
    relative_bias: Option<Embedding>,
    mlp_in: Option<Linear>,
    mlp_gate: Option<Linear>,
    mlp_up: Option<Linear>,
    gate_up: Option<Linear>,
    mlp_down: Option<Linear>,
    layer_scale: Option<Param<Tensor<1>>>,
    branch_scale: Option<Param<Tensor<1>>>,
}

/// The field that a row of a golden file has in the tree, and its role there; `None` for what has no role.
fn place(row: &Row) -> Option<(&'static str, Role)> {
    let ends = |end: &str| row.name.ends_with(end);
    Some(match row.role.as_str() {
        "token_embedding" => ("token_embedding", Role::TokenEmbedding),
        "position_embedding" if row.layer.is_some() => ("relative_bias", Role::RelativeBias),
        "position_embedding" if row.shape.len() == 3 => ("image_positions", Role::PositionEmbedding),
        "position_embedding" => ("position_embedding", Role::PositionEmbedding),
        "cls_token" => ("class_token", Role::ClassToken),
        "patch_embedding" => ("patch_embedding", Role::PatchEmbedding),
        "query" => ("query", Role::Query),
        "key" => ("key", Role::Key),
        "value" => ("value", Role::Value),
        "fused_qkv" => ("qkv", Role::Other),
        "attention_output" => ("attention_output", Role::AttentionOutput),
        "mlp_in" => ("mlp_in", Role::MlpIn),
        "mlp_gate" => ("mlp_gate", Role::MlpGate),
        "mlp_up" => ("mlp_up", Role::MlpUp),
        "fused_gate_up" => ("gate_up", Role::Other),
        "mlp_down" => ("mlp_down", Role::MlpDown),
        "output_head" => ("head", Role::OutputHead),
        "layer_scale" => ("layer_scale", Role::LayerScale),
        "scale_vector" if ends("_alpha") => ("layer_scale", Role::LayerScale),
        "residual_scalars" if ends("resweight") => ("branch_scale", Role::BranchScale),
        "other" if ends("token_type_embeddings.weight") => ("type_embedding", Role::TypeEmbedding),
        "other" if ends(".dense.weight") => ("dense", Role::Linear),
        _ => return None,
    })
}

const TOP: [&str; 8] = [
    "token_embedding",
    "position_embedding",
    "image_positions",
    "type_embedding",
    "class_token",
    "patch_embedding",
    "dense",
    "head",
];

/// The tree, what there is to say about it, and the path of each row of the golden file.
pub fn build(golden: &Golden, part: &str) -> (Tree, Setup, BTreeMap<String, String>) {
    let device = device();
    let rows = || golden.rows(part).filter(|row| row.slice_of.is_none());
    let has_bias = |row: &Row| {
        let bias = row.name.replace("in_proj_weight", "in_proj_bias").replace(".weight", ".bias");
        rows().any(|other| other.name == bias && bias != row.name)
    };
    let mut setup = Setup::new();
    let mut tree = Tree { norm: Some(LayerNormConfig::new(4).init(&device)), ..Tree::default() };
    let mut paths = BTreeMap::new();
    let mut told: Vec<String> = Vec::new();
    for row in rows() {
        let Some((field, role)) = place(row) else { continue };
        let inner = !TOP.contains(&field);
        let shape = row.in_out();
        let linear = || Some(LinearConfig::new(shape[0], shape[1]).with_bias(has_bias(row)).init(&device));
        let table = || Some(EmbeddingConfig::new(shape[0], shape[1]).init(&device));
        let index = row.layer.unwrap_or(0);
        if inner {
            tree.layers.resize_with(tree.layers.len().max(index + 1), Layer::default);
        }
        let path = if inner { format!("layers.{index}.{field}") } else { field.to_string() };
        let raw_vector = matches!(field, "layer_scale" | "branch_scale" | "class_token" | "image_positions");
        paths.insert(row.name.clone(), if raw_vector { path.clone() } else { format!("{path}.weight") });
        if has_bias(row) {
            let bias = row.name.replace("in_proj_weight", "in_proj_bias").replace(".weight", ".bias");
            paths.insert(bias, format!("{path}.bias"));
        }
        let pattern = paths[&row.name].replace(&format!("layers.{index}."), "layers.*.");
        if !told.contains(&pattern) {
            told.push(pattern.clone());
            setup = match field {
                "qkv" => {
                    let (d, width) = (shape[0], shape[1] as u64);
                    let [query, rest] = if shape[1] == 3 * d { [width / 3; 2] } else { [width / 2, width / 4] };
                    setup.packed(pattern, [(Role::Query, query), (Role::Key, rest), (Role::Value, rest)])
                }
                // OLMo has the linear beside the gate first.
                "gate_up" => setup.packed(pattern, [Role::MlpUp, Role::MlpGate]),
                _ => setup.role(pattern, role),
            };
        }
        match field {
            "token_embedding" => tree.token_embedding = table(),
            "position_embedding" => tree.position_embedding = table(),
            "image_positions" => tree.image_positions = Some(raw([shape[0], shape[1], shape[2]], &device)),
            "type_embedding" => tree.type_embedding = table(),
            "class_token" => tree.class_token = Some(raw([shape[0], shape[1], shape[2]], &device)),
            "patch_embedding" => {
                let config = Conv2dConfig::new([shape[1], shape[0]], [shape[2], shape[3]]).with_bias(has_bias(row));
                tree.patch_embedding = Some(config.init(&device));
            }
            "dense" => tree.dense = linear(),
            "head" => tree.head = linear(),
            _ => {
                let layer = &mut tree.layers[index];
                match field {
                    "query" => layer.query = linear(),
                    "key" => layer.key = linear(),
                    "value" => layer.value = linear(),
                    "qkv" => layer.qkv = linear(),
                    "attention_output" => layer.attention_output = linear(),
                    "relative_bias" => layer.relative_bias = table(),
                    "mlp_in" => layer.mlp_in = linear(),
                    "mlp_gate" => layer.mlp_gate = linear(),
                    "mlp_up" => layer.mlp_up = linear(),
                    "gate_up" => layer.gate_up = linear(),
                    "mlp_down" => layer.mlp_down = linear(),
                    "layer_scale" => layer.layer_scale = Some(raw([shape[0]], &device)),
                    "branch_scale" => layer.branch_scale = Some(raw([shape[0]], &device)),
                    _ => unreachable!("{field}"),
                }
            }
        }
    }
    if golden.config.get("deepnorm").is_some_and(|deepnorm| deepnorm == true) {
        setup = setup.norms("layers.*", NormPlacement::Post);
    }
    if let Some(heads) = golden.dims.n_head {
        setup = setup.heads("layers.**", heads);
    }
    // T-Fixup's golden file has one layer of six.
    if let Some(layers) = golden.dims.n_layer.filter(|&layers| (tree.layers.len() as u64) < layers) {
        setup = setup.stack("layers", StackPlace::layers(layers));
    }
    for row in rows() {
        match row.role.as_str() {
            "norm_gain" if (row.mean, row.std) == (0.0, 0.0) => {
                tree.offset_norm = Some(LayerNormConfig::new(4).init(&device));
                paths.insert(row.name.clone(), "offset_norm.gamma".into())
            }
            "norm_gain" => paths.insert(row.name.clone(), "norm.gamma".into()),
            "norm_bias" => paths.insert(row.name.clone(), "norm.beta".into()),
            _ => None,
        };
    }
    if tree.offset_norm.is_some() {
        setup = setup.role("offset_norm.gamma", Role::NormGainOffset);
    }
    if let Some(table) = &tree.token_embedding {
        let is_table = |name: &String| paths.get(name).is_some_and(|path| path == "token_embedding.weight");
        let names = golden.tied.iter().filter(|group| is_table(&group[0])).flat_map(|group| &group[1..]);
        for (index, name) in names.cloned().collect::<Vec<_>>().into_iter().enumerate() {
            let role = if name.ends_with("embed_tokens.weight") { Role::TokenEmbedding } else { Role::OutputHead };
            let path = format!("tied.{index}.weight");
            setup = setup.role(path.as_str(), role);
            paths.insert(name, path);
            tree.tied.push(table.clone());
        }
    }
    (tree, setup, paths)
}
