//! A checkpoint has the values of `initialize`, under the names and in the layout that were asked for, and survives what happens to files.
#![cfg(feature = "checkpoint")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use burn::{
    module::Module,
    tensor::{bf16, f16},
};
use burn_init::{
    Blueprint, Dtype, ErrorKind, Fill, Gpt2, HuggingFace, Init, Initializer as _, Layout, ModuleInit as _,
    NormPlacement, Plan, Role, Scheme, Setup, TorchDefault, Xavier,
    audit::WeightFile,
    checkpoint::{Checkpoint, Keys},
    from_fn,
    reference::{Activation, Norm, Positions, TransformerConfig},
};
use burn_store::{ModuleSnapshot as _, PyTorchToBurnAdapter, SafetensorsStore};
use safetensors::SafeTensors;

use crate::{
    support::{device, values},
    trees::{Llama, NanoGpt, StackedMoe, own},
};

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unique = format!("burn-init-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        Self(std::env::temp_dir().join(unique))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn bytes(&self) -> BTreeMap<String, Vec<u8>> {
        self.names().into_iter().map(|name| (name.clone(), fs::read(self.0.join(name)).unwrap())).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Every tensor of a file as f32, read by the crate `safetensors`.
fn read(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |tensor: safetensors::tensor::TensorView<'_>| -> Vec<f32> {
        let data = tensor.data();
        let pair = |x: &[u8]| u16::from_le_bytes([x[0], x[1]]);
        match tensor.dtype() {
            safetensors::Dtype::F32 => data.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect(),
            safetensors::Dtype::F64 => {
                data.chunks(8).map(|x| f64::from_le_bytes(x.try_into().unwrap()) as f32).collect()
            }
            safetensors::Dtype::F16 => data.chunks(2).map(|x| f16::from_bits(pair(x)).to_f32()).collect(),
            safetensors::Dtype::BF16 => data.chunks(2).map(|x| bf16::from_bits(pair(x)).to_f32()).collect(),
            other => panic!("{other:?}"),
        }
    };
    file.tensors().into_iter().map(|(name, tensor)| (name, (tensor.shape().to_vec(), floats(tensor)))).collect()
}

fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

fn nano() -> NanoGpt {
    NanoGpt::new(2, 32, 50, 16, &device())
}

/// Both layouts, all precisions: what `initialize` gives, read by the crate `safetensors`.
#[test]
fn safetensors_files() {
    let scheme = TorchDefault::new().with(Role::Query, Init::orthogonal(1.0));
    let plan = nano().plan(&scheme).unwrap();
    let whole = values(&nano().initialize(&scheme, 5).unwrap());
    for layout in [Layout::InOut, Layout::OutIn] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let folder = Folder::new("layouts");
            let checkpoint = Checkpoint::new(&plan, 5).dtype(dtype).layout(layout);
            let written = checkpoint.safetensors(&folder.0).unwrap();
            assert_eq!(folder.names(), ["model.safetensors"]);
            assert_eq!(written.bytes, fs::metadata(&written.files[0]).unwrap().len());
            assert_eq!(written.bytes, checkpoint.files().unwrap()[0].bytes);
            let tensors = read(&written.files[0]);
            assert_eq!(tensors.len(), whole.len());
            for (path, (shape, found)) in tensors {
                let table = path.contains("wte") || path.contains("wpe");
                let turned = layout == Layout::OutIn && shape.len() == 2 && !table;
                let expected = if turned { transposed(&whole[&path], shape[0]) } else { whole[&path].clone() };
                let round = |x: f32| match dtype {
                    Dtype::F16 => f16::from_f32(x).to_f32(),
                    Dtype::BF16 => bf16::from_f32(x).to_f32(),
                    _ => x,
                };
                // Orthogonal entries are rounded from f64 in the same two steps.
                assert_eq!(found, expected.into_iter().map(round).collect::<Vec<_>>(), "{path} {layout:?} {dtype:?}");
            }
        }
    }
}

/// Files of a limited size, Hugging Face's index, and the same values as in one file.
#[test]
fn several_files() {
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let (one, many) = (Folder::new("one"), Folder::new("many"));
    let checkpoint = Checkpoint::new(&plan, 5).layout(Layout::OutIn);
    let written = checkpoint.safetensors(&one.0).unwrap();
    let whole = read(&written.files[0]);
    let limited = checkpoint.shard_size(13_000);
    let written = limited.safetensors(&many.0).unwrap();
    let count = written.files.len();
    assert!(count > 5);
    let index: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(many.0.join("model.safetensors.index.json")).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], plan.num_params() * 4);
    let mut all = Tensors::new();
    for (i, path) in written.files.iter().enumerate() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("model-{:05}-of-{count:05}.safetensors", i + 1));
        let tensors = read(path);
        let bytes: usize = tensors.values().map(|(_, values)| values.len() * 4).sum();
        assert!(bytes <= 13_000 || tensors.len() == 1, "{name} has {bytes} bytes");
        tensors.keys().for_each(|tensor| assert_eq!(index["weight_map"][tensor], name));
        all.extend(tensors);
    }
    assert_eq!(all, whole);
}

