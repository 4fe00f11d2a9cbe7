//! Any block of any parameter as it is in the whole, drawn without the whole.

mod drawer;

pub(crate) use drawer::{Drawer, values};

use std::ops::Range;

use burn::tensor::{DType, Device, Element as BurnElement, Tensor, TensorData, bf16, f16};

use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
    plan::{Entry, Plan},
    role::{Dtype, near},
    rule::{Law, Misfit, fits},
    sample::Element,
    tree::{answers, burn_dtype},
};

/// A block of a parameter: for each dimension some of its indices. Nothing is drawn until it is asked for.
///
/// Its values are those of the same block of the whole parameter, bit for bit, with the fans of the whole: a tensor-parallel worker that
/// holds a quarter of a matrix draws that quarter, and needs memory for it alone. Shapes and indices are those of
/// [`ParamSpec::shape`](crate::ParamSpec::shape): a linear map is `[d_in, d_out]` however it is stored.
///
/// ```
/// use burn::{nn::LinearConfig, tensor::Device};
/// use burn_init::{ModuleInit as _, Xavier};
///
/// let plan = LinearConfig::new(512, 512).init(&Device::flex()).plan(&Xavier::normal())?;
/// let block: Vec<f32> = plan.shard("weight", [0..512, 128..256], 42)?.values()?;          // any block
/// let second: Vec<f32> = plan.whole("weight", 42)?.split(1, 1, 4)?.values()?;              // the same, as part 1 of 4
/// assert_eq!(block, second);
///
/// let worker = plan.whole("weight", 42)?.split(0, 0, 2)?.split(1, 1, 2)?;                  // a 2 x 2 grid of workers
/// let tensor = worker.tensor::<2>(&Device::flex())?;
/// assert_eq!(tensor.dims(), [256, 256]);
/// # Ok::<(), burn_init::Error>(())
/// ```
///
/// An orthogonal matrix and a [`Fill`](crate::Fill) are defined on the whole only: the whole is computed and the block is cut from
/// it. [`workspace_bytes`](Self::workspace_bytes) says what that takes.
#[derive(Debug, Clone)]
pub struct Shard<'a> {
    entries: &'a [Entry],
    seed: u64,
    /// For each dimension the chosen indices, as ascending ranges.
    axes: Vec<Vec<Range<u64>>>,
    /// The matrices that stand side by side in the last dimension.
    side_by_side: Vec<Range<u64>>,
}

impl Plan {
    /// The block `ranges` of the parameter at `path`, one range for each dimension of its
    /// [shape](crate::ParamSpec::shape), as `seed` draws it.
    ///
    /// # Errors
    /// [`ErrorKind::Unmatched`] for a path that the plan does not have, [`ErrorKind::NoRule`] for a kept parameter,
    /// [`ErrorKind::Shape`] for ranges that do not fit.
    pub fn shard(&self, path: &str, ranges: impl AsRef<[Range<u64>]>, seed: u64) -> Result<Shard<'_>, Error> {
        self.whole(path, seed)?.slice(ranges)
    }

    /// The whole parameter at `path`, to be cut by [`Shard::split`] and [`Shard::slice`].
    ///
    /// # Errors
    /// [`ErrorKind::Unmatched`] for a path that the plan does not have, [`ErrorKind::NoRule`] for a kept parameter.
    pub fn whole(&self, path: &str, seed: u64) -> Result<Shard<'_>, Error> {
        let entries = self.blocks(path);
        let Some(first) = entries.first() else {
            let paths: Vec<&str> = self.iter().map(|entry| entry.spec().path()).collect();
            return Err(Error::new(
                ErrorKind::Unmatched,
                "the plan has no such parameter",
                match paths.len() {
                    0 => "it is empty".to_string(),
                    1..=5 => near(path, paths.into_iter()),
                    _ => match near(path, paths.iter().copied()) {
                        text if text.starts_with("did") => text,
                        _ => format!("paths look like {}", paths[0]),
                    },
                },
            )
            .at(path));
        };
        if first.spec().num_elements() > isize::MAX as u64 {
            return Err(first.spec().error(
                ErrorKind::Shape,
                "it has more values than can be counted",
                "correct the shape",
            ));
        }
        if let Some(kept) = entries.iter().find(|entry| *entry.law() == Law::Keep) {
            return Err(kept.spec().error(
                ErrorKind::NoRule,
                "it is kept, so that the plan does not tell its values",
                "take them from the model, or give it a rule",
            ));
        }
        let spec = first.spec();
        let block = |entry: &Entry| entry.spec().block().map(|block| block.start..block.start + block.len);
        let mut side_by_side: Vec<_> = entries.iter().filter_map(block).collect();
        if let ([width], Some(parent)) = (spec.shape(), spec.path().strip_suffix(".bias")) {
            // The bias of a packed weight is packed like it.
            side_by_side = self.blocks(&format!("{parent}.weight")).iter().filter_map(block).collect();
            side_by_side.retain(|range| range.end <= *width);
        }
        let axes = spec.shape().iter().map(|&d| only(0..d)).collect();
        Ok(Shard { entries, seed, axes, side_by_side })
    }
}

