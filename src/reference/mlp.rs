//! The feed-forward branch, with or without a gate.

use burn::module::Module;
use burn::nn::{Dropout, Linear};
use burn::tensor::{Tensor, activation};

use crate::step_zero::Activation;

/// `out(act(in(x)))`, or `out(act(gate(x)) * in(x))` for a gated activation.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `[d_model, d_ff]`; the up projection of a gated MLP.
    pub linear_in: Linear,
    /// `[d_model, d_ff]`, of a gated MLP.
    pub linear_gate: Option<Linear>,
    /// `[d_ff, d_model]`, writes into the residual stream.
    pub linear_out: Linear,
    /// On the branch.
    pub dropout: Dropout,
    /// The nonlinearity.
    #[module(skip)]
    pub activation: Activation,
}

impl Mlp {
    /// `x` and the result are `[batch, seq, d_model]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let hidden = match &self.linear_gate {
            Some(gate) => self.activate(gate.forward(x.clone())) * self.linear_in.forward(x),
            None => self.activate(self.linear_in.forward(x)),
        };
        self.dropout.forward(self.linear_out.forward(hidden))
    }

    fn activate(&self, x: Tensor<3>) -> Tensor<3> {
        match self.activation {
            Activation::Gelu | Activation::GeGlu => activation::gelu(x),
            Activation::GeluTanh => activation::gelu_approximate(x),
            Activation::Relu | Activation::ReGlu => activation::relu(x),
            Activation::SquaredRelu => activation::relu(x).square(),
            Activation::Silu | Activation::SwiGlu => activation::silu(x),
        }
    }
}
