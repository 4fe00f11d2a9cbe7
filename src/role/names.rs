//! The tables: burn-nn's layers, and the names that GPT, Llama, BERT, T5 and ViT code gives to the parts of a
//! Transformer. A new convention is a new row.

use std::collections::{BTreeSet, HashMap};

use super::{
    NormPlacement,
    Role::{self, *},
};

/// For each module, by its path, the names of its children.
pub(crate) type Children<'a> = HashMap<String, BTreeSet<&'a str>>;

/// What kind of layer holds a parameter, told by the struct's name and the parameter's own name and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Linear,
    Table,
    Convolution,
    TransposedConvolution,
    Norm,
    Activation,
    /// A user's own struct.
    Own,
}

pub(crate) fn holder(container: &str, field: &str, rank: usize) -> Holder {
    let name = container.strip_prefix("Struct:").unwrap_or(container);
    let shift = |ok: bool| ok || (field == "bias" && rank == 1);
    match name {
        "Linear" if shift(field == "weight" && rank == 2) => Holder::Linear,
        "Embedding" if field == "weight" && rank == 2 => Holder::Table,
        "Conv1d" if shift(field == "weight" && rank == 3) => Holder::Convolution,
        "Conv2d" | "DeformConv2d" if shift(field == "weight" && rank == 4) => Holder::Convolution,
        "Conv3d" if shift(field == "weight" && rank == 5) => Holder::Convolution,
        "ConvTranspose1d" if shift(field == "weight" && rank == 3) => Holder::TransposedConvolution,
        "ConvTranspose2d" if shift(field == "weight" && rank == 4) => Holder::TransposedConvolution,
        "ConvTranspose3d" if shift(field == "weight" && rank == 5) => Holder::TransposedConvolution,
        "PRelu" if field == "alpha" => Holder::Activation,
        _ if name.contains("Norm") && rank == 1 => Holder::Norm,
        _ => Holder::Own,
    }
}

/// burn-nn's modules whose fields are told by the struct they stand in.
#[rustfmt::skip]
const KNOWN_MODULES: &[(&str, &str, Role)] = &[
    ("MultiHeadAttention", "query", Query),
    ("MultiHeadAttention", "key", Key),
    ("MultiHeadAttention", "value", Value),
    ("MultiHeadAttention", "output", AttentionOutput),
    ("CrossAttention", "query", Query),
    ("CrossAttention", "key", Key),
    ("CrossAttention", "value", Value),
    ("CrossAttention", "output", AttentionOutput),
    ("PositionWiseFeedForward", "linear_inner", MlpIn),
    ("PositionWiseFeedForward", "linear_outer", MlpDown),
    ("SwiGlu", "linear_inner", MlpGate),
    ("SwiGlu", "linear_outer", MlpUp),
    ("GateController", "input_transform", RecurrentInput),
    ("GateController", "hidden_transform", RecurrentHidden),
];

/// Where a name must stand to mean what the row says.
#[derive(Clone, Copy)]
enum Within {
    Anything,
    Attention,
    Mlp,
    /// A mixture of experts: beside `experts`, or in a module named for it.
    Experts,
    /// Directly in a module of this name.
    Parent(&'static str),
    /// Beside a parameter with one of these names.
    Beside(&'static [&'static str]),
    /// Outside of every list of layers.
    Top,
}
use Within::*;

