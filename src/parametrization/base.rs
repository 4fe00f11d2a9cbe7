//! Which dimensions grow: a model beside a smaller one of the same family.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use burn::module::Module;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    initializer::from_fn,
    param::{Block, Fans, ParamSpec, Stack},
    plan::{Entry, Plan},
    role::{Role, Setup},
    rule::Init,
    schemes::width,
};

/// How a parameter grows from the base model to the model: how many of its dimensions are widths, and how many times as wide.
///
/// A width that is the same in both does not grow, so that the terms of Yang et al. 2022 (table 8) follow: an input weight has one
/// dimension that grows, its output; a hidden weight has two; an output weight one, its input. Gains and biases count as input
/// weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Widening {
    /// Nothing grows.
    Fixed,
    /// The outputs grow by this factor: tables, gains, biases, the map from pixels.
    Input(f64),
    /// Inputs and outputs grow.
    Hidden {
        /// How many times as many inputs.
        fan_in: f64,
        /// How many times as many outputs.
        fan_out: f64,
    },
    /// The inputs grow by this factor: the head, a router.
    Output(f64),
}

impl Widening {
    /// From the parameter of the base model to the same one of the model.
    ///
    /// # Errors
    /// [`ErrorKind::Widening`] where the vocabulary, the context, the number of experts or a kernel grows, or where the inputs of
    /// anything but a head or a router grow and its outputs do not.
    pub fn between(base: &ParamSpec, param: &ParamSpec) -> Result<Self, Error> {
        let grown = |what: &str, from: u64, to: u64| {
            param.error(
                ErrorKind::Widening,
                format!("{what} from {from} in the base model to {to}"),
                "only widths may differ: build the base model with the same vocabulary, context, experts and kernels",
            )
        };
        let (shape, small) = (param.shape(), base.shape());
        if shape.len() != small.len() || base.role() != param.role() {
            return Err(param.error(
                ErrorKind::Widening,
                format!("it is a {} of the shape {small:?} in the base model", base.role()),
                "build the base model from the same code, with smaller widths only",
            ));
        }
        let ratio = |to: u64, from: u64| to as f64 / (from as f64).max(1.0);
        if param.role().is_table() {
            let [rows @ .., to] = shape else { return Ok(Widening::Fixed) };
            let [small_rows @ .., from] = small else { return Ok(Widening::Fixed) };
            if let Some((&to, &from)) = rows.iter().zip(small_rows).find(|(to, from)| to != from) {
                return Err(grown("its rows go", from, to));
            }
            return Ok(Self::input(ratio(*to, *from)));
        }
        if let (Some(to), Some(from)) = (param.experts(), base.experts())
            && to != from
        {
            return Err(grown("the experts go", from, to));
        }
        if matches!(param.role(), Role::Convolution | Role::PatchEmbedding)
            && let Some((&to, &from)) = shape.iter().zip(small).skip(2).find(|(to, from)| to != from)
        {
            return Err(grown("its kernel goes", from, to));
        }
        let different: Vec<f64> =
            shape.iter().zip(small).filter(|(to, from)| to != from).map(|(&to, &from)| ratio(to, from)).collect();
        if different.is_empty() {
            return Ok(Widening::Fixed);
        }
        if shape.len() < 2 {
            let head = matches!(param.weight_role(), Some(Role::OutputHead | Role::Router));
            return if head { Err(grown("the outputs go", small[0], shape[0])) } else { Ok(Self::input(different[0])) };
        }
        if let ([only], None) = (different.as_slice(), param.fans) {
            return Ok(Self::input(*only));
        }
        let (to, from) = (param.fans()?, base.fans()?);
        let (fan_in, fan_out) = (ratio(to.fan_in, from.fan_in), ratio(to.fan_out, from.fan_out));
        let reads_out = matches!(param.role(), Role::OutputHead | Role::Router);
        match (fan_in != 1.0, fan_out != 1.0) {
            (false, false) => Ok(Widening::Fixed),
            (false, true) if reads_out => Err(grown("the outputs go", from.fan_out, to.fan_out)),
            (true, true) if reads_out => Err(grown("the outputs go", from.fan_out, to.fan_out)),
            (false, true) => Ok(Widening::Input(fan_out)),
            (true, true) => Ok(Widening::Hidden { fan_in, fan_out }),
            (true, false) if reads_out => Ok(Widening::Output(fan_in)),
            (true, false) => {
                let todo = match param.role() {
                    Role::Key | Role::Value => {
                        "let both grow: give the base model fewer or narrower key and value heads".to_string()
                    }
                    role if growing(role) == Some((true, true)) => {
                        "let both grow: give the base model fewer outputs, too".to_string()
                    }
                    _ => format!(
                        "let both grow, or say that it is a head: .role(\"{}\", Role::OutputHead)",
                        param.path()
                    ),
                };
                Err(param.error(
                    ErrorKind::Widening,
                    format!(
                        "its inputs grow from {} to {} and its {} outputs do not",
                        from.fan_in, to.fan_in, to.fan_out
                    ),
                    todo,
                ))
            }
        }
    }

