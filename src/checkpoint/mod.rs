//! Whole checkpoints from a plan: safetensors files as Hugging Face has them, or burn's burnpack, larger than memory.
//!
//! A checkpoint is drawn and written piece by piece, so that its size is bounded by the disk alone, and a user of PyTorch or JAX
//! can start from it as well as one of burn.
//!
//! ```no_run
//! use burn_init::{Dtype, Gpt2, HuggingFace, checkpoint::Checkpoint};
//!
//! # fn main() -> Result<(), burn_init::Error> {
//! let model = HuggingFace::preset("gpt2-xl")?;                       // or from_json(&std::fs::read_to_string("config.json")?)
//! let plan = model.plan(&Gpt2::new())?;
//! Checkpoint::new(&plan, 42).hugging_face(&model).dtype(Dtype::BF16).safetensors("gpt2-xl")?;
//! // In Python: AutoModelForCausalLM.from_pretrained("gpt2-xl")
//! # Ok(()) }
//! ```
//!
//! A file has its name only when it is whole. What a run leaves behind that was killed or met a full disk is taken up by the
//! next one: files that are there are drawn again and compared, byte for byte, and the rest is written.

mod format;
mod keys;
mod sink;
mod stream;

pub use keys::Keys;

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::tensor::{bf16, f16};

use crate::{
    error::{Error, ErrorKind},
    hugging_face::HuggingFace,
    plan::Plan,
    role::{Dtype, Layout, Progress},
    rule::{Law, short},
    sample::{STREAM_VERSION, fnv_1a},
    shard::drawable,
};
use sink::{Sink, Unfinished, cannot_read, cannot_write, damaged, write_whole};
use stream::Word;

/// Five gigabytes, as `transformers` has it.
const SHARD_SIZE: u64 = 5_000_000_000;

/// What a plan and a seed draw, as files.
///
/// Values are those of [`initialize`](crate::ModuleInit::initialize), whatever the names, the layout and the number of files. Some 30 MB of
/// memory are enough for any size, and more only where a parameter is defined on the whole: see
/// [`Shard::workspace_bytes`](crate::Shard::workspace_bytes).
#[derive(Clone)]
pub struct Checkpoint<'a> {
    plan: &'a Plan,
    seed: u64,
    dtype: Dtype,
    keys: Keys,
    shard_size: u64,
    skip_kept: bool,
    stored_only: bool,
    config: Option<&'a HuggingFace>,
    on_progress: Option<OnProgress>,
}

type OnProgress = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSummary {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The names of its tensors, in their order.
    pub tensors: Vec<String>,
}

/// What [`Checkpoint::safetensors`] and [`Checkpoint::burnpack`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The files with values.
    pub files: Vec<PathBuf>,
    /// Their bytes in all.
    pub bytes: u64,
    /// How many of them were there already, and were compared instead of written.
    pub found: usize,
}

impl<'a> Checkpoint<'a> {
    /// What `seed` draws by `plan`: in `f32`, with the names of the plan and the layout of the module.
    pub fn new(plan: &'a Plan, seed: u64) -> Self {
        Self {
            plan,
            seed,
            dtype: Dtype::F32,
            keys: Keys::new(),
            shard_size: SHARD_SIZE,
            skip_kept: false,
            stored_only: false,
            config: None,
            on_progress: None,
        }
    }

    /// The precision of the values.
    pub fn dtype(self, dtype: Dtype) -> Self {
        Self { dtype, ..self }
    }

    /// The names of the tensors, and the layout of linear maps.
    pub fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    /// The layout of linear maps, whatever the names.
    pub fn layout(self, layout: Layout) -> Self {
        Self { keys: self.keys.layout(layout), ..self }
    }

    /// As `transformers` loads it: names and layout of this model, and its `config.json` beside the files.
    pub fn hugging_face(self, model: &'a HuggingFace) -> Self {
        Self { keys: Keys::hugging_face(model), config: Some(model), ..self }
    }

    /// The most bytes of values in one safetensors file, 5 GB if not said otherwise. A tensor is never divided: one that is larger has a file of its own.
    pub fn shard_size(self, bytes: u64) -> Self {
        Self { shard_size: bytes, ..self }
    }

    /// Leaves out the parameters that the plan keeps, adapters and buffers, whose values only a model has. Without this line they are an
    /// error.
    pub fn skip_kept(self) -> Self {
        Self { skip_kept: true, ..self }
    }

    /// Writes the stored values of a plan with forward multipliers (muP, u-muP, DeepNorm), which a file has no place for: whoever reads them has to
    /// multiply in the forward pass, as [`Setup::attach`](crate::Setup::attach) does. Without this line such a plan is an error.
    pub fn stored_only(self) -> Self {
        Self { stored_only: true, ..self }
    }

    /// Calls back after each piece, from another thread.
    pub fn progress(self, callback: impl Fn(Progress<'_>) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(Arc::new(callback)), ..self }
    }

    /// The safetensors files that would be written.
    ///
    /// # Errors
    /// As [`safetensors`](Self::safetensors), as far as they do not need a disk.
    pub fn files(&self) -> Result<Vec<FileSummary>, Error> {
        let summary = |file: format::FileLayout<'_>| FileSummary {
            bytes: file.len,
            tensors: file.tensors.into_iter().map(|(_, target)| target.name).collect(),
            name: file.name,
        };
        Ok(self.safetensors_files()?.into_iter().map(summary).collect())
    }

