//! More rows for a trained table, more outputs for its head: only what is new is drawn.

use std::{collections::HashMap, fmt};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId},
    tensor::{DType, Element as BurnElement, Tensor, TensorData, bf16, f16},
};

use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    plan::Plan,
    role::{Leaf, Role, Select, Setup, Site, resolve},
    rule::{Law, short},
    sample::{Distribution, Element, Stream},
    shard::{Drawer, drawable_as, fits_as},
    tree::{Survey, answers},
};

/// More rows for the tables of a trained model: a larger vocabulary, a longer context. What was trained stays bit for bit.
///
/// ```
/// use burn::{nn::{Embedding, EmbeddingConfig, Linear, LinearConfig}, prelude::*};
/// use burn_init::{Growth, ModuleInit as _, Xavier};
///
/// #[derive(Module, Debug)]
/// struct Model {
///     wte: Embedding,
///     lm_head: Linear,
/// }
///
/// let device = Device::flex();
/// let (wte, lm_head) = (EmbeddingConfig::new(100, 16).init(&device), LinearConfig::new(16, 100).init(&device));
/// let trained = Model { wte, lm_head }.initialize(&Xavier::normal(), 1)?;
///
/// let larger = Growth::vocabulary(128).drawn_by(&Xavier::normal()).grow(trained.clone(), 2)?;
/// assert_eq!(larger.wte.weight.dims(), [128, 16]);
/// assert_eq!(larger.lm_head.weight.dims(), [16, 128]);
///
/// let larger = Growth::vocabulary(128).like_trained(1.0).grow(trained, 2)?;                // the cloud of the trained rows
/// # assert_eq!(larger.wte.weight.dims(), [128, 16]);
/// # Ok::<(), burn_init::Error>(())
/// ```
///
/// A new head, and added layers, need no line of this: build the model with them, put the trained parts in, and
/// [`initialize_missing`](crate::ModuleInit::initialize_missing) draws what holds no value.
///
/// A grown parameter is another one for an optimizer and gets an id of its own (one for all fields that share it), so that moments of
/// another shape are not applied to it. Numbers that a struct keeps beside its tensors, such as a `vocab_size`, are the user's to
/// change.
#[derive(Clone)]
pub struct Growth<'a> {
    what: What,
    size: u64,
    start: Start<'a>,
    setup: Setup,
}

#[derive(Debug, Clone)]
enum What {
    Vocabulary,
    Rows(Select),
}

#[derive(Clone, Copy)]
enum Start<'a> {
    Scheme(&'a dyn Initializer),
    /// The mean of the trained rows, and this multiple of their deviations from it.
    Trained(f64),
}

impl<'a> Growth<'a> {
    /// A vocabulary of `size` tokens: for the tables of token vectors, and for the output head of the same size and its bias.
    pub fn vocabulary(size: u64) -> Self {
        Self::new(What::Vocabulary, size)
    }

    /// `size` rows for the selected tables, such as the positions.
    pub fn rows(select: impl Into<Select>, size: u64) -> Self {
        Self::new(What::Rows(select.into()), size)
    }

    fn new(what: What, size: u64) -> Self {
        Self { what, size, start: Start::Trained(1.0), setup: Setup::new() }
    }

    /// New rows as `scheme` starts them: those that a fresh model of the new size would have.
    pub fn drawn_by(self, scheme: &'a dyn Initializer) -> Self {
        Self { start: Start::Scheme(scheme), ..self }
    }

    /// New rows like the trained ones, the default with a `spread` of 1: normal with their mean and `spread^2` times their covariance,
    /// `m + spread / sqrt(V - 1) * sum_i z_i (x_i - m)` over the `V` trained rows `x_i` with mean `m`.
    ///
    /// With such a row the logit of a new token is about as large as that of the others (Hewitt 2021, "Initializing new word embeddings
    /// for pretrained language models"). `transformers` takes `1e-9` of the covariance (`mean_resizing`), a spread of `3.2e-5`; 0 puts
    /// every new row at the mean. It takes `2 V d` operations for a row.
    pub fn like_trained(self, spread: f64) -> Self {
        Self { start: Start::Trained(spread), ..self }
    }

    /// What cannot be told from the tree.
    pub fn setup(self, setup: Setup) -> Self {
        Self { setup, ..self }
    }

