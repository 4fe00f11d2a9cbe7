//! Published schemes, one file each, and the registry that names them.

mod deepnet;
mod defaults;
mod encoder_decoder;
mod field;
mod fixup;
mod gpt2;
mod gpt_oss;
mod levanter;
mod lingua;
mod llama;
mod megatron;
mod mimetic;
mod modern_bert;
mod modified;
mod mup;
mod ngpt;
mod olmo;
mod parts;
mod plain_normal;
mod small_init;
mod speedrun;
mod t5;
mod u_mup;
mod variance_scaling;
mod vit;
mod xformers;

pub use deepnet::{DeepNet, DeepNetBase, DeepNetNorm, DeepNetPart};
pub use defaults::{BurnDefault, TorchDefault};
pub use encoder_decoder::EncoderDecoder;
pub use fixup::{Fixup, TFixup};
pub use gpt_oss::GptOss;
pub use gpt2::{Gpt2, Gpt2Normal, NeutralNorm};
pub use levanter::Levanter;
pub use lingua::{Lingua, LinguaDepth};
pub use llama::Llama;
pub use megatron::Megatron;
pub use mimetic::{Mimetic, Product};
pub use modern_bert::ModernBert;
pub use modified::Modified;
pub use mup::{Mup, MupEpsilon, MupOptimizer};
pub use ngpt::NGpt;
pub use olmo::{Olmo, OlmoMethod};
pub use plain_normal::PlainNormal;
pub use small_init::SmallInit;
pub use speedrun::Speedrun;
pub use t5::T5;
pub use u_mup::UMup;
pub use variance_scaling::{FanScaled, Kaiming, LeCun, Xavier};
pub use vit::{Vit, VitMode};
pub use xformers::Xformers;

pub(crate) use parts::width;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    depth::Depth,
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    role::near,
    rule::Rule,
};