    fn input(ratio: f64) -> Self {
        if ratio == 1.0 { Widening::Fixed } else { Widening::Input(ratio) }
    }

    /// The width multiplier of the parameter: of its inputs where they grow, of its outputs otherwise, 1 where nothing does.
    pub fn multiple(self) -> f64 {
        match self {
            Widening::Fixed => 1.0,
            Widening::Input(m) | Widening::Hidden { fan_in: m, .. } | Widening::Output(m) => m,
        }
    }
}

impl fmt::Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Widening::Fixed => f.write_str("fixed"),
            Widening::Input(m) => write!(f, "input, outputs x {m}"),
            Widening::Hidden { fan_in, fan_out } => write!(f, "hidden, inputs x {fan_in}, outputs x {fan_out}"),
            Widening::Output(m) => write!(f, "output, inputs x {m}"),
        }
    }
}

/// What a scheme is tuned at: a size in numbers, or the shapes of a real base model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Base {
    /// Numbers, from which the shapes of a plain Transformer follow by their roles.
    Size(BaseSize),
    /// The shapes themselves, for any model.
    Shapes(BaseShapes),
}

impl Base {
    /// The same parameter in the base model.
    pub(crate) fn spec(&self, param: &ParamSpec) -> Result<ParamSpec, Error> {
        match self {
            Base::Size(size) => size.spec(param),
            Base::Shapes(shapes) => shapes.spec(param).cloned(),
        }
    }

    /// Width of a query head of the base model.
    pub(crate) fn head_width(&self, base: &ParamSpec) -> Result<f64, Error> {
        match self {
            Base::Size(size) => Ok(size.head_width as f64),
            Base::Shapes(_) => head_width(base).map_err(|error| in_base(error, base)),
        }
    }
}

impl From<BaseShapes> for Base {
    fn from(shapes: BaseShapes) -> Self {
        Base::Shapes(shapes)
    }
}

impl From<BaseSize> for Base {
    fn from(size: BaseSize) -> Self {
        Base::Size(size)
    }
}

fn in_base(error: Error, base: &ParamSpec) -> Error {
    match (error.kind(), base.heads()) {
        (ErrorKind::Shape, Ok(heads)) => base.error(
            ErrorKind::Shape,
            format!("{heads} heads do not divide the {} columns of the query of the base model", query_columns(base)),
            "plan the base model with a Setup of its own, .heads(\"**\", 4), and use BaseShapes::new",
        ),
        (kind, _) => base.error(
            kind,
            "the base model does not show the number of its heads",
            "state it in the Setup of the base model: .heads(\"**\", 4)",
        ),
    }
}

fn query_columns(param: &ParamSpec) -> u64 {
    match param.block() {
        Some(block) => block.len,
        None => param.shape().last().copied().unwrap_or(0),
    }
}