impl<'a> Shard<'a> {
    /// Shape of the block.
    pub fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(|ranges| length(ranges)).collect()
    }

    /// Number of elements of the block.
    pub fn num_elements(&self) -> u64 {
        self.shape().iter().fold(1, |product: u64, &d| product.saturating_mul(d))
    }

    /// Bytes of memory that drawing takes besides the values themselves: 0, except for an orthogonal matrix of `m n` elements, which
    /// takes `8 m n` and the whole in the precision of the values, and for a [`Fill`](crate::Fill), which takes the whole in `f32` and in
    /// that precision. `size` is the number of bytes of one value.
    pub fn workspace_bytes(&self, size: u64) -> u64 {
        self.entries
            .iter()
            .map(|entry| match entry.law() {
                Law::Orthogonal { matrix: [rows, columns], .. } => {
                    rows.saturating_mul(*columns).saturating_mul(8 + size)
                }
                Law::Fill { .. } => entry.spec().num_elements().saturating_mul(4 + size),
                _ => 0,
            })
            .fold(0, u64::saturating_add)
    }

    /// The block `ranges` of this block, one range for each dimension.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for another number of ranges than dimensions, and for a range that is not within the block.
    pub fn slice(self, ranges: impl AsRef<[Range<u64>]>) -> Result<Self, Error> {
        let (ranges, shape) = (ranges.as_ref(), self.shape());
        let fits = |(range, &d): (&Range<u64>, &u64)| range.start <= range.end && range.end <= d;
        if ranges.len() != shape.len() || !ranges.iter().zip(&shape).all(fits) {
            return Err(self.error(
                format!("the ranges {ranges:?} do not fit the {}", self.what()),
                format!("give {} ranges within {shape:?}", shape.len()),
            ));
        }
        let axes = self.axes.iter().zip(ranges).map(|(axis, range)| cut(axis, range.clone())).collect();
        Ok(Self { axes, ..self })
    }

    /// Part `part` of `parts` equal parts along the dimension `axis`, as tensor parallelism cuts it: `split(1, part, parts)` is
    /// column-parallel and `split(0, part, parts)` row-parallel for a linear map `[d_in, d_out]`.
    ///
    /// Along the output of a packed weight, and of its bias, each block is cut by itself, so that a worker has its part of the query, of the
    /// key and of the value. Experts are cut along dimension 0.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if there is no such dimension or part, or if it does not divide evenly.
    pub fn split(self, axis: usize, part: u64, parts: u64) -> Result<Self, Error> {
        let todo = "give a dimension and a number of parts that divides it evenly";
        let Some(ranges) = self.axes.get(axis) else {
            return Err(self.error(format!("there is no dimension {axis} in the {}", self.what()), todo));
        };
        if part >= parts {
            return Err(self.error(format!("there is no part {part} of {parts}"), "count the parts from 0"));
        }
        // A block that was cut before is cut on.
        let packed = axis + 1 == self.axes.len() && self.side_by_side.len() > 1;
        let groups: Vec<Vec<Range<u64>>> = match packed {
            false => vec![ranges.clone()],
            true => self.side_by_side.iter().map(|block| within(ranges, block)).collect(),
        };
        let mut chosen = Vec::new();
        for group in groups {
            let length = length(&group);
            if !length.is_multiple_of(parts) {
                return Err(self.error(format!("{length} indices do not split into {parts} equal parts"), todo));
            }
            chosen.extend(cut(&group, length / parts * part..length / parts * (part + 1)));
        }
        let mut axes = self.axes.clone();
        axes[axis] = merged(chosen);
        Ok(Self { axes, ..self })
    }

    /// The values in row-major order of [`shape`](Self::shape): `f32`, `f64`, `f16` or `bf16`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] if the values reach beyond the precision or vanish in it, [`ErrorKind::Shape`] if there is not enough memory,
    /// [`ErrorKind::Parse`] for a fill that was read by name and is not bound.
    pub fn values<E: Element>(&self) -> Result<Vec<E>, Error> {
        let mut out = Vec::new();
        let count = usize::try_from(self.num_elements()).ok().filter(|&count| out.try_reserve_exact(count).is_ok());
        let count = count.ok_or_else(|| {
            self.error(format!("there is no memory for the {} elements", self.num_elements()), "take a smaller block")
        })?;
        out.resize(count, E::default());
        self.fill(&mut out)?;
        Ok(out)
    }

    /// Writes the values into `out`, in row-major order of [`shape`](Self::shape).
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] if `out` has another number of elements; otherwise as [`values`](Self::values).
    pub fn fill<E: Element>(&self, out: &mut [E]) -> Result<(), Error> {
        if out.len() as u64 != self.num_elements() {
            return Err(self.error(
                format!("the slice has {} elements and the {} has {}", out.len(), self.what(), self.num_elements()),
                "give one of the same size",
            ));
        }
        drawable::<E>(self.entries)?;
        let (leading, columns) = match self.axes.split_last() {
            Some((columns, leading)) => (leading, columns.as_slice()),
            None => (&[] as &[_], std::slice::from_ref(&(0..1))),
        };
        let width = length(columns) as usize;
        let mut drawer = Drawer::new(self.entries, self.seed);
        let mut out = out;
        for rows in self.rows(leading) {
            let (now, later) = out.split_at_mut((rows.end - rows.start) as usize * width);
            drawer.fill(rows, columns, now)?;
            out = later;
        }
        Ok(())
    }

    /// The block as a tensor in the float precision of `device`.
    ///
    /// # Errors
    /// As [`values`](Self::values), and where `D` is not the number of dimensions.
    pub fn tensor<const D: usize>(&self, device: &Device) -> Result<Tensor<D>, Error> {
        let dtype = match device.settings().float_dtype.into() {
            DType::F64 => Dtype::F64,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            _ => Dtype::F32,
        };
        self.tensor_as(device, dtype)
    }

    /// The block as a tensor in the given precision.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor), and [`ErrorKind::Config`] if the device has no such precision, [`ErrorKind::Device`] if it
    /// does not answer.
    pub fn tensor_as<const D: usize>(&self, device: &Device, dtype: Dtype) -> Result<Tensor<D>, Error> {
        if self.axes.len() != D {
            return Err(self.error(
                format!("a tensor of {D} dimensions is asked for, and it has {}", self.axes.len()),
                "ask for as many",
            ));
        }
        answers(device)?;
        if !device.supports_dtype(burn_dtype(dtype)) {
            return Err(Error::config(format!("the device {device:?} has no {dtype:?}"), "choose another precision"));
        }
        let data = match dtype {
            Dtype::F64 => self.data::<f64>(),
            Dtype::F32 => self.data::<f32>(),
            Dtype::F16 => self.data::<f16>(),
            Dtype::BF16 => self.data::<bf16>(),
        }?;
        Ok(Tensor::from_data(data, (device, burn_dtype(dtype))))
    }

    fn data<E: Element + BurnElement>(&self) -> Result<TensorData, Error> {
        let shape: Vec<usize> = self.shape().into_iter().map(|d| d as usize).collect();
        Ok(TensorData::new(self.values::<E>()?, shape))
    }

    /// The rows of the matrix `[…, columns]` that the leading dimensions choose, in order.
    fn rows(&self, leading: &[Vec<Range<u64>>]) -> Vec<Range<u64>> {
        let shape = &self.entries[0].spec().shape()[..leading.len()];
        // Dimensions that are whole after the last one that is cut need no look at each index.
        let is_cut = |axis: &usize| leading[*axis] != only(0..shape[*axis]);
        let cuts = (0..leading.len()).rev().find(is_cut).map_or(0, |axis| axis + 1);
        let below: u64 = shape[cuts..].iter().product();
        let mut rows = only(0..1);
        for (ranges, d) in leading[..cuts].iter().zip(shape) {
            let inside = |row: u64| ranges.iter().map(move |range| row * d + range.start..row * d + range.end);
            rows = rows.into_iter().flat_map(|rows| rows.flat_map(inside)).collect();
        }
        merged(rows.into_iter().map(|rows| rows.start * below..rows.end * below).collect())
    }

    fn what(&self) -> String {
        let shape = self.shape();
        match shape == self.entries[0].spec().shape() {
            true => format!("parameter of shape {shape:?}"),
            false => format!("block of shape {shape:?}"),
        }
    }

    fn error(&self, found: impl Into<String>, todo: impl Into<String>) -> Error {
        self.entries[0].spec().error(ErrorKind::Shape, found, todo)
    }
}

