//! The formats: where in a file each tensor stands, and the header that says so.

use std::collections::{BTreeMap, HashMap};

use burn::tensor::DType;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::keys::Target;
use crate::{
    error::{Error, ErrorKind},
    role::Dtype,
    tree::burn_dtype,
};

/// A file that is to be written.
#[derive(Debug)]
pub(super) struct FileLayout<'a> {
    pub name: String,
    /// All that comes before the values.
    pub header: Vec<u8>,
    /// Where each tensor begins, from the start of the file.
    pub tensors: Vec<(u64, Target<'a>)>,
    /// Its size in bytes.
    pub len: u64,
}

impl FileLayout<'_> {
    pub(super) fn num_elements(&self) -> u64 {
        self.tensors.iter().map(|(_, target)| target.num_elements()).sum()
    }
}

pub(super) fn size(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F64 => 8,
        Dtype::F32 => 4,
        Dtype::F16 | Dtype::BF16 => 2,
    }
}

fn too_large(target: &Target<'_>) -> Error {
    let spec = target.parts[0][0].spec();
    spec.error(ErrorKind::Shape, "it is larger than any file", "correct the configuration")
}

fn bytes(target: &Target<'_>, dtype: Dtype) -> Result<u64, Error> {
    const MOST: u64 = 1 << 62;
    let bytes = target.num_elements().checked_mul(size(dtype)).filter(|&bytes| bytes < MOST);
    bytes.ok_or_else(|| too_large(target))
}

/// Hugging Face's `model.safetensors`, or `model-00001-of-00003.safetensors` where the values take more than `limit` bytes.
pub(super) fn safetensors<'a>(
    targets: Vec<Target<'a>>,
    dtype: Dtype,
    limit: u64,
    notes: &BTreeMap<String, String>,
) -> Result<Vec<FileLayout<'a>>, Error> {
    let mut files: Vec<Vec<Target<'a>>> = vec![Vec::new()];
    let mut used = 0u64;
    for target in targets {
        let bytes = bytes(&target, dtype)?;
        if used > 0 && used.saturating_add(bytes) > limit {
            files.push(Vec::new());
            used = 0;
        }
        used = used.saturating_add(bytes);
        if let Some(file) = files.last_mut() {
            file.push(target);
        }
    }
    let of = files.len();
    let name = |index: usize| match of {
        1 => "model.safetensors".to_string(),
        _ => format!("model-{:05}-of-{of:05}.safetensors", index + 1),
    };
    files.into_iter().enumerate().map(|(index, targets)| one_safetensors(name(index), targets, dtype, notes)).collect()
}

fn one_safetensors<'a>(
    name: String,
    targets: Vec<Target<'a>>,
    dtype: Dtype,
    notes: &BTreeMap<String, String>,
) -> Result<FileLayout<'a>, Error> {
    let kind = match dtype {
        Dtype::F64 => safetensors::Dtype::F64,
        Dtype::F32 => safetensors::Dtype::F32,
        Dtype::F16 => safetensors::Dtype::F16,
        Dtype::BF16 => safetensors::Dtype::BF16,
    };
    let mut end = 0u64;
    let mut infos = Vec::with_capacity(targets.len());
    for target in &targets {
        let start = end;
        end = end.checked_add(bytes(target, dtype)?).ok_or_else(|| too_large(target))?;
        let shape = target.shape.iter().map(|&d| d as usize).collect();
        infos.push((
            target.name.clone(),
            TensorInfo { dtype: kind, shape, data_offsets: (start as usize, end as usize) },
        ));
    }
    let invalid =
        |reason: String| Error::new(ErrorKind::File, format!("the header of {name} is not valid: {reason}"), "");
    // The crate's own check. Its Metadata would write the notes in another order each time.
    let notes_of_crate: HashMap<String, String> = notes.clone().into_iter().collect();
    Metadata::new(Some(notes_of_crate), infos.clone()).map_err(|error| invalid(error.to_string()))?;
    let mut json = serde_json::to_vec(&Header { notes, infos: &infos }).map_err(|error| invalid(error.to_string()))?;
    json.resize(json.len().next_multiple_of(8), b' ');
    const LARGEST: usize = 100_000_000;
    if json.len() > LARGEST {
        return Err(invalid(format!("{} bytes are more than readers take", json.len())));
    }
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    let first = header.len() as u64;
    let starts = infos.iter().map(|(_, info)| first + info.data_offsets.0 as u64);
    Ok(FileLayout { tensors: starts.zip(targets).collect(), len: first + end, name, header })
}

