//! Models as users write them, with the names of the code bases they come from. Only the trees matter here.
#![allow(dead_code, clippy::large_enum_variant)]

use burn::{
    module::{Module, Param, ParamId},
    nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig},
    tensor::{Device, Tensor},
};

/// A raw lazy parameter whose own draw must never run.
pub fn raw<const D: usize>(shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    Param::uninitialized(ParamId::new(), move |_, _| panic!("burn's own draw ran"), device.clone(), true, shape.into())
}

fn linear(d_in: usize, d_out: usize, bias: bool, device: &Device) -> Linear {
    LinearConfig::new(d_in, d_out).with_bias(bias).init(device)
}

// nanoGPT

#[derive(Module, Debug)]
pub struct NanoGpt {
    pub transformer: NanoTransformer,
}

#[derive(Module, Debug)]
pub struct NanoTransformer {
    pub wte: Embedding,
    pub wpe: Embedding,
    pub h: Vec<NanoBlock>,
    pub ln_f: LayerNorm,
}

#[derive(Module, Debug)]
pub struct NanoBlock {
    pub ln_1: LayerNorm,
    pub attn: NanoAttention,
    pub ln_2: LayerNorm,
    pub mlp: NanoMlp,
}

#[derive(Module, Debug)]
pub struct NanoAttention {
    pub c_attn: Linear,
    pub c_proj: Linear,
}

#[derive(Module, Debug)]
pub struct NanoMlp {
    pub c_fc: Linear,
    pub c_proj: Linear,
}

impl NanoBlock {
    pub fn new(d: usize, device: &Device) -> Self {
        Self {
            ln_1: LayerNormConfig::new(d).init(device),
            attn: NanoAttention { c_attn: linear(d, 3 * d, true, device), c_proj: linear(d, d, true, device) },
            ln_2: LayerNormConfig::new(d).init(device),
            mlp: NanoMlp { c_fc: linear(d, 4 * d, true, device), c_proj: linear(4 * d, d, true, device) },
        }
    }
}

impl NanoGpt {
    pub fn new(layers: usize, d: usize, vocab: usize, context: usize, device: &Device) -> Self {
        Self {
            transformer: NanoTransformer {
                wte: EmbeddingConfig::new(vocab, d).init(device),
                wpe: EmbeddingConfig::new(context, d).init(device),
                h: (0..layers).map(|_| NanoBlock::new(d, device)).collect(),
                ln_f: LayerNormConfig::new(d).init(device),
            },
        }
    }
}

// Llama

#[derive(Module, Debug)]
pub struct Llama {
    pub model: LlamaModel,
    pub lm_head: Linear,
}

#[derive(Module, Debug)]
pub struct LlamaModel {
    pub embed_tokens: Embedding,
    pub layers: Vec<LlamaLayer>,
    pub norm: RmsNorm,
}

#[derive(Module, Debug)]
pub struct LlamaLayer {
    pub self_attn: LlamaAttention,
    pub mlp: LlamaMlp,
    pub input_layernorm: RmsNorm,
    pub post_attention_layernorm: RmsNorm,
}

#[derive(Module, Debug)]
pub struct LlamaAttention {
    pub q_proj: Linear,
    pub k_proj: Linear,
    pub v_proj: Linear,
    pub o_proj: Linear,
}

#[derive(Module, Debug)]
pub struct LlamaMlp {
    pub gate_proj: Linear,
    pub up_proj: Linear,
    pub down_proj: Linear,
}

impl Llama {
    pub fn new(layers: usize, d: usize, kv: usize, ff: usize, vocab: usize, device: &Device) -> Self {
        let layer = || LlamaLayer {
            self_attn: LlamaAttention {
                q_proj: linear(d, d, false, device),
                k_proj: linear(d, kv, false, device),
                v_proj: linear(d, kv, false, device),
                o_proj: linear(d, d, false, device),
            },
            mlp: LlamaMlp {
                gate_proj: linear(d, ff, false, device),
                up_proj: linear(d, ff, false, device),
                down_proj: linear(ff, d, false, device),
            },
            input_layernorm: RmsNormConfig::new(d).init(device),
            post_attention_layernorm: RmsNormConfig::new(d).init(device),
        };
        Self {
            model: LlamaModel {
                embed_tokens: EmbeddingConfig::new(vocab, d).init(device),
                layers: (0..layers).map(|_| layer()).collect(),
                norm: RmsNormConfig::new(d).init(device),
            },
            lm_head: linear(d, vocab, false, device),
        }
    }
}

// The write-up's own names: the MLP is a tuple whose element 2 is the second linear.

#[derive(Module, Debug)]
pub struct WriteUp {
    pub token_embedding: Embedding,
    pub position_embedding: Embedding,
    pub blocks: Vec<WriteUpBlock>,
    pub final_norm: LayerNorm,
}

#[derive(Module, Debug)]
pub struct WriteUpBlock {
    pub norm1: LayerNorm,
    pub attention_module: WriteUpAttention,
    pub norm2: LayerNorm,
    pub mlp: (Linear, burn::nn::Gelu, Linear),
}

#[derive(Module, Debug)]
pub struct WriteUpAttention {
    pub linear_query: Linear,
    pub linear_key: Linear,
    pub linear_value: Linear,
    pub linear_out: Linear,
}