macro_rules! registry {
    (
        kinds { $($kind:ident($type:ty) = $tag:literal),* $(,)? }
        names { $($name:literal => $value:expr, $summary:literal;)* }
    ) => {
        /// A scheme as data: chosen by name, or read from JSON or TOML with its fields.
        ///
        /// ```
        /// use burn_init::Scheme;
        ///
        /// let by_name: Scheme = "gpt2".parse()?;
        /// let by_file: Scheme = serde_json::from_str(r#"{"scheme": "gpt2", "std": 0.02}"#).unwrap();
        /// assert_eq!(by_name, by_file);
        /// assert_eq!(
        ///     "gtp2".parse::<Scheme>().unwrap_err().to_string(),
        ///     "unknown scheme \"gtp2\"; did you mean gpt2?"
        /// );
        /// # Ok::<(), burn_init::Error>(())
        /// ```
        ///
        /// In a file it is either a name from [`names`](Self::names), or a table whose key `scheme` is such a name and whose other keys
        /// are fields to change, with the published values as defaults. Unknown names and fields are errors.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "scheme")]
        #[non_exhaustive]
        pub enum Scheme {
            $(#[doc = concat!("See [`", stringify!($type), "`].")] #[serde(rename = $tag)] $kind($type),)*
        }

        #[derive(Deserialize)]
        #[serde(tag = "scheme")]
        enum Tagged {
            $(#[serde(rename = $tag)] $kind($type),)*
        }

        impl From<Tagged> for Scheme {
            fn from(tagged: Tagged) -> Self {
                match tagged { $(Tagged::$kind(scheme) => Scheme::$kind(scheme),)* }
            }
        }

        $(impl From<$type> for Scheme {
            fn from(scheme: $type) -> Self {
                Scheme::$kind(scheme)
            }
        })*

        impl Scheme {
            fn inner(&self) -> &dyn Initializer {
                match self { $(Scheme::$kind(scheme) => scheme,)* }
            }

            /// The values of the key `scheme` that stand for a kind with all its fields.
            fn kinds() -> &'static [&'static str] {
                &[$($tag),*]
            }

            /// Every scheme that has a name, with one line about it.
            pub fn all() -> Vec<(&'static str, Scheme, &'static str)> {
                vec![$(($name, Scheme::from($value), $summary),)*]
            }
        }
    };
}

registry! {
    kinds {
        Gpt2(Gpt2) = "gpt2",
        Megatron(Megatron) = "megatron",
        SmallInit(SmallInit) = "small-init",
        Olmo(Olmo) = "olmo",
        Llama(Llama) = "llama",
        Lingua(Lingua) = "lingua",
        PlainNormal(PlainNormal) = "plain-normal",
        ModernBert(ModernBert) = "modernbert",
        T5(T5) = "t5",
        Vit(Vit) = "vit",
        Speedrun(Speedrun) = "speedrun",
        DeepNet(DeepNet) = "deepnet",
        TFixup(TFixup) = "t-fixup",
        Fixup(Fixup) = "fixup",
        NGpt(NGpt) = "ngpt",
        Mimetic(Mimetic) = "mimetic",
        GptOss(GptOss) = "gpt-oss",
        Xformers(Xformers) = "xformers",
        Levanter(Levanter) = "levanter",
        EncoderDecoder(EncoderDecoder) = "encoder-decoder",
        Modified(Modified) = "modified",
        TorchDefault(TorchDefault) = "torch-default",
        BurnDefault(BurnDefault) = "burn-default",
        FanScaled(FanScaled) = "fan-scaled",
        Mup(Mup) = "mup",
        UMup(UMup) = "u-mup",
    }
    names {
        "gpt2" => Gpt2::new(), "GPT-2 as in the paper, nanoGPT and Hugging Face";
        "gpt2-released" => Gpt2::released(), "GPT-2 as in the code that OpenAI released";
        "megatron" => Megatron::new(), "Megatron-LM: 0.02, 1/sqrt(2N) on what writes into the stream";
        "megatron-hybrid" => Megatron::hybrid(), "Megatron-LM's hybrid models: 1/sqrt(N)";
        "gpt-neox" => SmallInit::new(), "small init, and Wang init 2/(N sqrt(d)) on what writes into the stream";
        "litgpt" => SmallInit::litgpt(), "small init and half of Wang init, as TinyLlama";
        "small-init" => SmallInit::plain(), "small init sqrt(2/(5d)) alone";
        "olmo-mitchell" => Olmo::mitchell(), "OLMo: 1/sqrt(fan_in), 1/sqrt(2(l + 1)) by layer, cut at 3 sigma";
        "olmo-full-megatron" => Olmo::full_megatron(), "OLMo: 0.02, 1/sqrt(2N), head 1/sqrt(d), cut at 3 sigma";
        "olmo-normal" => Olmo::normal(), "OLMo: 0.02 everywhere";
        "olmo-core-llama" => Llama::olmo_core(), "OLMo-core: 1/sqrt(2N), also on the up projection, tables 1";
        "olmo-core-llama-depth" => Llama::olmo_core_depth(), "OLMo-core: 1/sqrt(2(l + 1)), also on the up projection";
        "torchtitan-llama3" => Llama::torchtitan(), "torchtitan's Llama 3: 1/sqrt(2(l + 1)), also on the up projection";
        "torchtitan-llama3-tied" => Llama::torchtitan_tied(), "the same, the tied table started as the head";
        "torchtitan-qwen3" => Llama::qwen3(), "torchtitan's dense Qwen3: 0.02 everywhere";
        "torchtitan-qwen3-moe" => Llama::qwen3_moe(), "torchtitan's Qwen3 with experts: 1/sqrt(2N)";
        "torchtitan-gpt-oss" => GptOss::new(), "torchtitan's GPT-OSS: 1/sqrt(2(l + 1)) on every matrix, sink and expert bias";
        "lingua" => Lingua::new(), "Meta's lingua: 1/sqrt(fan_in), cut at 3 sigma";
        "lingua-global-depth" => Lingua::new().with_depth(LinguaDepth::GlobalDepth), "lingua with 1/sqrt(2(N + 1))";
        "lingua-current-depth" => Lingua::new().with_depth(LinguaDepth::CurrentDepth), "lingua with 1/sqrt(2(l + 1))";
        "lingua-dim-ratio" => Lingua::new().with_depth(LinguaDepth::DimRatio), "lingua with 4096/d";
        "hf-llama" => PlainNormal::new(), "Hugging Face's Llama, Mistral, Qwen, OLMo 2: 0.02 everywhere";
        "bert" => PlainNormal::bert(), "Google's BERT: 0.02 cut at 2 sigma";
        "bert-hf" => PlainNormal::bert_hf(), "Hugging Face's BERT: 0.02, padding row 0";
        "modernbert" => ModernBert::new(), "ModernBERT: 0.02 cut at 2 sigma, 1/sqrt(2N)";
        "t5" => T5::new(), "T5 as in flaxformer: 1/sqrt(fan_in), attention without 1/sqrt(h)";
        "t5-hf" => T5::hf(), "T5 as in Hugging Face's code";
        "t5-scaled" => T5::scaled(), "T5 for attention that keeps its 1/sqrt(h)";
        "vit-timm" => Vit::timm(), "timm's Vision Transformers: 0.02";
        "vit-timm-fix-init" => Vit::timm().with_depth(Depth::per_layer()), "the same with 1/sqrt(2(l + 1)), as BEiT and EVA";
        "vit-jax" => Vit::jax(), "timm's jax mode: Xavier uniform, head 0, packed query, key and value as one";
        "vit-moco" => Vit::moco(), "timm's moco mode: Xavier uniform, query, key and value as three";
        "vit-big-vision" => Vit::big_vision(), "big_vision: Xavier uniform, head 0";
        "nanochat" => Speedrun::nanochat(), "nanochat: uniform inputs, branches 0";
        "modded-nanogpt" => Speedrun::modded(), "modded-nanogpt, short track";
        "modded-nanogpt-medium" => Speedrun::modded_medium(), "modded-nanogpt, medium track";
        "modded-nanogpt-2024" => Speedrun::modded_2024(), "modded-nanogpt, records of December 2024";
        "vit-cait" => Vit::cait(), "CaiT: as timm, LayerScale 1e-5";
        "deepnorm" => DeepNet::deepnorm(), "DeepNorm: Xavier times (8N)^-1/4 on all but query and key";
        "deepnorm-torchscale" => DeepNet::torchscale_deepnorm(), "DeepNorm over the base that torchscale draws";
        "subln" => DeepNet::subln(), "SubLN: Xavier times sqrt(ln 2N) on all but query and key";
        "subln-torchscale" => DeepNet::torchscale_subln(), "SubLN over the base that torchscale draws";
        "preln-torchscale" => DeepNet::torchscale_preln(), "torchscale without a factor";
        "deepnorm-encoder-decoder" => EncoderDecoder::deepnorm(), "DeepNorm for an encoder with a decoder";
        "deepnorm-encoder-decoder-torchscale" => EncoderDecoder::torchscale_deepnorm(), "the same over the base and with the factor of torchscale";
        "subln-encoder-decoder" => EncoderDecoder::subln(), "SubLN for an encoder with a decoder";
        "t-fixup" => TFixup::decoder(), "T-Fixup for a decoder: Xavier times (9N)^-1/4, no norm";
        "t-fixup-encoder" => TFixup::encoder(), "T-Fixup for an encoder: Xavier times 0.67 N^-1/4, no norm";
        "fixup" => Fixup::new(), "Fixup: branches 0, MLP in by 1/sqrt(2N), no norm";
        "ngpt" => NGpt::new(), "nGPT: every vector of length 1";
        "mimetic" => Mimetic::new(), "mimetic attention: query with key and value with output near the identity";
        "rezero" => Modified::rezero(), "ReZero: PyTorch's defaults, scalars of branches 0, no norm";
        "skipinit" => Modified::skip_init(), "SkipInit: Kaiming normal, scalars of branches 0";
        "layerscale" => Modified::layer_scale(), "0.02 everywhere, channel scales of branches 1e-5";
        "zero-residual" => Modified::zero_residual(), "0.02, what writes into the residual stream 0";
        "llm-foundry" => Modified::llm_foundry(), "llm-foundry's default: Kaiming normal, 1/sqrt(2N)";
        "xformers-small" => Xformers::new(), "xformers: small init by both fans, not on the MLP";
        "levanter-gpt2" => Levanter::gpt2(), "levanter's GPT-2: 1/sqrt(fan_in), tables 0.02/d";
        "levanter-llama" => Levanter::llama(), "levanter's Llama: 1/sqrt(fan_in), tables 1/d";
        "mup" => Mup::new(), "muP for Adam over GPT-2's start, base 256";
        "mup-sgd" => Mup::sgd(), "muP for SGD over GPT-2's start, base 256";
        "mup-megatron" => Mup::megatron(), "Megatron-LM with muP's widths, base 256";
        "mup-cerebras" => Mup::cerebras(), "Cerebras-GPT: 0.08 cut at 2 sigma, muP's widths, tables times 10, base 256";
        "depth-mup" => Mup::depth(), "depth-muP: muP, and branches times (N/N0)^-1/2, base 256 x 2";
        "complete-p" => Mup::complete_p(), "CompleteP: muP, and branches times N0/N, base 256 x 2";
        "u-mup" => UMup::new(), "u-muP: N(0, 1), and multipliers for the rest";
        "torch-default" => TorchDefault::new(), "PyTorch's defaults";
        "torch-transformer-layer" => TorchDefault::transformer_layer(), "nn.TransformerEncoderLayer: nn.MultiheadAttention and PyTorch's defaults";
        "torch-transformer" => TorchDefault::transformer(), "nn.Transformer: Xavier uniform in the layers, packed query, key and value as one";
        "burn-default" => BurnDefault::new(), "burn's defaults";
        "xavier-normal" => Xavier::normal(), "Glorot and Bengio 2010, normal";
        "xavier-uniform" => Xavier::uniform(), "Glorot and Bengio 2010, uniform";
        "kaiming-normal" => Kaiming::normal(), "He et al. 2015, normal";
        "kaiming-uniform" => Kaiming::uniform(), "He et al. 2015, uniform";
        "lecun-normal" => LeCun::normal(), "LeCun et al. 1998, normal";
        "lecun-uniform" => LeCun::uniform(), "LeCun et al. 1998, uniform";
    }
}

impl Scheme {
    /// [`Gpt2::new`].
    pub fn gpt2() -> Self {
        Gpt2::new().into()
    }

    /// Told whether the token table is the head, too, where it asks for that and nothing is said yet.
    pub(crate) fn told_tied(mut self, tied: bool) -> Self {
        self.tell_tied(tied);
        self
    }

    fn tell_tied(&mut self, tied: bool) {
        let said = match self {
            Self::Mup(mup) => {
                mup.start.tell_tied(tied);
                &mut mup.tied
            }
            Self::UMup(scheme) => &mut scheme.tied,
            Self::T5(scheme) => &mut scheme.tied,
            Self::Modified(modified) => return modified.base.tell_tied(tied),
            _ => return,
        };
        said.get_or_insert(tied);
    }

    /// The names that parse.
    pub fn names() -> Vec<&'static str> {
        Self::all().into_iter().map(|(name, ..)| name).collect()
    }
}

