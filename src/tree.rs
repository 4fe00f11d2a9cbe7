//! The one room with a door to burn's `Param`: visiting, layouts, ties, lazy parameters, putting values in.

mod ahead;

use std::{any::Any, collections::HashMap};

#[cfg(feature = "optim")]
use burn::optim::{AdamWConfig, ModuleOptimizer};
use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param, ParamGroup, ParamId, Reparameterization as _},
    tensor::{DType, Device, Tensor},
};

use ahead::{Ahead, Task};

use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    parametrization::{Attach, Attached, BaseShapes, Multiplier},
    plan::{Entry, Plan},
    role::{Dtype, Leaf, Progress, Select, Setup, Site, Sites, resolve, unknown_roles},
    rule::{Family, Fan, Init, Law, VarianceScaling},
    shard::drawable_as,
};

/// Starts any burn module by any scheme.
///
/// Import it as `_`: `use burn_init::ModuleInit as _;`, or with the prelude. The methods are those of [`Setup`] with its default.
pub trait ModuleInit: Module + Sized {
    /// What [`initialize`](Self::initialize) would do. Nothing is drawn, and nothing is allocated but the plan.
    ///
    /// # Errors
    /// All that [`initialize`](Self::initialize) can meet: a role that cannot be told, a parameter without a rule, a rule without its facts,
    /// a number that is not usable. The error names the path and the line that settles it.
    fn plan(&self, scheme: &dyn Initializer) -> Result<Plan, Error> {
        Setup::new().plan(self, scheme)
    }

    /// **Replaces the value of every parameter, trained or not**, by a draw from `scheme`. Buffers and adapters are kept.
    ///
    /// A value is a function of the seed, the path of the parameter and the position in it, and of nothing else: not of the backend, the
    /// number of threads, the order of fields or the other parameters. Lazy parameters are started without running burn's own draw. Ids, devices,
    /// layouts and gradient settings stay as they are. Forward multipliers of the scheme are [attached](Self::attach); a model that has
    /// them already is not multiplied twice.
    ///
    /// # Errors
    /// See [`plan`](Self::plan). All errors come before the first value is replaced, but for that of a device that fails meanwhile
    /// ([`ErrorKind::Device`]) and of a [`Fill`](crate::Fill) that gives what the precision has no number for.
    fn initialize(self, scheme: &dyn Initializer, seed: u64) -> Result<Self, Error> {
        Setup::new().initialize(self, scheme, seed)
    }

    /// As [`initialize`](Self::initialize), for the parameters that hold no value yet: a new head on loaded weights.
    ///
    /// # Errors
    /// See [`plan`](Self::plan); roles and rules are asked for only where there is something to start.
    fn initialize_missing(self, scheme: &dyn Initializer, seed: u64) -> Result<Self, Error> {
        Setup::new().initialize_missing(self, scheme, seed)
    }

    /// As [`initialize`](Self::initialize), for the selected parameters. A pattern selects weights; name a bias to select it.
    ///
    /// # Errors
    /// See [`plan`](Self::plan), and where nothing is selected.
    fn initialize_only(self, select: impl Into<Select>, scheme: &dyn Initializer, seed: u64) -> Result<Self, Error> {
        Setup::new().initialize_only(self, select, scheme, seed)
    }

    /// Puts the forward multipliers of `scheme` on and leaves every value as it is: for weights that come from a checkpoint, which holds
    /// what is stored and not what it is multiplied by. See [`Multiplier`](crate::parametrization::Multiplier).
    ///
    /// # Errors
    /// See [`plan`](Self::plan), and where something else is attached already.
    fn attach(self, scheme: &dyn Initializer) -> Result<Self, Error> {
        Setup::new().attach(self, scheme)
    }

    /// Which dimensions of this model are wider than in `base`, a smaller one of the same family; neither is drawn.
    ///
    /// # Errors
    /// See [`BaseShapes::new`].
    fn base_shapes<B: Module>(&self, base: &B) -> Result<BaseShapes, Error> {
        Setup::new().base_shapes(self, base)
    }

    /// burn's AdamW with the multipliers of `plan` on learning rate, weight decay and epsilon, parameter by parameter. Its steps take the
    /// learning rate of the base model.
    ///
    /// # Errors
    /// See [`Setup::groups`].
    #[cfg(feature = "optim")]
    fn adamw(&self, plan: &Plan, config: &AdamWConfig) -> Result<ModuleOptimizer, Error> {
        Setup::new().adamw(self, plan, config)
    }
}

