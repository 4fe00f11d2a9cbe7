//! DeepNorm and SubLN.

use serde::{Deserialize, Serialize};

use super::{
    NeutralNorm, TorchDefault,
    encoder_decoder::{Part, part},
    parts::width,
};
use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::{ParamSpec, Stack},
    role::{NormPlacement, Role},
    rule::{Factor, FactorKind, Init, Rule, short},
};

/// Which normalization [`DeepNet`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeepNetNorm {
    /// `LN(alpha x + F(x))`: factor `(8N)^-1/4`.
    DeepNorm,
    /// Pre-LN with one more norm before each output projection: factor `sqrt(ln 2N)`.
    SubLn,
    /// Pre-LN: no factor.
    PreLn,
}

/// What the factors of [`DeepNet`] multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeepNetBase {
    /// Xavier normal, biases 0: the papers.
    Xavier,
    /// PyTorch's default of `nn.Linear`, biases included: what torchscale draws.
    Torch,
}

/// What stands beside the stack that [`DeepNet`] starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeepNetPart {
    /// Nothing: a decoder or an encoder alone.
    #[default]
    Alone,
    /// A decoder: this is the encoder.
    Encoder,
    /// An encoder: this is the decoder.
    Decoder,
}

/// DeepNorm (Wang et al. 2022) and SubLN (Magneto, Wang et al. 2022).
///
/// | role | start |
/// |---|---|
/// | token, position embedding, untied head | `N(0, 1/sqrt(d))` |
/// | query, key | the base |
/// | value, attention output, MLP in, gate, up, down | the base times the factor |
/// | biases | 0; in torchscale as their weight, with its factor |
/// | norm gain, norm bias | 1, 0 |
///
/// The base is Xavier's in the papers ([`deepnorm`](Self::deepnorm), [`subln`](Self::subln)). torchscale's attention has a reset that nothing calls, so what
/// it draws is PyTorch's default ([`torchscale_deepnorm`](Self::torchscale_deepnorm), [`torchscale_subln`](Self::torchscale_subln)).
///
/// | of N encoders and M decoders | factor of DeepNorm | `alpha` of DeepNorm | factor of SubLN |
/// |---|---|---|---|
/// | one stack alone, N = M | `(8N)^-1/4` | `(2N)^1/4` | `sqrt(ln 2N)` |
/// | [encoder](Self::encoder) | `0.87 (N^4 M)^-1/16`, in torchscale 1.15 for 0.87 | `0.81 (N^4 M)^1/16` | `sqrt(ln(3M) ln(2N) / 3)` |
/// | [decoder](Self::decoder) | `(12M)^-1/4` | `(3M)^1/4` | `sqrt(ln 3M)`, but for cross-attention |
///
/// The presets `deepnorm-encoder-decoder` and `subln-encoder-decoder` have one of each ([`EncoderDecoder`](super::EncoderDecoder)). The encoder takes the decoder to be
/// as deep as itself unless `decoder_layers` says otherwise, and a tree that shows another depth is an error.
///
/// DeepNorm's skip is multiplied by `alpha` before the norm. As a norm does not see a common factor, `LN(alpha x + F(x))` is
/// `LN(x + F(x) / alpha)` up to the norm's epsilon: [`Rule::forward`] of what writes into the stream, and of its bias, is `1/alpha`. That is right
/// in a Post-Norm model only, and no tree shows where its norms stand: unless [`Setup::norms`](crate::Setup::norms) says so, it is an error.
/// The [reference model](crate::reference) has both. For a model whose forward pass multiplies the skip itself there is
/// [`without_alpha`](Self::without_alpha).
///
/// ```
/// use burn::tensor::Device;
/// use burn_init::{NormPlacement, Setup, reference::TransformerConfig, schemes::DeepNet};
///
/// let config = TransformerConfig::new(100, 16, 64, 8, 4).with_norm_placement(NormPlacement::Post);
/// let setup = Setup::new().norms("blocks.*", NormPlacement::Post);           // config.setup() says it, too
/// let plan = setup.plan(&config.build(&Device::flex())?, &DeepNet::deepnorm())?;
/// let output = plan.get("blocks.0.attention.output.weight").unwrap();
/// assert_eq!(output.rule().forward, 0.5);                     // 1/alpha, alpha = (2 * 8)^1/4
/// # Ok::<(), burn_init::Error>(())
/// ```
///
/// 1.15 is 1/0.87: torchscale divides where the paper multiplies.
///
/// Source: torchscale, `architecture/decoder.py`, `component/multihead_attention.py`; the papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeepNet {
    /// The normalization that it is for.
    pub norm: DeepNetNorm,
    /// What the factors multiply.
    pub base: DeepNetBase,
    /// What stands beside the stack.
    pub part: DeepNetPart,
    /// Whether DeepNorm's branches carry `1/alpha`: not where the model multiplies its skip by `alpha`.
    pub alpha: bool,
    /// For an encoder, the depth of its decoder; nothing for its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_layers: Option<u64>,
}

