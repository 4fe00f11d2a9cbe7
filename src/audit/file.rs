//! Files of weights, read one tensor at a time: safetensors, in shards or not, and burnpack.

use std::{
    collections::HashMap,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use burn::tensor::DType;
use safetensors::tensor::{Dtype, Metadata};

use super::{
    Audit, Identity,
    compare::compare,
    identify::rank,
    names,
    start::{Reading, Start, Stored},
};
use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    plan::Plan,
    role::{Layout, Leaf, Pattern, Role, Setup, Site, Sites, resolve, unknown_roles},
};

/// A file of weights that somebody else started, of any framework: a safetensors file, a folder or index of its shards, or burn's burnpack.
///
/// Opening it reads the headers. Values are read one tensor at a time, and none is kept.
///
/// ```no_run
/// use burn_init::{Gpt2, audit::WeightFile};
///
/// # fn main() -> Result<(), burn_init::Error> {
/// let file = WeightFile::open("gpt2/model.safetensors")?;     // written by PyTorch
/// println!("{}", file.identify()?);                           // which scheme is it?
///
/// let plan = file.plan(&Gpt2::new())?;                        // the tree is read from the names and shapes in the file
/// println!("{}", file.audit(&plan)?);
/// # Ok(()) }
/// ```
///
/// A plan that was made for a burn module is compared by name: wrappers (`module.`, `_orig_mod.`) and a prefix on either side are taken off, burn's
/// `gamma` and `beta` are `weight` and `bias`, and [`rename`](Self::rename) does the rest. Where the module has separate projections and the file
/// fused ones, or the other way round, plan the file itself.
///
/// How a linear weight is stored, `[d_in, d_out]` or `[d_out, d_in]`, is told by its shape, by its bias, by the width of the model and by the file's
/// other weights, in this order; [`layout`](Self::layout) states it.
#[derive(Debug)]
pub struct WeightFile {
    tensors: Vec<Entry>,
    renames: Vec<(String, String)>,
    layout: Option<Layout>,
    /// Whether burn wrote it.
    from_burn: bool,
}

#[derive(Debug)]
struct Entry {
    /// As in the file.
    name: String,
    shape: Vec<u64>,
    kind: Kind,
    place: Place,
}

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F64,
    F32,
    F16,
    BF16,
    /// Eight bits or fewer: not looked at.
    Quantized,
    /// Integers and booleans are no parameters.
    Other,
}

enum Place {
    Range { path: PathBuf, start: u64, len: usize },
    Pack(Box<burn_pack::Tensor>),
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Range { path, start, len } => write!(f, "{}[{start}..{}]", path.display(), start + *len as u64),
            Place::Pack(tensor) => write!(f, "{}", tensor.name),
        }
    }
}

fn broken(path: &Path, found: impl std::fmt::Display, todo: &str) -> Error {
    Error::new(ErrorKind::File, format!("{}: {found}", path.display()), todo)
}