    /// Writes safetensors files into `folder`, which is made if it is not there: `model.safetensors`, or several numbered files and
    /// `model.safetensors.index.json`, which is written last.
    ///
    /// Files that are there already are compared with what they should be and kept, so that a run that was cut off is continued by
    /// running it again.
    ///
    /// # Errors
    /// [`ErrorKind::File`]: a folder that cannot be written to, a full disk, a file that is there and is damaged or belongs to another
    /// checkpoint, another process that writes it. Nothing that is complete is lost by any of them, and no file is ever replaced.
    /// [`ErrorKind::NoRule`] for kept parameters, [`ErrorKind::InvalidValue`] for values beyond the precision,
    /// [`ErrorKind::Unmatched`] and [`ErrorKind::Config`] for [`Keys`] that do not fit.
    pub fn safetensors(&self, folder: impl AsRef<Path>) -> Result<Written, Error> {
        let folder = folder.as_ref();
        let files = self.safetensors_files()?;
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        let index = (files.len() > 1).then(|| format::index(&files, self.dtype));
        self.check_folder(folder, &files, index.as_deref())?;
        let written = self.write(folder, &files)?;
        if let Some(model) = self.config {
            write_config(folder, model, self.dtype)?;
        }
        if let Some(index) = index {
            write_once(&folder.join(INDEX), &index)?;
        }
        Ok(written)
    }

    /// Writes one file in burn's own format, for `load_file` of a burn module whose paths are those of the plan; a prefix comes off with
    /// `Keys::new().rename("model.**", "**")`. The file should be called `….bpk`.
    ///
    /// # Errors
    /// As [`safetensors`](Self::safetensors); and where it would be larger than burnpack's readers take: 100 GB in all, and 10 GB for a
    /// tensor.
    pub fn burnpack(&self, path: impl AsRef<Path>) -> Result<Written, Error> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new(""));
        let Some(name) = path.file_name() else {
            return Err(Error::new(
                ErrorKind::File,
                format!("{path:?} is no name of a file"),
                "name one, such as model.bpk",
            ));
        };
        let name = name.to_string_lossy().into_owned();
        let file = format::burnpack(name, self.targets()?, self.dtype, &self.notes())?;
        if !folder.as_os_str().is_empty() {
            fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        }
        self.write(folder, &[file])
    }

    fn safetensors_files(&self) -> Result<Vec<format::FileLayout<'a>>, Error> {
        if self.shard_size == 0 {
            return Err(Error::config("the shard size is 0", "allow some bytes for each file"));
        }
        let mut notes = self.notes();
        // Without this line `transformers` does not take the file.
        notes.insert("format".into(), "pt".into());
        format::safetensors(self.targets()?, self.dtype, self.shard_size, &notes)
    }

    /// What tells this checkpoint from others.
    fn notes(&self) -> BTreeMap<String, String> {
        let plan = serde_json::to_vec(self.plan).unwrap_or_default();
        let hash = fnv_1a(plan.into_iter().map(u64::from));
        let note = format!("seed {}, plan {hash:016x}, streams of version {STREAM_VERSION}", self.seed);
        [("burn-init".to_string(), note)].into()
    }

    fn targets(&self) -> Result<Vec<keys::Target<'a>>, Error> {
        let mut targets = self.keys.targets(self.plan)?;
        if targets.is_empty() {
            return Err(Error::config("the plan has no parameters", "plan a model that has some"));
        }
        let kept = |target: &keys::Target<'_>| target.parts.iter().any(|part| part[0].law() == &Law::Keep);
        if self.skip_kept {
            targets.retain(|target| !kept(target));
        }
        for target in &targets {
            if kept(target) {
                return Err(target.parts[0][0].spec().error(
                    ErrorKind::NoRule,
                    "it is kept, so that the plan does not tell its values",
                    "leave such parameters out with .skip_kept(), or give them a rule",
                ));
            }
            let multiplied = |entry: &&crate::Entry| entry.rule().forward != 1.0;
            if let Some(entry) =
                target.parts.iter().flat_map(|part| part.iter()).find(multiplied).filter(|_| !self.stored_only)
            {
                return Err(entry.spec().error(
                    ErrorKind::Attached,
                    format!("the scheme multiplies it by {} in the forward pass, and a file holds values only", short(entry.rule().forward)),
                    "write the stored values with .stored_only() and multiply where they are read, or choose a scheme without multipliers",
                ));
            }
            for part in &target.parts {
                match self.dtype {
                    Dtype::F64 => drawable::<f64>(part),
                    Dtype::F32 => drawable::<f32>(part),
                    Dtype::F16 => drawable::<f16>(part),
                    Dtype::BF16 => drawable::<bf16>(part),
                }?;
            }
        }
        Ok(targets)
    }

    /// Another checkpoint in the folder could be loaded instead of this one.
    fn check_folder(&self, folder: &Path, files: &[format::FileLayout<'_>], index: Option<&str>) -> Result<(), Error> {
        let entries = fs::read_dir(folder).map_err(|error| cannot_read(folder, &error))?;
        for entry in entries {
            let name = entry.map_err(|error| cannot_read(folder, &error))?.file_name();
            let name = name.to_string_lossy();
            let ours = files.iter().any(|file| *file.name == *name) || (index.is_some() && *name == *INDEX);
            if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) && !ours {
                return Err(foreign(&folder.join(&*name)));
            }
        }
        if let (Some(index), Ok(text)) = (index, fs::read_to_string(folder.join(INDEX)))
            && index != text
        {
            return Err(foreign(&folder.join(INDEX)));
        }
        if let (Some(model), Ok(text)) = (self.config, fs::read_to_string(folder.join(CONFIG))) {
            same_model(&folder.join(CONFIG), &text, model)?;
        }
        Ok(())
    }

    fn write(&self, folder: &Path, files: &[format::FileLayout<'_>]) -> Result<Written, Error> {
        let total = files.iter().map(format::FileLayout::num_elements).sum();
        let mut done = 0;
        let mut report = |path: &str, values: u64| {
            done += values;
            if let Some(callback) = &self.on_progress {
                callback(Progress { path, done, total });
            }
        };
        let mut written = Written { files: Vec::new(), bytes: 0, found: 0 };
        for file in files {
            let path = folder.join(&file.name);
            let found = match self.dtype {
                Dtype::F64 => self.write_file::<f64>(&path, file, &mut report),
                Dtype::F32 => self.write_file::<f32>(&path, file, &mut report),
                Dtype::F16 => self.write_file::<f16>(&path, file, &mut report),
                Dtype::BF16 => self.write_file::<bf16>(&path, file, &mut report),
            }?;
            written.files.push(path);
            written.bytes += file.len;
            written.found += usize::from(found);
        }
        Ok(written)
    }

    /// Writes the file, or compares it if it is there, and says which.
    fn write_file<E: Word>(
        &self,
        path: &Path,
        file: &format::FileLayout<'_>,
        report: &mut (dyn FnMut(&str, u64) + Send),
    ) -> Result<bool, Error> {
        if compare_header(path, file)? {
            let there = File::open(path).map_err(|error| cannot_read(path, &error))?;
            let mut sink = Sink::new(path, there, true);
            sink.take(&file.header, "the header")?;
            stream::body::<E>(file, self.seed, &mut sink, report)?;
            return Ok(true);
        }
        let (unfinished, new) = Unfinished::create(path)?;
        let mut sink = Sink::new(path, new, false);
        sink.take(&file.header, "the header")?;
        stream::body::<E>(file, self.seed, &mut sink, report)?;
        sink.pad_to(file.len, "the end")?;
        unfinished.finish(sink.into_file())?;
        Ok(false)
    }
}