impl Default for DeepNet {
    fn default() -> Self {
        Self {
            norm: DeepNetNorm::DeepNorm,
            base: DeepNetBase::Xavier,
            part: DeepNetPart::Alone,
            alpha: true,
            decoder_layers: None,
        }
    }
}

impl DeepNet {
    /// DeepNorm as in the paper.
    pub fn deepnorm() -> Self {
        Self::default()
    }

    /// SubLN as in the paper.
    pub fn subln() -> Self {
        Self { norm: DeepNetNorm::SubLn, ..Self::default() }
    }

    /// DeepNorm as torchscale draws it.
    pub fn torchscale_deepnorm() -> Self {
        Self { base: DeepNetBase::Torch, ..Self::default() }
    }

    /// SubLN as torchscale draws it.
    pub fn torchscale_subln() -> Self {
        Self { norm: DeepNetNorm::SubLn, ..Self::torchscale_deepnorm() }
    }

    /// Pre-LN as torchscale draws it.
    pub fn torchscale_preln() -> Self {
        Self { norm: DeepNetNorm::PreLn, ..Self::torchscale_deepnorm() }
    }

    /// For the encoder of an encoder with a decoder.
    pub fn encoder(self) -> Self {
        Self { part: DeepNetPart::Encoder, ..self }
    }

    /// For the decoder of an encoder with a decoder.
    pub fn decoder(self) -> Self {
        Self { part: DeepNetPart::Decoder, ..self }
    }

    /// For a model whose forward pass multiplies the skip by `alpha` itself; the plan says by how much.
    pub fn without_alpha(self) -> Self {
        Self { alpha: false, ..self }
    }

    /// The depths of the encoder and of the decoder, of which the parameter's own stack is one.
    fn depths(self, stack: Stack) -> (f64, f64) {
        let own = stack.layers as f64;
        (own, self.decoder_layers.map_or(own, |layers| layers as f64))
    }

    fn factor(self, stack: Stack) -> Option<Factor> {
        let (n, m) = self.depths(stack);
        let both = |c: f64| (c * (n.powi(4) * m).powf(-1.0 / 16.0), format!("{c} (N^4 M)^-1/16, N = {n}, M = {m}"));
        let (value, because) = match (self.norm, self.part) {
            (DeepNetNorm::PreLn, _) => return None,
            (DeepNetNorm::DeepNorm, DeepNetPart::Alone) => ((8.0 * n).powf(-0.25), format!("(8N)^-1/4, N = {n}")),
            (DeepNetNorm::DeepNorm, DeepNetPart::Decoder) => ((12.0 * n).powf(-0.25), format!("(12M)^-1/4, M = {n}")),
            (DeepNetNorm::DeepNorm, DeepNetPart::Encoder) => match self.base {
                DeepNetBase::Xavier => both(0.87),
                DeepNetBase::Torch => both(1.15),
            },
            (DeepNetNorm::SubLn, DeepNetPart::Alone) => ((2.0 * n).ln().sqrt(), format!("sqrt(ln 2N), N = {n}")),
            (DeepNetNorm::SubLn, DeepNetPart::Decoder) => ((3.0 * n).ln().sqrt(), format!("sqrt(ln 3M), M = {n}")),
            (DeepNetNorm::SubLn, DeepNetPart::Encoder) => {
                (((3.0 * m).ln() * (2.0 * n).ln() / 3.0).sqrt(), format!("sqrt(ln(3M) ln(2N) / 3), N = {n}, M = {m}"))
            }
        };
        Some(Factor { kind: FactorKind::Depth, value, because })
    }

    /// What DeepNorm multiplies the skip by.
    fn alpha(self, stack: Stack) -> (f64, &'static str) {
        let (n, m) = self.depths(stack);
        match self.part {
            DeepNetPart::Alone => ((2.0 * n).powf(0.25), "(2N)^1/4"),
            DeepNetPart::Encoder => (0.81 * (n.powi(4) * m).powf(1.0 / 16.0), "0.81 (N^4 M)^1/16"),
            DeepNetPart::Decoder => ((3.0 * n).powf(0.25), "(3M)^1/4"),
        }
    }

