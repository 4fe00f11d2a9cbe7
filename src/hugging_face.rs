//! Models as Hugging Face's `config.json` describes them, without a line of Rust.

use serde_json::{Map, Value, json};

use crate::{
    blueprint::Blueprint,
    error::{Error, ErrorKind},
    initializer::Initializer,
    plan::Plan,
    role::{Dtype, Setup, near},
};

/// A model of the `transformers` library, told by its configuration: GPT-2, Llama, Mistral, Qwen2 or OLMo 2.
///
/// Its tree has the names that `transformers` gives to the parameters, so that a checkpoint written from its plan is loaded with
/// `from_pretrained`. Shapes of linear maps are `[d_in, d_out]`, as everywhere in this crate.
///
/// ```
/// use burn_init::{Gpt2, HuggingFace};
///
/// let model = HuggingFace::from_json(
///     r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
///         "num_attention_heads": 32, "vocab_size": 32000}"#,
/// )?;
/// assert_eq!(model.plan(&Gpt2::new())?.num_params(), 6_738_415_616);
/// assert_eq!(HuggingFace::preset("llama-7b")?.plan(&Gpt2::new())?.num_params(), 6_738_415_616);
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HuggingFace {
    /// The file as it was read, so that nothing of it is lost when it is written again.
    config: Map<String, Value>,
    family: Family,
    vocab: u64,
    d: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    d_head: u64,
    ff: u64,
    /// Length of the table of positions; 0 without one.
    positions: u64,
    tied: bool,
    bias: Bias,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Gpt2,
    Llama,
    Mistral,
    Qwen2,
    Olmo2,
}

/// Which linear maps have a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bias {
    qkv: bool,
    output: bool,
    mlp: bool,
}

const FAMILIES: &[(&str, Family)] = &[
    ("gpt2", Family::Gpt2),
    ("llama", Family::Llama),
    ("mistral", Family::Mistral),
    ("qwen2", Family::Qwen2),
    ("olmo2", Family::Olmo2),
];

/// Name; model type; vocabulary, width, layers, heads, key and value heads, width of the MLP, context; whether the head is tied; epsilon of
/// the norms; base of the rotary angles. From the published configurations.
struct Preset(&'static str, &'static str, [u64; 7], bool, f64, u64);

#[rustfmt::skip]
const PRESETS: &[Preset] = &[
    Preset("gpt2",         "gpt2",    [50_257, 768, 12, 12, 12, 3072, 1024], true, 1e-5, 0),
    Preset("gpt2-medium",  "gpt2",    [50_257, 1024, 24, 16, 16, 4096, 1024], true, 1e-5, 0),
    Preset("gpt2-large",   "gpt2",    [50_257, 1280, 36, 20, 20, 5120, 1024], true, 1e-5, 0),
    Preset("gpt2-xl",      "gpt2",    [50_257, 1600, 48, 25, 25, 6400, 1024], true, 1e-5, 0),
    Preset("gpt3-175b",    "gpt2",    [50_257, 12_288, 96, 96, 96, 49_152, 2048], true, 1e-5, 0),
    Preset("llama-7b",     "llama",   [32_000, 4096, 32, 32, 32, 11_008, 4096], false, 1e-5, 10_000),
    Preset("llama-13b",    "llama",   [32_000, 5120, 40, 40, 40, 13_824, 4096], false, 1e-5, 10_000),
    Preset("llama-70b",    "llama",   [32_000, 8192, 80, 64, 8, 28_672, 4096], false, 1e-5, 10_000),
    Preset("llama3-8b",    "llama",   [128_256, 4096, 32, 32, 8, 14_336, 8192], false, 1e-5, 500_000),
    Preset("llama3-70b",   "llama",   [128_256, 8192, 80, 64, 8, 28_672, 8192], false, 1e-5, 500_000),
    Preset("mistral-7b",   "mistral", [32_000, 4096, 32, 32, 8, 14_336, 32_768], false, 1e-5, 10_000),
    Preset("qwen2-0.5b",   "qwen2",   [151_936, 896, 24, 14, 2, 4864, 131_072], true, 1e-6, 1_000_000),
    Preset("qwen2-7b",     "qwen2",   [152_064, 3584, 28, 28, 4, 18_944, 131_072], false, 1e-6, 1_000_000),
    Preset("olmo2-7b",     "olmo2",   [100_352, 4096, 32, 32, 32, 11_008, 4096], false, 1e-6, 500_000),
    Preset("olmo2-13b",    "olmo2",   [100_352, 5120, 40, 40, 40, 13_824, 4096], false, 1e-6, 500_000),
];