/// First row that fits wins.
#[rustfmt::skip]
const NAMES: &[(&[&str], Within, Role)] = &[
    // tables and tokens
    (&["emb", "embedding", "embed"], Parent("pos_emb"), PositionEmbedding),
    (&["emb", "embedding", "embed"], Parent("pos_embed"), PositionEmbedding),
    (&["emb", "embedding", "embed"], Parent("pos_embedding"), PositionEmbedding),
    (&["emb", "embedding", "embed"], Parent("position_embedding"), PositionEmbedding),
    (&["wte", "tok_embeddings", "tok_embedding", "tok_embed", "tok_emb", "token_embeddings", "token_embedding", "token_embed", "token_emb",
       "embed_tokens", "embedding_token", "word_embeddings", "word_embedding", "embed_in", "shared", "embedding", "embeddings",
       "embed", "emb", "input_embedding"], Top, TokenEmbedding),
    (&["wpe", "position_embeddings", "position_embedding", "position_embed", "pos_embeddings", "pos_embedding", "pos_embed", "pos_emb",
       "embed_positions", "embedding_pos", "positional_embedding", "positional_encoding", "positional", "positions", "position"], Anything, PositionEmbedding),
    (&["token_type_embeddings", "token_type_embedding", "type_embedding", "segment_embeddings", "segment_embedding"], Anything, TypeEmbedding),
    (&["cls_token", "class_token", "cls", "mask_token", "dist_token", "reg_token", "register_tokens", "registers"], Anything, ClassToken),
    (&["relative_attention_bias", "relative_position_bias_table", "rel_pos_bias"], Anything, RelativeBias),
    (&["patch_embed", "patch_embedding", "patch_embeddings", "conv_proj", "patchify"], Anything, PatchEmbedding),
    (&["proj", "projection"], Parent("patch_embed"), PatchEmbedding),
    (&["proj", "projection"], Parent("patch_embeddings"), PatchEmbedding),
    (&["proj", "projection"], Parent("patch_embedding"), PatchEmbedding),
    // attention
    (&["q_proj", "c_q", "wq", "w_q", "query", "q", "to_q", "q_lin", "q_linear", "linear_q", "linear_query", "query_proj", "query_projection"], Anything, Query),
    (&["k_proj", "c_k", "wk", "w_k", "key", "k", "to_k", "k_lin", "k_linear", "linear_k", "linear_key", "key_proj", "key_projection"], Anything, Key),
    (&["v_proj", "c_v", "wv", "w_v", "value", "v", "to_v", "v_lin", "v_linear", "linear_v", "linear_value", "value_proj", "value_projection"], Anything, Value),
    (&["o_proj", "to_out", "out_lin", "Wo", "c_proj", "proj", "dense", "wo", "w_o", "o", "out", "output", "out_proj",
       "output_proj", "linear_out", "linear_o", "linear_output"], Attention, AttentionOutput),
    (&["attn_out", "att_c_proj", "attn_c_proj", "attention_output"], Anything, AttentionOutput),
    // mixture of experts
    (&["router", "gate", "gating", "gate_network"], Experts, Router),
    (&["router"], Anything, Router),
    // gated MLP
    (&["gate_proj", "wi_0", "gate", "w_gate", "linear_gate", "fc_gate"], Anything, MlpGate),
    (&["w1"], Beside(&["w3"]), MlpGate),
    (&["w3", "wi_1"], Anything, MlpUp),
    (&["up_proj", "up", "w_up"], Beside(&["gate_proj", "gate", "w_gate"]), MlpUp),
    (&["linear_in", "fc_in"], Beside(&["linear_gate", "fc_gate"]), MlpUp),
    // plain MLP
    (&["c_fc", "fc1", "fc_1", "fc_in", "lin1", "linear1", "linear_1", "w1", "wi", "w_in", "up_proj", "up", "w_up", "dense_h_to_4h"], Anything, MlpIn),
    (&["linear_in", "in_proj", "linear_inner"], Mlp, MlpIn),
    (&["dense"], Parent("intermediate"), MlpIn),
    (&["fc2", "fc_2", "lin2", "linear2", "linear_2", "w2", "down_proj", "down", "w_down", "dense_4h_to_h", "w_out", "mlp_c_proj"], Anything, MlpDown),
    (&["c_proj", "proj", "linear_out", "wo", "Wo", "out_proj", "linear_outer", "fc_out", "output"], Mlp, MlpDown),
    (&["dense"], Parent("output"), MlpDown),
    (&["ff_out"], Beside(&["ff_proj"]), MlpDown),
    // heads
    (&["decoder"], Parent("predictions"), OutputHead),
    (&["lm_head", "head", "heads", "output", "output_head", "out_head", "output_layer", "embed_out", "classifier", "score", "unembed",
       "unembedding", "to_logits", "logits"], Top, OutputHead),
    (&["pooler", "pooler_dense"], Top, Linear),
    (&["dense"], Parent("pooler"), Linear),
    // scales
    (&["gamma_1", "gamma_2", "lambda_1", "lambda_2", "ls1", "ls2", "layer_scale", "layer_scale_1", "layer_scale_2"], Anything, LayerScale),
    (&["gamma", "scale"], Parent("ls1"), LayerScale),
    (&["gamma", "scale"], Parent("ls2"), LayerScale),
    (&["gamma", "scale"], Parent("layer_scale"), LayerScale),
    (&["sinks", "sink", "attn_sinks", "attention_sinks"], Anything, AttentionSink),
    (&["resweight", "res_weight", "residual_weight", "skip_gain", "alpha"], Anything, BranchScale),
];

/// Names of the norm before the head, wherever it stands in the struct.
#[rustfmt::skip]
pub(crate) const FINAL_NORMS: &[&str] =
    &["ln_f", "norm_f", "final_norm", "norm_final", "final_layer_norm", "final_layernorm", "ln_final"];

/// Names of a norm on what the MLP gives, which nothing else has: OLMo 2, Gemma 2 and 3, GLM 4.
const ON_BRANCH: &[&str] = &["post_feedforward_layernorm", "post_mlp_layernorm", "post_ffw_norm"];
/// Names of a norm before a branch.
const BEFORE: &[&str] = &["input_layernorm", "pre_feedforward_layernorm", "pre_attention_norm", "pre_ffw_norm"];