/// Width of a query head: the columns of the query over the number of heads.
pub(crate) fn head_width(param: &ParamSpec) -> Result<f64, Error> {
    let (columns, heads) = (query_columns(param), param.heads()?);
    if heads == 0 || columns == 0 || !columns.is_multiple_of(heads) {
        return Err(param.error(
            ErrorKind::Shape,
            format!("{columns} columns are not {heads} heads of equal width"),
            "state the number of heads: .heads(\"**\", 12)",
        ));
    }
    Ok((columns / heads) as f64)
}

/// The size of a base model in numbers, as Megatron, Cerebras and nanoGPT-mup have it.
///
/// Every width is taken to grow as the stream does: the base model of a stream of `d` has dimensions of `1/m` of the model's,
/// `m = d / width`, rounded. Only for the roles of a Transformer; other trees need [`BaseShapes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BaseSize {
    /// Width of the stream.
    pub width: u64,
    /// Width of a query head.
    pub head_width: u64,
    /// Layers, for schemes that scale for depth.
    pub layers: u64,
}

impl Default for BaseSize {
    fn default() -> Self {
        Self { width: 256, head_width: 64, layers: 2 }
    }
}

impl BaseSize {
    /// Checks the numbers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] if one is 0.
    pub fn check(&self) -> Result<(), Error> {
        let sizes = [("width", self.width), ("head_width", self.head_width), ("layers", self.layers)];
        match sizes.iter().find(|(_, size)| *size == 0) {
            Some((name, _)) => {
                Err(Error::new(ErrorKind::InvalidValue, format!("base.size.{name} is 0"), "use 1 or more"))
            }
            None => Ok(()),
        }
    }

    fn spec(&self, param: &ParamSpec) -> Result<ParamSpec, Error> {
        self.check()?;
        let mut base = param.clone();
        let d = match param.role() {
            // Vectors show their width only by the stack.
            role if role.is_weight() && role != Role::RelativeBias => match growing(role) {
                Some(_) => width(param)?,
                None => {
                    return Err(param.error(
                        ErrorKind::MissingFact,
                        format!("from the width of the base model alone it cannot be told how a {role} grows"),
                        "give the shapes of a base model: BaseShapes::new(&plan, &base_plan)",
                    ));
                }
            },
            _ => param.stack.map_or(self.width, |stack| stack.d_model) as f64,
        };
        let m = d / self.width as f64;
        let shrink = |n: u64| ((n as f64 / m).round() as u64).max(1);
        let fixed_outputs = |role: Role| matches!(role, Role::OutputHead | Role::Router);
        let rank = base.shape.len();
        match param.role() {
            role if role.is_weight() && role != Role::RelativeBias => {
                let (inputs, outputs) = growing(role).unwrap_or((false, false));
                let conv = role == Role::PatchEmbedding && rank > 2;
                let (input, output) = match rank {
                    0 | 1 => (None, rank.checked_sub(1)),
                    _ if conv => (Some(1), Some(0)),
                    _ => (Some(rank - 2), Some(rank - 1)),
                };
                if let (Some(at), true) = (input, inputs) {
                    base.shape[at] = shrink(base.shape[at]);
                }
                if let (Some(at), true) = (output, outputs) {
                    base.shape[at] = shrink(base.shape[at]);
                }
                let table = role.is_table();
                base.fans = base.fans.map(|fans| Fans {
                    fan_in: if inputs || (table && outputs) { shrink(fans.fan_in) } else { fans.fan_in },
                    fan_out: if outputs && !table { shrink(fans.fan_out) } else { fans.fan_out },
                });
                base.block = base.block.filter(|_| outputs).map(|block| shrunk(block, &shrink)).or(base.block);
            }
            Role::Bias if param.weight_role().is_none_or(fixed_outputs) => {}
            Role::Bias | Role::NormGain | Role::NormGainOffset | Role::NormBias | Role::LayerScale
                if rank == 1 && param.stack.is_some() =>
            {
                base.shape[0] = shrink(base.shape[0]);
                base.fans = base.fans.map(|fans| Fans { fan_in: shrink(fans.fan_in), fan_out: shrink(fans.fan_out) });
                base.block = base.block.map(|block| shrunk(block, &shrink));
            }
            _ => {}
        }
        if [Some(param.role()), param.weight_role()].contains(&Some(Role::Query)) {
            let columns = base.block.map_or(base.shape.last().copied().unwrap_or(0), |block| block.len);
            base.heads = base.heads.map(|_| (columns / self.head_width).max(1));
        }
        base.stack = base.stack.map(|stack| Stack {
            layers: self.layers,
            branches: (stack.branches * self.layers).div_ceil(stack.layers.max(1)).max(1),
            d_model: self.width,
        });
        Ok(base)
    }
}