/// A tensor larger than the pieces it is drawn in, either way round.
#[test]
fn large_tensors() {
    let (d_in, d_out) = (3000u64, 1700u64);
    let tree = Blueprint::new().linear("a.weight", [d_in, d_out]).linear("a.bias", [d_out]);
    let plan = tree.plan(&TorchDefault::new()).unwrap();
    let whole = plan.whole("a.weight", 9).unwrap().values::<f32>().unwrap();
    for (layout, expected) in [(Layout::InOut, whole.clone()), (Layout::OutIn, transposed(&whole, d_out as usize))] {
        let folder = Folder::new("large");
        let written = Checkpoint::new(&plan, 9).layout(layout).safetensors(&folder.0).unwrap();
        let tensors = read(&written.files[0]);
        assert!(tensors["a.weight"].1 == expected, "{layout:?}");
    }
}

/// burn-store loads it into the module: as it is, and as PyTorch's.
#[test]
fn read_by_burn_store() {
    let scheme = TorchDefault::new();
    let whole = values(&nano().initialize(&scheme, 5).unwrap());
    let plan = nano().plan(&scheme).unwrap();
    let folder = Folder::new("store");
    let (burn, torch) = (folder.0.join("burn"), folder.0.join("torch"));
    Checkpoint::new(&plan, 5).safetensors(&burn).unwrap();
    let mut model = nano();
    model.load_from(&mut SafetensorsStore::from_file(burn.join("model.safetensors"))).unwrap();
    assert_eq!(values(&model), whole);
    Checkpoint::new(&plan, 5).keys(Keys::pytorch()).safetensors(&torch).unwrap();
    let names = read(&torch.join("model.safetensors"));
    assert!(names.contains_key("transformer.ln_f.weight") && names.contains_key("transformer.ln_f.bias"));
    let mut model = nano();
    let store = SafetensorsStore::from_file(torch.join("model.safetensors"));
    model.load_from(&mut store.with_from_adapter(PyTorchToBurnAdapter)).unwrap();
    assert_eq!(values(&model), whole);
}

/// burn's own format is loaded by `load_file`, also into a module that stores a matrix transposed or experts in a stack.
#[test]
fn burnpack() {
    let folder = Folder::new("burnpack");
    let scheme = TorchDefault::new();
    let path = folder.0.join("nano.bpk");
    let plan = nano().plan(&scheme).unwrap();
    let checkpoint = Checkpoint::new(&plan, 5);
    let written = checkpoint.burnpack(&path).unwrap();
    assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
    assert_eq!(values(&nano().load_file(&path)), values(&nano().initialize(&scheme, 5).unwrap()));
    assert_eq!(checkpoint.burnpack(&path).unwrap().found, 1);
    assert_eq!(checkpoint.dtype(Dtype::BF16).burnpack(&path).unwrap_err().kind(), ErrorKind::File);

    let path = folder.0.join("moe.bpk");
    let moe = || StackedMoe::new(2, &device());
    Checkpoint::new(&moe().plan(&Xavier::normal()).unwrap(), 5).burnpack(&path).unwrap();
    assert_eq!(values(&moe().load_file(&path)), values(&moe().initialize(&Xavier::normal(), 5).unwrap()));

    let setup = Setup::new().layout("weight", Layout::OutIn);
    let turned = || own::Linear::out_in(24, 40, true, &device());
    let plan = setup.plan(&turned(), &Xavier::normal()).unwrap();
    assert_eq!(plan.get("weight").unwrap().spec().shape(), [24, 40]);
    let path = folder.0.join("turned.bpk");
    Checkpoint::new(&plan, 5).burnpack(&path).unwrap();
    let started = setup.initialize(turned(), &Xavier::normal(), 5).unwrap();
    assert_eq!(values(&turned().load_file(&path)), values(&started));
}