/// Where the norms of a layer with these fields stand.
pub(crate) fn norm_placement(fields: &BTreeSet<&str>) -> NormPlacement {
    let has = |names: &[&str]| names.iter().any(|name| fields.contains(name));
    match (has(ON_BRANCH), has(BEFORE)) {
        (true, true) => NormPlacement::Sandwich,
        (true, false) => NormPlacement::ResPost,
        (false, _) => NormPlacement::Pre,
    }
}

/// Names of a norm of queries, or of queries and keys, beside their projections.
#[rustfmt::skip]
const QK_NORMS: &[&str] = &[
    "q_norm", "query_norm", "norm_q", "q_layernorm", "q_layer_norm", "q_ln", "ln_q", "query_layernorm", "query_layer_norm", "q_rmsnorm",
    "qk_norm", "norm_qk", "qk_layernorm", "norm_query",
];

/// Whether a module with these fields norms its queries.
pub(crate) fn has_qk_norm(fields: &BTreeSet<&str>) -> bool {
    QK_NORMS.iter().any(|name| fields.contains(name))
}

/// Names of weights that hold several matrices side by side.
#[rustfmt::skip]
const PACKED: &[(&[&str], Within, &[Role])] = &[
    (&["c_attn", "qkv", "qkv_proj", "wqkv", "Wqkv", "att_proj", "w_qkv", "to_qkv", "linear_qkv", "attn_qkv"], Anything, &[Query, Key, Value]),
    (&["in_proj", "in_proj_weight", "linear_in"], Attention, &[Query, Key, Value]),
    (&["kv_proj", "wkv", "to_kv"], Anything, &[Key, Value]),
    (&["gate_up_proj", "gate_up"], Anything, &[MlpGate, MlpUp]),
    // OLMo applies the activation to the second half.
    (&["ff_proj"], Anything, &[MlpUp, MlpGate]),
];

/// What the tables see of a parameter.
pub(crate) struct Place<'a> {
    pub segments: &'a [String],
    pub containers: &'a [String],
    pub holder: Holder,
    pub rank: usize,
    /// Whether the parameter stands in a list of layers.
    pub in_list: bool,
    /// Names of the children of each module of the tree.
    pub children: &'a Children<'a>,
    /// For a layer in a sequence: its position among the linears of the sequence, and their number.
    pub in_sequence: Option<(usize, usize)>,
}

/// What the tables tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Role(Role),
    Packed(&'static [Role]),
}