fn shrunk(block: Block, shrink: &dyn Fn(u64) -> u64) -> Block {
    Block { start: if block.start == 0 { 0 } else { shrink(block.start) }, len: shrink(block.len), ..block }
}

/// Whether the inputs and the outputs of a role are widths; `None` where the role does not tell.
fn growing(role: Role) -> Option<(bool, bool)> {
    match role {
        Role::OutputHead | Role::Router => Some((true, false)),
        Role::PatchEmbedding => Some((false, true)),
        role if role.is_table() => Some((false, true)),
        role if role.reads_or_writes() => Some((true, true)),
        _ => None,
    }
}

/// The shapes of a model beside those of a smaller base model of the same family.
///
/// Made of two plans, so that both models are built lazily and neither is drawn. The parameters are matched by their paths; those of
/// layers that only the model has by the last layer of the base model. Goes through serde, so that a base model need be built
/// only once.
///
/// ```
/// use burn::tensor::Device;
/// use burn_init::{ModuleInit as _, Setup, parametrization::BaseShapes, reference::TransformerConfig};
///
/// let config = |width, heads| TransformerConfig::new(1000, 64, width, 4, heads);
/// let build = |width, heads| config(width, heads).build(&Device::flex());
/// let shapes = build(1024, 16)?.base_shapes(&build(256, 4)?)?;
/// println!("{shapes}");                                                       // path, base, model, how it grows
///
/// let file = serde_json::to_string(&shapes).unwrap();
/// assert_eq!(serde_json::from_str::<BaseShapes>(&file).unwrap(), shapes);
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaseShapes {
    /// By path, for each block.
    parameters: BTreeMap<String, Vec<Pair>>,
}

/// One parameter, or block of one, in both models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    model: ParamSpec,
    base: ParamSpec,
}

impl BaseShapes {
    /// Lays the plan of a model beside the plan of its base model; by which scheme they were made does not matter.
    ///
    /// # Errors
    /// [`ErrorKind::Widening`]: a parameter that only one of the two has, of another role or rank, or with a dimension that may not
    /// grow; the error names it.
    pub fn new(model: &Plan, base: &Plan) -> Result<Self, Error> {
        let mut by_layer: BTreeMap<(String, u64), BTreeMap<Option<u64>, &ParamSpec>> = BTreeMap::new();
        for spec in base.iter().map(Entry::spec) {
            by_layer.entry(key(spec)).or_default().entry(spec.layer()).or_insert(spec);
        }
        let mut parameters: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
        for entry in model {
            let spec = entry.spec();
            let layers = by_layer.get(&key(spec));
            let same = layers.and_then(|layers| layers.get(&spec.layer()));
            // A shallower base model: its last layer stands for those that it lacks.
            let last = || layers?.last_key_value().filter(|(layer, _)| layer.is_some()).map(|(_, spec)| spec);
            let Some(other) = same.or_else(last) else {
                return Err(spec.error(
                    ErrorKind::Widening,
                    "the base model has no such parameter",
                    "build the base model from the same code, with smaller widths only",
                ));
            };
            Widening::between(other, spec)?;
            let pair = Pair { model: spec.clone(), base: (*other).clone() };
            parameters.entry(spec.path().to_string()).or_default().push(pair);
        }
        let known: BTreeSet<_> = model.iter().map(|entry| key(entry.spec())).collect();
        let lacking = by_layer.iter().filter(|(key, _)| !known.contains(key)).flat_map(|(_, layers)| layers.values());
        if let Some(spec) = lacking.into_iter().next() {
            return Err(spec.error(
                ErrorKind::Widening,
                "the base model has this parameter, and the model has not",
                "build the base model from the same code, with smaller widths only",
            ));
        }
        Ok(Self { parameters })
    }