/// The trees told by a config are those of `transformers`, by the names and shapes that were read from it.
#[test]
fn trees_of_transformers() {
    let linear_out_in = |name: &str| !name.contains("wte") && !name.contains("wpe") && !name.contains("embed_tokens");
    for (golden, config) in [
        (
            "hf_gpt2",
            r#"{"model_type": "gpt2", "n_embd": D, "n_layer": L, "n_head": 4, "n_positions": C, "vocab_size": V}"#,
        ),
        ("hf_llama", LLAMA),
        ("hf_olmo2", LLAMA),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/goldens/{golden}.json"));
        let golden_file: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let shapes: BTreeMap<String, Vec<u64>> = golden_file["params"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["slice_of"].is_null())
            .map(|row| (row["name"].as_str().unwrap().into(), serde_json::from_value(row["shape"].clone()).unwrap()))
            .collect();
        let first =
            |end: &str| shapes.iter().find(|(name, _)| name.ends_with(end)).map_or(vec![0, 0], |(_, s)| s.clone());
        let layers = golden_file["dims"]["n_layer"].as_u64().unwrap();
        let table = first(if golden == "hf_gpt2" { "wte.weight" } else { "embed_tokens.weight" });
        let config = config
            .replace("\"llama\"", if golden == "hf_olmo2" { "\"olmo2\"" } else { "\"llama\"" })
            .replace('V', &table[0].to_string())
            .replace('D', &table[1].to_string())
            .replace('L', &layers.to_string())
            .replace('C', &first("wpe.weight")[0].to_string())
            .replace('K', &(first("k_proj.weight")[0] / (table[1] / 4).max(1)).max(1).to_string())
            .replace('F', &first("gate_proj.weight")[0].to_string());
        let model = HuggingFace::from_json(&config).unwrap();
        let plan = model.plan(&Gpt2::new()).unwrap();
        let mut told = BTreeMap::new();
        for entry in &plan {
            let mut shape = entry.spec().shape().to_vec();
            if shape.len() == 2 && golden != "hf_gpt2" && linear_out_in(entry.spec().path()) {
                shape.swap(0, 1);
            }
            told.insert(entry.spec().path().to_string(), shape);
        }
        // A tied head is listed with its table in the golden file of GPT-2.
        let mut expected = shapes.clone();
        expected.retain(|name, _| name != "lm_head.weight" || told.contains_key(name));
        assert_eq!(told, expected, "{golden}");
    }
}

const GPT2: &str =
    r#"{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": 50}"#;

fn small_llama() -> String {
    LLAMA.replace('V', "50").replace('D', "32").replace(['L', 'K'], "2").replace('F', "48")
}

const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": 4,
    "num_key_value_heads": K, "intermediate_size": F, "vocab_size": V}"#;

/// Parameter counts of published models.
#[test]
fn presets() {
    for (name, count) in [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("llama-7b", 6_738_415_616),
        ("llama-13b", 13_015_864_320),
        ("llama-70b", 68_976_648_192),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("mistral-7b", 7_241_732_096),
        ("qwen2-0.5b", 494_032_768),
        ("qwen2-7b", 7_615_616_512),
        ("olmo2-7b", 7_298_617_344),
    ] {
        let model = HuggingFace::preset(name).unwrap();
        assert_eq!(model.plan(&Gpt2::new()).unwrap().num_params(), count, "{name}");
        assert_eq!(
            HuggingFace::from_json(&model.to_json(Dtype::BF16)).unwrap().plan(&Gpt2::new()).unwrap().num_params(),
            count
        );
    }
    for name in HuggingFace::presets() {
        let plan = HuggingFace::preset(name).unwrap().plan(&Gpt2::new()).unwrap();
        // OLMo 2 norms what its branches give, so that a factor for depth has no effect.
        let unheard = plan.warnings().iter().filter(|warning| warning.contains("takes the scale out")).count();
        assert_eq!((plan.warnings().len(), unheard), if name.starts_with("olmo2") { (1, 1) } else { (0, 0) }, "{name}");
        let placement = plan.iter().find_map(|entry| entry.spec().layer().map(|_| entry.spec().norm_placement()));
        let expected = if name.starts_with("olmo2") { NormPlacement::ResPost } else { NormPlacement::Pre };
        assert_eq!(placement, Some(expected), "{name}");
    }
    assert_eq!(
        HuggingFace::preset("gpt2xl").unwrap_err().to_string(),
        "unknown preset \"gpt2xl\"; did you mean gpt2-xl or gpt2 or gpt2-large?"
    );
}