    /// The model with the new rows.
    ///
    /// # Errors
    /// [`ErrorKind::Unmatched`] where there is no such table, [`ErrorKind::Shape`] where it has more rows already, tables of several
    /// sizes are meant, or there is no memory for the new rows, [`ErrorKind::MissingFact`] where a table holds no value yet, [`ErrorKind::InvalidValue`] for a
    /// spread that the precision of the table does not hold, and what
    /// planning by the scheme can meet. All errors come before the first value is changed, but for that of a device that fails
    /// meanwhile ([`ErrorKind::Device`]).
    pub fn grow<M: Module>(&self, model: M, seed: u64) -> Result<M, Error> {
        let survey = Survey::of(&model, &self.setup)?;
        let grown = self.find(&survey)?;
        let values = match self.start {
            Start::Scheme(scheme) => Values::Drawn(self.plan(&survey, &grown, scheme)?),
            Start::Trained(spread) if spread.is_finite() => Values::Like(spread),
            Start::Trained(spread) => {
                return Err(Error::new(
                    ErrorKind::InvalidValue,
                    format!("the spread is {spread}"),
                    "use a finite number",
                ));
            }
        };
        let mut check = Check { grown: &grown, values: &values, segments: Vec::new(), error: None };
        model.visit(&mut check);
        if let Some(error) = check.error {
            return Err(error);
        }
        let devices = model.devices();
        let mut grower = Grower { grown, values, seed, segments: Vec::new(), ids: HashMap::new(), failure: None };
        let model = model.map(&mut grower);
        if let Some(failure) = grower.failure {
            return Err(failure);
        }
        devices.iter().try_for_each(answers)?;
        Ok(model)
    }

    /// By its segments each parameter that is to grow.
    fn find(&self, survey: &Survey) -> Result<HashMap<Vec<String>, Grown>, Error> {
        let sites = &survey.sites.known;
        let is_meant = |site: &&Site| {
            let spec = &site.specs[0];
            match &self.what {
                What::Vocabulary => spec.role() == Role::TokenEmbedding,
                What::Rows(select) => select.matches(spec),
            }
        };
        let meant: Vec<&Site> = sites.iter().filter(is_meant).collect();
        let Some(first) = meant.first().map(|site| &site.specs[0]) else {
            return Err(match &self.what {
                What::Rows(select) => select.unmatched(sites.first().map(|site| &site.specs[0])),
                What::Vocabulary => Error::new(
                    ErrorKind::Unmatched,
                    "there is no table of token vectors",
                    "say which it is: .setup(Setup::new().role(\"…\", Role::TokenEmbedding))",
                ),
            });
        };
        let old = first.shape().first().copied().unwrap_or(0);
        for spec in meant.iter().map(|site| &site.specs[0]) {
            if !spec.role().is_table() || spec.shape().len() != 2 {
                return Err(spec.error(
                    ErrorKind::Shape,
                    format!("it has the role {}, and only tables grow by rows", spec.role()),
                    "select a table of vectors",
                ));
            }
            if spec.shape()[0] != old {
                return Err(spec.error(
                    ErrorKind::Shape,
                    format!("{} has {old} rows and this table {}", first.path(), spec.shape()[0]),
                    "grow one after the other: Growth::rows(\"…\", size)",
                ));
            }
            if old > self.size {
                return Err(spec.error(
                    ErrorKind::Shape,
                    format!("it has {old} rows, more than the {} it is to have", self.size),
                    "give a larger size; rows are never taken away",
                ));
            }
        }
        let is_table = |id: u64| meant.iter().any(|site| site.specs[0].id.0 == id);
        let grows = |site: &&Site| {
            let spec = &site.specs[0];
            let head = spec.role() == Role::OutputHead || spec.weight_role() == Some(Role::OutputHead);
            let same = head && spec.shape().last() == Some(&old);
            is_table(spec.id.0) || (matches!(self.what, What::Vocabulary) && same)
        };
        let mut grown = HashMap::new();
        for site in sites.iter().filter(grows) {
            let spec = &site.specs[0];
            let leaf = &survey.leaves[site.leaf];
            if !leaf.initialized {
                return Err(spec.error(
                    ErrorKind::MissingFact,
                    "it holds no value yet, and so nothing that could be kept",
                    "load the trained values first, or build it with the new size",
                ));
            }
            if leaf.quantized {
                return Err(spec.error(
                    ErrorKind::Quantized,
                    "the parameter is quantised, and its values cannot be drawn",
                    "grow before quantising",
                ));
            }
            let axis = if is_table(spec.id.0) { 0 } else { spec.shape().len() - 1 };
            if !has_room(spec, axis, old, self.size) {
                return Err(spec.error(
                    ErrorKind::Shape,
                    format!(
                        "there is no memory for {} {} of it",
                        self.size,
                        if axis == 0 { "rows" } else { "columns" }
                    ),
                    "give a smaller size",
                ));
            }
            let shared = sites.iter().map(|site| &site.specs[0]).filter(|other| other.id.0 == spec.id.0);
            let stream = shared.map(ParamSpec::path).min().unwrap_or(spec.path()).to_string();
            let one = Grown { spec: spec.clone(), stream, axis, transposed: site.transposed, old, new: self.size };
            grown.insert(leaf.segments.clone(), one);
        }
        Ok(grown)
    }