impl<M: Module> ModuleInit for M {}

impl Setup {
    /// See [`ModuleInit::plan`].
    ///
    /// # Errors
    /// See [`ModuleInit::plan`].
    pub fn plan<M: Module>(&self, model: &M, scheme: &dyn Initializer) -> Result<Plan, Error> {
        Survey::of(model, self)?.plan(&everything, scheme)
    }

    /// See [`ModuleInit::initialize`].
    ///
    /// # Errors
    /// See [`ModuleInit::initialize`].
    pub fn initialize<M: Module>(&self, model: M, scheme: &dyn Initializer, seed: u64) -> Result<M, Error> {
        self.start(model, &everything, scheme, seed)
    }

    /// See [`ModuleInit::initialize_missing`].
    ///
    /// # Errors
    /// See [`ModuleInit::initialize_missing`].
    pub fn initialize_missing<M: Module>(&self, model: M, scheme: &dyn Initializer, seed: u64) -> Result<M, Error> {
        self.start(model, &without_value, scheme, seed)
    }

    /// See [`ModuleInit::initialize_only`].
    ///
    /// # Errors
    /// See [`ModuleInit::initialize_only`].
    pub fn initialize_only<M: Module>(
        &self,
        model: M,
        select: impl Into<Select>,
        scheme: &dyn Initializer,
        seed: u64,
    ) -> Result<M, Error> {
        let select = select.into();
        let survey = Survey::of(&model, self)?;
        let part = |site: &&Site| {
            let selected = site.specs.iter().filter(|spec| select.matches(spec)).count();
            selected > 0 && selected < site.specs.len()
        };
        if let Some(site) = survey.sites.known.iter().find(part) {
            return Err(site.specs[0].error(
                ErrorKind::Unmatched,
                format!("{select} selects a block of a packed parameter, which is started as a whole"),
                format!("select it by its path: \"{}\"", site.specs[0].path()),
            ));
        }
        let scope = |at: At<'_>| match at {
            At::Known(_, site) => site.specs.iter().any(|spec| select.matches(spec)),
            At::Unknown(leaf, path) => select.matches_unknown(leaf.id, path),
        };
        let plan = survey.plan(&scope, scheme)?;
        match plan.is_empty() {
            true => Err(select.unmatched(survey.sites.known.first().map(|site| &site.specs[0]))),
            false => survey.write(model, &plan, self, seed),
        }
    }

    /// See [`ModuleInit::attach`].
    ///
    /// # Errors
    /// See [`ModuleInit::attach`].
    pub fn attach<M: Module>(&self, model: M, scheme: &dyn Initializer) -> Result<M, Error> {
        let survey = Survey::of(&model, self)?;
        let plan = survey.plan(&everything, scheme)?;
        survey.attach(model, &plan)
    }

    fn start<M: Module>(&self, model: M, scope: &Scope<'_>, scheme: &dyn Initializer, seed: u64) -> Result<M, Error> {
        let survey = Survey::of(&model, self)?;
        let plan = survey.plan(scope, scheme)?;
        survey.write(model, &plan, self, seed)
    }
}

/// A leaf, with its site if its role is known, with its path otherwise.
enum At<'a> {
    Known(&'a Leaf, &'a Site),
    Unknown(&'a Leaf, &'a str),
}

/// Which leaves are to be started.
type Scope<'a> = dyn Fn(At<'_>) -> bool + 'a;

fn everything(_: At<'_>) -> bool {
    true
}

fn without_value(at: At<'_>) -> bool {
    let (At::Known(leaf, _) | At::Unknown(leaf, _)) = at;
    !leaf.initialized
}

/// All that one visit of the tree shows.
pub(crate) struct Survey {
    pub(crate) leaves: Vec<Leaf>,
    /// For each leaf, how its tensor is stored.
    storage: Vec<Storage>,
    pub(crate) sites: Sites,
    /// By the index of the leaf.
    attached: HashMap<usize, Attached>,
    /// The precision that the values are to have, where it is not that of the storage.
    dtype: Option<DType>,
}