/// What a fill of the user's own gives is looked at, wherever it goes: into a model, a shard, a file, a grown table.
#[test]
fn fills_that_no_precision_holds() {
    let fill = |value: f32| Fill::new("own", move |_, out: &mut [f32]| *out.last_mut().unwrap() = value);
    let scheme = |value: f32| Gpt2::new().with("transformer.wte.weight", Init::Fill(fill(value)));
    let text = |given: &str, dtype: &str| {
        format!(
            "transformer.wte.weight [50, 16]: the fill \"own\" gives {given}, which {dtype} has no number for; let its function write \
             finite numbers of that size"
        )
    };
    let model = || NanoGpt::new(1, 16, 50, 8, &device());
    for value in [f32::NAN, f32::INFINITY] {
        let scheme = scheme(value);
        let (given, plan) = (value.to_string(), model().plan(&scheme).unwrap());
        let error = model().initialize(&scheme, 1).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::InvalidValue, text(&given, "f32")));
        assert_eq!(
            plan.whole("transformer.wte.weight", 1).unwrap().values::<f32>().unwrap_err().to_string(),
            text(&given, "f32")
        );
        let folder = Folder::new("fills");
        let error = Checkpoint::new(&plan, 1).safetensors(&folder.0).unwrap_err();
        assert_eq!(error.to_string(), text(&given, "f32"));
        let grown =
            burn_init::Growth::vocabulary(60).drawn_by(&scheme).grow(model().initialize(&Gpt2::new(), 1).unwrap(), 2);
        assert!(grown.unwrap_err().to_string().contains("the fill \"own\" gives"));
    }
    // 1e5 is a number of f32, and none of f16.
    let plan = model().plan(&scheme(1e5)).unwrap();
    assert!(plan.whole("transformer.wte.weight", 1).unwrap().values::<f32>().is_ok());
    let folder = Folder::new("fills16");
    let error = Checkpoint::new(&plan, 1).dtype(Dtype::F16).safetensors(&folder.0).unwrap_err();
    assert_eq!(error.to_string(), text("100000", "f16"));
}

/// Every named scheme plans every family, or says why not.
#[test]
fn schemes_on_blueprints() {
    let llama = small_llama();
    let models =
        [GPT2, &llama, &llama.replace("\"llama\"", "\"olmo2\"")].map(|text| HuggingFace::from_json(text).unwrap());
    for (name, scheme, _) in Scheme::all() {
        for model in &models {
            match model.plan(&scheme) {
                Ok(plan) => assert!(plan.num_params() > 10_000),
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Unmatched | ErrorKind::NoRule | ErrorKind::Shape | ErrorKind::MissingFact
                    ) || error.to_string().contains("a norm after it takes it out again")
                        || error.to_string().contains("are res-post"),
                    "{name} on {}: {error}",
                    model.model_type()
                ),
            }
        }
    }
}

/// The same names give the same values, built or not built.
#[test]
fn a_blueprint_draws_what_the_module_draws() {
    let plan = HuggingFace::from_json(GPT2).unwrap().plan(&Gpt2::new()).unwrap();
    let whole = values(&nano().initialize(&Gpt2::new(), 5).unwrap());
    for (path, expected) in whole {
        let path = path.replace("gamma", "weight").replace("beta", "bias");
        assert_eq!(plan.whole(&path, 5).unwrap().values::<f32>().unwrap(), expected, "{path}");
    }
    let config = small_llama();
    let plan = HuggingFace::from_json(&config).unwrap().plan(&Xavier::normal()).unwrap();
    let model = Llama::new(2, 32, 16, 48, 50, &device());
    for (path, expected) in values(&model.initialize(&Xavier::normal(), 5).unwrap()) {
        let path = path.replace("gamma", "weight");
        assert_eq!(plan.whole(&path, 5).unwrap().values::<f32>().unwrap(), expected, "{path}");
    }
}

/// The reference model under the names of `transformers`: exactly those of the config, and its own values.
#[test]
fn the_reference_model_as_transformers_names_it() {
    let folder = Folder::new("reference");
    let gpt2 = TransformerConfig::new(50, 16, 32, 2, 4).with_scheme(Scheme::from(TorchDefault::new()));
    let llama = TransformerConfig::new(50, 16, 32, 2, 4)
        .with_n_kv_heads(2)
        .with_d_ff(48)
        .with_norm(Norm::RmsNorm)
        .with_positions(Positions::Rotary)
        .with_activation(Activation::SwiGlu)
        .with_bias(false)
        .with_tied(false);
    let other = small_llama();
    for (name, reference, keys, config) in
        [("gpt2", gpt2, Keys::gpt2(), GPT2.to_string()), ("llama", llama, Keys::llama(), other)]
    {
        let model = reference.init(&device()).unwrap();
        let scheme = TorchDefault::new();
        let plan = model.plan(&scheme).unwrap();
        let files = Checkpoint::new(&plan, 5).keys(keys).safetensors(folder.0.join(name)).unwrap().files;
        let tensors = read(&files[0]);
        let hf = HuggingFace::from_json(&config).unwrap();
        let hf_plan = hf.plan(&scheme).unwrap();
        let expected =
            Checkpoint::new(&hf_plan, 5).hugging_face(&hf).safetensors(folder.0.join("hf").join(name)).unwrap();
        let shapes = |tensors: &Tensors| -> BTreeMap<String, Vec<usize>> {
            tensors.iter().map(|(name, (shape, _))| (name.clone(), shape.clone())).collect()
        };
        assert_eq!(shapes(&tensors), shapes(&read(&expected.files[0])));
        // A key does not change a value.
        let own = values(&model.initialize(&scheme, 5).unwrap());
        if name == "llama" {
            let (shape, found) = &tensors["model.layers.1.self_attn.k_proj.weight"];
            assert_eq!(*found, transposed(&own["blocks.1.attention.key.weight"], shape[0]));
        } else {
            let [q, k, v] = ["query", "key", "value"].map(|name| &own[&format!("blocks.1.attention.{name}.weight")]);
            let rows = (0..32).flat_map(|row| [q, k, v].map(|block| &block[row * 32..][..32]).concat());
            assert_eq!(tensors["transformer.h.1.attn.c_attn.weight"].1, rows.collect::<Vec<_>>());
            let [q, k, v] = ["query", "key", "value"].map(|name| &own[&format!("blocks.1.attention.{name}.bias")]);
            assert_eq!(tensors["transformer.h.1.attn.c_attn.bias"].1, [q.as_slice(), k, v].concat());
        }
    }
}

