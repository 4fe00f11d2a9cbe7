//! What is known about a parameter before it has a value.

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    role::{NormPlacement, Role},
};

/// How many inputs each output sums over, and how many outputs each input feeds.
///
/// The mathematical fans, whatever the memory layout: a linear map from `d_in` to `d_out` has
/// `fan_in = d_in` and `fan_out = d_out`; a convolution counts its kernel positions; an expert is a
/// map of its own. A table `[n, d]` is read as the head that may be tied to it: `fan_in = d`,
/// `fan_out = n` (PyTorch's convention for a matrix `[out, in]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fans {
    /// Terms summed into one output.
    pub fan_in: u64,
    /// Outputs that one input takes part in.
    pub fan_out: u64,
}

/// The residual stream that a parameter lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Number of layers, `N`.
    pub layers: u64,
    /// Number of additions to the residual stream over all layers: `2N` in a GPT, `3N` in a decoder
    /// with cross-attention, `N` with parallel blocks.
    pub branches: u64,
    /// Width of the stream.
    pub d_model: u64,
}

/// Which addition to the residual stream a parameter makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// Index of the addition, from 0, in the order of the tree.
    pub index: u64,
    /// Number of additions to that stream.
    pub of: u64,
}

/// A block of a packed parameter: the columns `start .. start + len` of its output dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Position among the blocks, from 0.
    pub index: u64,
    /// First output column.
    pub start: u64,
    /// Number of output columns.
    pub len: u64,
}

/// All that is known about a parameter, or about one [block](Block) of a packed parameter, before
/// it has a value.
///
/// Facts that a tree may not show ([`fans`](Self::fans), [`stack`](Self::stack),
/// [`heads`](Self::heads)) are `Result`s: their error names the path and the line to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParamSpec {
    pub(crate) path: String,
    pub(crate) role: Role,
    pub(crate) shape: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight_role: Option<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fans: Option<Fans>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) layer: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stack: Option<Stack>,
    /// Additions made up to and including this layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branches_so_far: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) writes: Option<Branch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block: Option<Block>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) heads: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) experts: Option<u64>,
    /// Whether the module's tensor holds the transpose of `shape`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stored_transposed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) final_norm: bool,
    #[serde(default, skip_serializing_if = "NormPlacement::is_pre")]
    pub(crate) norm_placement: NormPlacement,
    /// Whether a norm of queries and keys stands beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) qk_norm: bool,
    #[serde(skip)]
    pub(crate) id: Identity,
}

/// Saturating, so that a shape that no memory holds can still be planned and refused.
pub(crate) fn product(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |product: u64, &d| product.saturating_mul(d))
}

/// burn's identity of a parameter in this process: random, so never part of a value, of a file or of an equality.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Identity(pub u64);

impl PartialEq for Identity {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl ParamSpec {
    /// Path in the module tree, segments joined by dots, with the prefix of the
    /// [`Setup`](crate::Setup): `transformer.h.3.attn.c_proj.weight`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The part that the parameter plays.
    pub fn role(&self) -> Role {
        self.role
    }

    /// For a bias, the role of the weight it belongs to, where there is one.
    pub fn weight_role(&self) -> Option<Role> {
        self.weight_role
    }

    /// Shape of the whole parameter as the mathematics has it: a linear map is `[d_in, d_out]` even if it is stored
    /// transposed.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Number of elements of the parameter, or of this block of it.
    pub fn num_elements(&self) -> u64 {
        match (self.block, self.shape.last()) {
            (Some(block), Some(&last)) if last > 0 => product(&self.shape) / last * block.len,
            _ => product(&self.shape),
        }
    }

    /// Index of the layer in its stack, from 0; `None` outside of a stack.
    pub fn layer(&self) -> Option<u64> {
        self.layer
    }

    /// `Some` if the parameter is a projection that writes into a residual stream: which addition, of how many.
    pub fn writes(&self) -> Option<Branch> {
        self.writes
    }

    /// Whether it is the gain or the shift of the last norm, whose output is read by the head and by nothing else: the only one
    /// outside of every stack that comes after the layers, or is known by its name.
    pub fn is_final_norm(&self) -> bool {
        self.final_norm
    }

    /// Where the norms of its layer stand, as [`Setup::norms`](crate::Setup::norms) states or names tell; Pre-Norm otherwise, and outside of
    /// layers.
    pub fn norm_placement(&self) -> NormPlacement {
        self.norm_placement
    }

    /// Whether a norm takes its scale out of the forward pass again: for a query or a key one that stands beside it (`q_norm`), for what writes
    /// into the stream one on the [branch](NormPlacement::is_on_branch). The bias is as its weight.
    pub fn is_normed(&self) -> bool {
        match self.weight_role.unwrap_or(self.role) {
            Role::Query | Role::Key => self.qk_norm,
            role => role.writes() && self.norm_placement.is_on_branch(),
        }
    }

    /// The block that this is, for a packed parameter.
    pub fn block(&self) -> Option<Block> {
        self.block
    }

    /// Number of experts stacked in the first dimension, where there are any.
    pub fn experts(&self) -> Option<u64> {
        self.experts
    }

    /// The fans, of this block if it is one; for a bias, those of its weight.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFact`] for a parameter that is no map, or a raw one whose layout was not told.
    pub fn fans(&self) -> Result<Fans, Error> {
        self.fans.ok_or_else(|| {
            let todo = match self.shape.len() {
                0 | 1 => "choose an initialization that does not depend on the fans".to_string(),
                _ => format!("state how it is stored: .layout(\"{}\", Layout::InOut) or Layout::OutIn", self.path),
            };
            self.error(
                ErrorKind::MissingFact,
                "the rule needs fan_in and fan_out, which this parameter does not show",
                todo,
            )
        })
    }

    /// The residual stream that the parameter lives in, whether it writes into it or not.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFact`] outside of a stack.
    pub fn stack(&self) -> Result<Stack, Error> {
        self.stack.ok_or_else(|| {
            self.error(
                ErrorKind::MissingFact,
                "the rule needs the depth, and this parameter is in no stack of layers",
                "declare it: .stack(\"blocks\", StackPlace::layers(12))",
            )
        })
    }

    /// Additions to the residual stream from the first layer up to and including this one: `2(l + 1)` in a GPT.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFact`] outside of a stack.
    pub fn branches_so_far(&self) -> Result<u64, Error> {
        self.stack()?;
        self.branches_so_far.ok_or_else(|| {
            self.error(
                ErrorKind::MissingFact,
                "the rule needs the index of the layer, which this parameter does not show",
                "declare it: .stack(\"blocks\", StackPlace::layers(12).first_layer(0))",
            )
        })
    }

    /// Number of attention heads, which is not visible in the shapes.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFact`] unless the [`Setup`](crate::Setup) states it.
    pub fn heads(&self) -> Result<u64, Error> {
        self.heads.ok_or_else(|| {
            self.error(
                ErrorKind::MissingFact,
                "the rule needs the number of attention heads, which no shape shows",
                "state it: .heads(\"**\", 12)",
            )
        })
    }

    /// An error at this parameter, with its path and shape.
    pub fn error(&self, kind: ErrorKind, found: impl Into<String>, todo: impl Into<String>) -> Error {
        Error::new(kind, found, todo).at(self.path.as_str()).shaped(self.shape.as_slice())
    }
}
