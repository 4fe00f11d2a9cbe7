//! The backward pass of a measurement. Without the feature `autodiff` there is none.

use burn::module::Module;
use burn::tensor::{Int, Tensor};

use super::Gradient;

pub(super) use inner::Backward;

#[cfg(feature = "autodiff")]
mod inner {
    use burn::module::{ModuleVisitor, Param};
    use burn::tensor::{Gradients, activation::log_softmax};

    use super::*;
    use crate::step_zero::measure::floats;

    /// The gradients of the mean cross-entropy.
    pub struct Backward(Gradients);

    impl Backward {
        /// `None` on a device without autodiff.
        pub fn run(logits: Tensor<3>, targets: Tensor<2, Int>) -> Option<Self> {
            if !logits.device().is_autodiff() {
                return None;
            }
            // A leaf of its own, so that there is a graph where the model is frozen or cut off.
            let leaf = Tensor::zeros([1, 1, 1], (&logits.device(), logits.dtype())).require_grad();
            let logits = logits + leaf;
            let targets = targets.to_device(&logits.device()).unsqueeze_dim::<3>(2);
            Some(Self(log_softmax(logits, 2).gather(2, targets).mean().neg().backward()))
        }

        /// `mean_t |n g_t|^2`, with g_t the gradient of the mean loss by what stands at position t.
        pub fn mean_square(&self, leaf: &Tensor<3>) -> Option<f64> {
            let [rows, length, _] = leaf.dims();
            let values = floats(&leaf.grad(&self.0)?).ok()?;
            Some(sum_of_squares(&values) * (rows * length) as f64)
        }

        /// The gradient of each parameter that asks for one, by path.
        pub fn of<M: Module>(&self, model: &M) -> Vec<Gradient> {
            let mut collector = Collector { gradients: &self.0, path: Vec::new(), found: Vec::new() };
            model.visit(&mut collector);
            collector.found.sort_by(|a, b| a.path.cmp(&b.path));
            collector.found
        }
    }

    struct Collector<'a> {
        gradients: &'a Gradients,
        path: Vec<String>,
        found: Vec<Gradient>,
    }

    impl ModuleVisitor for Collector<'_> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.into());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_initialized() && param.is_require_grad() {
                let gradient = param.base().grad(self.gradients);
                let values = gradient.and_then(|gradient| gradient.try_to_vec_as::<f32>().ok());
                let norm = values.map(|values| sum_of_squares(&values).sqrt());
                self.found.push(Gradient { path: self.path.join("."), norm });
            }
        }
    }

    fn sum_of_squares(values: &[f32]) -> f64 {
        values.iter().map(|&g| f64::from(g).powi(2)).sum()
    }
}

#[cfg(not(feature = "autodiff"))]
mod inner {
    use super::*;

    /// Never made.
    pub enum Backward {}

    impl Backward {
        pub fn run(_: Tensor<3>, _: Tensor<2, Int>) -> Option<Self> {
            None
        }

        pub fn mean_square(&self, _: &Tensor<3>) -> Option<f64> {
            match *self {}
        }

        pub fn of<M: Module>(&self, _: &M) -> Vec<Gradient> {
            match *self {}
        }
    }
}