/// Joined in PyTorch's layout, the blocks stand one below the other.
#[test]
fn joined_and_transposed() {
    let folder = Folder::new("joined");
    let tree = Blueprint::new()
        .linear("a.q.weight", [6, 4])
        .linear("a.k.weight", [6, 2])
        .linear("a.v.weight", [6, 2])
        .linear("a.q.bias", [4])
        .linear("a.k.bias", [2])
        .linear("a.v.bias", [2]);
    let plan = tree.plan(&TorchDefault::new()).unwrap();
    let keys = Keys::new()
        .join(["*.q.weight", "*.k.weight", "*.v.weight"], "*.qkv.weight")
        .join(["*.q.bias", "*.k.bias", "*.v.bias"], "*.qkv.bias")
        .layout(Layout::OutIn);
    let files = Checkpoint::new(&plan, 5).keys(keys).safetensors(&folder.0).unwrap().files;
    let tensors = read(&files[0]);
    let own = |path: &str| plan.whole(path, 5).unwrap().values::<f32>().unwrap();
    assert_eq!(tensors["a.qkv.weight"].0, [8, 6]);
    let turned = ["a.q.weight", "a.k.weight", "a.v.weight"].map(|path| transposed(&own(path), own(path).len() / 6));
    assert_eq!(tensors["a.qkv.weight"].1, turned.concat());
    assert_eq!(tensors["a.qkv.bias"].1, ["a.q.bias", "a.k.bias", "a.v.bias"].map(own).concat());
}

/// A run that was cut off is continued: what is there is compared and kept, the rest is written, and the bytes are those of an
/// uninterrupted run. Running it again changes nothing.
#[test]
fn resumption() {
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let checkpoint = Checkpoint::new(&plan, 5).dtype(Dtype::BF16).shard_size(20_000);
    let (whole, cut) = (Folder::new("whole"), Folder::new("cut"));
    checkpoint.safetensors(&whole.0).unwrap();
    let expected = whole.bytes();
    assert!(expected.len() > 4);

    checkpoint.safetensors(&cut.0).unwrap();
    let names = cut.names();
    fs::remove_file(cut.0.join("model.safetensors.index.json")).unwrap();
    fs::rename(cut.0.join(&names[1]), cut.0.join(format!("{}.partial", names[1]))).unwrap();
    let again = checkpoint.safetensors(&cut.0).unwrap();
    assert_eq!((again.files.len(), again.found), (names.len() - 1, names.len() - 2));
    assert_eq!(cut.bytes(), expected);
    assert_eq!(checkpoint.safetensors(&cut.0).unwrap().found, names.len() - 1);
    assert_eq!(cut.bytes(), expected);
}