    /// How a parameter grows, by its path in the plan; the first block of a packed one.
    pub fn widening(&self, path: &str) -> Option<Widening> {
        let pair = self.parameters.get(path)?.first()?;
        Widening::between(&pair.base, &pair.model).ok()
    }

    /// A warning where the last layer of the base model stands for one that it lacks, and its layers are not alike.
    pub(crate) fn guessed(&self) -> Option<String> {
        let pairs = || self.parameters.values().flatten();
        let mut shapes: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for pair in pairs() {
            shapes.entry(key(&pair.base)).or_default().insert(pair.base.shape());
        }
        let guessed = |pair: &&Pair| pair.base.layer() != pair.model.layer() && shapes[&key(&pair.base)].len() > 1;
        let pair = pairs().find(guessed)?;
        Some(format!(
            "{}: the base model has no such layer and its layers differ among themselves, so that its last one, {:?}, may not be the one \
             that this grew from; build the base model with as many layers as the model",
            pair.model.path(),
            pair.base.shape()
        ))
    }

    fn spec(&self, param: &ParamSpec) -> Result<&ParamSpec, Error> {
        let blocks = self.parameters.get(param.path()).map_or(&[][..], Vec::as_slice);
        let pair =
            blocks.iter().find(|pair| pair.model.block() == param.block() && pair.model.shape() == param.shape());
        let error = |found: String| param.error(ErrorKind::Widening, found, "make the base shapes anew for this model");
        match (pair, blocks.first()) {
            (Some(pair), _) => Ok(&pair.base),
            (None, Some(other)) => {
                Err(error(format!("the base shapes were made for the shape {:?}", other.model.shape())))
            }
            (None, None) => Err(error("the base shapes have no such parameter".into())),
        }
    }
}

impl fmt::Display for BaseShapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = |spec: &ParamSpec| format!("{:?}", spec.shape()).replace(", ", " x ").replace(['[', ']'], "");
        let mut rows: Vec<[String; 4]> = vec![["path", "base", "model", "growth"].map(String::from)];
        for Pair { model, base } in self.parameters.values().flatten() {
            let mut path = without_layer(model);
            if let Some(block) = model.block() {
                path += &format!("[{}..{}]", block.start, block.start + block.len);
            }
            let growth =
                Widening::between(base, model).map_or_else(|error| error.to_string(), |growth| growth.to_string());
            let row = [path, shape(base), shape(model), growth];
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2)];
        for [path, base, model, growth] in &rows {
            writeln!(f, "{path:0$}  {base:1$}  {model:2$}  {growth}", widths[0], widths[1], widths[2])?;
        }
        Ok(())
    }
}

/// What is the same in all layers: the path, and which block.
fn key(spec: &ParamSpec) -> (String, u64) {
    (without_layer(spec), spec.block().map_or(0, |block| block.index))
}

/// The path with the index of its layer taken out.
fn without_layer(spec: &ParamSpec) -> String {
    let Some(layer) = spec.layer().map(|layer| layer.to_string()) else { return spec.path().to_string() };
    let mut found = false;
    let segments: Vec<_> = (spec.path().split('.'))
        .map(|segment| if segment == layer && !std::mem::replace(&mut found, segment == layer) { "*" } else { segment })
        .collect();
    segments.join(".")
}

impl Setup {
    /// See [`ModuleInit::base_shapes`](crate::ModuleInit::base_shapes). Where the two models need different setups, because they have
    /// different numbers of heads, plan each with its own and use [`BaseShapes::new`].
    ///
    /// # Errors
    /// See [`BaseShapes::new`], and a role that cannot be told.
    pub fn base_shapes<M: Module, B: Module>(&self, model: &M, base: &B) -> Result<BaseShapes, Error> {
        let shapes = from_fn(|_| Init::Keep);
        BaseShapes::new(&self.plan(model, &shapes)?, &self.plan(base, &shapes)?)
    }
}