impl HuggingFace {
    /// From the text of a `config.json`. Fields that say nothing about parameters are kept and not looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] for what is no JSON object, [`ErrorKind::Config`] for a model type that is not known, a field that
    /// is missing, and sizes that do not fit each other.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let config: Map<String, Value> = serde_json::from_str(text)
            .map_err(|error| Error::new(ErrorKind::Parse, format!("the configuration does not parse: {error}"), ""))?;
        let fields = Fields(&config);
        let name = config.get("model_type").and_then(Value::as_str).ok_or_else(|| fields.missing("model_type"))?;
        let Some((_, family)) = FAMILIES.iter().find(|(known, _)| *known == name) else {
            let known = FAMILIES.iter().map(|(name, _)| *name);
            return Err(Error::config(
                format!("model_type is \"{name}\""),
                format!("known are {}; describe another tree with Blueprint", known.collect::<Vec<_>>().join(", ")),
            ));
        };
        let this = match family {
            Family::Gpt2 => Self::gpt2(&fields)?,
            _ => Self::llama(*family, &fields)?,
        };
        let this = Self { config, ..this };
        this.check()?;
        Ok(this)
    }

    fn gpt2(fields: &Fields<'_>) -> Result<Self, Error> {
        if fields.flag("add_cross_attention", false)? {
            return Err(Error::config("add_cross_attention is true", "describe this tree with Blueprint"));
        }
        let (d, heads) = (fields.count("n_embd")?, fields.count("n_head")?);
        Ok(Self {
            config: Map::new(),
            family: Family::Gpt2,
            vocab: fields.count("vocab_size")?,
            d,
            layers: fields.count("n_layer")?,
            heads,
            kv_heads: heads,
            d_head: d.checked_div(heads).unwrap_or(0),
            ff: fields.optional("n_inner")?.unwrap_or(d.saturating_mul(4)),
            positions: fields.count("n_positions")?,
            tied: fields.flag("tie_word_embeddings", true)?,
            bias: Bias { qkv: true, output: true, mlp: true },
        })
    }

    fn llama(family: Family, fields: &Fields<'_>) -> Result<Self, Error> {
        let (d, heads) = (fields.count("hidden_size")?, fields.count("num_attention_heads")?);
        // What transformers takes where the file is silent.
        let kv_heads = match family {
            Family::Mistral => 8,
            Family::Qwen2 => 32,
            _ => heads,
        };
        let attention_bias = matches!(family, Family::Llama | Family::Olmo2) && fields.flag("attention_bias", false)?;
        Ok(Self {
            config: Map::new(),
            family,
            vocab: fields.count("vocab_size")?,
            d,
            layers: fields.count("num_hidden_layers")?,
            heads,
            kv_heads: fields.optional("num_key_value_heads")?.unwrap_or(kv_heads),
            d_head: fields.optional("head_dim")?.or(d.checked_div(heads)).unwrap_or(0),
            ff: fields.count("intermediate_size")?,
            positions: 0,
            tied: fields.flag("tie_word_embeddings", false)?,
            bias: Bias {
                qkv: attention_bias || family == Family::Qwen2,
                output: attention_bias,
                mlp: family == Family::Llama && fields.flag("mlp_bias", false)?,
            },
        })
    }

    fn check(&self) -> Result<(), Error> {
        let given_head = self.config.get("head_dim").is_some_and(|value| !value.is_null());
        if self.heads == 0 || (!given_head && !self.d.is_multiple_of(self.heads)) {
            return Err(Error::config(
                format!("{} heads do not divide a width of {}", self.heads, self.d),
                "correct one of the two",
            ));
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::config(
                format!("{} key and value heads do not divide {} heads", self.kv_heads, self.heads),
                "correct num_key_value_heads",
            ));
        }
        const MOST: u64 = 1 << 32;
        for (name, size) in [
            ("the vocabulary", self.vocab),
            ("the width", self.d),
            ("the width of the MLP", self.ff),
            ("the width of the heads", self.heads.saturating_mul(self.d_head)),
            ("the context", self.positions),
            ("the number of layers", self.layers.saturating_mul(1 << 16)),
        ] {
            if size == 0 && name != "the context" {
                return Err(Error::config(format!("{name} is 0"), "correct the configuration"));
            }
            if size > MOST {
                return Err(Error::config(format!("{name} is beyond what is plausible"), "correct the configuration"));
            }
        }
        Ok(())
    }

    /// A published model by name; see [`presets`](Self::presets).
    ///
    /// # Errors
    /// [`ErrorKind::Parse`] for an unknown name.
    pub fn preset(name: &str) -> Result<Self, Error> {
        let Some(&Preset(_, model_type, [vocab, d, layers, heads, kv_heads, ff, context], tied, epsilon, theta)) =
            PRESETS.iter().find(|preset| preset.0 == name)
        else {
            return Err(Error::new(
                ErrorKind::Parse,
                format!("unknown preset \"{name}\""),
                near(name, Self::presets().into_iter()),
            ));
        };
        let config = match model_type {
            "gpt2" => json!({
                "model_type": model_type, "architectures": ["GPT2LMHeadModel"], "vocab_size": vocab, "n_embd": d,
                "n_layer": layers, "n_head": heads, "n_positions": context, "n_inner": ff,
                "activation_function": "gelu_new", "layer_norm_epsilon": epsilon, "tie_word_embeddings": tied,
            }),
            _ => json!({
                "model_type": model_type, "architectures": [architecture(model_type)], "vocab_size": vocab,
                "hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": heads,
                "num_key_value_heads": kv_heads, "intermediate_size": ff, "max_position_embeddings": context,
                "hidden_act": "silu", "rms_norm_eps": epsilon, "rope_theta": theta, "tie_word_embeddings": tied,
            }),
        };
        Self::from_json(&config.to_string())
    }

    /// The names that [`preset`](Self::preset) knows.
    pub fn presets() -> Vec<&'static str> {
        PRESETS.iter().map(|preset| preset.0).collect()
    }

    /// The number of rows of the token table.
    pub fn vocab_size(&self) -> u64 {
        self.vocab
    }

    /// The value of `model_type`: `gpt2`, `llama`, `mistral`, `qwen2` or `olmo2`.
    pub fn model_type(&self) -> &'static str {
        FAMILIES.iter().find(|(_, family)| *family == self.family).map_or("", |(name, _)| name)
    }

    /// Whether linear maps are stored `[d_in, d_out]`, as GPT-2 has it with its `Conv1D`.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn stores_in_out(&self) -> bool {
        self.family == Family::Gpt2
    }

    /// Whether both have the same parameters, whatever else their files say.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn has_parameters_of(&self, other: &Self) -> bool {
        *self == Self { config: self.config.clone(), ..other.clone() }
    }

    /// The configuration as a file to lie beside a checkpoint in this precision.
    pub fn to_json(&self, dtype: Dtype) -> String {
        let mut config = self.config.clone();
        let name = match dtype {
            Dtype::F64 => "float64",
            Dtype::F32 => "float32",
            Dtype::F16 => "float16",
            Dtype::BF16 => "bfloat16",
        };
        config.insert("torch_dtype".into(), name.into());
        config.remove("dtype");
        config.entry("architectures").or_insert_with(|| json!([architecture(self.model_type())]));
        let mut text = serde_json::to_string_pretty(&config).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The scheme met with this model.
    ///
    /// # Errors
    /// See [`ModuleInit::plan`](crate::ModuleInit::plan).
    pub fn plan(&self, scheme: &dyn Initializer) -> Result<Plan, Error> {
        self.blueprint().plan_with(&self.setup(), scheme)
    }

    /// What the tree does not show: the number of heads.
    pub fn setup(&self) -> Setup {
        Setup::new().heads("**", self.heads)
    }

    /// The tree, with the names of `transformers`.
    pub fn blueprint(&self) -> Blueprint {
        match self.family {
            Family::Gpt2 => self.gpt2_tree(),
            _ => self.llama_tree(),
        }
    }

    fn gpt2_tree(&self) -> Blueprint {
        let (d, ff) = (self.d, self.ff);
        let mut tree = Blueprint::new()
            .embedding("transformer.wte.weight", [self.vocab, d])
            .embedding("transformer.wpe.weight", [self.positions, d]);
        let norm = |tree: Blueprint, path: &str| tree.norm(format!("{path}.weight"), d).norm(format!("{path}.bias"), d);
        for layer in 0..self.layers {
            let at = |name: &str| format!("transformer.h.{layer}.{name}");
            tree = norm(tree, &at("ln_1"));
            tree = linear(tree, &at("attn.c_attn"), d, 3 * d, true);
            tree = linear(tree, &at("attn.c_proj"), d, d, true);
            tree = norm(tree, &at("ln_2"));
            tree = linear(tree, &at("mlp.c_fc"), d, ff, true);
            tree = linear(tree, &at("mlp.c_proj"), ff, d, true);
        }
        tree = norm(tree, "transformer.ln_f");
        self.head(tree)
    }

    fn llama_tree(&self) -> Blueprint {
        let (d, ff, bias) = (self.d, self.ff, self.bias);
        let (q, kv) = (self.heads * self.d_head, self.kv_heads * self.d_head);
        let mut tree = Blueprint::new().embedding("model.embed_tokens.weight", [self.vocab, d]);
        for layer in 0..self.layers {
            let at = |name: &str| format!("model.layers.{layer}.{name}");
            tree = linear(tree, &at("self_attn.q_proj"), d, q, bias.qkv);
            tree = linear(tree, &at("self_attn.k_proj"), d, kv, bias.qkv);
            tree = linear(tree, &at("self_attn.v_proj"), d, kv, bias.qkv);
            tree = linear(tree, &at("self_attn.o_proj"), q, d, bias.output);
            tree = linear(tree, &at("mlp.gate_proj"), d, ff, bias.mlp);
            tree = linear(tree, &at("mlp.up_proj"), d, ff, bias.mlp);
            tree = linear(tree, &at("mlp.down_proj"), ff, d, bias.mlp);
            let norms: &[(&str, u64)] = match self.family {
                Family::Olmo2 => &[
                    ("self_attn.q_norm.weight", q),
                    ("self_attn.k_norm.weight", kv),
                    ("post_attention_layernorm.weight", d),
                    ("post_feedforward_layernorm.weight", d),
                ],
                _ => &[("input_layernorm.weight", d), ("post_attention_layernorm.weight", d)],
            };
            tree = norms.iter().fold(tree, |tree, &(name, d)| tree.norm(at(name), d));
        }
        self.head(tree.norm("model.norm.weight", d))
    }

    fn head(&self, tree: Blueprint) -> Blueprint {
        match self.tied {
            true => tree,
            false => linear(tree, "lm_head", self.d, self.vocab, false),
        }
    }
}

fn linear(tree: Blueprint, path: &str, from: u64, to: u64, bias: bool) -> Blueprint {
    let tree = tree.linear(format!("{path}.weight"), [from, to]);
    if bias { tree.linear(format!("{path}.bias"), [to]) } else { tree }
}

fn architecture(model_type: &str) -> &'static str {
    match model_type {
        "gpt2" => "GPT2LMHeadModel",
        "mistral" => "MistralForCausalLM",
        "qwen2" => "Qwen2ForCausalLM",
        "olmo2" => "Olmo2ForCausalLM",
        _ => "LlamaForCausalLM",
    }
}

/// The fields of the file. A `null` is as good as nothing.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn missing(&self, name: &str) -> Error {
        Error::config(format!("the field {name} is missing"), "give the config.json of the whole model")
    }

    fn optional(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| Error::config(format!("{name} is {value}"), "give a number of 0 or more")),
        }
    }

    fn count(&self, name: &str) -> Result<u64, Error> {
        match self.optional(name)? {
            None => Err(self.missing(name)),
            Some(0) => Err(Error::config(format!("{name} is 0"), "use 1 or more")),
            Some(count) => Ok(count),
        }
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(Error::config(format!("{name} is {value}"), "give true or false")),
        }
    }
}
