//! Writes an initialized checkpoint from a plan alone: no model is built, and its size is bounded by the disk.
//!
//!     cargo run --release --example init_checkpoint -- --preset gpt2-xl --dtype bf16 --out gpt2-xl
//!     cargo run --release --example init_checkpoint -- --config config.json --scheme olmo-mitchell --seed 7 --out start
//!     cargo run --release --example init_checkpoint -- --preset llama-70b --dry-run
//!
//! Then, in Python: `AutoModelForCausalLM.from_pretrained("gpt2-xl")`. A run that was cut off is continued by the same command.

use std::{
    error::Error,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use burn::tensor::{bf16, f16};
use burn_init::{
    Dtype, HuggingFace, Layout, Plan, Scheme,
    checkpoint::{Checkpoint, Keys, Written},
    sample::Element,
};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

/// Writes an initialized checkpoint, larger than memory if need be.
#[derive(Parser)]
struct Knobs {
    /// A published model by name; an unknown name prints those that are known
    #[arg(long, required_unless_present_any = ["config", "plan"], conflicts_with_all = ["config", "plan"])]
    preset: Option<String>,
    /// Hugging Face's config.json of a GPT-2, Llama, Mistral, Qwen2 or OLMo 2
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    config: Option<PathBuf>,
    /// A plan that was saved as JSON, of any burn module
    #[arg(long, value_name = "FILE", conflicts_with = "scheme")]
    plan: Option<PathBuf>,
    /// How to start: a scheme's name, or JSON; what transformers does if not given
    #[arg(long)]
    scheme: Option<Scheme>,
    /// Seed of the values
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Precision
    #[arg(long, value_enum, default_value_t = Precision::Bf16)]
    dtype: Precision,
    /// How linear maps are stored; if not given as transformers loads them, or for a plan as its module stores them
    #[arg(long, value_enum)]
    layout: Option<Storage>,
    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Safetensors)]
    format: Format,
    /// The folder, or for burnpack the file
    #[arg(long, default_value = "checkpoint")]
    out: PathBuf,
    /// Most bytes of values in one safetensors file: 500MB, 5GB
    #[arg(long, default_value = "5GB", value_parser = bytes)]
    shard_size: u64,
    /// Print the plan and the sizes, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// First time a plain file of the same size, and drawing without a file
    #[arg(long)]
    compare: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Precision {
    F32,
    F16,
    Bf16,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Storage {
    /// [d_in, d_out], as burn's Linear
    InOut,
    /// [d_out, d_in], as PyTorch's
    OutIn,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    Safetensors,
    Burnpack,
}

fn main() -> Result<(), Box<dyn Error>> {
    let knobs = Knobs::parse();
    let dtype = match knobs.dtype {
        Precision::F32 => Dtype::F32,
        Precision::F16 => Dtype::F16,
        Precision::Bf16 => Dtype::BF16,
    };
    let model = model(&knobs)?;
    let clock = Instant::now();
    let plan = match (&model, &knobs.plan) {
        (Some(model), _) => model.plan(&scheme(&knobs, model)?)?,
        (None, Some(path)) => serde_json::from_str(&read(path)?)?,
        (None, None) => return Err("give --preset, --config or --plan".into()),
    };
    println!("planned {} parameters in {:.1} ms", plan.num_params(), clock.elapsed().as_secs_f64() * 1e3);

    let mut checkpoint = Checkpoint::new(&plan, knobs.seed).dtype(dtype).shard_size(knobs.shard_size);
    if let Some(model) = &model {
        checkpoint = checkpoint.hugging_face(model);
    }
    checkpoint = match knobs.layout {
        Some(Storage::InOut) => checkpoint.keys(Keys::new().layout(Layout::InOut)),
        Some(Storage::OutIn) => checkpoint.keys(Keys::new().layout(Layout::OutIn)),
        None => checkpoint,
    };
    if knobs.dry_run {
        let files = checkpoint.files()?;
        let mut text = format!("{plan:#}\n");
        for file in &files {
            text += &format!("{}  {} tensors  {}\n", file.name, file.tensors.len(), human(file.bytes));
        }
        text += &format!("{} in {} files\n", human(files.iter().map(|file| file.bytes).sum()), files.len());
        // Whoever reads it may have seen enough.
        let _ = std::io::stdout().write_all(text.as_bytes());
        return Ok(());
    }
    let alone = match knobs.compare {
        true => Some((plain_file(&knobs.out, size(&checkpoint)?)?, draw(&plan, knobs.seed, dtype)?)),
        false => None,
    };

    let bar = ProgressBar::new(plan.num_params());
    bar.set_style(ProgressStyle::with_template("{wide_bar} {percent}%  {eta} left  {msg}")?);
    let shown = bar.clone();
    let checkpoint = checkpoint.progress(move |progress| {
        shown.set_position(progress.done);
        shown.set_message(progress.path.to_string());
    });
    let clock = Instant::now();
    let written = match knobs.format {
        Format::Safetensors => checkpoint.safetensors(&knobs.out),
        Format::Burnpack => checkpoint.burnpack(&knobs.out),
    };
    bar.finish_and_clear();
    let written = written?;
    let took = clock.elapsed();
    report(&knobs.out, &written, took);
    if let Some((file, drawing)) = alone {
        let ratio = took.as_secs_f64() / file.max(drawing).as_secs_f64();
        println!("a plain file of that size took {file:.2?}, drawing alone {drawing:.2?}: {ratio:.2} times the slower");
    }
    Ok(())
}

fn model(knobs: &Knobs) -> Result<Option<HuggingFace>, Box<dyn Error>> {
    Ok(match (&knobs.preset, &knobs.config) {
        (Some(name), _) => Some(HuggingFace::preset(name)?),
        (None, Some(path)) => Some(HuggingFace::from_json(&read(path)?)?),
        (None, None) => None,
    })
}

/// The one that was asked for, or what `transformers` does.
fn scheme(knobs: &Knobs, model: &HuggingFace) -> Result<Scheme, burn_init::Error> {
    match (&knobs.scheme, model.model_type()) {
        (Some(scheme), _) => Ok(scheme.clone()),
        (None, "gpt2") => "gpt2".parse(),
        (None, _) => "hf-llama".parse(),
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn report(out: &Path, written: &Written, took: Duration) {
    let speed = human((written.bytes as f64 / took.as_secs_f64()) as u64);
    println!("{}: {} in {} files, {took:.2?}, {speed}/s", out.display(), human(written.bytes), written.files.len());
    if written.found > 0 {
        println!("{} of them were there already and are as they should be", written.found);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(peak) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        println!("peak memory {}", peak.trim());
    }
}

fn size(checkpoint: &Checkpoint<'_>) -> Result<u64, Box<dyn Error>> {
    Ok(checkpoint.files()?.iter().map(|file| file.bytes).sum())
}

/// Writes a file of bytes beside the checkpoint, synced as it is, and removes it.
fn plain_file(out: &Path, bytes: u64) -> Result<Duration, Box<dyn Error>> {
    let path = out.with_extension("plain");
    let buffer = vec![0x5au8; 1 << 20];
    let clock = Instant::now();
    let mut file = File::create(&path)?;
    let mut left = bytes as usize;
    while left > 0 {
        let now = left.min(buffer.len());
        file.write_all(&buffer[..now])?;
        left -= now;
    }
    file.sync_all()?;
    let took = clock.elapsed();
    fs::remove_file(&path)?;
    Ok(took)
}

/// Draws everything once, into one small buffer.
fn draw(plan: &Plan, seed: u64, dtype: Dtype) -> Result<Duration, burn_init::Error> {
    match dtype {
        Dtype::F16 => draw_as::<f16>(plan, seed),
        Dtype::BF16 => draw_as::<bf16>(plan, seed),
        _ => draw_as::<f32>(plan, seed),
    }
}

fn draw_as<E: Element>(plan: &Plan, seed: u64) -> Result<Duration, burn_init::Error> {
    const VALUES: u64 = 1 << 22;
    let clock = Instant::now();
    let mut buffer = vec![E::default(); VALUES as usize];
    for entry in plan.iter().filter(|entry| entry.spec().block().is_none_or(|block| block.index == 0)) {
        let shape = entry.spec().shape();
        let row: u64 = shape[1..].iter().product();
        let step = (VALUES / row.max(1)).max(1);
        for first in (0..shape[0]).step_by(step as usize) {
            let mut ranges: Vec<_> = shape.iter().map(|&d| 0..d).collect();
            ranges[0] = first..(first + step).min(shape[0]);
            let block = plan.shard(entry.spec().path(), &ranges, seed)?;
            let count = block.num_elements() as usize;
            if buffer.len() < count {
                buffer.resize(count, E::default());
            }
            block.fill(&mut buffer[..count])?;
        }
    }
    Ok(clock.elapsed())
}

fn human(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{bytes} B"),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// `500MB`, `5GB`, or a number of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];
    let (number, unit) =
        units.into_iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).unwrap_or((text, 1.0));
    let number: f64 = number.trim().parse().map_err(|_| format!("\"{text}\" is no size; write 500MB or 5GB"))?;
    Ok((number * unit) as u64)
}