impl WeightFile {
    /// Opens a safetensors or burnpack file, a folder with safetensors files, or a `model.safetensors.index.json`.
    ///
    /// # Errors
    /// [`ErrorKind::File`]: it cannot be read, is truncated, or has another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut file = Self { tensors: Vec::new(), renames: Vec::new(), layout: None, from_burn: false };
        for part in parts(path)? {
            file.read_header(&part)?;
        }
        file.tensors.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)));
        if let Some(pair) = file.tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let found = format!("the tensor {} is there twice", pair[0].name);
            return Err(broken(path, found, "open the shards of one model only"));
        }
        Ok(file)
    }

    /// Takes the run of segments `from` in the file's names as `to`, wherever it stands: `.rename("self_attn.q_proj", "mha.query")`. An empty
    /// `to` leaves it out.
    pub fn rename(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.renames.push((from.into(), to.into()));
        self
    }

    /// States how the two-dimensional weights of linear layers are stored.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// The names in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// What `scheme` does with a model of these names and shapes; paths are those of the file, after [`rename`](Self::rename).
    ///
    /// # Errors
    /// As [`ModuleInit::plan`](crate::ModuleInit::plan), and [`ErrorKind::File`]. [`Setup::plan_file`] tells what the names do not.
    pub fn plan(&self, scheme: &dyn Initializer) -> Result<Plan, Error> {
        Setup::new().plan_file(self, scheme)
    }

    /// Whether the file is started as planned, by a plan of its own or of a burn module.
    ///
    /// # Errors
    /// [`ErrorKind::Audit`] if it has none of the plan's parameters, [`ErrorKind::File`] if it cannot be read.
    pub fn audit(&self, plan: &Plan) -> Result<Audit, Error> {
        let mut planned: Vec<&str> = Vec::new();
        for entry in plan {
            planned.push(entry.spec().path());
            planned.extend(entry.tied().iter().map(String::as_str));
        }
        planned.dedup();
        let names = self.renamed();
        let found = names::matched(&planned, &names);
        if found.is_empty() && !plan.is_empty() {
            return Err(Error::new(
                ErrorKind::Audit,
                format!(
                    "the file has none of the plan's parameters: its names look like {}, the plan's paths like {}",
                    names.first().map_or("(none)", String::as_str),
                    planned[0]
                ),
                "bring them together with .rename(from, to), or plan the file itself with WeightFile::plan",
            ));
        }
        let lines = |index: usize| found.get(&index).map_or(&[][..], |&path| plan.blocks(path));
        let start = self.start(&|index| lines(index).iter().map(|entry| entry.spec()).collect())?;
        Ok(compare(plan, &start))
    }

    /// Names the scheme in the registry that comes closest, and the parameters that deviate; see [`identify`](super::identify()).
    ///
    /// # Errors
    /// A role that cannot be told, [`ErrorKind::File`], [`ErrorKind::Audit`] for a file without a parameter. [`Setup::identify_file`] tells what the names do not.
    pub fn identify(&self) -> Result<Identity, Error> {
        Setup::new().identify_file(self)
    }

    fn renamed(&self) -> Vec<String> {
        let names = self.tensors.iter().map(|tensor| names::renamed(&tensor.name, &self.renames));
        names.collect()
    }

    /// Reads every tensor for which `specs` has lines, and hashes the others.
    fn start<'a>(&self, specs: &dyn Fn(usize) -> Vec<&'a ParamSpec>) -> Result<Start, Error> {
        let (mut start, names, layouts) = (Start::default(), self.renamed(), self.layouts());
        for (index, tensor) in self.tensors.iter().enumerate() {
            let specs = specs(index);
            let Some(first) = specs.first() else {
                if tensor.kind != Kind::Other && !names::is_buffer(&tensor.name, tensor.shape.len()) {
                    let values = if tensor.kind == Kind::Quantized { None } else { Some(tensor.read()?) };
                    start.take_extra(&names[index], &tensor.shape, values.as_deref());
                }
                continue;
            };
            if first.path() != tensor.name && !start.names.contains_key(first.path()) {
                start.names.insert(first.path().to_string(), tensor.name.clone());
            }
            match tensor.kind {
                Kind::Quantized | Kind::Other => {
                    start.readings.entry(first.path().to_string()).or_insert(Reading::Quantized);
                }
                kind => {
                    let values = tensor.read()?;
                    let transposed = layouts[index] == Layout::OutIn;
                    let stored =
                        Stored { values: &values, shape: &tensor.shape, precision: kind.precision(), transposed };
                    start.take(&names[index], &specs, stored);
                }
            }
        }
        Ok(start)
    }

    /// The layout of each tensor, if it is the weight of a linear layer.
    fn layouts(&self) -> Vec<Layout> {
        if let Some(layout) = self.layout {
            return vec![layout; self.tensors.len()];
        }
        let shapes = self.shapes(self.names());
        let leaves = names::bare_leaves(self.tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.shape)));
        let roles = names::roles(&leaves);
        let width = roles.iter().zip(&leaves).find(|(role, _)| **role == Some(Role::TokenEmbedding));
        let width = width.and_then(|(_, leaf)| leaf.shape.last().copied());
        let decided: Vec<Option<Layout>> = (self.tensors.iter().zip(&roles))
            .map(|(tensor, role)| {
                let bias = tensor.name.strip_suffix("weight").map(|owner| format!("{owner}bias"));
                let bias = bias.and_then(|name| shapes.get(name.as_str())).and_then(|shape| shape.first());
                if names::gates(&tensor.name, &shapes).is_some() {
                    return Some(Layout::OutIn);
                }
                names::layout(&tensor.shape, bias.copied(), width, *role)
            })
            .collect();
        let count = |layout| decided.iter().filter(|decided| **decided == Some(layout)).count();
        let (straight, crossed) = (count(Layout::InOut), count(Layout::OutIn));
        let others = match straight.cmp(&crossed) {
            std::cmp::Ordering::Greater => Layout::InOut,
            std::cmp::Ordering::Less => Layout::OutIn,
            std::cmp::Ordering::Equal if self.from_burn => Layout::InOut,
            std::cmp::Ordering::Equal => Layout::OutIn,
        };
        decided.into_iter().map(|layout| layout.unwrap_or(others)).collect()
    }

    /// The tree that the names and shapes show, and for each of its leaves the tensor.
    fn tree(&self, setup: &Setup) -> Result<(Sites, Vec<usize>), Error> {
        let (names, layouts) = (self.renamed(), self.layouts());
        let kept: Vec<usize> = (0..self.tensors.len())
            .filter(|&i| {
                self.tensors[i].kind != Kind::Other && !names::is_buffer(&names[i], self.tensors[i].shape.len())
            })
            .collect();
        let bare = names::bare_leaves(kept.iter().map(|&i| (names[i].as_str(), &self.tensors[i].shape)));
        let roles = names::roles(&bare);
        let mut leaves: Vec<Leaf> = Vec::with_capacity(bare.len());
        for ((leaf, role), &i) in bare.into_iter().zip(roles).zip(&kept) {
            let mut leaf = names::in_a_layer(leaf, role, layouts[i]);
            leaf.quantized = self.tensors[i].kind == Kind::Quantized;
            leaf.id = i as u64 + 1;
            leaves.push(leaf);
        }
        self.tie(&mut leaves, &kept)?;
        let sites = resolve(&leaves, &self.with_gates(setup, &names, &leaves))?;
        match unknown_roles(sites.unknown.iter()) {
            Some(error) => Err(error),
            None => Ok((sites, kept)),
        }
    }

    /// What the names and shapes of recurrent layers tell, where `setup` does not say otherwise.
    fn with_gates(&self, setup: &Setup, names: &[String], leaves: &[Leaf]) -> Setup {
        let mut setup = setup.clone();
        let shapes = self.shapes(names.iter().map(String::as_str));
        for leaf in leaves {
            let Some(gates) = names::gates(&leaf.segments.join("."), &shapes) else { continue };
            let path = setup.full_path(&leaf.segments);
            // A line of the user's comes later, and is the last word.
            setup.layouts.insert(0, (Pattern::new(path.as_str()), Layout::OutIn));
            let told = setup.roles.iter().any(|(pattern, _)| pattern.matches(&path))
                || setup.packed.iter().any(|packing| packing.pattern.matches(&path));
            if !told {
                setup = setup.packed(path.as_str(), gates);
            }
        }
        setup
    }

    fn shapes<'a>(&'a self, names: impl Iterator<Item = &'a str>) -> HashMap<&'a str, &'a [u64]> {
        names.zip(self.tensors.iter().map(|tensor| tensor.shape.as_slice())).collect()
    }

    /// Tables and heads outside of the layers that hold the same values are one parameter.
    fn tie(&self, leaves: &mut [Leaf], kept: &[usize]) -> Result<(), Error> {
        let outside = |leaf: &Leaf| leaf.segments.iter().all(|segment| segment.parse::<u64>().is_err());
        for at in 0..leaves.len() {
            let tensor = &self.tensors[kept[at]];
            if tensor.shape.len() != 2 || !outside(&leaves[at]) || tensor.kind == Kind::Quantized {
                continue;
            }
            let twins: Vec<usize> = (0..at)
                .filter(|&j| self.tensors[kept[j]].shape == tensor.shape && outside(&leaves[j]))
                .filter(|&j| self.tensors[kept[j]].kind == tensor.kind)
                .collect();
            for twin in twins {
                if self.tensors[kept[twin]].read()? == tensor.read()? {
                    leaves[at].id = leaves[twin].id;
                    break;
                }
            }
        }
        Ok(())
    }

    fn read_header(&mut self, path: &Path) -> Result<(), Error> {
        let io = |error: std::io::Error| broken(path, error, "");
        let mut file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        let mut magic = [0u8; 8];
        if size < 8 {
            return Err(broken(path, "it is shorter than a header", "open a safetensors or burnpack file"));
        }
        file.read_exact(&mut magic).map_err(io)?;
        if magic[..4] == *b"NRUB" {
            return self.read_pack(path);
        }
        // The length of a header can begin with the bytes of a pickle; JSON tells them apart.
        let mut first = [0u8; 1];
        let is_json = file.read(&mut first).map_err(io)? == 1 && first == *b"{";
        file.seek(SeekFrom::Start(8)).map_err(io)?;
        if !is_json && (magic[..2] == *b"PK" || magic[0] == 0x80) {
            return Err(broken(
                path,
                "it is a pickle of PyTorch's",
                "save it as safetensors: safetensors.torch.save_model(model, \"model.safetensors\")",
            ));
        }
        let header = u64::from_le_bytes(magic);
        const LARGEST: u64 = 100_000_000;
        if header > LARGEST || header > size - 8 {
            return Err(broken(path, "it is no safetensors file, or truncated", "open a safetensors or burnpack file"));
        }
        let mut text = vec![0u8; header as usize];
        file.read_exact(&mut text).map_err(io)?;
        let metadata: Metadata = serde_json::from_slice(&text)
            .map_err(|error| broken(path, format!("its header cannot be read: {error}"), "write it anew"))?;
        let due = 8 + header + metadata.data_len() as u64;
        if size < due {
            let found = format!("it is truncated: it has {size} bytes, and its header tells of {due}");
            return Err(broken(path, found, "write or download it anew"));
        }
        if size > due {
            let found = format!("{} bytes follow the last tensor, and a safetensors file has none there", size - due);
            return Err(broken(path, found, "write or download it anew: its header is of another file"));
        }
        let producer = metadata.metadata().as_ref().and_then(|metadata| metadata.get("producer"));
        self.from_burn |= producer.is_some_and(|producer| producer == "burn");
        for name in metadata.offset_keys() {
            let Some(info) = metadata.info(&name) else { continue };
            let (from, to) = info.data_offsets;
            self.tensors.push(Entry {
                shape: info.shape.iter().map(|&d| d as u64).collect(),
                kind: Kind::of(info.dtype),
                place: Place::Range { path: path.into(), start: 8 + header + from as u64, len: to - from },
                name,
            });
        }
        Ok(())
    }

    fn read_pack(&mut self, path: &Path) -> Result<(), Error> {
        let failed = |error: burn_pack::Error| broken(path, format!("{error:?}"), "write it anew");
        let tensors = burn_pack::Reader::from_file_exact(path).map_err(failed)?.into_tensors().map_err(failed)?;
        self.from_burn = true;
        for tensor in tensors {
            self.tensors.push(Entry {
                name: tensor.name.clone(),
                shape: tensor.shape.to_vec().into_iter().map(|d| d as u64).collect(),
                kind: match tensor.dtype {
                    DType::F64 => Kind::F64,
                    DType::F32 | DType::Flex32 => Kind::F32,
                    DType::F16 => Kind::F16,
                    DType::BF16 => Kind::BF16,
                    DType::QFloat(_) => Kind::Quantized,
                    _ => Kind::Other,
                },
                place: Place::Pack(Box::new(tensor)),
            });
        }
        Ok(())
    }
}