    /// The plan of the new sizes.
    fn plan(
        &self,
        survey: &Survey,
        grown: &HashMap<Vec<String>, Grown>,
        scheme: &dyn Initializer,
    ) -> Result<Plan, Error> {
        let mut leaves: Vec<Leaf> = survey.leaves.clone();
        for leaf in &mut leaves {
            if let Some(one) = grown.get(&leaf.segments) {
                leaf.shape[one.stored_axis()] = one.new;
            }
        }
        let sites = resolve(&leaves, &self.setup)?;
        let plan = Plan::make(&sites, &|site| grown.contains_key(&leaves[site.leaf].segments), scheme)?;
        match plan.iter().find(|entry| *entry.law() == Law::Keep) {
            Some(entry) => Err(entry.spec().error(
                ErrorKind::NoRule,
                "the scheme keeps it, and so does not say how its new rows start",
                "give it a rule, or use .like_trained(…)",
            )),
            None => Ok(plan),
        }
    }
}

impl fmt::Debug for Growth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growth").field("what", &self.what).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A parameter that is to grow.
#[derive(Debug)]
struct Grown {
    spec: ParamSpec,
    /// The smallest path of those that hold it.
    stream: String,
    /// The dimension that grows, in the shape of the spec.
    axis: usize,
    transposed: bool,
    old: u64,
    new: u64,
}

impl Grown {
    /// The dimension that grows in the tensor.
    fn stored_axis(&self) -> usize {
        match self.transposed {
            true => self.spec.shape().len() - 1 - self.axis,
            false => self.axis,
        }
    }
}

/// Where new values come from.
enum Values {
    Drawn(Plan),
    Like(f64),
}

/// Looks for what could not be written, before anything is.
struct Check<'a> {
    grown: &'a HashMap<Vec<String>, Grown>,
    values: &'a Values,
    segments: Vec<String>,
    error: Option<Error>,
}

impl ModuleVisitor for Check<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.segments.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.segments.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grown) = self.grown.get(&self.segments) else { return };
        let (param, spec) = (param.base(), &grown.spec);
        let dtype = param.dtype();
        let checked = match self.values {
            Values::Drawn(plan) => drawable_as(dtype, plan.blocks(spec.path())),
            Values::Like(_) if param.shape().num_elements() == 0 => Ok(()),
            Values::Like(spread) => {
                let largest = param.abs().max().into_scalar::<f64>();
                // No column deviates by more than sqrt(2) times its largest value, and no normal lies beyond 7 sigmas.
                let reach = largest * (1.0 + 7.0 * 2f64.sqrt() * spread.abs());
                let reach = if largest.is_finite() { reach } else { 0.0 };
                fits_as(dtype, &format!("with a spread of {} the largest new value", short(*spread)), reach)
                    .map_err(|(found, _)| spec.error(ErrorKind::InvalidValue, found, "use a smaller spread"))
            }
        };
        if let Err(error) = checked {
            self.error.get_or_insert(error);
        }
    }
}

struct Grower {
    grown: HashMap<Vec<String>, Grown>,
    values: Values,
    seed: u64,
    segments: Vec<String>,
    /// The new id of each parameter that grows.
    ids: HashMap<ParamId, ParamId>,
    /// The first error: burn's mappers cannot stop.
    failure: Option<Error>,
}

impl ModuleMapper for Grower {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.segments.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.segments.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(grown) = self.grown.get(&self.segments).filter(|grown| grown.new > grown.old) else { return param };
        let (id, tensor, mapper) = param.consume();
        let id = *self.ids.entry(id).or_default();
        let old = tensor.clone().detach();
        let data = match tensor.dtype() {
            DType::F64 => self.new_values::<f64, D>(grown, &old),
            DType::F16 => self.new_values::<f16, D>(grown, &old),
            DType::BF16 => self.new_values::<bf16, D>(grown, &old),
            _ => self.new_values::<f32, D>(grown, &old),
        };
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                self.failure.get_or_insert(error);
                return Param::from_mapped_value(id, tensor, mapper);
            }
        };
        let new = Tensor::from_data(data, (&old.device(), tensor.dtype()));
        let larger = Tensor::cat(vec![old, new], grown.stored_axis()).detach();
        let larger = if tensor.is_require_grad() { larger.require_grad() } else { larger };
        Param::from_mapped_value(id, larger, mapper)
    }
}