const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";

/// Whether the file is there; an error if it is there and is not this one.
fn compare_header(path: &Path, file: &format::FileLayout<'_>) -> Result<bool, Error> {
    let mut there = match File::open(path) {
        Ok(there) => there,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(cannot_read(path, &error)),
    };
    let mut header = Vec::new();
    let read = there.by_ref().take(file.header.len() as u64).read_to_end(&mut header);
    read.map_err(|error| cannot_read(path, &error))?;
    if header != file.header {
        return Err(foreign(path));
    }
    let len = there.metadata().map_err(|error| cannot_read(path, &error))?.len();
    match len == file.len {
        true => Ok(true),
        false => Err(damaged(path, &format!("it has {len} bytes instead of {}", file.len))),
    }
}

fn foreign(path: &Path) -> Error {
    Error::new(
        ErrorKind::File,
        format!("{} is there already and is not of this checkpoint", path.display()),
        "choose another place, or remove it; to continue a run use the same plan, seed, precision, names and sizes",
    )
}

/// Writes a small file, or finds it there as it should be.
fn write_once(path: &Path, text: &str) -> Result<(), Error> {
    match fs::read_to_string(path) {
        Ok(there) if there == text => Ok(()),
        Ok(_) => Err(foreign(path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => write_whole(path, text),
        Err(error) => Err(cannot_read(path, &error)),
    }
}

fn write_config(folder: &Path, model: &HuggingFace, dtype: Dtype) -> Result<(), Error> {
    let path = folder.join(CONFIG);
    match fs::read_to_string(&path) {
        Ok(text) => same_model(&path, &text, model),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => write_whole(&path, &model.to_json(dtype)),
        Err(error) => Err(cannot_read(&path, &error)),
    }
}

/// A configuration that is there may say more, but about the same model.
fn same_model(path: &Path, text: &str, model: &HuggingFace) -> Result<(), Error> {
    match HuggingFace::from_json(text) {
        Ok(there) if there.has_parameters_of(model) => Ok(()),
        _ => Err(foreign(path)),
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint")
            .field("seed", &self.seed)
            .field("dtype", &self.dtype)
            .field("keys", &self.keys)
            .field("shard_size", &self.shard_size)
            .finish_non_exhaustive()
    }
}