impl Plan {
    /// As [`Plan::audit`], for a file of weights: safetensors, also from PyTorch, or burnpack. See [`WeightFile`] for names and layouts.
    ///
    /// # Errors
    /// See [`WeightFile::open`] and [`WeightFile::audit`].
    pub fn audit_file(&self, path: impl AsRef<Path>) -> Result<Audit, Error> {
        WeightFile::open(path)?.audit(self)
    }
}

impl Setup {
    /// As [`WeightFile::plan`], for names that do not tell everything.
    ///
    /// # Errors
    /// See [`WeightFile::plan`].
    pub fn plan_file(&self, file: &WeightFile, scheme: &dyn Initializer) -> Result<Plan, Error> {
        let everything = |_: &Site| true;
        Plan::make(&file.tree(self)?.0, &everything, scheme)
    }

    /// As [`WeightFile::identify`], for names that do not tell everything.
    ///
    /// # Errors
    /// See [`WeightFile::identify`].
    pub fn identify_file(&self, file: &WeightFile) -> Result<Identity, Error> {
        let (sites, kept) = file.tree(self)?;
        // Tied leaves are read for the line of the one that decides.
        let mut owners: HashMap<u64, &Site> = HashMap::new();
        for site in &sites.known {
            let owner = owners.entry(site.specs[0].id.0).or_insert(site);
            if site.specs[0].role() == Role::TokenEmbedding {
                *owner = site;
            }
        }
        let by_tensor: HashMap<usize, &Site> =
            sites.known.iter().map(|site| (kept[site.leaf], owners[&site.specs[0].id.0])).collect();
        let start =
            file.start(&|index| by_tensor.get(&index).map_or(Vec::new(), |site| site.specs.iter().collect()))?;
        rank(&sites, &start)
    }
}