#[derive(Clone, Copy)]
struct Storage {
    dtype: DType,
    /// A lazy `LinearLayout::Col` matrix, whose stored buffer is the transpose of what burn computes with.
    col: bool,
}

impl Survey {
    pub(crate) fn of<M: Module>(model: &M, setup: &Setup) -> Result<Self, Error> {
        // burn's own load mappers, which the visit probes, would panic on a lost device.
        model.devices().iter().try_for_each(answers)?;
        let mut surveyor = Surveyor::default();
        model.visit(&mut surveyor);
        let sites = resolve(&surveyor.leaves, setup)?;
        let Surveyor { leaves, storage, attached, .. } = surveyor;
        Ok(Self { leaves, storage, sites, attached, dtype: setup.dtype.map(burn_dtype) })
    }

    /// The path of a site in the module itself, without prefix and alias.
    pub(crate) fn path(&self, site: &Site) -> String {
        self.leaves[site.leaf].segments.join(".")
    }

    fn plan(&self, scope: &Scope<'_>, scheme: &dyn Initializer) -> Result<Plan, Error> {
        let in_scope = |site: &Site| scope(At::Known(&self.leaves[site.leaf], site));
        // An unknown projection in a stack could change the number of additions that a known one is scaled by.
        let counts = self.sites.known.iter().any(|site| site.specs[0].writes().is_some() && in_scope(site));
        let unknown = self
            .sites
            .unknown
            .iter()
            .filter(|one| scope(At::Unknown(&self.leaves[one.leaf], &one.path)) || (counts && one.in_stack));
        if let Some(error) = unknown_roles(unknown) {
            return Err(error);
        }
        let plan = Plan::make(&self.sites, &in_scope, scheme)?;
        self.multipliers(&plan)?;
        for site in &self.sites.known {
            drawable_as(self.dtype(site), plan.blocks(site.specs[0].path()))?;
        }
        Ok(plan)
    }

    /// By its path, what is attached to a parameter multiplies it by: one factor, or one for each block.
    pub(crate) fn attached_factors(&self) -> HashMap<&str, Vec<f64>> {
        let factors = |site: &Site| match self.attached.get(&site.leaf)? {
            Attached::Multiplier(text) => Some(Multiplier::factors(text)),
            Attached::Other(_) => None,
        };
        self.sites.known.iter().filter_map(|site| Some((site.specs[0].path(), factors(site)?))).collect()
    }

    /// The precision of the values of a site.
    fn dtype(&self, site: &Site) -> DType {
        self.dtype.unwrap_or(self.storage[site.leaf].dtype)
    }

    /// The multipliers that the plan asks for and that are not there yet, by the path in the module.
    pub(crate) fn multipliers(&self, plan: &Plan) -> Result<HashMap<String, Multiplier>, Error> {
        let mut missing = HashMap::new();
        for site in &self.sites.known {
            let entries = plan.blocks(site.specs[0].path());
            let wanted = Multiplier::of(entries, site.transposed);
            let conflict = |found: String, todo: &str| Err(site.specs[0].error(ErrorKind::Attached, found, todo));
            match (wanted, self.attached.get(&site.leaf)) {
                (Some(_), _) if site.quantized => {
                    return conflict("it is quantised, and cannot be multiplied".into(), "attach before quantising");
                }
                (Some(wanted), None) => {
                    missing.insert(self.path(site), wanted);
                }
                (Some(wanted), Some(Attached::Other(name))) => {
                    return conflict(
                        format!(
                            "the scheme multiplies it by {wanted}, and burn's one place for that is taken by {name}"
                        ),
                        "attach first and materialize, then add the adapter",
                    );
                }
                (Some(wanted), Some(Attached::Multiplier(there))) if wanted.to_string() != *there => {
                    return conflict(
                        format!("it is multiplied by {there}, and the scheme asks for {wanted}"),
                        "build the model anew, or fold what is there with model.materialize()",
                    );
                }
                (None, Some(Attached::Multiplier(there))) if !entries.is_empty() => {
                    return conflict(
                        format!("it is multiplied by {there}, and the scheme asks for no multiplier"),
                        "build the model anew, or fold what is there with model.materialize()",
                    );
                }
                _ => {}
            }
        }
        Ok(missing)
    }

