//! What all promises share: the device, values as f32, statistics with derived tolerances.
#![allow(dead_code)]

use std::collections::BTreeMap;

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};
use burn_init::{NormPlacement, Setup};

#[path = "../../examples/common/device.rs"]
mod devices;

/// The device under test: flex, or the one that `BURN_INIT_DEVICE` names if its feature is on.
pub fn device() -> Device {
    devices::from_environment().unwrap_or_else(|error| panic!("{error}"))
}

/// Every float parameter by its path, in row-major order of the shape that burn computes with.
pub fn values<M: Module>(model: &M) -> BTreeMap<String, Vec<f32>> {
    #[derive(Default)]
    struct Reader {
        path: Vec<String>,
        values: BTreeMap<String, Vec<f32>>,
    }

    impl ModuleVisitor for Reader {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.into());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let data = param.base().into_data().convert::<f32>();
            self.values.insert(self.path.join("."), data.try_to_vec().unwrap());
        }
    }

    let mut reader = Reader::default();
    model.visit(&mut reader);
    reader.values
}

/// What the scheme has to be told of a tree: the heads, and for DeepNorm that the norms stand after the additions.
pub fn setup_for(scheme: &str, heads: u64) -> Setup {
    let setup = Setup::new().heads("**", heads);
    if scheme.starts_with("deepnorm") { setup.norms("**", NormPlacement::Post) } else { setup }
}

pub fn mean(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64
}

pub fn std(values: &[f32]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Whether a std measured on `n` values agrees with the expected one: five times its relative error `1/sqrt(2n)`.
pub fn std_agrees(values: &[f32], expected: f64) -> bool {
    (std(values) / expected - 1.0).abs() < 5.0 / (2.0 * values.len() as f64).sqrt()
}

#[track_caller]
pub fn assert_std(values: &[f32], expected: f64, what: &str) {
    assert!(
        std_agrees(values, expected),
        "{what}: std {} of {} values, expected {expected}",
        std(values),
        values.len()
    );
}
