//! The groups as burn's optimizers and schedulers take them.

use std::collections::HashSet;

use burn::{
    grad_clipping::GradientClippingConfig,
    lr_scheduler::{
        LrSchedulerConfig,
        module_lr_scheduler::{ModuleLrScheduler, ModuleLrSchedulerConfig},
    },
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
    tree::Survey,
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

    /// A learning rate for each group, for an optimizer that was not made here: `make` configures the scheduler for a multiplier.
    ///
    /// With an optimizer from [`adamw`](Self::adamw) or [`optimizer`](Self::optimizer) it would multiply twice; those take a plain rate.
    ///
    /// ```
    /// # use burn::{lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig, tensor::Device};
    /// # use burn_init::{prelude::*, reference::TransformerConfig, schemes::Mup};
    /// # let model = TransformerConfig::new(50, 16, 32, 2, 4).with_tied(false).build(&Device::flex())?;
    /// # let setup = Setup::new().heads("**", 4);
    /// let groups = setup.groups(&model, &setup.plan(&model, &Mup::new())?)?;
    /// let mut scheduler = groups.lr_scheduler(&model, |rate| CosineAnnealingLrSchedulerConfig::new(0.001 * rate, 1000))?;
    /// let rates = scheduler.step();                               // for ModuleOptimizer::step
    /// # let _ = rates;
    /// # Ok::<(), burn_init::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`check`](Self::check); a configuration that burn does not take.
    pub fn lr_scheduler<M: Module, C: Into<LrSchedulerConfig>>(
        &self,
        model: &M,
        mut make: impl FnMut(f64) -> C,
    ) -> Result<ModuleLrScheduler, Error> {
        self.check(model)?;
        let mut groups = self.iter();
        let Some(first) = groups.next() else { return Err(empty()) };
        let config = ModuleLrSchedulerConfig::new(make(first.learning_rate).into());
        let config =
            groups.fold(config, |config, group| config.with_group(group.param_group(), make(group.learning_rate)));
        config.init().map_err(|reason| Error::config(format!("the scheduler cannot be built: {reason}"), "correct it"))
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
    /// See [`groups`](Self::groups); [`ErrorKind::Attached`] for a model without the plan's forward multipliers.
    pub fn adamw<M: Module>(&self, model: &M, plan: &Plan, config: &AdamWConfig) -> Result<ModuleOptimizer, Error> {
        let groups = self.groups(model, plan)?;
        let survey = Survey::of(model, self)?;
        if let Some((path, wanted)) = survey.multipliers(plan)?.into_iter().min_by(|a, b| a.0.cmp(&b.0)) {
            return Err(Error::new(
                ErrorKind::Attached,
                format!("the plan multiplies it by {wanted} in the forward pass, and the model does not"),
                "initialize the model with the scheme of the plan, or put the multipliers on loaded weights: setup.attach(model, &scheme)",
            )
            .at(path));
        }
        let paths: HashSet<&str> = survey.sites.known.iter().map(|site| site.specs[0].path()).collect();
        if let Some(entry) = plan.iter().find(|entry| !paths.contains(entry.spec().path())) {
            return Err(entry.spec().error(
                ErrorKind::Unmatched,
                "the plan has a line for it, and the model has no such parameter",
                "make the plan from this model as it is",
            ));
        }
        groups.adamw(model, config)
    }
}