impl Kind {
    fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F64 => Kind::F64,
            Dtype::F32 => Kind::F32,
            Dtype::F16 => Kind::F16,
            Dtype::BF16 => Kind::BF16,
            Dtype::BOOL | Dtype::U8 | Dtype::I8 | Dtype::U16 | Dtype::I16 | Dtype::U32 | Dtype::I32 => Kind::Other,
            Dtype::U64 | Dtype::I64 | Dtype::C64 => Kind::Other,
            _ => Kind::Quantized,
        }
    }

    fn precision(self) -> u32 {
        match self {
            Kind::BF16 => 8,
            Kind::F16 => 11,
            _ => 24,
        }
    }
}

impl Entry {
    fn read(&self) -> Result<Vec<f32>, Error> {
        match &self.place {
            Place::Range { path, start, len } => {
                let io = |error: std::io::Error| broken(path, error, "").at(self.name.as_str());
                let mut file = File::open(path).map_err(io)?;
                file.seek(SeekFrom::Start(*start)).map_err(io)?;
                let mut bytes = vec![0u8; *len];
                file.read_exact(&mut bytes).map_err(io)?;
                Ok(self.kind.floats(&bytes))
            }
            Place::Pack(tensor) => {
                let bytes = tensor.to_bytes().map_err(|error| {
                    Error::new(ErrorKind::File, format!("{error:?}"), "write it anew").at(self.name.as_str())
                })?;
                Ok(self.kind.floats(&bytes))
            }
        }
    }
}