    fn attach<M: Module>(&self, model: M, plan: &Plan) -> Result<M, Error> {
        let missing = self.multipliers(plan)?;
        Ok(if missing.is_empty() { model } else { model.apply_reparameterization(Attach(missing)) })
    }

    fn write<M: Module>(&self, model: M, plan: &Plan, setup: &Setup, seed: u64) -> Result<M, Error> {
        let devices = model.devices();
        if let Some(dtype) = setup.dtype.map(burn_dtype)
            && let Some(device) = devices.iter().find(|device| !device.supports_dtype(dtype))
        {
            return Err(Error::config(
                format!("the device {device:?} has no {dtype:?}"),
                "choose another Setup::dtype, or another device",
            ));
        }
        let mut tasks = Vec::new();
        let mut first = HashMap::new();
        let mut total = 0;
        let mut places = HashMap::new();
        for site in &self.sites.known {
            let entries = plan.blocks(site.specs[0].path());
            if entries.iter().all(|entry| *entry.law() == Law::Keep) {
                continue;
            }
            let leaf = &self.leaves[site.leaf];
            let (dtype, col) = (self.dtype(site), self.storage[site.leaf].col);
            let task = *first.entry(leaf.id).or_insert_with(|| {
                total += elements(entries);
                tasks.push(Task { entries, dtype, turned: site.transposed != col });
                tasks.len() - 1
            });
            places.insert(leaf.segments.as_slice(), Place { path: site.specs[0].path(), entries, dtype, col, task });
        }
        let mut writer = Writer {
            setup,
            places,
            ahead: Ahead::new(tasks, seed),
            segments: Vec::new(),
            shared: HashMap::new(),
            done: 0,
            total,
            failure: None,
        };
        let model = model.map(&mut writer);
        if let Some(failure) = writer.failure {
            return Err(failure);
        }
        devices.iter().try_for_each(answers)?;
        self.attach(model, plan)
    }
}

/// Waits for the device: burn queues what is written, and would report a failure at the first read only. A browser cannot wait.
pub(crate) fn answers(device: &Device) -> Result<(), Error> {
    if cfg!(target_family = "wasm") {
        return Ok(());
    }
    device.sync().map_err(|failure| device_failed(device, &failure))
}

/// What burn says of a device that failed, in one line.
pub(crate) fn device_failed(device: &Device, failure: &dyn std::fmt::Display) -> Error {
    let failure = failure.to_string();
    let cause = failure.rsplit("Caused by:").next().unwrap_or_default().trim();
    Error::new(
        ErrorKind::Device,
        format!("the device {device:?} failed: {cause}"),
        "see that it is there and has memory, open it anew and build the model anew",
    )
}

#[derive(Default)]
struct Surveyor {
    segments: Vec<String>,
    containers: Vec<String>,
    leaves: Vec<Leaf>,
    storage: Vec<Storage>,
    /// By the index of the leaf.
    attached: HashMap<usize, Attached>,
}

impl ModuleVisitor for Surveyor {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        // burn visits a parameter first, and then what is attached to it.
        let owner = self.leaves.len().saturating_sub(1);
        match container_type {
            "Reparameterization" if name != Multiplier::NAME => {
                self.attached.insert(owner, Attached::Other(name.into()));
            }
            Multiplier::CONTAINER => {
                self.attached.insert(owner, Attached::Multiplier(name.into()));
            }
            _ => {}
        }
        self.segments.push(name.into());
        self.containers.push(container_type.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.segments.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut shape: Vec<u64> = param.lazy_shape().iter().map(|&d| d as u64).collect();
        let col = D == 2 && loads_transposed(param);
        if col {
            shape.swap(0, 1);
        }
        let initialized = param.is_initialized();
        let dtype = match initialized {
            true => param.base().dtype(),
            false => param.lazy_device().settings().float_dtype.into(),
        };
        self.leaves.push(Leaf {
            segments: self.segments.clone(),
            containers: self.containers.clone(),
            id: param.id.val(),
            shape,
            initialized,
            quantized: matches!(dtype, DType::QFloat(_)),
        });
        self.storage.push(Storage { dtype, col });
    }
}

