//! A module tree without its tensors.

use crate::{
    error::Error,
    initializer::Initializer,
    plan::Plan,
    role::{Leaf, Setup, resolve, unknown_roles},
    shard::drawable_as,
    tree::burn_dtype,
};

/// The names and shapes of a model that is not built: enough for a [`Plan`], and so for its report, its shards and its checkpoint.
///
/// A model of 10^11 parameters is planned in milliseconds, on a machine that could not hold it. Roles are told as on a
/// module: by the layer that a parameter stands in, by its name, and by a [`Setup`]. A path that is the same as in a burn
/// module gives the same values.
///
/// ```
/// use burn_init::{Blueprint, Gpt2};
///
/// let mut tree = Blueprint::new().embedding("wte.weight", [50_257, 12_288]);
/// for layer in 0..96 {
///     let at = |name: &str| format!("h.{layer}.{name}");
///     tree = tree
///         .norm(at("ln_1.weight"), 12_288)
///         .linear(at("attn.c_attn.weight"), [12_288, 3 * 12_288])
///         .linear(at("attn.c_proj.weight"), [12_288, 12_288])
///         .norm(at("ln_2.weight"), 12_288)
///         .linear(at("mlp.c_fc.weight"), [12_288, 4 * 12_288])
///         .linear(at("mlp.c_proj.weight"), [4 * 12_288, 12_288]);
/// }
/// let plan = tree.plan(&Gpt2::new())?;
/// assert_eq!(plan.num_params(), 174_566_092_800);
/// assert_eq!(format!("{:.7}", plan.get("h.95.mlp.c_proj.weight").unwrap().std()), "0.0014434");
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Blueprint {
    leaves: Vec<Leaf>,
}

impl Blueprint {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// A parameter of a linear layer: its weight `[d_in, d_out]` or its bias `[d_out]`.
    pub fn linear(self, path: impl AsRef<str>, shape: impl AsRef<[u64]>) -> Self {
        self.leaf(path.as_ref(), "Struct:Linear", shape.as_ref())
    }

    /// A table of vectors, `[number, d]`.
    pub fn embedding(self, path: impl AsRef<str>, shape: [u64; 2]) -> Self {
        self.leaf(path.as_ref(), "Struct:Embedding", &shape)
    }

    /// A gain or a shift of a normalization of `d` features.
    pub fn norm(self, path: impl AsRef<str>, d: u64) -> Self {
        self.leaf(path.as_ref(), "Struct:LayerNorm", &[d])
    }

    /// A parameter that stands in no layer of burn-nn: its role is told by its name, or by a [`Setup`].
    pub fn parameter(self, path: impl AsRef<str>, shape: impl AsRef<[u64]>) -> Self {
        self.leaf(path.as_ref(), "Struct:Module", shape.as_ref())
    }

    fn leaf(mut self, path: &str, holder: &str, shape: &[u64]) -> Self {
        let segments: Vec<String> = path.split('.').map(String::from).collect();
        let last = segments.len() - 1;
        let container = |(i, segment): (usize, &String)| match segment.parse::<u64>() {
            Ok(_) => "Vec",
            Err(_) if i == last => holder,
            Err(_) => "Struct:Module",
        };
        let containers = segments.iter().enumerate().map(container).map(String::from).collect();
        let id = self.leaves.len() as u64;
        let shape = shape.to_vec();
        self.leaves.push(Leaf { segments, containers, id, shape, initialized: false, quantized: false });
        self
    }

    /// The scheme met with this tree. See [`ModuleInit::plan`](crate::ModuleInit::plan).
    ///
    /// # Errors
    /// See [`ModuleInit::plan`](crate::ModuleInit::plan).
    pub fn plan(&self, scheme: &dyn Initializer) -> Result<Plan, Error> {
        self.plan_with(&Setup::new(), scheme)
    }

    /// As [`plan`](Self::plan), with what cannot be told from the tree.
    ///
    /// # Errors
    /// See [`ModuleInit::plan`](crate::ModuleInit::plan).
    pub fn plan_with(&self, setup: &Setup, scheme: &dyn Initializer) -> Result<Plan, Error> {
        let sites = resolve(&self.leaves, setup)?;
        match unknown_roles(sites.unknown.iter()) {
            Some(error) => Err(error),
            None => {
                let plan = Plan::make(&sites, &|_| true, scheme)?;
                if let Some(dtype) = setup.dtype {
                    drawable_as(burn_dtype(dtype), plan.iter().as_slice())?;
                }
                Ok(plan)
            }
        }
    }
}