impl Kind {
    /// Little-endian bytes as f32.
    fn floats(self, bytes: &[u8]) -> Vec<f32> {
        fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
            bytes.as_chunks::<N>().0.iter().map(|chunk| value(*chunk)).collect()
        }
        match self {
            Kind::F64 => each(bytes, |b: [u8; 8]| f64::from_le_bytes(b) as f32),
            Kind::F32 => each(bytes, f32::from_le_bytes),
            Kind::F16 => each(bytes, |b: [u8; 2]| half::f16::from_le_bytes(b).to_f32()),
            Kind::BF16 => each(bytes, |b: [u8; 2]| half::bf16::from_le_bytes(b).to_f32()),
            Kind::Quantized | Kind::Other => Vec::new(),
        }
    }
}

/// The files that make up one model.
fn parts(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let io = |error: std::io::Error| broken(path, error, "");
    if path.is_dir() {
        let mut parts: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io)? {
            let part = entry.map_err(io)?.path();
            if part.extension().is_some_and(|extension| extension == "safetensors") && !part.is_dir() {
                parts.push(part);
            }
        }
        parts.sort();
        return match parts.is_empty() {
            true => Err(broken(path, "there is no safetensors file in this folder", "give the file")),
            false => Ok(parts),
        };
    }
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(vec![path.into()]);
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    let index: serde_json::Value = serde_json::from_str(&text).map_err(|error| broken(path, error, ""))?;
    let Some(map) = index.get("weight_map").and_then(serde_json::Value::as_object) else {
        return Err(broken(path, "it has no weight_map", "give a safetensors file or the index of its shards"));
    };
    let mut parts: Vec<PathBuf> =
        map.values().filter_map(serde_json::Value::as_str).map(|name| path.with_file_name(name)).collect();
    parts.sort();
    parts.dedup();
    match parts.iter().find(|part| !part.is_file()) {
        Some(missing) => {
            let found = format!("it names {}, which is not there", missing.display());
            Err(broken(path, found, "put all shards beside their index"))
        }
        None if parts.is_empty() => Err(broken(path, "its weight_map names no file", "give the index of a model")),
        None => Ok(parts),
    }
}

/// Segments in an order in which layer 10 comes after layer 9.
fn natural(name: &str) -> Vec<(Option<u64>, &str)> {
    name.split('.').map(|segment| (segment.parse().ok(), segment)).collect()
}
