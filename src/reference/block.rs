//! One block: two branches that are added to the stream, each behind a norm of its own.

use burn::module::Module;
use burn::nn::RotaryEncoding;
use burn::nn::norm::Normalization;
use burn::tensor::{Bool, Tensor};

use super::{Attention, Mlp};
use crate::step_zero::{Probe, Site};

/// A Pre-Norm block.
#[derive(Module, Debug)]
pub struct Block {
    /// Before attention.
    pub norm_1: Normalization,
    /// The first branch.
    pub attention: Attention,
    /// Before the MLP.
    pub norm_2: Normalization,
    /// The second branch.
    pub mlp: Mlp,
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
        let branch = self.attention.forward_with(self.norm_1.forward(x.clone()), mask, rotary, scores, probe);
        probe.show(Site::AttnOut.in_layer(layer), &branch);
        let x = probe.pass(Site::ResidMid.in_layer(layer), x + branch);
        let branch = self.mlp.forward(self.norm_2.forward(x.clone()));
        probe.show(Site::MlpOut.in_layer(layer), &branch);
        probe.pass(Site::ResidPost.in_layer(layer), x + branch)
    }
}
