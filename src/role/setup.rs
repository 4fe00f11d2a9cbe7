//! What is about the tree and not about the scheme.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Pattern, Role};
use crate::error::{Error, ErrorKind};

/// How a user's own two-dimensional weight is stored.
///
/// burn-nn's layers need no such line, whatever their `LinearLayout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `[d_in, d_out]`, as burn-nn's `Linear`.
    InOut,
    /// `[d_out, d_in]`, as PyTorch's.
    OutIn,
}

/// Where the norms of a layer stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NormPlacement {
    /// Before each branch, `x' = x + F(LN(x))`: GPT-2, Llama.
    #[default]
    Pre,
    /// After each addition, `x' = LN(x + F(x))`: the original Transformer, GPT, BERT, DeepNorm.
    Post,
    /// On what each branch gives, `x' = x + LN(F(x))`: Swin v2's res-post-norm, OLMo 2.
    ResPost,
    /// Before and after each branch, `x' = x + LN(F(LN(x)))`: CogView, Gemma 2 and 3.
    Sandwich,
}

impl NormPlacement {
    /// Whether a norm stands before the branch.
    pub fn is_before(self) -> bool {
        matches!(self, Self::Pre | Self::Sandwich)
    }

    /// Whether a norm takes the scale of a branch out before it is added, so that neither the std nor a multiplier of its last projection
    /// has a part in the stream.
    pub fn is_on_branch(self) -> bool {
        matches!(self, Self::ResPost | Self::Sandwich)
    }

    pub(crate) fn is_pre(&self) -> bool {
        *self == Self::Pre
    }
}

/// As in a configuration file.
impl fmt::Display for NormPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pre => "pre",
            Self::Post => "post",
            Self::ResPost => "res-post",
            Self::Sandwich => "sandwich",
        })
    }
}

/// As it prints.
impl FromStr for NormPlacement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Pre, Self::Post, Self::ResPost, Self::Sandwich];
        all.into_iter().find(|placement| placement.to_string() == text).ok_or_else(|| {
            let found = format!("unknown placement of norms \"{text}\"");
            Error::new(ErrorKind::Parse, found, format!("known are {}", all.map(|one| one.to_string()).join(", ")))
        })
    }
}

/// Precision of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 64 bits; the draw itself has the resolution of f32.
    F64,
    /// 32 bits.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    BF16,
}

/// Where the visible layers stand in the whole stack, for what a tree cannot show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackPlace {
    /// Layers of the whole stack, `N`.
    pub layers: u64,
    /// Additions to the residual stream of the whole stack; counted per visible layer and multiplied if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<u64>,
    /// Index of the first visible layer. Paths and streams of random numbers follow it, so that a pipeline stage draws what
    /// the whole model would have drawn.
    #[serde(default)]
    pub first_layer: u64,
}

impl StackPlace {
    /// A stack of `layers` layers.
    pub fn layers(layers: u64) -> Self {
        Self { layers, branches: None, first_layer: 0 }
    }

    /// With this number of additions in all.
    pub fn branches(self, branches: u64) -> Self {
        Self { branches: Some(branches), ..self }
    }

    /// Beginning at this layer.
    pub fn first_layer(self, first_layer: u64) -> Self {
        Self { first_layer, ..self }
    }
}

/// One block of a packed weight: its role and, unless all are equally wide, its output width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedBlock {
    /// Role of the block.
    pub role: Role,
    /// Output columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u64>,
}

impl From<Role> for PackedBlock {
    fn from(role: Role) -> Self {
        Self { role, width: None }
    }
}

impl From<(Role, u64)> for PackedBlock {
    fn from((role, width): (Role, u64)) -> Self {
        Self { role, width: Some(width) }
    }
}

/// How far [`initialize`](crate::ModuleInit::initialize) has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Path of the parameter that was just started.
    pub path: &'a str,
    /// Elements started so far.
    pub done: u64,
    /// Elements to start in all.
    pub total: u64,
}

type OnProgress = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// Everything that is about the tree and not about the scheme: roles that cannot be told, packed weights, stored layouts,
/// the place of a part in a whole.
///
/// Most models need none of it. Every line is checked: one that matches no parameter is an error. In patterns `*` is one segment (or a part
/// of one), `**` any number; they are anchored at both ends and see the paths as the plan prints them, with the prefix (in a
/// pipeline stage with the layers counted from 0).
///
/// ```
/// use burn_init::{Role, Setup, StackPlace};
///
/// let setup = Setup::new()
///     .role("blocks.*.mixer.out.weight", Role::AttentionOutput)
///     .packed("blocks.*.attn.in.weight", [Role::Query, Role::Key, Role::Value])
///     .stack("blocks", StackPlace::layers(12).first_layer(6));
/// let file = serde_json::to_string(&setup)?;
/// assert_eq!(serde_json::from_str::<Setup>(&file)?, setup);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) roles: Vec<(Pattern, Role)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) packed: Vec<Packing>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) layouts: Vec<(Pattern, Layout)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) parallel: Vec<Pattern>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) norms: Vec<(Pattern, NormPlacement)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stacks: Vec<(Pattern, StackPlace)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) heads: Vec<(Pattern, u64)>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) prefix: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dtype: Option<Dtype>,
    #[serde(skip)]
    on_progress: Option<OnProgress>,
}

