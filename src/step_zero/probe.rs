//! Eyes in a forward pass: named points, and a probe that is shown the tensor at each.

use std::fmt;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// A kind of place in a decoder, in the order in which a block is run through.
///
/// The names are TransformerLens's. A branch output is what is *added* to the residual stream, after
/// its projection and its dropout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Site {
    /// The residual stream before a block; before block 0 it is the embedding. `[batch, seq, d_model]`
    ResidPre,
    /// The attention scores before the softmax, `[batch * heads, seq, seq]`, with -inf where a position must not look.
    AttnScores,
    /// What attention adds to the stream. `[batch, seq, d_model]`
    AttnOut,
    /// The stream between attention and MLP. `[batch, seq, d_model]`
    ResidMid,
    /// What the MLP adds to the stream. `[batch, seq, d_model]`
    MlpOut,
    /// The stream after a block. `[batch, seq, d_model]`
    ResidPost,
    /// The output of the last norm, which the head reads. `[batch, seq, d_model]`
    FinalNorm,
    /// The logits. `[batch, seq, vocab]`
    Logits,
}

impl Site {
    /// This place in block `layer`, counted from 0.
    pub fn in_layer(self, layer: u64) -> Point {
        Point { site: self, layer: Some(layer) }
    }

    /// Its name, such as `resid_mid`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ResidPre => "resid_pre",
            Self::AttnScores => "attn_scores",
            Self::AttnOut => "attn_out",
            Self::ResidMid => "resid_mid",
            Self::MlpOut => "mlp_out",
            Self::ResidPost => "resid_post",
            Self::FinalNorm => "final_norm",
            Self::Logits => "logits",
        }
    }
}

/// One point of the forward pass: a [`Site`], and the block that it belongs to where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// Which kind of place.
    pub site: Site,
    /// The block, counted from 0; `None` for the final norm and the logits.
    pub layer: Option<u64>,
}

impl From<Site> for Point {
    fn from(site: Site) -> Self {
        Self { site, layer: None }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => f.pad(&format!("{layer}.{}", self.site.name())),
            None => f.pad(self.site.name()),
        }
    }
}

/// Is handed along the forward pass and shown the tensor at each [`Point`].
///
/// A silent probe costs one branch per point: nothing is cloned or computed. A listener borrows
/// the tensor and clones it only if it wants to keep it.
///
/// ```
/// use burn_init::step_zero::{Probe, Site};
///
/// let mut names = Vec::new();
/// let mut listener = |point: burn_init::step_zero::Point, _: &burn::tensor::Tensor<3>| names.push(point.to_string());
/// let mut probe = Probe::new(&mut listener);
/// let x = burn::tensor::Tensor::<3>::zeros([1, 2, 4], &Default::default());
/// probe.show(Site::AttnOut.in_layer(3), &x);
/// let x = probe.pass(Site::ResidPost.in_layer(3), x);
/// probe.show(Site::FinalNorm, &x);
/// assert_eq!(names, ["3.attn_out", "3.resid_post", "final_norm"]);
/// ```
#[derive(Default)]
pub struct Probe<'a> {
    listener: Option<&'a mut Listener<'a>>,
    leaves: Option<&'a mut Leaves>,
}

type Listener<'a> = dyn FnMut(Point, &Tensor<3>) + 'a;

/// Zeros that were added to the stream, so that their gradient is that of the stream.
pub(super) type Leaves = Vec<(Point, Tensor<3>)>;

impl<'a> Probe<'a> {
    /// A probe that nobody listens to.
    pub fn silent() -> Self {
        Self::default()
    }

    /// A probe that passes each point and its tensor to `listener`.
    pub fn new(listener: &'a mut dyn FnMut(Point, &Tensor<3>)) -> Self {
        Self { listener: Some(listener), leaves: None }
    }

    /// One that hangs a leaf into the graph wherever the stream passes.
    pub(super) fn with_leaves(listener: &'a mut dyn FnMut(Point, &Tensor<3>), leaves: &'a mut Leaves) -> Self {
        Self { listener: Some(listener), leaves: Some(leaves) }
    }

    /// Whether somebody listens, for models that must compute what they would show.
    pub fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    /// Shows the tensor at `point`.
    pub fn show(&mut self, point: impl Into<Point>, value: &Tensor<3>) {
        if let Some(listener) = &mut self.listener {
            listener(point.into(), value);
        }
    }

    /// Shows the residual stream at `point` and hands it back: go on with the result. Where gradients are measured, that is
    /// the same tensor with a zero added whose gradient can be read afterwards; otherwise it is `value` itself.
    #[must_use = "the gradient is read from the tensor that is returned"]
    pub fn pass(&mut self, point: impl Into<Point>, value: Tensor<3>) -> Tensor<3> {
        let point = point.into();
        self.show(point, &value);
        match &mut self.leaves {
            Some(leaves) => {
                let leaf = Tensor::zeros(value.dims(), (&value.device(), value.dtype())).require_grad();
                leaves.push((point, leaf.clone()));
                value + leaf
            }
            None => value,
        }
    }
}

impl fmt::Debug for Probe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("is_listening", &self.is_listening()).finish()
    }
}
