//! Dropout that is at work in a measurement.

use burn::module::{Flag, Module, ModuleVisitor, Param};

/// What a measurement on a device with autodiff has to say, if `model` drops anything there.
pub(super) fn note<M: Module>(model: &M) -> Option<String> {
    let mut training = Training::default();
    model.visit(&mut training);
    if training.enabled == 0 {
        return None;
    }
    let at_work: Vec<f64> = probabilities(&format!("{model:?}")).into_iter().filter(|prob| *prob > 0.0).collect();
    let highest = at_work.iter().copied().reduce(f64::max)?;
    Some(format!(
        "dropout is at work in {} layers, with a probability of up to {highest}: what is measured is noisier, and not what is predicted; \
         configure it to 0, or measure on a device without autodiff",
        at_work.len()
    ))
}

/// How many of burn's dropouts drop in training: a frozen one does not.
#[derive(Default)]
struct Training {
    containers: Vec<String>,
    enabled: u64,
}

impl ModuleVisitor for Training {
    fn enter_module(&mut self, _name: &str, container_type: &str) {
        self.containers.push(container_type.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.containers.pop();
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        if self.containers.last().is_some_and(|container| container == "Struct:Dropout") {
            self.enabled += u64::from(flag.is_enabled());
        }
    }
}

/// A visitor is not shown the probability, which is a plain field; `Debug`, which every module has, prints it, and no values of tensors.
fn probabilities(debug: &str) -> Vec<f64> {
    let fields = debug.split("Dropout { prob: ").skip(1);
    fields.filter_map(|fields| fields.split([',', ' ']).next()?.parse().ok()).collect()
}
