//! Files of weights against plans: PyTorch's layouts and names, fused tensors, ties, shards, burnpack.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use burn::module::Module;
use burn_init::{
    ErrorKind, Fans, Gpt2, ModuleInit as _, Role, Scheme, Setup, TorchDefault,
    audit::{Deviation, WeightFile},
};

use crate::{
    support::{device, values},
    trees::{Llama, NanoGpt},
};

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A safetensors file in f32.
fn write(path: &Path, tensors: &Tensors) {
    let (mut header, mut body) = (serde_json::Map::new(), Vec::<u8>::new());
    for (name, (shape, values)) in tensors {
        let start = body.len();
        values.iter().for_each(|value| body.extend(value.to_le_bytes()));
        let entry = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, body.len()]});
        header.insert(name.clone(), entry);
    }
    let header = serde_json::to_string(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(body);
    fs::write(path, bytes).unwrap();
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

/// A burn model as PyTorch would save it: linear weights `[d_out, d_in]`, norms with weight and bias.
fn as_pytorch<M: Module>(model: &M) -> Tensors {
    let plan = model.plan(&Gpt2::new()).unwrap();
    let mut out = Tensors::new();
    for (path, values) in values(model) {
        let spec = plan.get(&path).unwrap().spec();
        let shape: Vec<usize> = spec.shape().iter().map(|&d| d as usize).collect();
        let name = path.replace(".gamma", ".weight").replace(".beta", ".bias");
        let entry = match shape[..] {
            [rows, columns] if !spec.role().is_table() => {
                let turned = (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect();
                (vec![columns, rows], turned)
            }
            _ => (shape, values),
        };
        out.insert(name, entry);
    }
    out
}

/// Made by PyTorch, see tests/files/make.py: nanoGPT's layout in bf16 with the tied head saved twice, and Hugging Face's Conv1D in f16.
#[test]
fn files_made_by_pytorch() {
    for (name, tied) in [("nanogpt.safetensors", 1), ("gpt2-hf.safetensors", 0)] {
        let file = WeightFile::open(fixture(name)).unwrap();
        let plan = file.plan(&Gpt2::new()).unwrap();
        let ties: usize = plan.iter().map(|entry| entry.tied().len()).sum();
        assert_eq!(ties, tied, "{name}\n{plan}");
        // Three blocks, one of them [24, 24], whichever way it is stored.
        let prefix = if tied == 1 { "transformer." } else { "" };
        let blocks = plan.blocks(&format!("{prefix}h.1.attn.c_attn.weight"));
        assert_eq!((blocks.len(), blocks[0].spec().shape()), (3, &[24, 72][..]));
        let projection = plan.get(&format!("{prefix}h.1.mlp.c_proj.weight")).unwrap();
        assert_eq!(projection.spec().shape(), [96, 24]);
        let audit = file.audit(&plan).unwrap();
        assert!(audit.is_started(), "{name}\n{audit}");

        let identity = file.identify().unwrap();
        let names: Vec<_> = identity.fitting().flat_map(|candidate| &candidate.names).collect();
        assert!(names.iter().any(|name| *name == "gpt2"), "{name}\n{identity}");
        assert!(!names.iter().any(|name| *name == "hf-llama" || *name == "gpt2-released"), "{name}\n{identity}");

        let other = file.audit(&file.plan(&Scheme::from(TorchDefault::new())).unwrap()).unwrap();
        assert!(!other.is_started());
    }
}

/// The plan of a burn module, lazy as it is, against PyTorch's names.
#[test]
fn a_module_against_pytorch() {
    let model = NanoGpt::new(2, 24, 80, 16, &device());
    let plan = model.plan(&Gpt2::new()).unwrap();
    let audit = plan.audit_file(fixture("nanogpt.safetensors")).unwrap();
    audit.assert_started();
    assert_eq!(audit.notes(), ["lm_head.weight holds the same values as transformer.wte.weight: tied"]);
    let gain = audit.get("transformer.h.0.ln_1.gamma").unwrap();
    assert_eq!(gain.name.as_deref(), Some("transformer.h.0.ln_1.weight"));
    plan.audit_file(fixture("gpt2-hf.safetensors")).unwrap().assert_started();
}

fn nano() -> (NanoGpt, Tensors) {
    let model = NanoGpt::new(2, 48, 500, 32, &device()).initialize(&Gpt2::new(), 3).unwrap();
    let tensors = as_pytorch(&model);
    (model, tensors)
}

#[test]
fn ill_files() {
    let folder = folder("ill_files");
    let (model, healthy) = nano();
    let plan = model.plan(&Gpt2::new()).unwrap();
    let check = |name: &str, tensors: &Tensors| {
        let path = folder.join(format!("{name}.safetensors"));
        write(&path, tensors);
        plan.audit_file(&path).unwrap()
    };
    check("healthy", &healthy).assert_started();
    let with = |name: &str, change: &dyn Fn(usize, &mut f32)| {
        let mut tensors = healthy.clone();
        let values = &mut tensors.get_mut(name).unwrap().1;
        values.iter_mut().enumerate().for_each(|(i, value)| change(i, value));
        tensors
    };
    let c_attn = "transformer.h.1.attn.c_attn.weight";
    let c_proj = "transformer.h.1.attn.c_proj.weight";
    // PyTorch's rows are outputs: the value block is the last third of them.
    let cases: [(&str, Tensors, &str, Deviation); 5] = [
        ("unscaled", with(c_proj, &|_, x| *x *= 2.0), c_proj, Deviation::Std),
        (
            "block",
            with(c_attn, &|i, x| {
                if i / 48 >= 96 {
                    *x *= 1.3
                }
            }),
            c_attn,
            Deviation::Std,
        ),
        (
            "row",
            with("transformer.wte.weight", &|i, x| {
                if i / 48 == 77 {
                    *x *= 8.0
                }
            }),
            "transformer.wte.weight",
            Deviation::Row,
        ),
        ("gamma", with("transformer.ln_f.weight", &|_, x| *x = 1.5), "transformer.ln_f.gamma", Deviation::NotConstant),
        (
            "head",
            {
                let mut tensors = healthy.clone();
                let (shape, values) = tensors["transformer.wte.weight"].clone();
                tensors.insert("lm_head.weight".into(), (shape, values.iter().rev().copied().collect()));
                tensors
            },
            "lm_head.weight",
            Deviation::Unplanned,
        ),
    ];
    for (name, tensors, path, deviation) in cases {
        let audit = check(name, &tensors);
        let off: Vec<_> = audit.deviations().collect();
        assert_eq!(off.len(), 1, "{name}\n{audit:#}");
        assert_eq!((off[0].path.as_str(), off[0].findings[0].deviation), (path, deviation), "{name}\n{audit:#}");
        if name == "block" {
            assert_eq!(off[0].block.unwrap().index, 2);
        }
    }
    let mut tensors = healthy.clone();
    tensors.remove(c_proj);
    let audit = check("missing", &tensors);
    assert_eq!(audit.deviations().next().unwrap().findings[0].deviation, Deviation::Missing, "{audit:#}");
}

/// Wrappers, a prefix, other names and other scheme: the file is planned on its own.
#[test]
fn llama_in_shards_with_other_names() {
    let folder = folder("llama_in_shards");
    let scheme: Scheme = "torchtitan-llama3".parse().unwrap();
    let model = Llama::new(3, 64, 32, 160, 500, &device()).initialize(&scheme, 3).unwrap();
    let wrapped = as_pytorch(&model).into_iter().map(|(name, tensor)| (format!("module._orig_mod.{name}"), tensor));
    let (first, second): (Vec<_>, Vec<_>) = wrapped.partition(|(name, _)| name.contains("layers.0"));
    write(&folder.join("model-00001-of-00002.safetensors"), &first.iter().cloned().collect());
    write(&folder.join("model-00002-of-00002.safetensors"), &second.iter().cloned().collect());
    let index: serde_json::Map<String, serde_json::Value> = (first.iter().map(|(name, _)| (name, 1)))
        .chain(second.iter().map(|(name, _)| (name, 2)))
        .map(|(name, shard)| (name.clone(), format!("model-0000{shard}-of-00002.safetensors").into()))
        .collect();
    let index_path = folder.join("model.safetensors.index.json");
    fs::write(&index_path, serde_json::json!({ "weight_map": index }).to_string()).unwrap();

    for path in [&index_path, &folder] {
        let file = WeightFile::open(path).unwrap();
        let plan = file.plan(&scheme).unwrap();
        assert_eq!(plan.len(), model.plan(&scheme).unwrap().len());
        file.audit(&plan).unwrap().assert_started();
        model.plan(&scheme).unwrap().audit_file(path).unwrap().assert_started();
        let closest = file.identify().unwrap();
        assert!(closest.fitting().any(|found| found.names.iter().any(|name| name == "torchtitan-llama3")), "{closest}");
    }
    // Another prefix is no matter, other names inside of a layer are: they are told, and renaming brings them together.
    let attention = as_pytorch(&model).into_iter().filter(|(name, _)| name.contains("self_attn"));
    let other = |name: String| name.replace("model.layers", "stack.block").replace("self_attn", "mixer");
    let path = folder.join("renamed.safetensors");
    write(&path, &attention.map(|(name, tensor)| (other(name), tensor)).collect());
    let plan = model.plan(&scheme).unwrap();
    let error = plan.audit_file(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Audit);
    assert!(error.to_string().contains("stack.block.0.mixer.k_proj.weight"), "{error}");
    let file = WeightFile::open(&path).unwrap().rename("mixer", "self_attn");
    let audit = file.audit(&plan).unwrap();
    assert!(audit.deviations().all(|line| line.findings[0].deviation == Deviation::Missing), "{audit:#}");
    assert_eq!(audit.lines().len() - audit.deviations().count(), 12, "{audit:#}");
}

#[test]
fn burnpack() {
    let folder = folder("burnpack");
    let (model, _) = nano();
    let plan = model.plan(&Gpt2::new()).unwrap();
    let path = folder.join("model.bpk");
    model.clone().save_file(&path).unwrap();
    plan.audit_file(&path).unwrap().assert_started();
    let file = WeightFile::open(&path).unwrap();
    file.audit(&file.plan(&Gpt2::new()).unwrap()).unwrap().assert_started();
    assert!(!file.audit(&model.plan(&TorchDefault::new()).unwrap()).unwrap().is_started());
}

#[test]
fn files_that_are_none() {
    let folder = folder("files_that_are_none");
    let (_, tensors) = nano();
    let path = folder.join("whole.safetensors");
    write(&path, &tensors);
    let whole = fs::read(&path).unwrap();
    for (name, bytes, text) in [
        ("empty", &[][..], "shorter than a header"),
        ("cut", &whole[..whole.len() - 4], "truncated"),
        ("longer", &[&whole[..], &[0; 6]].concat(), "6 bytes follow the last tensor"),
        ("cut_header", &whole[..100], "truncated"),
        ("pickle", b"PK\x03\x04 archive", "save it as safetensors"),
        ("noise", &[7u8; 64], "no safetensors file"),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let error = WeightFile::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{name}: {error}");
        assert!(error.to_string().contains(text), "{name}: {error}");
    }
    assert_eq!(WeightFile::open(folder.join("absent")).unwrap_err().kind(), ErrorKind::File);
    assert_eq!(WeightFile::open(folder.join("absent.json")).unwrap_err().kind(), ErrorKind::File);
    // Folders and files, one in place of the other, and indices of nothing.
    let folder = folder.join("folders");
    let shards = folder.join("folder.safetensors");
    fs::create_dir_all(&shards).unwrap();
    let error = |path: &Path| WeightFile::open(path).unwrap_err().to_string();
    for path in [&folder, &shards] {
        let told = format!("{}: there is no safetensors file in this folder; give the file", path.display());
        assert_eq!(error(path), told);
    }
    let index = folder.join("index.json");
    for (text, told) in [
        (
            r#"{"weight_map": {"a": "absent.safetensors"}}"#,
            "absent.safetensors, which is not there; put all shards beside",
        ),
        (r#"{"weight_map": {"a": "folder.safetensors"}}"#, "folder.safetensors, which is not there"),
        (r#"{"weight_map": {}}"#, "its weight_map names no file"),
        (r#"{"model_type": "gpt2"}"#, "it has no weight_map; give a safetensors file or the index of its shards"),
    ] {
        fs::write(&index, text).unwrap();
        assert!(error(&index).contains(told), "{}", error(&index));
    }
}

/// PyTorch's RNN, GRU and LSTM keep all gates in one matrix: how many the hidden one tells, and each has the fans of its own.
#[test]
fn recurrent_layers_of_pytorchs() {
    let folder = folder("recurrent");
    let (inputs, hidden) = (24, 16);
    for gates in [1, 3, 4] {
        let path = folder.join(format!("{gates}.safetensors"));
        let mut tensors = Tensors::new();
        for (name, shape) in [
            ("weight_ih_l0_reverse", vec![gates * hidden, inputs]),
            ("weight_hh_l0_reverse", vec![gates * hidden, hidden]),
            ("bias_ih_l0_reverse", vec![gates * hidden]),
            ("bias_hh_l0_reverse", vec![gates * hidden]),
        ] {
            tensors.insert(format!("rnn.{name}"), (shape.clone(), vec![0.0; shape.iter().product()]));
        }
        write(&path, &tensors);
        let plan = WeightFile::open(&path).unwrap().plan(&TorchDefault::new()).unwrap();
        for (name, role, fan_in) in [("weight_ih", Role::RecurrentInput, 24), ("weight_hh", Role::RecurrentHidden, 16)]
        {
            let blocks = plan.blocks(&format!("rnn.{name}_l0_reverse"));
            assert_eq!(blocks.len(), gates);
            for block in blocks {
                assert_eq!((block.spec().role(), block.spec().fans().unwrap().fan_in), (role, fan_in));
                // U(-1/sqrt(hidden), 1/sqrt(hidden)), as in torch.nn.RNNBase.reset_parameters.
                assert_eq!(block.law().to_string(), "uniform(+-0.25)");
            }
        }
        for (name, (shape, values)) in &mut tensors {
            let whole = plan.whole(name, 3).unwrap().values::<f32>().unwrap();
            *values = match shape[..] {
                [rows, columns] => (0..whole.len()).map(|i| whole[i % columns * rows + i / columns]).collect(),
                _ => whole,
            };
        }
        write(&path, &tensors);
        WeightFile::open(&path).unwrap().audit(&plan).unwrap().assert_started();
    }
    // A line of the user's is the last word.
    let file = WeightFile::open(folder.join("1.safetensors")).unwrap();
    let setup = Setup::new().role("rnn.weight_ih_l0_reverse", Role::Linear);
    let plan = setup.plan_file(&file, &TorchDefault::new()).unwrap();
    assert_eq!(plan.get("rnn.weight_ih_l0_reverse").unwrap().spec().role(), Role::Linear);
}
/// `nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 4 * d), layers)`: one matrix and one bias for query, key and value, which stand in the
/// module of attention itself.
#[test]
fn pytorchs_own_encoder() {
    let (d, layers) = (64, 3);
    let shapes: [(&str, &[usize]); 12] = [
        ("self_attn.in_proj_weight", &[3 * d, d]),
        ("self_attn.in_proj_bias", &[3 * d]),
        ("self_attn.out_proj.weight", &[d, d]),
        ("self_attn.out_proj.bias", &[d]),
        ("linear1.weight", &[4 * d, d]),
        ("linear1.bias", &[4 * d]),
        ("linear2.weight", &[d, 4 * d]),
        ("linear2.bias", &[d]),
        ("norm1.weight", &[d]),
        ("norm1.bias", &[d]),
        ("norm2.weight", &[d]),
        ("norm2.bias", &[d]),
    ];
    let path = folder("pytorchs_own_encoder").join("model.safetensors");
    let mut tensors = Tensors::new();
    for layer in 0..layers {
        for (name, shape) in shapes {
            let values = vec![0.0; shape.iter().product()];
            tensors.insert(format!("layers.{layer}.{name}"), (shape.to_vec(), values));
        }
    }
    write(&path, &tensors);
    let schemes = ["torch-default", "torch-transformer-layer", "torch-transformer"];
    for name in schemes {
        let scheme: Scheme = name.parse().unwrap();
        let plan = WeightFile::open(&path).unwrap().plan(&scheme).unwrap();
        let biases = plan.blocks("layers.1.self_attn.in_proj_bias");
        let told: Vec<_> = biases.iter().map(|entry| entry.spec().weight_role().unwrap()).collect();
        assert_eq!(told, [Role::Query, Role::Key, Role::Value]);
        assert!(biases.iter().all(|entry| entry.spec().fans().unwrap() == Fans { fan_in: 64, fan_out: 64 }));

        for (name, (shape, values)) in &mut tensors {
            let whole = plan.whole(name, 3).unwrap().values::<f32>().unwrap();
            *values = match shape[..] {
                [rows, columns] => (0..whole.len()).map(|i| whole[i % columns * rows + i / columns]).collect(),
                _ => whole,
            };
        }
        let started = path.with_file_name(format!("{name}.safetensors"));
        write(&started, &tensors);
        let identity = WeightFile::open(&started).unwrap().identify().unwrap();
        let fitting: Vec<_> = identity.fitting().flat_map(|candidate| &candidate.names).collect();
        for other in schemes {
            assert_eq!(fitting.iter().any(|fits| *fits == other), other == name, "{name}, {other}\n{identity}");
        }
    }
}

/// A file without a parameter fits no scheme.
#[test]
fn an_empty_file_fits_nothing() {
    let path = folder("an_empty_file").join("empty.safetensors");
    write(&path, &Tensors::new());
    let error = WeightFile::open(&path).unwrap().identify().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Audit);
    assert!(error.to_string().contains("nothing to compare"), "{error}");
}

/// A header of 0x0280 bytes has a length that begins as a pickle does.
#[test]
fn headers_of_every_length() {
    let folder = folder("headers_of_every_length");
    for length in [0x80usize, 0x280, 0x4b50] {
        let header = r#"{"weight": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}}"#;
        let mut bytes = (length as u64).to_le_bytes().to_vec();
        bytes.extend(format!("{header:length$}").into_bytes());
        bytes.extend([0; 8]);
        let path = folder.join(format!("{length}.safetensors"));
        fs::write(&path, bytes).unwrap();
        WeightFile::open(&path).unwrap();
    }
}