impl Place<'_> {
    pub(crate) fn field(&self) -> &str {
        self.segments.last().map_or("", String::as_str)
    }

    /// Position of the segment that carries the meaning: the layer's for a `weight`, the parameter's own otherwise.
    fn meaning(&self) -> usize {
        let last = self.segments.len() - 1;
        match self.field() {
            field if last > 0 && is_weight_field(field) => last - 1,
            _ => last,
        }
    }

    fn beside(&self, name: &str) -> bool {
        let parent = self.segments[..self.meaning()].join(".");
        self.children.get(&parent).is_some_and(|children| children.contains(name))
    }

    fn context(&self, test: impl Fn(&str) -> bool) -> Option<usize> {
        self.segments[..self.meaning()].iter().rposition(|segment| test(&segment.to_lowercase()))
    }

    /// The innermost enclosing module decides between attention and MLP.
    fn is_within(&self, attention: bool) -> bool {
        let position_attention = self.context(is_attention);
        let position_mlp = self.context(is_mlp);
        match attention {
            true => position_attention.is_some() && position_attention > position_mlp,
            false => position_mlp.is_some() && position_mlp > position_attention,
        }
    }

    fn fits(&self, within: Within) -> bool {
        match within {
            Anything => true,
            Attention => self.is_within(true),
            Mlp => self.is_within(false),
            Experts => self.beside("experts") || self.context(|segment| segment.contains("moe")).is_some(),
            Parent(name) => {
                let at = self.meaning();
                at > 0 && self.segments[at - 1] == name
            }
            Beside(names) => names.iter().any(|name| self.beside(name)),
            Top => !self.in_list,
        }
    }

    pub(crate) fn told(&self) -> Option<Told> {
        let field = self.field();
        if self.containers.last().is_some_and(|container| container == "LoraAdapter")
            || self.containers.iter().any(|container| container == "Reparameterization")
        {
            return Some(Told::Role(Adapter));
        }
        if matches!(field, "running_mean" | "running_var") {
            return Some(Told::Role(Buffer));
        }
        if self.holder == Holder::Activation {
            return Some(Told::Role(ActivationSlope));
        }
        if self.rank == 1
            && let Some(role) = self.vector()
        {
            return Some(Told::Role(role));
        }
        let at = self.meaning();
        let name = self.segments[at].as_str();
        let module = self.containers[at].strip_prefix("Struct:").unwrap_or("");
        if let Some((.., role)) = KNOWN_MODULES.iter().find(|row| row.0 == module && row.1 == name) {
            return Some(Told::Role(*role));
        }
        if self.rank >= 2
            && let Some((.., roles)) = PACKED.iter().find(|row| row.0.contains(&name) && self.fits(row.1))
        {
            return Some(Told::Packed(roles));
        }
        let by_name = NAMES.iter().filter(|row| row.0.contains(&name) && self.fits(row.1)).map(|row| row.2);
        if let Some(role) = by_name.into_iter().find(|role| self.can_be(*role)) {
            return Some(Told::Role(role));
        }
        if let (Some((index, count)), true) = (self.in_sequence, self.is_within(false)) {
            match (index, count) {
                (0, 2) => return Some(Told::Role(MlpIn)),
                (1, 2) => return Some(Told::Role(MlpDown)),
                _ => {}
            }
        }
        match self.holder {
            Holder::Convolution | Holder::TransposedConvolution => Some(Told::Role(Convolution)),
            _ => None,
        }
    }

    /// Gains, shifts and biases, by the layer they stand in and their own name.
    fn vector(&self) -> Option<Role> {
        let field = self.field();
        // burn's `Normalization` is an enum, and the name of its variant stands in the path: `norm_1.Layer.gamma`.
        let variant =
            |name: &str| matches!(field, "gamma" | "beta") && name.starts_with(|c: char| c.is_ascii_uppercase());
        let owner = self.segments.iter().rev().skip(1).map(String::as_str).find(|name| !variant(name)).unwrap_or("");
        let gain = matches!(field, "gamma" | "weight" | "scale" | "gain" | "g");
        let shift = matches!(field, "beta" | "bias" | "shift" | "b");
        let is_norm = self.holder == Holder::Norm
            || owner.contains("norm")
            || owner == "ln"
            || owner.starts_with("ln_")
            || owner.starts_with("ln1")
            || owner.starts_with("ln2");
        if is_norm && gain {
            Some(NormGain)
        } else if is_norm && shift {
            Some(NormBias)
        } else if matches!(field, "bias" | "b") || field.ends_with("_bias") || field.starts_with("bias_") {
            Some(Bias)
        } else {
            None
        }
    }

    /// Guards against a name that means something else in this tree.
    fn can_be(&self, role: Role) -> bool {
        match role {
            LayerScale => self.rank == 1,
            BranchScale => self.rank <= 1,
            AttentionSink => self.rank == 1,
            _ if role.is_table() => self.holder != Holder::Linear && self.rank >= 1,
            PatchEmbedding => self.rank >= 2,
            _ => matches!(self.holder, Holder::Linear | Holder::Own) && self.rank >= 2,
        }
    }
}

/// Names of a layer's weight, which say nothing of its part.
pub(crate) fn is_weight_field(field: &str) -> bool {
    matches!(field, "weight" | "kernel" | "w")
}

pub(crate) fn is_attention(segment: &str) -> bool {
    segment.contains("attn") || segment.contains("attention") || matches!(segment, "mha" | "sa" | "ca" | "mixer_attn")
}

pub(crate) fn is_mlp(segment: &str) -> bool {
    segment.contains("mlp")
        || segment.contains("feed_forward")
        || segment.contains("feedforward")
        || segment.contains("expert")
        || segment.contains("moe")
        || matches!(segment, "ffn" | "ff" | "ffwd" | "pwff" | "densereludense" | "swiglu")
}

pub(crate) fn is_expert(segment: &str) -> bool {
    segment.contains("expert")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Llama calls the norm before its MLP `post_attention_layernorm`, which is none on the branch.
    #[test]
    fn norms_on_branches() {
        let llama = ["input_layernorm", "self_attn", "post_attention_layernorm", "mlp"];
        let olmo2 = ["self_attn", "post_attention_layernorm", "mlp", "post_feedforward_layernorm"];
        let gemma2 = [&llama[..], &["pre_feedforward_layernorm", "post_feedforward_layernorm"]].concat();
        let told = |names: &[&str]| norm_placement(&names.iter().copied().collect());
        assert_eq!(told(&llama), NormPlacement::Pre);
        assert_eq!(told(&olmo2), NormPlacement::ResPost);
        assert_eq!(told(&gemma2), NormPlacement::Sandwich);
        assert_eq!(told(&["ln_1", "attn", "ln_2", "mlp"]), NormPlacement::Pre);
    }
}