/// Whatever is there and is damaged, or is somebody else's, is an error and stays as it is.
#[test]
fn damaged_and_foreign_files() {
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let checkpoint = || Checkpoint::new(&plan, 5).shard_size(40_000);
    let folder = Folder::new("damaged");
    checkpoint().safetensors(&folder.0).unwrap();
    let whole = folder.bytes();
    let refused = |what: &str, contains: &str, checkpoint: Checkpoint<'_>| {
        let before = folder.bytes();
        let error = checkpoint.safetensors(&folder.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File);
        assert!(error.to_string().contains(contains), "{what}: {error}");
        assert_eq!(folder.bytes(), before, "{what}");
    };
    let first = folder.names()[0].clone();
    let path = folder.0.join(&first);

    let mut bytes = whole[&first].clone();
    let middle = bytes.len() - 1000;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    refused(
        "a flipped bit",
        "does not have the values of the plan and the seed; remove it and run it again",
        checkpoint(),
    );
    fs::write(&path, &whole[&first][..middle]).unwrap();
    refused("a cut file", "is damaged: it has", checkpoint());
    fs::write(&path, b"no header").unwrap();
    refused("no header", "is not of this checkpoint", checkpoint());
    fs::write(&path, b"").unwrap();
    refused("an empty file", "is not of this checkpoint", checkpoint());
    fs::write(&path, &whole[&first]).unwrap();

    let other_plan = nano().plan(&Xavier::normal()).unwrap();
    refused("another seed", "is not of this checkpoint", Checkpoint::new(&plan, 6).shard_size(40_000));
    refused("another scheme", "is not of this checkpoint", Checkpoint::new(&other_plan, 5).shard_size(40_000));
    refused("another precision", "is not of this checkpoint", checkpoint().dtype(Dtype::BF16));
    refused("another size", "is not of this checkpoint", checkpoint().shard_size(1 << 30));
    refused("other names", "is not of this checkpoint", checkpoint().keys(Keys::pytorch()));
    fs::write(folder.0.join("model.safetensors.index.json"), "{").unwrap();
    refused("a damaged index", "model.safetensors.index.json is there already", checkpoint());
    fs::remove_file(folder.0.join("model.safetensors.index.json")).unwrap();
    fs::write(folder.0.join("adapter.safetensors"), "").unwrap();
    refused("another model's file", "adapter.safetensors is there already", checkpoint());
    fs::remove_file(folder.0.join("adapter.safetensors")).unwrap();
    checkpoint().safetensors(&folder.0).unwrap();
    assert_eq!(folder.bytes(), whole);
}

/// A full disk and a folder that cannot be made are errors; nothing with the name of a model is left behind.
#[test]
fn full_disk_and_unwritable_folder() {
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let folder = Folder::new("full");
    fs::create_dir_all(&folder.0).unwrap();
    #[cfg(target_os = "linux")]
    {
        // A device that is always full stands where the unfinished file goes.
        std::os::unix::fs::symlink("/dev/full", folder.0.join("model.safetensors.partial")).unwrap();
        let error = Checkpoint::new(&plan, 5).safetensors(&folder.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File);
        let text = error.to_string();
        assert!(text.contains("No space left on device"), "{text}");
        assert!(text.ends_with("make room and run it again: files that are complete are kept"), "{text}");
        assert!(folder.names().is_empty());
        Checkpoint::new(&plan, 5).safetensors(&folder.0).unwrap();
    }
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let checkpoint = || Checkpoint::new(&plan, 5);
    let told = |error: burn_init::Error, text: String| {
        assert_eq!(error.kind(), ErrorKind::File);
        assert_eq!(error.to_string(), text);
    };
    let a_folder_is_due = format!(
        "{} is a file, and a folder is due there; give a folder, or the name of one that is not there yet",
        file.display()
    );
    for place in [file.clone(), file.join("below")] {
        told(checkpoint().safetensors(&place).unwrap_err(), a_folder_is_due.clone());
        told(checkpoint().burnpack(place.join("model.bpk")).unwrap_err(), a_folder_is_due.clone());
    }
    let a_file_is_due = |place: &Path| {
        format!(
            "{} is a folder, and a file is due there; give the name of a file, or remove the folder",
            place.display()
        )
    };
    told(checkpoint().burnpack(&folder.0).unwrap_err(), a_file_is_due(&folder.0));
    let elsewhere = Folder::new("folders_for_files");
    let place = elsewhere.0.join("model.safetensors");
    fs::create_dir_all(&place).unwrap();
    told(checkpoint().safetensors(&elsewhere.0).unwrap_err(), a_file_is_due(&place));
    let nameless = "\"\" is no name of a file; name one, such as model.bpk".to_string();
    told(checkpoint().burnpack("").unwrap_err(), nameless);
}

/// Two writers of one file: the second is told so, and the first is not disturbed.
#[test]
fn one_writer_at_a_time() {
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let folder = Folder::new("two");
    fs::create_dir_all(&folder.0).unwrap();
    let partial = folder.0.join("model.safetensors.partial");
    fs::write(&partial, "work of the first").unwrap();
    let first = fs::File::options().write(true).open(&partial).unwrap();
    first.lock().unwrap();
    let error = Checkpoint::new(&plan, 5).safetensors(&folder.0).unwrap_err();
    assert!(error.to_string().contains("is being written by another process"), "{error}");
    assert_eq!(fs::read(&partial).unwrap(), b"work of the first");
    drop(first);
    Checkpoint::new(&plan, 5).safetensors(&folder.0).unwrap();
    assert_eq!(folder.names(), ["model.safetensors"]);
}

const KILLED: &str = "BURN_INIT_KILLED_WRITER";

