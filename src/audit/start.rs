//! An existing start, measured: what is known about it before it is compared with any plan.

use std::collections::{BTreeMap, HashMap};

use super::statistics::Sample;
use crate::{param::ParamSpec, sample::fnv_1a};

/// The values of one line of a plan: a parameter or a block of a packed one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub whole: Sample,
    /// Each expert of a stacked parameter on its own.
    pub experts: Vec<Sample>,
}

/// What was found where the plan has a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reading {
    /// One part for each line.
    Values {
        parts: Vec<Part>,
        hash: u64,
    },
    NoValue,
    Quantized,
    Shape(Vec<u64>),
}

/// What was found where the plan has no parameter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Extra {
    pub path: String,
    pub shape: Vec<u64>,
    pub hash: Option<u64>,
}

/// Every tensor of a model or file, read once.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    /// By the path of the plan's line.
    pub readings: HashMap<String, Reading>,
    /// Further tensors at paths tied to a line: path of the line, then path and hash of the tensor.
    pub copies: BTreeMap<String, Vec<(String, u64)>>,
    pub extras: Vec<Extra>,
    /// Names in the file where they differ from the plan's paths.
    pub names: HashMap<String, String>,
}

/// A tensor in row-major order, as it is stored.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub values: &'a [f32],
    pub shape: &'a [u64],
    pub precision: u32,
    /// Whether a square matrix is stored as the transpose of the plan's; shapes tell for others.
    pub transposed: bool,
}

impl Start {
    /// Takes in what stands at `path`, where the plan has the lines `specs`.
    pub fn take(&mut self, path: &str, specs: &[&ParamSpec], stored: Stored<'_>) {
        let owner = specs[0].path().to_string();
        let hash = hash_of(stored.values);
        if self.readings.contains_key(&owner) {
            self.copies.entry(owner).or_default().push((path.to_string(), hash));
            return;
        }
        let reading = match fit(specs[0].shape(), stored.shape, stored.transposed) {
            Some(transposed) => Reading::Values { parts: parts(specs, &Stored { transposed, ..stored }), hash },
            None => Reading::Shape(stored.shape.to_vec()),
        };
        self.readings.insert(owner, reading);
    }

    pub fn take_extra(&mut self, path: &str, shape: &[u64], values: Option<&[f32]>) {
        self.extras.push(Extra { path: path.into(), shape: shape.to_vec(), hash: values.map(hash_of) });
    }
}

/// Whether a stored shape is the planned one (`Some(false)`) or its transpose (`Some(true)`). Dimensions of 1 at the front do not count.
pub(super) fn fit(planned: &[u64], stored: &[u64], square_transposed: bool) -> Option<bool> {
    let ones = stored.len().saturating_sub(planned.len());
    let stored = if stored[..ones].iter().all(|&d| d == 1) { &stored[ones..] } else { stored };
    let rank = planned.len();
    let square = rank >= 2 && planned[rank - 1] == planned[rank - 2];
    if planned == stored {
        return Some(square && square_transposed);
    }
    let mut crossed = planned.to_vec();
    if rank >= 2 {
        crossed.swap(rank - 1, rank - 2);
    }
    (crossed == stored).then_some(true)
}

/// Splits a stored tensor into the plan's blocks and experts and measures each.
fn parts(specs: &[&ParamSpec], stored: &Stored<'_>) -> Vec<Part> {
    let shape = specs[0].shape();
    let (outputs, inputs) = match *shape {
        [.., inputs, outputs] => (outputs as usize, inputs as usize),
        [outputs] => (outputs as usize, 1),
        [] => (1, 1),
    };
    let experts = specs[0].experts().unwrap_or(1).max(1) as usize;
    // A convolution or another raw tensor is looked at as a matrix with its first dimension as rows.
    let flat = shape.len() > 2 && specs[0].experts().is_none() && specs[0].block().is_none();
    let matrix = if flat { stored.values.len() } else { inputs * outputs };
    let columns = match (flat, stored.transposed) {
        (true, _) => stored.values.len() / (shape[0] as usize).max(1),
        (false, true) => inputs,
        (false, false) => outputs,
    };
    let measure = |values: &[f32], columns: usize| Sample::of(values, columns, stored.transposed, stored.precision);
    specs
        .iter()
        .map(|spec| {
            let Some(block) = spec.block() else {
                let each = match experts {
                    1 => Vec::new(),
                    _ => stored.values.chunks(matrix.max(1)).map(|values| measure(values, columns)).collect(),
                };
                return Part { whole: measure(stored.values, columns), experts: each };
            };
            let (start, len) = (block.start as usize, block.len as usize);
            let matrices = stored.values.chunks(matrix.max(1)).map(|values| -> Vec<f32> {
                match stored.transposed {
                    true => values[start * inputs..(start + len) * inputs].to_vec(),
                    false => values.chunks(outputs).flat_map(|row| &row[start..start + len]).copied().collect(),
                }
            });
            let columns = if stored.transposed { inputs } else { len };
            let blocks: Vec<Vec<f32>> = matrices.collect();
            let each = match experts {
                1 => Vec::new(),
                _ => blocks.iter().map(|values| measure(values, columns)).collect(),
            };
            Part { whole: measure(&blocks.concat(), columns), experts: each }
        })
        .collect()
}

fn hash_of(values: &[f32]) -> u64 {
    fnv_1a(values.iter().map(|value| value.to_bits().into()))
}