impl Default for Scheme {
    fn default() -> Self {
        Self::gpt2()
    }
}

impl Initializer for Scheme {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        self.inner().rule(param)
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        self.inner().check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        self.inner().warnings(tree)
    }
}

/// The name, where the scheme is a named one as it stands; its JSON otherwise. Both parse.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::all().into_iter().find(|(_, scheme, _)| scheme == self) {
            Some((name, ..)) => f.pad(name),
            None => f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?),
        }
    }
}

impl FromStr for Scheme {
    type Err = Error;

    /// From a name, or from JSON as [`Display`](fmt::Display) prints it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if text.starts_with('{') {
            let parsed = serde_json::from_str(text);
            return parsed.map_err(|error| Error::new(ErrorKind::Parse, error.to_string(), ""));
        }
        Self::all().into_iter().find(|(name, ..)| *name == text).map(|(_, scheme, _)| scheme).ok_or_else(|| {
            // Names are in lower case with hyphens, and near ones in another case are still near.
            let spelt = text.to_lowercase().replace(['_', ' '], "-");
            if Self::kinds().contains(&spelt.as_str()) && !Self::names().contains(&spelt.as_str()) {
                return only_a_kind(text, &spelt);
            }
            let todo = near(&spelt, Self::names().into_iter());
            Error::new(ErrorKind::Parse, format!("unknown scheme \"{text}\""), todo)
        })
    }
}