impl WriteUp {
    pub fn new(layers: usize, d: usize, vocab: usize, device: &Device) -> Self {
        let block = || WriteUpBlock {
            norm1: LayerNormConfig::new(d).init(device),
            attention_module: WriteUpAttention {
                linear_query: linear(d, d, true, device),
                linear_key: linear(d, d, true, device),
                linear_value: linear(d, d, true, device),
                linear_out: linear(d, d, true, device),
            },
            norm2: LayerNormConfig::new(d).init(device),
            mlp: (linear(d, 4 * d, true, device), burn::nn::Gelu::new(), linear(4 * d, d, true, device)),
        };
        Self {
            token_embedding: EmbeddingConfig::new(vocab, d).init(device),
            position_embedding: EmbeddingConfig::new(64, d).init(device),
            blocks: (0..layers).map(|_| block()).collect(),
            final_norm: LayerNormConfig::new(d).init(device),
        }
    }
}

// Wrappers, options, enums, raw parameters.

#[derive(Module, Debug)]
pub struct Wrapped<M: Module> {
    pub inner: M,
}

#[derive(Module, Debug)]
pub enum Either {
    Plain(NanoBlock),
    Norm(LayerNorm),
}

#[derive(Module, Debug)]
pub struct Vit {
    pub patch_embed: burn::nn::conv::Conv2d,
    pub cls_token: Param<Tensor<3>>,
    pub pos_embed: Param<Tensor<3>>,
    pub blocks: Vec<NanoBlock>,
    pub norm: Option<LayerNorm>,
    pub absent: Option<LayerNorm>,
    pub head: Linear,
}

impl Vit {
    pub fn new(device: &Device) -> Self {
        Self {
            patch_embed: burn::nn::conv::Conv2dConfig::new([3, 32], [4, 4]).init(device),
            cls_token: raw([1, 1, 32], device),
            pos_embed: raw([1, 16, 32], device),
            blocks: (0..2).map(|_| NanoBlock::new(32, device)).collect(),
            norm: Some(LayerNormConfig::new(32).init(device)),
            absent: None,
            head: linear(32, 10, true, device),
        }
    }
}

// Mixtures of experts: a list of experts, and one stacked tensor for each matrix.

#[derive(Module, Debug)]
pub struct Moe {
    pub embed_tokens: Embedding,
    pub layers: Vec<MoeLayer>,
}

#[derive(Module, Debug)]
pub struct MoeLayer {
    pub self_attn: LlamaAttention,
    pub mlp: MoeMlp,
    pub input_layernorm: RmsNorm,
}

#[derive(Module, Debug)]
pub struct MoeMlp {
    pub gate: Linear,
    pub experts: Vec<LlamaMlp>,
    pub shared_expert: LlamaMlp,
}

#[derive(Module, Debug)]
pub struct StackedMoe {
    pub layers: Vec<StackedMoeLayer>,
}

#[derive(Module, Debug)]
pub struct StackedMoeLayer {
    pub self_attn: LlamaAttention,
    pub moe: StackedExperts,
}

#[derive(Module, Debug)]
pub struct StackedExperts {
    pub router: Linear,
    pub gate_proj: Param<Tensor<3>>,
    pub up_proj: Param<Tensor<3>>,
    pub down_proj: Param<Tensor<3>>,
}

fn llama_attention(d: usize, device: &Device) -> LlamaAttention {
    LlamaAttention {
        q_proj: linear(d, d, false, device),
        k_proj: linear(d, d, false, device),
        v_proj: linear(d, d, false, device),
        o_proj: linear(d, d, false, device),
    }
}

fn llama_mlp(d: usize, ff: usize, device: &Device) -> LlamaMlp {
    LlamaMlp {
        gate_proj: linear(d, ff, false, device),
        up_proj: linear(d, ff, false, device),
        down_proj: linear(ff, d, false, device),
    }
}

impl Moe {
    pub fn new(layers: usize, device: &Device) -> Self {
        let layer = || MoeLayer {
            self_attn: llama_attention(32, device),
            mlp: MoeMlp {
                gate: linear(32, 4, false, device),
                experts: (0..4).map(|_| llama_mlp(32, 64, device)).collect(),
                shared_expert: llama_mlp(32, 64, device),
            },
            input_layernorm: RmsNormConfig::new(32).init(device),
        };
        Self { embed_tokens: EmbeddingConfig::new(50, 32).init(device), layers: (0..layers).map(|_| layer()).collect() }
    }
}

impl StackedMoe {
    pub fn new(layers: usize, device: &Device) -> Self {
        let layer = || StackedMoeLayer {
            self_attn: llama_attention(32, device),
            moe: StackedExperts {
                router: linear(32, 4, false, device),
                gate_proj: raw([4, 32, 64], device),
                up_proj: raw([4, 32, 64], device),
                down_proj: raw([4, 64, 32], device),
            },
        };
        Self { layers: (0..layers).map(|_| layer()).collect() }
    }
}

/// Names that no table knows.
#[derive(Module, Debug)]
pub struct Mixer {
    pub blocks: Vec<MixerBlock>,
}

#[derive(Module, Debug)]
pub struct MixerBlock {
    pub mixer: MixerInner,
}

#[derive(Module, Debug)]
pub struct MixerInner {
    pub inn: Linear,
    pub out: Linear,
}

impl Mixer {
    pub fn new(layers: usize, device: &Device) -> Self {
        let block = || MixerBlock {
            mixer: MixerInner { inn: linear(64, 64, false, device), out: linear(64, 64, false, device) },
        };
        Self { blocks: (0..layers).map(|_| block()).collect() }
    }
}

/// A user's own layer under burn-nn's name, stored as PyTorch does.
pub mod own {
    use super::*;

    #[derive(Module, Debug)]
    pub struct Linear {
        pub weight: Param<Tensor<2>>,
        pub bias: Option<Param<Tensor<1>>>,
    }

    impl Linear {
        pub fn out_in(d_in: usize, d_out: usize, bias: bool, device: &Device) -> Self {
            Self { weight: raw([d_out, d_in], device), bias: bias.then(|| raw([d_out], device)) }
        }
    }
}