impl Grower {
    /// The new part of the tensor.
    fn new_values<E: Element + BurnElement, const D: usize>(
        &self,
        grown: &Grown,
        old: &Tensor<D>,
    ) -> Result<TensorData, Error> {
        let mut shape: Vec<usize> = old.dims().into();
        shape[grown.stored_axis()] = (grown.new - grown.old) as usize;
        let rows: Vec<E> = match &self.values {
            Values::Drawn(plan) => drawn(grown, plan, self.seed)?,
            Values::Like(spread) => {
                let data = old.clone().into_data().convert::<f32>();
                let trained = data.try_to_vec::<f32>().unwrap_or_default();
                like_trained(grown, &trained, *spread, self.seed)
            }
        };
        // One row for each new index; the tensor may have them as columns.
        let values = match grown.stored_axis() == 0 {
            true => rows,
            false => turned(&rows, shape[grown.stored_axis()]),
        };
        Ok(TensorData::new(values, shape))
    }
}

/// Whether the new values can be counted and held, at the eight bytes that the widest of them takes.
fn has_room(spec: &ParamSpec, axis: usize, old: u64, new: u64) -> bool {
    let others = spec.shape().iter().enumerate().filter(|(dimension, _)| *dimension != axis).map(|(_, &d)| d);
    let elements = |rows: u64| others.clone().try_fold(rows, u64::checked_mul);
    let added = elements(new - old).and_then(|count| usize::try_from(count).ok());
    elements(new).is_some() && added.is_some_and(|count| Vec::<f64>::new().try_reserve_exact(count).is_ok())
}

/// What a fresh parameter of the new size has at the new indices, one row for each.
fn drawn<E: Element>(grown: &Grown, plan: &Plan, seed: u64) -> Result<Vec<E>, Error> {
    let lines = plan.blocks(grown.spec.path());
    let shape = lines[0].spec().shape();
    let (rows, columns) = match *shape {
        [rows, columns] => (rows, columns),
        _ => (1, shape.iter().product()),
    };
    let mut drawer = Drawer::new(lines, seed);
    let count = (grown.new - grown.old) as usize;
    if grown.axis == 0 && shape.len() == 2 {
        let mut out = vec![E::default(); count * columns as usize];
        drawer.fill(grown.old..grown.new, std::slice::from_ref(&(0..columns)), &mut out)?;
        return Ok(out);
    }
    let mut out = vec![E::default(); count * rows as usize];
    drawer.fill(0..rows, std::slice::from_ref(&(grown.old..grown.new)), &mut out)?;
    Ok(turned(&out, rows as usize))
}

/// `[rows, columns]` to `[columns, rows]`.
fn turned<E: Copy>(values: &[E], rows: usize) -> Vec<E> {
    let columns = values.len() / rows.max(1);
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

/// Rows with the mean of the trained ones and `spread^2` times their covariance.
fn like_trained<E: Element>(grown: &Grown, trained: &[f32], spread: f64, seed: u64) -> Vec<E> {
    let count = grown.old as usize;
    let d = trained.len() / count.max(1);
    let turned_rows;
    let rows: &[f32] = match grown.stored_axis() == 0 {
        true => trained,
        false => {
            turned_rows = turned(trained, d);
            &turned_rows
        }
    };
    let mut mean = vec![0.0f64; d];
    for row in rows.chunks(d.max(1)) {
        mean.iter_mut().zip(row).for_each(|(mean, &x)| *mean += f64::from(x));
    }
    mean.iter_mut().for_each(|mean| *mean /= count.max(1) as f64);
    let scale = spread / (count.saturating_sub(1).max(1) as f64).sqrt();
    let stream = Stream::new(seed, &format!("{}[grown]", grown.stream));
    let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
    let mut out = vec![E::default(); (grown.new - grown.old) as usize * d];
    let one = |index: usize, out: &mut [E]| {
        let mut z = vec![0.0f64; count];
        stream.fill(&normal, (grown.old + index as u64) * grown.old, &mut z);
        let mut sum = vec![0.0f64; d];
        for (row, z) in rows.chunks(d.max(1)).zip(&z) {
            sum.iter_mut().zip(row).zip(&mean).for_each(|((sum, &x), mean)| *sum += z * (f64::from(x) - mean));
        }
        for ((out, sum), mean) in out.iter_mut().zip(&sum).zip(&mean) {
            *out = E::round(mean + scale * sum);
        }
    };
    #[cfg(feature = "rayon")]
    {
        use rayon::prelude::*;
        out.par_chunks_mut(d.max(1)).enumerate().for_each(|(index, out)| one(index, out));
    }
    #[cfg(not(feature = "rayon"))]
    out.chunks_mut(d.max(1)).enumerate().for_each(|(index, out)| one(index, out));
    out
}
