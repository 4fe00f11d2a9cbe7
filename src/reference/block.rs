//! One block: two branches that are added to the stream, each with a norm of its own.

use burn::module::Module;
use burn::nn::RotaryEncoding;
use burn::nn::norm::Normalization;
use burn::tensor::{Bool, Tensor};

use super::{Attention, Mlp};
use crate::NormPlacement;
use crate::step_zero::{Probe, Site};

/// Attention and MLP, each added to the stream.
#[derive(Module, Debug)]
pub struct Block {
    /// The norm of the first branch, before or after it.
    pub norm_1: Normalization,
    /// The first branch.
    pub attention: Attention,
    /// The norm of the second branch, before or after it.
    pub norm_2: Normalization,
    /// The second branch.
    pub mlp: Mlp,
    /// The second norm of the first branch, of a [sandwich](NormPlacement::Sandwich).
    pub norm_1_after: Option<Normalization>,
    /// The second norm of the second branch.
    pub norm_2_after: Option<Normalization>,
    /// Where the norms stand.
    #[module(skip)]
    pub norm_placement: NormPlacement,
}

impl Block {
    /// Adds both branches to the stream `x`, `[batch, seq, d_model]`. `mask` is true where attention must not look,
    /// `layer` is the block's index for the probe.
    pub fn forward(
        &self,
        x: Tensor<3>,
        mask: &Tensor<2, Bool>,
        rotary: Option<&RotaryEncoding>,
        layer: u64,
        probe: &mut Probe<'_>,
    ) -> Tensor<3> {
        let x = probe.pass(Site::ResidPre.in_layer(layer), x);
        let scores = Site::AttnScores.in_layer(layer);
        let branch = self.attention.forward_with(self.before(&self.norm_1, &x), mask, rotary, scores, probe);
        let branch = self.on_branch(&self.norm_1, self.norm_1_after.as_ref(), branch);
        probe.show(Site::AttnOut.in_layer(layer), &branch);
        let x = probe.pass(Site::ResidMid.in_layer(layer), self.after(&self.norm_1, x + branch));
        let branch = self.mlp.forward(self.before(&self.norm_2, &x));
        let branch = self.on_branch(&self.norm_2, self.norm_2_after.as_ref(), branch);
        probe.show(Site::MlpOut.in_layer(layer), &branch);
        probe.pass(Site::ResidPost.in_layer(layer), self.after(&self.norm_2, x + branch))
    }

    /// What a branch reads.
    fn before(&self, norm: &Normalization, x: &Tensor<3>) -> Tensor<3> {
        if self.norm_placement.is_before() { norm.forward(x.clone()) } else { x.clone() }
    }

    /// What is added to the stream.
    fn on_branch(&self, norm: &Normalization, second: Option<&Normalization>, branch: Tensor<3>) -> Tensor<3> {
        match self.norm_placement {
            NormPlacement::ResPost => norm.forward(branch),
            _ => match second {
                Some(norm) => norm.forward(branch),
                None => branch,
            },
        }
    }

    /// What goes on in the stream.
    fn after(&self, norm: &Normalization, x: Tensor<3>) -> Tensor<3> {
        if self.norm_placement == NormPlacement::Post { norm.forward(x) } else { x }
    }
}
