//! One scheme for an encoder, another for its decoder.

use serde::{Deserialize, Serialize};

use super::{DeepNet, DeepNetNorm, DeepNetPart, Scheme};
use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    rule::Rule,
};

/// A scheme for each side of an encoder with a decoder: in a file what `.only("encoder.**").or(…)` is in code.
///
/// A side is what stands below a segment `encoder` or `decoder`. What stands below neither, such as a shared table or the head, goes by the decoder's.
///
/// ```
/// use burn_init::Scheme;
///
/// let scheme: Scheme = serde_json::from_str(
///     r#"{"scheme": "encoder-decoder", "encoder": "bert", "decoder": {"scheme": "gpt2", "std": 0.01}}"#,
/// )?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncoderDecoder {
    /// The encoder's.
    pub encoder: Box<Scheme>,
    /// The decoder's, and that of what both share.
    pub decoder: Box<Scheme>,
}

/// The side that a parameter stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Encoder,
    Decoder,
}

impl Part {
    /// The segment that names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::Encoder => "encoder",
            Part::Decoder => "decoder",
        }
    }
}

/// The outermost segment that names a side tells it.
pub(super) fn part(param: &ParamSpec) -> Option<Part> {
    param.path().split('.').find_map(|segment| match segment {
        "encoder" => Some(Part::Encoder),
        "decoder" => Some(Part::Decoder),
        _ => None,
    })
}

impl EncoderDecoder {
    /// A scheme for each side.
    pub fn of(encoder: impl Into<Scheme>, decoder: impl Into<Scheme>) -> Self {
        Self { encoder: Box::new(encoder.into()), decoder: Box::new(decoder.into()) }
    }

    /// DeepNet's factors differ from side to side, so the scheme of a side has to be the one for it.
    fn check_side(side: Part, scheme: &Scheme) -> Result<(), Error> {
        let told = match scheme {
            Scheme::DeepNet(told) if told.norm != DeepNetNorm::PreLn => told.part,
            Scheme::Modified(modified) => return Self::check_side(side, &modified.base),
            _ => return Ok(()),
        };
        let expected = match side {
            Part::Encoder => DeepNetPart::Encoder,
            Part::Decoder => DeepNetPart::Decoder,
        };
        let name = side.name();
        let found = match told {
            _ if told == expected => return Ok(()),
            DeepNetPart::Alone => "a stack alone",
            DeepNetPart::Encoder => "an encoder",
            DeepNetPart::Decoder => "a decoder",
        };
        Err(Error::config(
            format!("the scheme of the {name} is DeepNet's for {found}"),
            format!(
                "EncoderDecoder::of takes the encoder's scheme first; call .{name}() on this one, or in a file set part = \"{name}\""
            ),
        ))
    }

    /// DeepNorm for both sides.
    pub fn deepnorm() -> Self {
        Self::of(DeepNet::deepnorm().encoder(), DeepNet::deepnorm().decoder())
    }

    /// DeepNorm for both sides as torchscale draws it.
    pub fn torchscale_deepnorm() -> Self {
        Self::of(DeepNet::torchscale_deepnorm().encoder(), DeepNet::torchscale_deepnorm().decoder())
    }

    /// SubLN for both sides.
    pub fn subln() -> Self {
        Self::of(DeepNet::subln().encoder(), DeepNet::subln().decoder())
    }
}

impl Initializer for EncoderDecoder {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match part(param) {
            Some(Part::Encoder) => self.encoder.rule(param),
            Some(Part::Decoder) | None => self.decoder.rule(param),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        for (side, scheme) in [(Part::Encoder, &self.encoder), (Part::Decoder, &self.decoder)] {
            Self::check_side(side, scheme)?;
            if !tree.iter().any(|param| part(param) == Some(side)) {
                let example = tree.first().map_or("(the tree is empty)", ParamSpec::path);
                return Err(Error::new(
                    ErrorKind::Unmatched,
                    format!("no path has a segment \"{}\"", side.name()),
                    format!("paths look like {example}; rename with .alias(…), or use the scheme of one side"),
                ));
            }
        }
        self.encoder.check(tree)?;
        self.decoder.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        let (encoder, decoder): (Vec<_>, Vec<_>) =
            tree.iter().cloned().partition(|param| part(param) == Some(Part::Encoder));
        let mut warnings = self.encoder.warnings(&encoder);
        warnings.extend(self.decoder.warnings(&decoder));
        warnings
    }
}