/// What the killed process runs; on its own it does nothing.
#[test]
fn killed_writer_itself() {
    let Ok(folder) = std::env::var(KILLED) else { return };
    let plan = nano().plan(&Gpt2::new()).unwrap();
    Checkpoint::new(&plan, 5)
        .shard_size(30_000)
        .progress(|progress| {
            if progress.done > progress.total / 2 {
                std::process::abort();
            }
        })
        .safetensors(folder)
        .unwrap();
}

/// A process that is killed leaves whole files and one that does not look whole, and the next run ends what it began.
#[test]
fn killed_writer() {
    let folder = Folder::new("killed");
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "checkpoints::killed_writer_itself"])
        .env(KILLED, &folder.0)
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
    let left = folder.names();
    assert!(!left.contains(&"model.safetensors.index.json".to_string()), "{left:?}");
    let whole: Vec<_> = left.iter().filter(|name| name.ends_with(".safetensors")).collect();
    assert_eq!(left.len(), whole.len() + 1, "{left:?}");
    assert!(!whole.is_empty());
    whole.iter().for_each(|name| assert!(!read(&folder.0.join(name)).is_empty()));
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let written = Checkpoint::new(&plan, 5).shard_size(30_000).safetensors(&folder.0).unwrap();
    assert_eq!(written.found, whole.len());
    assert!(folder.names().iter().all(|name| !name.ends_with(".partial")));
}

/// The values read back, and the whole run: progress ends at the number of parameters.
#[test]
fn progress() {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let folder = Folder::new("progress");
    let total = plan.num_params();
    let checkpoint = Checkpoint::new(&plan, 5).progress(move |progress| {
        assert!(progress.done > DONE.swap(progress.done, Relaxed));
        assert_eq!(progress.total, total);
    });
    checkpoint.safetensors(&folder.0).unwrap();
    assert_eq!(DONE.load(Relaxed), total);
}

#[test]
fn what_cannot_be_written() {
    let folder = Folder::new("refused");
    let plan = nano().plan(&Gpt2::new()).unwrap();
    let refused = |checkpoint: Checkpoint<'_>| checkpoint.safetensors(&folder.0).unwrap_err();
    let error = refused(Checkpoint::new(&plan, 5).keys(Keys::new().rename("blocks.**", "h.**")));
    assert_eq!(error.to_string(), "the names \"blocks.**\" match no parameter; paths look like transformer.wte.weight");
    let error = refused(Checkpoint::new(&plan, 5).keys(Keys::new().rename("transformer.*.weight", "table.weight")));
    assert_eq!(
        error.to_string(),
        "transformer.wpe.weight [16, 32]: it would be called table.weight in the file, as transformer.wte.weight is; \
         give each parameter a name of its own"
    );
    let keys = Keys::new().join(["transformer.wte.weight", "transformer.wpe.weight"], "tables");
    assert_eq!(refused(Checkpoint::new(&plan, 5).keys(keys)).kind(), ErrorKind::Shape);
    assert_eq!(refused(Checkpoint::new(&plan, 5).shard_size(0)).kind(), ErrorKind::Config);
    assert_eq!(refused(Checkpoint::new(&Plan::default(), 5)).kind(), ErrorKind::Config);
    let kept = nano().plan(&Gpt2::new().with(Role::PositionEmbedding, Init::Keep)).unwrap();
    let error = refused(Checkpoint::new(&kept, 5));
    assert!(error.to_string().ends_with("leave such parameters out with .skip_kept(), or give them a rule"), "{error}");
    let large = nano().plan(&Gpt2::new().with("**.wte.weight", Init::constant(1e5))).unwrap();
    assert_eq!(refused(Checkpoint::new(&large, 5).dtype(Dtype::F16)).kind(), ErrorKind::InvalidValue);
    assert!(!folder.0.exists());
    let written = Checkpoint::new(&kept, 5).skip_kept().safetensors(&folder.0).unwrap();
    assert!(!read(&written.files[0]).contains_key("transformer.wpe.weight"));
    assert!(Checkpoint::new(&large, 5).dtype(Dtype::BF16).files().is_ok());
}

/// Planning takes its time by the layer, so that thousands of them are no matter.
#[test]
fn deep_configurations() {
    let of = |layers: u64| {
        HuggingFace::from_json(&format!(
            r#"{{"model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": {layers},
                "num_attention_heads": 2, "vocab_size": 10}}"#
        ))
    };
    let plan = of(5000).unwrap().plan(&Gpt2::new()).unwrap();
    assert_eq!(plan.len(), 5000 * 9 + 3);
    assert_eq!(plan.get("model.layers.4999.mlp.down_proj.weight").unwrap().spec().writes().unwrap().index, 9999);
    assert!(of(1 << 16).is_ok() && of((1 << 16) + 1).is_err());
}

