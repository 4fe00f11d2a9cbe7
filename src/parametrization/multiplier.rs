//! Forward multipliers, attached to the parameters of any burn module.

use std::{collections::HashMap, fmt};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param, Reparameterization, Reparameterizer},
    tensor::{Device, Tensor, TensorData},
};

use crate::plan::Entry;

/// A constant factor between the stored value of a parameter and the value that the forward pass computes with; for a packed weight
/// one factor for each block.
///
/// It is a [`Reparameterization`] without a parameter of its own: burn's optimizers, records and `num_params` see the stored value, and
/// the gradient reaches it through the factor. burn keeps it through optimizer steps, `valid`, `train`, `fork` and `to_device`;
/// `Module::materialize` multiplies the value by it and takes it off. [`ModuleInit::initialize`](crate::ModuleInit::initialize) and
/// [`attach`](crate::ModuleInit::attach) put it on.
///
/// burn has room for one reparameterization on a parameter, and keeps the first one without a word: materialize before `apply_lora`.
#[derive(Debug, Clone, PartialEq)]
pub struct Multiplier {
    /// Width and factor of each block; a single one stands for the whole.
    blocks: Vec<(usize, f64)>,
    /// The dimension that the blocks lie side by side in, counted from the last.
    from_last: usize,
}

impl Multiplier {
    /// The type of container that a visitor sees around the text of the factors.
    pub(crate) const CONTAINER: &'static str = "Multiplier";

    /// What the lines of one parameter ask for; `None` where all factors are 1.
    pub(crate) fn of(entries: &[Entry], transposed: bool) -> Option<Self> {
        let factor = |entry: &Entry| entry.rule().forward;
        let first = factor(entries.first()?);
        let alike = entries.iter().all(|entry| factor(entry) == first);
        if alike {
            return (first != 1.0).then(|| Self { blocks: vec![(1, first)], from_last: 0 });
        }
        let block = |entry: &Entry| (entry.spec().block().map_or(1, |block| block.len as usize), factor(entry));
        Some(Self { blocks: entries.iter().map(block).collect(), from_last: usize::from(transposed) })
    }

    /// The factors in what a multiplier prints.
    pub(crate) fn factors(text: &str) -> Vec<f64> {
        text.split(", ").filter_map(|block| block.split(' ').next()?.parse().ok()).collect()
    }

    /// The factor, where it is one for the whole parameter.
    pub fn factor(&self) -> Option<f64> {
        match self.blocks[..] {
            [(_, factor)] => Some(factor),
            _ => None,
        }
    }

    /// Width and factor of each block of a packed parameter; a single line where there is one factor for the whole.
    pub fn blocks(&self) -> &[(usize, f64)] {
        &self.blocks
    }
}

impl fmt::Display for Multiplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.factor() {
            Some(factor) => write!(f, "{factor}"),
            None => {
                let blocks: Vec<_> = self.blocks.iter().map(|(width, factor)| format!("{factor} ({width})")).collect();
                f.write_str(&blocks.join(", "))
            }
        }
    }
}

impl Reparameterization for Multiplier {
    const NAME: &'static str = "multiplier";

    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        if let Some(factor) = self.factor() {
            return base * factor;
        }
        let factors: Vec<f64> = self.blocks.iter().flat_map(|&(width, factor)| vec![factor; width]).collect();
        let mut shape = [1; D];
        shape[D - 1 - self.from_last] = factors.len();
        let factors = Tensor::from_data(TensorData::new(factors, shape), (&base.device(), base.dtype()));
        base * factors
    }
}

/// A constant: there is nothing to visit, to move or to train. The text of the factors goes by as the name of an empty module, so
/// that a visitor can tell what is attached.
impl Module for Multiplier {
    fn collect_devices(&self, devices: Vec<Device>) -> Vec<Device> {
        devices
    }

    fn fork(self, _device: &Device) -> Self {
        self
    }

    fn to_device(self, _device: &Device) -> Self {
        self
    }

    fn train(self) -> Self {
        self
    }

    fn valid(&self) -> Self {
        self.clone()
    }

    fn materialize(self) -> Self {
        self
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        let text = self.to_string();
        visitor.enter_module(&text, Self::CONTAINER);
        visitor.exit_module(&text, Self::CONTAINER);
    }

    fn map<M: ModuleMapper>(self, _mapper: &mut M) -> Self {
        self
    }
}

/// Puts multipliers on the parameters at the given paths of the module.
pub(crate) struct Attach(pub(crate) HashMap<String, Multiplier>);

impl Reparameterizer for Attach {
    type Reparam = Multiplier;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<Multiplier>) {
        (param, self.0.get(path).cloned())
    }
}

/// What stands in the one place that burn has for a reparameterization.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Attached {
    /// The factors, as a [`Multiplier`] prints them.
    Multiplier(String),
    /// The name of another one, such as `lora`.
    Other(String),
}