/// Whether a lazy matrix is a `LinearLayout::Col` one, which burn transposes when it loads a value: a probe through its load
/// mapper tells, and the parameter itself stays lazy.
fn loads_transposed<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    if param.is_initialized() {
        return false;
    }
    let mut shape = [1; D];
    shape[D - 1] = 2;
    let probe = Tensor::zeros(shape, &param.lazy_device());
    param.clone().transform_for_load(probe, param.id).dims()[0] == 2
}

/// Where a drawn tensor goes.
struct Place<'a> {
    path: &'a str,
    entries: &'a [Entry],
    dtype: DType,
    col: bool,
    task: usize,
}

/// Puts each planned parameter's values where it stands.
struct Writer<'a> {
    setup: &'a Setup,
    places: HashMap<&'a [String], Place<'a>>,
    ahead: Ahead<'a>,
    segments: Vec<String>,
    /// Tensors of tied parameters that were put in at an earlier path.
    shared: HashMap<ParamId, Box<dyn Any>>,
    done: u64,
    total: u64,
    /// The first error: burn's mappers cannot stop.
    failure: Option<Error>,
}

impl ModuleMapper for Writer<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.segments.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.segments.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(&Place { path, entries, dtype, col, task }) = self.places.get(self.segments.as_slice()) else {
            return param;
        };
        let id = param.id;
        let tensor = match self.shared.get(&id).and_then(|tensor| tensor.downcast_ref::<Tensor<D>>()) {
            Some(tensor) => tensor.clone(),
            None => {
                let device = param.lazy_device();
                let values = match self.ahead.take(task) {
                    Ok(values) => values,
                    Err(error) => {
                        self.failure.get_or_insert(error);
                        return param;
                    }
                };
                self.done += elements(entries);
                let create = |values| Tensor::from_data(values, (&device, dtype));
                let tensor: Tensor<D> = device.memory_persistent_allocations(values, create);
                if col { tensor.transpose() } else { tensor }
            }
        };
        if !entries[0].tied().is_empty() {
            self.shared.insert(id, Box::new(tensor.clone()));
        }
        self.setup.report(Progress { path, done: self.done, total: self.total });
        put(param, tensor, col)
    }
}

fn elements(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.spec().num_elements()).sum()
}

/// Puts a value in, with the id, the mappers, the gradient setting and the training state of the parameter.
fn put<const D: usize>(param: Param<Tensor<D>>, tensor: Tensor<D>, col: bool) -> Param<Tensor<D>> {
    if param.is_initialized() {
        // `transform_for_load` would give an initialized `Col` weight the transposed shape.
        let (id, old, mapper) = param.consume();
        let tensor = if old.is_require_grad() { tensor.require_grad() } else { tensor };
        return Param::from_mapped_value(id, tensor, mapper);
    }
    let id = param.id;
    param.transform_for_load(if col { tensor.transpose() } else { tensor }, id)
}

pub(crate) fn burn_dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
    }
}

/// Selects by burn's own groups. A group selects weights; biases and gains are selected by name or by role.
impl From<ParamGroup> for Select {
    fn from(group: ParamGroup) -> Self {
        Select::group(move |id, path| group.matches(&ParamId::from(id), Some(path)))
    }
}

/// burn-nn's own initializers as data. Kaiming with `fan_out_only` divides by `fan_out`.
impl From<burn::module::Initializer> for Init {
    fn from(initializer: burn::module::Initializer) -> Self {
        use burn::module::Initializer as Burn;
        let kaiming = |gain: f64, fan_out_only: bool, family: Family| {
            let fan = if fan_out_only { Fan::Out } else { Fan::In };
            Init::VarianceScaling(VarianceScaling { scale: gain * gain, fan, family })
        };
        match initializer {
            Burn::Constant { value } => Init::constant(value),
            Burn::Ones => Init::Ones,
            Burn::Zeros => Init::Zeros,
            Burn::Uniform { min, max } => Init::Uniform { low: min, high: max },
            Burn::Normal { mean, std } => Init::Normal { mean, std },
            Burn::KaimingUniform { gain, fan_out_only } => kaiming(gain, fan_out_only, Family::Uniform),
            Burn::KaimingNormal { gain, fan_out_only } => kaiming(gain, fan_out_only, Family::Normal),
            Burn::XavierUniform { gain } => Init::xavier_uniform(gain),
            Burn::XavierNormal { gain } => Init::xavier_normal(gain),
            Burn::Orthogonal { gain } => Init::orthogonal(gain),
        }
    }
}