/// What a config can say wrong.
#[test]
fn configs() {
    let message = |text: &str| HuggingFace::from_json(text).unwrap_err().to_string();
    assert!(message("[]").starts_with("the configuration does not parse"));
    assert_eq!(message("{}"), "the field model_type is missing; give the config.json of the whole model");
    assert_eq!(
        message(r#"{"model_type": "bert"}"#),
        "model_type is \"bert\"; known are gpt2, llama, mistral, qwen2, olmo2; describe another tree with Blueprint"
    );
    let llama = |changes: &str| {
        let text = small_llama();
        let mut config: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        config.extend(serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(changes).unwrap());
        HuggingFace::from_json(&serde_json::to_string(&config).unwrap())
    };
    let message = |changes: &str| llama(changes).unwrap_err().to_string();
    assert_eq!(message(r#"{"vocab_size": 0}"#), "vocab_size is 0; use 1 or more");
    assert_eq!(message(r#"{"vocab_size": -1}"#), "vocab_size is -1; give a number of 0 or more");
    assert_eq!(
        message(r#"{"vocab_size": null}"#),
        "the field vocab_size is missing; give the config.json of the whole model"
    );
    assert_eq!(message(r#"{"num_attention_heads": 5}"#), "5 heads do not divide a width of 32; correct one of the two");
    assert_eq!(
        message(r#"{"num_key_value_heads": 3}"#),
        "3 key and value heads do not divide 4 heads; correct num_key_value_heads"
    );
    assert_eq!(
        message(r#"{"hidden_size": 18446744073709551615, "head_dim": 8}"#),
        "the width is beyond what is plausible; correct the configuration"
    );
    assert_eq!(message(r#"{"tie_word_embeddings": 1}"#), "tie_word_embeddings is 1; give true or false");
    let plan = |changes: &str| llama(changes).unwrap().plan(&Gpt2::new()).unwrap();
    assert!(plan("{}").get("lm_head.weight").is_some());
    assert!(plan(r#"{"tie_word_embeddings": true}"#).get("lm_head.weight").is_none());
    let wide = plan(r#"{"head_dim": 16}"#);
    assert_eq!(wide.get("model.layers.0.self_attn.q_proj.weight").unwrap().spec().shape(), [32, 64]);
    assert_eq!(wide.get("model.layers.0.self_attn.o_proj.weight").unwrap().spec().shape(), [64, 32]);
    assert!(plan(r#"{"attention_bias": true, "mlp_bias": true}"#).get("model.layers.1.mlp.down_proj.bias").is_some());
    let qwen = plan(r#"{"model_type": "qwen2"}"#);
    assert!(qwen.get("model.layers.1.self_attn.v_proj.bias").is_some());
    assert!(qwen.get("model.layers.1.self_attn.o_proj.bias").is_none());
}

/// Fills and orthogonal matrices stream as they are drawn whole.
#[test]
fn streamed_wholes() {
    let scheme = from_fn(|param| match param.role() {
        Role::PositionEmbedding => Some(Init::Fill(Fill::named("sinusoidal"))),
        role if role.is_weight() => Some(Init::orthogonal(1.0)),
        _ => None,
    })
    .or(TorchDefault::new());
    let plan = nano().plan(&scheme).unwrap();
    let folder = Folder::new("wholes");
    let files = Checkpoint::new(&plan, 5).layout(Layout::InOut).safetensors(&folder.0).unwrap().files;
    let tensors = read(&files[0]);
    for (path, expected) in values(&nano().initialize(&scheme, 5).unwrap()) {
        assert_eq!(tensors[&path].1, expected, "{path}");
    }
}

/// A file of the reference model under its own paths, with the variants of burn's enums in them, can be read without the model.
#[test]
fn the_reference_model_by_its_own_names() {
    let gpt2 = TransformerConfig::new(50, 16, 32, 2, 4);
    let llama =
        gpt2.clone().with_norm(Norm::RmsNorm).with_positions(Positions::Rotary).with_activation(Activation::SwiGlu);
    for config in [gpt2, llama] {
        let model = config.build(&device()).unwrap();
        let plan = config.setup().plan(&model, &Gpt2::new()).unwrap();
        let folder = Folder::new("own-names");
        Checkpoint::new(&plan, 3).safetensors(&folder.0).unwrap();
        let file = WeightFile::open(&folder.0).unwrap();
        let read = file.plan(&Gpt2::new()).unwrap();
        let lines = |plan: &Plan| -> Vec<_> {
            let mut lines: Vec<_> = plan
                .iter()
                .map(|entry| (entry.spec().path().to_string(), entry.spec().role(), entry.law().clone()))
                .collect();
            lines.sort_by(|a, b| a.0.cmp(&b.0));
            lines
        };
        assert_eq!(lines(&read), lines(&plan));
        file.audit(&read).unwrap().assert_started();
    }
}
