//! The groups as burn's optimizers and schedulers take them.

use burn::{
    grad_clipping::GradientClippingConfig,
    lr_scheduler::{LrScheduler, module_lr_scheduler::ModuleLrScheduler},
    module::Module,
    optim::{AdamWConfig, LearningRate, ModuleOptimizer, Optimizer},
    tensor::{Device, Tensor},
};
use serde_json::json;

use super::{TrainingGroup, TrainingGroups};
use crate::{
    error::{Error, ErrorKind},
    plan::Plan,
    role::Setup,
    rule::short,
};

/// An optimizer of burn whose learning rate is multiplied by a constant.
#[derive(Debug, Clone)]
pub struct Scaled<O> {
    optimizer: O,
    learning_rate: f64,
}

impl<O> Scaled<O> {
    /// `optimizer` with `learning_rate` times the rate that a step is made with.
    pub fn new(optimizer: O, learning_rate: f64) -> Self {
        Self { optimizer, learning_rate }
    }
}

impl<O: Optimizer> Optimizer for Scaled<O> {
    type State<const D: usize> = O::State<D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        self.optimizer.step(lr * self.learning_rate, tensor, grad, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        O::to_device(state, device)
    }
}

impl TrainingGroups {
    /// AdamW with the multipliers of each group on its learning rate, weight decay and epsilon; clipping is that of `config`.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn adamw<M: Module>(&self, model: &M, config: &AdamWConfig) -> Result<ModuleOptimizer, Error> {
        let fields = serde_json::to_value(config).map_err(unreadable)?;
        let clipping: Option<GradientClippingConfig> =
            serde_json::from_value(fields["grad_clipping"].clone()).map_err(unreadable)?;
        let scaled = |group: &TrainingGroup| {
            // JSON has no word for NaN and infinity, which are null here.
            let times = |name: &str, field: &str, multiplier: f64| {
                let given = fields[field].as_f64().ok_or_else(|| {
                    Error::config(format!("the {name} of the AdamWConfig is not a finite number"), "correct it")
                })?;
                match given * multiplier {
                    product if product.abs() <= f64::from(f32::MAX) => Ok(json!(product)),
                    _ => Err(group.error(format!("its {name} is {} times {}", short(given), short(multiplier)))),
                }
            };
            let mut fields = fields.clone();
            fields["weight_decay"] = times("weight decay", "weight_decay", group.weight_decay)?;
            fields["epsilon"] = times("epsilon", "epsilon", group.epsilon)?;
            serde_json::from_value::<AdamWConfig>(fields).map(|config| config.build()).map_err(unreadable)
        };
        self.build(model, clipping.as_ref(), scaled)
    }

    /// Any optimizer of burn: `make` builds that of a group from its weight decay and epsilon, and the learning rate is multiplied here.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn optimizer<M: Module, O: Optimizer>(
        &self,
        model: &M,
        mut make: impl FnMut(&TrainingGroup) -> O,
    ) -> Result<ModuleOptimizer, Error> {
        self.build(model, None, |group| Ok(make(group)))
    }

    fn build<M: Module, O: Optimizer>(
        &self,
        model: &M,
        clipping: Option<&GradientClippingConfig>,
        mut make: impl FnMut(&TrainingGroup) -> Result<O, Error>,
    ) -> Result<ModuleOptimizer, Error> {
        self.check(model)?;
        let mut scaled = |group: &TrainingGroup| Ok::<_, Error>(Scaled::new(make(group)?, group.learning_rate));
        let mut groups = self.iter();
        let Some(first) = groups.next() else { return Err(empty()) };
        // burn wants one that matches everything; `check` has seen to it that nothing else needs it.
        let mut optimizer = ModuleOptimizer::from(scaled(first)?);
        if let Some(clipping) = clipping {
            optimizer = optimizer.with_grad_clipping(clipping.init());
        }
        for group in groups {
            let clipping = clipping.map(GradientClippingConfig::init);
            optimizer = optimizer.with_group(group.param_group(), scaled(group)?, clipping);
        }
        Ok(optimizer)
    }

    /// A learning rate for each group, for an optimizer that was not made here: `make` builds the scheduler for a multiplier.
    ///
    /// With an optimizer from [`adamw`](Self::adamw) or [`optimizer`](Self::optimizer) it would multiply twice; those take a plain rate.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn lr_scheduler<M: Module, S: LrScheduler + 'static>(
        &self,
        model: &M,
        mut make: impl FnMut(f64) -> S,
    ) -> Result<ModuleLrScheduler, Error> {
        self.check(model)?;
        let mut groups = self.iter();
        let Some(first) = groups.next() else { return Err(empty()) };
        let scheduler = ModuleLrScheduler::new(make(first.learning_rate));
        Ok(groups
            .fold(scheduler, |scheduler, group| scheduler.with_group(group.param_group(), make(group.learning_rate))))
    }
}

fn empty() -> Error {
    Error::new(ErrorKind::Unmatched, "there is no group", "make the groups from the plan of a model with parameters")
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::config(
        format!("the configuration of AdamW cannot be read: {error}"),
        "use the burn that this crate is built for",
    )
}

impl Setup {
    /// See [`ModuleInit::adamw`](crate::ModuleInit::adamw).
    ///
    /// # Errors
    /// See [`groups`](Self::groups).
    pub fn adamw<M: Module>(&self, model: &M, plan: &Plan, config: &AdamWConfig) -> Result<ModuleOptimizer, Error> {
        self.groups(model, plan)?.adamw(model, config)
    }
}
