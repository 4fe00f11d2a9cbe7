//! What the plan asks of the optimizer, as plain data.

use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    plan::{Entry, Plan},
    role::{Role, Setup},
    tree::Survey,
};

/// Parameters that are trained alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingGroup {
    /// Multiplier of the optimizer's learning rate.
    pub learning_rate: f64,
    /// Multiplier of the optimizer's weight decay.
    pub weight_decay: f64,
    /// Multiplier of Adam's epsilon.
    pub epsilon: f64,
    /// Paths in the module, as burn's visitors see them.
    pub paths: Vec<String>,
}

impl TrainingGroup {
    fn check(&self) -> Result<(), Error> {
        let multipliers =
            [("learning rate", self.learning_rate), ("weight decay", self.weight_decay), ("epsilon", self.epsilon)];
        match multipliers.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            Some((name, value)) => Err(self.error(format!("the multiplier of its {name} is {value}"))),
            None => Ok(()),
        }
    }

    /// A number that is not usable, at the first parameter of the group.
    pub(super) fn error(&self, found: String) -> Error {
        let error = Error::new(ErrorKind::InvalidValue, found, "use a finite number, 0 or more");
        match self.paths.first() {
            Some(path) => error.at(path.as_str()),
            None => error,
        }
    }

    /// As burn selects parameters.
    pub fn param_group(&self) -> ParamGroup {
        ParamGroup::from_paths(self.paths.clone())
    }
}

/// Every parameter of a model in exactly one group: plain data for any optimizer, and with the feature `optim` a whole optimizer of burn.
///
/// ```
/// # use burn::tensor::Device;
/// # use burn_init::{prelude::*, reference::TransformerConfig, schemes::Mup};
/// # let model = TransformerConfig::new(50, 16, 32, 2, 4).with_tied(false).build(&Device::flex())?;
/// # let setup = Setup::new().heads("**", 4);
/// let plan = setup.plan(&model, &Mup::new())?;
/// for group in setup.groups(&model, &plan)?.iter() {
///     println!("learning rate times {}: {} parameters", group.learning_rate, group.paths.len());
/// }
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrainingGroups(Vec<TrainingGroup>);

impl TrainingGroups {
    /// From groups of your own making.
    pub fn new(groups: impl IntoIterator<Item = TrainingGroup>) -> Self {
        Self(groups.into_iter().collect())
    }

    /// The groups, in the order in which their first parameters stand in the tree.
    pub fn iter(&self) -> std::slice::Iter<'_, TrainingGroup> {
        self.0.iter()
    }

    /// The group of a parameter, by its path in the module.
    pub fn get(&self, path: &str) -> Option<&TrainingGroup> {
        self.0.iter().find(|group| group.paths.iter().any(|other| other == path))
    }

    /// Whether each trained parameter of `model` is in exactly one group.
    ///
    /// # Errors
    /// [`ErrorKind::Unmatched`] with the path of a parameter in no group or in two, or of a group's path that the model has not;
    /// [`ErrorKind::InvalidValue`] for a multiplier that is negative or not finite.
    pub fn check<M: Module>(&self, model: &M) -> Result<(), Error> {
        self.0.iter().try_for_each(TrainingGroup::check)?;
        let error = |path: &str, found: &str, todo: &str| Error::new(ErrorKind::Unmatched, found, todo).at(path);
        let mut groups: HashMap<&str, usize> = HashMap::new();
        for path in self.0.iter().flat_map(|group| &group.paths) {
            let count = groups.entry(path).or_default();
            *count += 1;
            if *count > 1 {
                return Err(error(path, "the parameter is in two groups", "leave it in one of them"));
            }
        }
        let paths = trained_paths(model);
        if let Some(path) = paths.iter().find(|path| !groups.contains_key(path.as_str())) {
            return Err(error(
                path,
                "the parameter is in no group",
                "make the groups from a plan of this model as it is",
            ));
        }
        let paths: HashSet<&str> = paths.iter().map(String::as_str).collect();
        match groups.keys().find(|path| !paths.contains(*path)) {
            Some(path) => Err(error(
                path,
                "a group names this parameter, and the model has it not",
                "make the groups from a plan of this model as it is",
            )),
            None => Ok(()),
        }
    }
}

impl<'a> IntoIterator for &'a TrainingGroups {
    type Item = &'a TrainingGroup;
    type IntoIter = std::slice::Iter<'a, TrainingGroup>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Every float parameter that is no running statistic.
fn trained_paths<M: Module>(model: &M) -> Vec<String> {
    #[derive(Default)]
    struct Paths {
        segments: Vec<String>,
        paths: Vec<String>,
    }

    impl ModuleVisitor for Paths {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.segments.push(name.into());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.segments.pop();
        }

        fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
            if !matches!(self.segments.last().map(String::as_str), Some("running_mean" | "running_var")) {
                self.paths.push(self.segments.join("."));
            }
        }
    }

    let mut visitor = Paths::default();
    model.visit(&mut visitor);
    visitor.paths
}

impl Setup {
    /// The groups of `model` by `plan`, which was made of it or of one of the same shapes.
    ///
    /// # Errors
    /// A parameter that the plan has no line for, and a packed one whose blocks are to be trained differently.
    pub fn groups<M: Module>(&self, model: &M, plan: &Plan) -> Result<TrainingGroups, Error> {
        let survey = Survey::of(model, self)?;
        for site in &survey.sites.known {
            let spec = &site.specs[0];
            if let Some(entry) = plan.get(spec.path()).filter(|entry| entry.spec().shape() != spec.shape()) {
                return Err(spec.error(
                    ErrorKind::Shape,
                    format!("the plan was made for the shape {:?}, whose rates are others", entry.spec().shape()),
                    "make the plan from this model",
                ));
            }
        }
        let mut groups: Vec<TrainingGroup> = Vec::new();
        let key = |entry: &Entry| entry.rule().training().map(|(_, value)| value.to_bits());
        for site in &survey.sites.known {
            let spec = &site.specs[0];
            let Some((first, rest)) = plan.blocks(spec.path()).split_first() else {
                return Err(spec.error(
                    ErrorKind::Unmatched,
                    "the parameter is in no group: the plan has no line for it",
                    "make the plan from this model as it is",
                ));
            };
            if spec.role() == Role::Buffer {
                continue;
            }
            if let Some(other) = rest.iter().find(|other| key(other) != key(first)) {
                return Err(spec.error(
                    ErrorKind::Unmatched,
                    format!(
                        "the packed parameter is in two groups: its blocks {} and {} are to be trained differently",
                        first.spec().role(),
                        other.spec().role()
                    ),
                    "keep the blocks in parameters of their own",
                ));
            }
            let rule = first.rule();
            let same = |group: &&mut TrainingGroup| {
                [group.learning_rate, group.weight_decay, group.epsilon].map(f64::to_bits) == key(first)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.paths.push(survey.path(site)),
                None => groups.push(TrainingGroup {
                    learning_rate: rule.learning_rate,
                    weight_decay: rule.weight_decay,
                    epsilon: rule.epsilon,
                    paths: vec![survey.path(site)],
                }),
            }
        }
        let groups = TrainingGroups(groups);
        groups.check(model)?;
        Ok(groups)
    }
}
