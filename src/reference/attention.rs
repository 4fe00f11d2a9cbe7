//! Causal attention with as many key and value heads as one likes.

use burn::module::Module;
use burn::nn::{Dropout, Linear, RotaryEncoding};
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};

use crate::step_zero::{Point, Probe, Site};

/// Scaled dot-product attention. `n_kv_heads` key and value heads serve `n_heads` query heads.
#[derive(Module, Debug)]
pub struct Attention {
    /// `[d_model, d_model]`
    pub query: Linear,
    /// `[d_model, n_kv_heads * d_head]`
    pub key: Linear,
    /// `[d_model, n_kv_heads * d_head]`
    pub value: Linear,
    /// `[d_model, d_model]`, writes into the residual stream.
    pub output: Linear,
    /// On the weights.
    pub weights_dropout: Dropout,
    /// On the branch.
    pub dropout: Dropout,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads, a divisor of `n_heads`.
    pub n_kv_heads: usize,
}

impl Attention {
    /// `x` and the result are `[batch, seq, d_model]`; `mask`, `[seq, seq]`, is true where a position must not look.
    pub fn forward(&self, x: Tensor<3>, mask: &Tensor<2, Bool>, rotary: Option<&RotaryEncoding>) -> Tensor<3> {
        self.forward_with(x, mask, rotary, Site::AttnScores.into(), &mut Probe::silent())
    }

    /// [`forward`](Self::forward), showing `probe` the scores at `point`.
    pub fn forward_with(
        &self,
        x: Tensor<3>,
        mask: &Tensor<2, Bool>,
        rotary: Option<&RotaryEncoding>,
        point: Point,
        probe: &mut Probe<'_>,
    ) -> Tensor<3> {
        let [batch, length, d_model] = x.dims();
        let d_head = d_model / self.n_heads;
        let rotate = |heads: Tensor<4>| match rotary {
            Some(rotary) => rotary.forward(heads),
            None => heads,
        };
        let query = rotate(split(self.query.forward(x.clone()), self.n_heads));
        let key = rotate(split(self.key.forward(x.clone()), self.n_kv_heads));
        let value = split(self.value.forward(x), self.n_kv_heads);
        let (key, value) = (self.for_each_query(key), self.for_each_query(value));

        let scores = query.matmul(key.transpose()) / (d_head as f64).sqrt();
        let scores = scores.mask_fill(mask.clone().unsqueeze::<4>(), f32::NEG_INFINITY);
        if probe.is_listening() {
            probe.show(point, &scores.clone().reshape([batch * self.n_heads, length, length]));
        }
        let weights = self.weights_dropout.forward(softmax(scores, 3));
        let mixed = weights.matmul(value).swap_dims(1, 2).reshape([batch, length, d_model]);
        self.dropout.forward(self.output.forward(mixed))
    }

    /// Repeats the key or value heads so that each query head finds its own.
    fn for_each_query(&self, heads: Tensor<4>) -> Tensor<4> {
        let group = self.n_heads / self.n_kv_heads;
        if group == 1 {
            return heads;
        }
        let [batch, _, length, d_head] = heads.dims();
        heads.unsqueeze_dim::<5>(2).repeat_dim(2, group).reshape([batch, self.n_heads, length, d_head])
    }
}

/// `[batch, seq, heads * d_head]` to `[batch, heads, seq, d_head]`
fn split(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, length, width] = x.dims();
    x.reshape([batch, length, heads, width / heads]).swap_dims(1, 2)
}