struct Header<'a> {
    notes: &'a BTreeMap<String, String>,
    infos: &'a [(String, TensorInfo)],
}

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.infos.len() + 1))?;
        map.serialize_entry("__metadata__", self.notes)?;
        for (name, info) in self.infos {
            map.serialize_entry(name, info)?;
        }
        map.end()
    }
}

/// Hugging Face's list of which file has which tensor.
pub(super) fn index(files: &[FileLayout<'_>], dtype: Dtype) -> String {
    let total: u64 = files.iter().map(FileLayout::num_elements).sum::<u64>() * size(dtype);
    let names: BTreeMap<&str, &str> = files
        .iter()
        .flat_map(|file| file.tensors.iter().map(|(_, target)| (target.name.as_str(), file.name.as_str())))
        .collect();
    let index = serde_json::json!({ "metadata": { "total_size": total }, "weight_map": names });
    let mut text = serde_json::to_string_pretty(&index).unwrap_or_default();
    text.push('\n');
    text
}

/// burn's own format, as the crate `burn-pack` describes it: CBOR with the place of each tensor, which begins at a multiple of 256 bytes.
pub(super) fn burnpack<'a>(
    name: String,
    targets: Vec<Target<'a>>,
    dtype: Dtype,
    notes: &BTreeMap<String, String>,
) -> Result<FileLayout<'a>, Error> {
    #[derive(Serialize)]
    struct Cbor<'a> {
        tensors: BTreeMap<&'a str, Place<'a>>,
        metadata: &'a BTreeMap<String, String>,
    }
    #[derive(Serialize)]
    struct Place<'a> {
        dtype: DType,
        shape: &'a [u64],
        data_offsets: (u64, u64),
    }

    let refused = |found: String| Error::new(ErrorKind::File, found, "write safetensors files instead");
    let mut places = Vec::with_capacity(targets.len());
    let mut end = 0u64;
    for target in &targets {
        let bytes = bytes(target, dtype)?;
        if bytes > burn_pack::MAX_TENSOR_SIZE as u64 {
            return Err(refused(format!(
                "{} takes {bytes} bytes, and burnpack's readers take no tensor of more than {}",
                target.name,
                burn_pack::MAX_TENSOR_SIZE
            )));
        }
        let start = end.next_multiple_of(burn_pack::TENSOR_ALIGNMENT);
        end = start + bytes;
        places.push((start, end));
    }
    let tensors = targets.iter().zip(&places).map(|(target, &data_offsets)| {
        (target.name.as_str(), Place { dtype: burn_dtype(dtype), shape: &target.shape, data_offsets })
    });
    let mut cbor = Vec::new();
    ciborium::into_writer(&Cbor { tensors: tensors.collect(), metadata: notes }, &mut cbor)
        .map_err(|error| refused(format!("the header of {name} cannot be written: {error}")))?;
    let first = burn_pack::aligned_data_section_start(cbor.len());
    let len = first as u64 + end;
    if len > burn_pack::MAX_FILE_SIZE
        || cbor.len() as u64 > u64::from(burn_pack::MAX_METADATA_SIZE)
        || targets.len() > burn_pack::MAX_TENSOR_COUNT
    {
        return Err(refused(format!(
            "{name} would have {len} bytes and {} tensors, more than burnpack's readers take",
            targets.len()
        )));
    }
    let mut header = burn_pack::Header::new(cbor.len() as u32).into_bytes().to_vec();
    header.extend(cbor);
    header.resize(first, 0);
    let tensors = places.into_iter().map(|(start, _)| first as u64 + start).zip(targets).collect();
    Ok(FileLayout { name, header, tensors, len })
}