    /// What stands in for `alpha` on the skip: its inverse on the branch, or that the model has it.
    fn skip(self, param: &ParamSpec, stack: Stack, rule: &mut Rule) -> Result<(), Error> {
        let (alpha, formula) = self.alpha(stack);
        if !self.alpha {
            rule.needs =
                Some(format!("the model multiplies its skip by alpha = {formula} = {} before the norm", short(alpha)));
        } else if param.norm_placement() == NormPlacement::Post {
            rule.forward = 1.0 / alpha;
        } else {
            return Err(param.error(
                ErrorKind::MissingFact,
                "DeepNorm is LN(alpha x + F(x)), and nothing says that this layer norms after the addition",
                "state it: .norms(\"**\", NormPlacement::Post), or say .without_alpha() if the model multiplies its skip itself; in a Pre-Norm model \
                 alpha has no place, so take another scheme, such as gpt2 or subln",
            ));
        }
        Ok(())
    }

    /// SubLN leaves the cross-attention of a decoder alone.
    fn leaves_out(self, param: &ParamSpec) -> bool {
        let cross = |segment: &str| {
            let segment = segment.to_lowercase();
            ["cross", "encdec", "encoder_attn"].iter().any(|name| segment.contains(name))
        };
        (self.norm, self.part) == (DeepNetNorm::SubLn, DeepNetPart::Decoder) && param.path().split('.').any(cross)
    }

    fn base(self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        Ok(match (param.role(), self.base) {
            (role, _) if role.is_table() || role == Role::OutputHead => {
                Some(Init::normal(1.0 / width(param)?.sqrt()).into())
            }
            (role, DeepNetBase::Xavier) if role.is_weight() => Some(Init::xavier_normal(1.0).into()),
            (Role::Bias, DeepNetBase::Xavier) => Some(Init::Zeros.into()),
            (role, DeepNetBase::Torch) if role.is_weight() || role == Role::Bias => TorchDefault::new().rule(param)?,
            _ => NeutralNorm::new().rule(param)?,
        })
    }
}

const SCALED: [Role; 6] = [Role::Value, Role::AttentionOutput, Role::MlpIn, Role::MlpGate, Role::MlpUp, Role::MlpDown];

impl Initializer for DeepNet {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let Some(rule) = self.base(param)? else { return Ok(None) };
        let role = param.weight_role().unwrap_or(param.role());
        if !SCALED.contains(&role) || self.leaves_out(param) {
            return Ok(Some(rule));
        }
        let stack = param.stack()?;
        let mut rule = match self.factor(stack) {
            Some(factor) if rule.init != Init::Zeros => rule.scaled(factor),
            _ => rule,
        };
        if role.writes() {
            match self.norm {
                DeepNetNorm::DeepNorm => self.skip(param, stack, &mut rule)?,
                DeepNetNorm::SubLn => rule.needs = Some("SubLN has one more norm before each output projection".into()),
                DeepNetNorm::PreLn => {}
            }
        }
        Ok(Some(rule))
    }

    /// The encoder's factor goes by the decoder's depth, too.
    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        if self.part != DeepNetPart::Encoder {
            return match self.decoder_layers {
                Some(layers) => Err(Error::config(
                    format!(
                        "decoder_layers is {layers}, and only the factor of an encoder goes by the depth of its decoder"
                    ),
                    "leave decoder_layers out, or call .encoder()",
                )),
                None => Ok(()),
            };
        }
        match (depth(Part::Decoder, tree), self.decoder_layers.or(depth(Part::Encoder, tree))) {
            (Some(shown), Some(taken)) if shown != taken => Err(Error::new(
                ErrorKind::Config,
                format!("the factor of the encoder takes the decoder to have {taken} layers, and it has {shown}"),
                format!("set decoder_layers to {shown}"),
            )),
            _ => Ok(()),
        }
    }

    /// Sides that stand in trees of their own are right, and cannot be told from a slip.
    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        let own = match self.part {
            _ if self.norm == DeepNetNorm::PreLn => return Vec::new(),
            DeepNetPart::Alone => {
                let both = depth(Part::Encoder, tree).is_some() && depth(Part::Decoder, tree).is_some();
                let text = "the tree has an encoder and a decoder, and the factors of DeepNet are those of a stack alone; \
                            EncoderDecoder has those of each side";
                return both.then(|| text.to_string()).into_iter().collect();
            }
            DeepNetPart::Encoder => Part::Encoder,
            DeepNetPart::Decoder => Part::Decoder,
        };
        if tree.iter().any(|param| part(param) == Some(own)) {
            return Vec::new();
        }
        let name = own.name();
        vec![format!(
            "the factors of DeepNet are those of the {name} of an encoder with a decoder, and no path has a segment \"{name}\"; \
             in a tree of its own .prefix(\"{name}\") says so, and for a stack alone leave out .{name}()"
        )]
    }
}

/// Layers of a side, where the tree shows them.
fn depth(side: Part, tree: &[ParamSpec]) -> Option<u64> {
    tree.iter().filter(|param| part(param) == Some(side)).find_map(|param| param.stack().ok()).map(|stack| stack.layers)
}