/// The error of the name of a kind, of which there are several schemes.
fn only_a_kind(text: &str, kind: &str) -> Error {
    let is_of = |scheme: &Scheme| serde_json::to_value(scheme).is_ok_and(|fields| fields["scheme"] == kind);
    let names: Vec<_> =
        Scheme::all().into_iter().filter(|(_, scheme, _)| is_of(scheme)).map(|(name, ..)| name).collect();
    Error::new(
        ErrorKind::Parse,
        format!("\"{text}\" is a kind of scheme, and does not say which"),
        format!("use {}, or give its fields: {{\"scheme\": \"{kind}\", …}}", names.join(" or ")),
    )
}

impl<'de> Deserialize<'de> for Scheme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> de::Visitor<'de> for NameOrTable {
            type Value = Scheme;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a scheme, or a table with the key `scheme`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scheme, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Scheme, A::Error> {
                Scheme::from_fields(field::fields(map)?).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

/// The fields of a scheme.
type Map = serde_json::Map<String, serde_json::Value>;

impl Scheme {
    /// The named scheme, with the given fields in place of its own.
    fn from_fields(mut fields: Map) -> Result<Self, String> {
        let name = match fields.remove("scheme") {
            Some(serde_json::Value::String(name)) => name.trim().to_string(),
            Some(other) => return Err(format!("the key `scheme` is {other}; give a name in quotes")),
            None => return Err(format!("the key `scheme` is missing; known are {}", Self::names().join(", "))),
        };
        let base = match Self::kinds().contains(&name.as_str()) {
            true if !Self::names().contains(&name.as_str()) => serde_json::json!({ "scheme": name }),
            _ => {
                let named: Scheme = name.parse().map_err(|error: Error| error.to_string())?;
                serde_json::to_value(named).map_err(|error| error.to_string())?
            }
        };
        let serde_json::Value::Object(table) = base else { return Err(format!("{name} has no fields")) };
        let parse = |fields: Map| serde_json::from_value::<Tagged>(fields.into()).map_err(|error| error.to_string());
        let with = |fields: Map| table.clone().into_iter().chain(fields).collect::<Map>();
        parse(with(fields.clone())).map(Into::into).map_err(|error| {
            // A field whose value is wrong makes the same error alone, and without it there is none.
            let fails = |fields: Map| parse(with(fields)).is_err_and(|other| other == error);
            let lacking = fails(Map::new());
            let wrong = |(field, value): &(String, serde_json::Value)| {
                let unknown = error.starts_with(&format!("unknown field `{field}`"));
                !unknown && !lacking && fails(Map::from_iter([(field.clone(), value.clone())]))
            };
            match fields.into_iter().find(wrong) {
                Some((field, _)) => format!("in the scheme {name}, field `{field}`: {error}"),
                None => format!("in the scheme {name}: {error}"),
            }
        })
    }
}