/// A packed weight's blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Packing {
    pub(crate) pattern: Pattern,
    pub(crate) blocks: Vec<PackedBlock>,
}

impl Setup {
    /// The default: everything is told from the tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says which part the matching parameters play. The last matching line wins.
    pub fn role(mut self, pattern: impl Into<String>, role: Role) -> Self {
        self.roles.push((Pattern::new(pattern), role));
        self
    }

    /// Says that the matching weights hold several matrices side by side in their output dimension.
    ///
    /// `[Role::Query, Role::Key, Role::Value]` for equally wide blocks, `[(Role::Query, 512), (Role::Key, 128), (Role::Value, 128)]`
    /// where there are fewer key and value heads. Each block is planned with its own fans.
    ///
    /// A block is a range of neighbouring columns. Where the columns are interleaved instead, head by head as in the `query_key_value` of GPT-NeoX,
    /// BLOOM and Falcon, a start that gives all blocks the same std is right all the same; stds, forward multipliers or learning rates that differ from block to
    /// block would meet the wrong columns.
    pub fn packed<B: Into<PackedBlock>>(
        mut self,
        pattern: impl Into<String>,
        blocks: impl IntoIterator<Item = B>,
    ) -> Self {
        let blocks = blocks.into_iter().map(Into::into).collect();
        self.packed.push(Packing { pattern: Pattern::new(pattern), blocks });
        self
    }

    /// Says how the matching weights are stored.
    ///
    /// A struct of your own that is called `Linear`, too, and stores `[d_out, d_in]` is told by its bias or by the width of the
    /// stream; without either nothing shows it, and this line is needed.
    pub fn layout(mut self, pattern: impl Into<String>, layout: Layout) -> Self {
        self.layouts.push((Pattern::new(pattern), layout));
        self
    }

    /// Says that in the layers matching the pattern (`transformer.h.*`) attention and MLP read the same input and are added
    /// together: one addition to the residual stream a layer.
    pub fn parallel(mut self, pattern: impl Into<String>) -> Self {
        self.parallel.push(Pattern::new(pattern));
        self
    }

    /// Says where the norms stand in the layers matching the pattern: `encoder.layers.*`, or `**` for all. The last matching line wins.
    ///
    /// Few trees show it: names such as `post_feedforward_layernorm` (OLMo 2, Gemma) tell a norm on the branch, and all others are taken for
    /// [Pre-Norm](NormPlacement::Pre).
    pub fn norms(mut self, pattern: impl Into<String>, placement: NormPlacement) -> Self {
        self.norms.push((Pattern::new(pattern), placement));
        self
    }

    /// Says where the layers of the matching stacks stand in the whole. The pattern is the path of the list of layers
    /// (`transformer.h`); `**` matches every stack, also a block that is started on its own.
    pub fn stack(mut self, pattern: impl Into<String>, place: StackPlace) -> Self {
        self.stacks.push((Pattern::new(pattern), place));
        self
    }

    /// States the number of attention heads, which no shape shows, for the matching parameters.
    pub fn heads(mut self, pattern: impl Into<String>, heads: u64) -> Self {
        self.heads.push((Pattern::new(pattern), heads));
        self
    }

    /// Puts `prefix`, a path such as `transformer.h.3`, and a dot before every path: a part that is started on its own then has the values that it has in the whole.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Takes a path that begins with the segments `from` as if it began with `to`: a field that was renamed keeps its values.
    pub fn alias(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.aliases.push((from.into(), to.into()));
        self
    }

    /// Precision of the values, where it is not the one that the parameter or its device has.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Calls back after each parameter. Not part of a file.
    pub fn progress(mut self, callback: impl Fn(Progress<'_>) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(callback));
        self
    }

    pub(crate) fn report(&self, progress: Progress<'_>) {
        if let Some(callback) = &self.on_progress {
            callback(progress);
        }
    }

    /// The path with the prefix, before aliases.
    pub(crate) fn prefixed(&self, segments: &[String]) -> String {
        match self.prefix.is_empty() {
            true => segments.join("."),
            false => format!("{}.{}", self.prefix, segments.join(".")),
        }
    }

    /// The path by which a parameter is planned and drawn.
    pub(crate) fn full_path(&self, segments: &[String]) -> String {
        let mut path = self.prefixed(segments);
        for (from, to) in &self.aliases {
            let rest = path.strip_prefix(from.as_str());
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('.')) {
                path = format!("{to}{rest}").trim_start_matches('.').to_string();
                break;
            }
        }
        path
    }
}

impl PartialEq for Setup {
    /// By what a file holds: the progress callback does not count.
    fn eq(&self, other: &Self) -> bool {
        (&self.roles, &self.packed, &self.layouts, &self.parallel, &self.norms)
            == (&other.roles, &other.packed, &other.layouts, &other.parallel, &other.norms)
            && (&self.stacks, &self.heads, &self.prefix, &self.aliases, self.dtype)
                == (&other.stacks, &other.heads, &other.prefix, &other.aliases, other.dtype)
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("roles", &self.roles)
            .field("packed", &self.packed)
            .field("layouts", &self.layouts)
            .field("parallel", &self.parallel)
            .field("norms", &self.norms)
            .field("stacks", &self.stacks)
            .field("heads", &self.heads)
            .field("prefix", &self.prefix)
            .field("aliases", &self.aliases)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}