/// Whether the values of these lines can be drawn in this precision.
pub(crate) fn drawable<E: Element>(entries: &[Entry]) -> Result<(), Error> {
    for entry in entries {
        let (spec, law) = (entry.spec(), entry.law());
        if let Law::Fill { fill, .. } = law {
            fill.bound().map_err(|error| error.at(spec.path()).shaped(spec.shape()))?;
        }
        law.check::<E>().map_err(|misfit| other_precision(spec, misfit))?;
    }
    Ok(())
}

/// Whether a tensor of this dtype can hold the values, and be multiplied in the forward pass.
pub(crate) fn drawable_as(dtype: DType, entries: &[Entry]) -> Result<(), Error> {
    match dtype {
        DType::F64 => drawable::<f64>(entries),
        DType::F16 => drawable::<f16>(entries),
        DType::BF16 => drawable::<bf16>(entries),
        _ => drawable::<f32>(entries),
    }?;
    entries.iter().try_for_each(|entry| {
        fits_as(dtype, "the forward multiplier", entry.rule().forward)
            .map_err(|misfit| other_precision(entry.spec(), misfit))
    })
}

/// Whether a tensor of this dtype has numbers of this size.
pub(crate) fn fits_as(dtype: DType, what: &str, value: f64) -> Result<(), Misfit> {
    match dtype {
        DType::F64 => fits::<f64>(what, value),
        DType::F16 => fits::<f16>(what, value),
        DType::BF16 => fits::<bf16>(what, value),
        _ => fits::<f32>(what, value),
    }
}

fn other_precision(spec: &ParamSpec, (found, todo): Misfit) -> Error {
    spec.error(ErrorKind::InvalidValue, found, format!("{todo}, or another precision"))
}

fn only(range: Range<u64>) -> Vec<Range<u64>> {
    vec![range]
}

fn length(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// The positions `range` of the indices that `ranges` list.
fn cut(ranges: &[Range<u64>], range: Range<u64>) -> Vec<Range<u64>> {
    let mut before = 0;
    let mut chosen = Vec::new();
    for one in ranges {
        let count = one.end - one.start;
        let (from, to) = (range.start.clamp(before, before + count), range.end.clamp(before, before + count));
        if from < to {
            chosen.push(one.start + from - before..one.start + to - before);
        }
        before += count;
    }
    chosen
}

/// The indices that are in `block` as well.
fn within(ranges: &[Range<u64>], block: &Range<u64>) -> Vec<Range<u64>> {
    let both = |range: &Range<u64>| range.start.max(block.start)..range.end.min(block.end);
    ranges.iter().map(both).filter(|range| range.start < range.end).collect()
}

/// With neighbours joined.
fn merged(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => out.push(range),
        }
    }
    out
}
