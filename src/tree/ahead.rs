//! One parallel pass over a plan: values are drawn for many parameters at once, a bounded number of bytes ahead of the tree.

use std::collections::HashMap;

use burn::tensor::{DType, Element as BurnElement, TensorData, bf16, f16};

use crate::shard::values;
use crate::{
    error::Error,
    plan::Entry,
    sample::{Element, each},
};

/// Values that are drawn together, so that small parameters fill all threads. Where a backend keeps the buffers, they are the
/// model itself; elsewhere this much is held besides it.
const BYTES: u64 = 1 << 26;

/// A tensor to draw.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub entries: &'a [Entry],
    pub dtype: DType,
    /// Whether the buffer holds the transpose of the spec's shape.
    pub turned: bool,
}

impl Task<'_> {
    fn bytes(&self) -> u64 {
        let shape = self.entries[0].spec().shape().iter();
        shape.fold(self.dtype.size() as u64, |bytes, &d| bytes.saturating_mul(d))
    }

    fn draw(&self, seed: u64) -> Result<TensorData, Error> {
        match self.dtype {
            DType::F64 => self.buffer::<f64>(seed),
            DType::F16 => self.buffer::<f16>(seed),
            DType::BF16 => self.buffer::<bf16>(seed),
            _ => self.buffer::<f32>(seed),
        }
    }

    fn buffer<E: Element + BurnElement>(&self, seed: u64) -> Result<TensorData, Error> {
        let mut shape: Vec<usize> = self.entries[0].spec().shape().iter().map(|&d| d as usize).collect();
        let mut values = values::<E>(self.entries, seed)?;
        if let (true, [.., rows, columns]) = (self.turned, shape.as_mut_slice()) {
            values = transpose(&values, *rows, *columns);
            std::mem::swap(rows, columns);
        }
        Ok(TensorData::new(values, shape))
    }
}

/// `[…, rows, columns]` to `[…, columns, rows]`.
fn transpose<E: Element>(values: &[E], rows: usize, columns: usize) -> Vec<E> {
    /// Rows and columns that are read together, so that what the caches hold of a row is used before it leaves.
    const SIDE: usize = 32;
    let mut out = E::zeros(values.len());
    if values.is_empty() {
        return out;
    }
    for (from, to) in values.chunks(rows * columns).zip(out.chunks_mut(rows * columns)) {
        each(to, SIDE * rows, |strip, to| {
            for first in (0..rows).step_by(SIDE) {
                for (column, to) in to.chunks_mut(rows).enumerate() {
                    for row in first..rows.min(first + SIDE) {
                        to[row] = from[row * columns + strip * SIDE + column];
                    }
                }
            }
        });
    }
    out
}

/// The values of all tensors, in whatever order they are asked for.
pub(super) struct Ahead<'a> {
    seed: u64,
    tasks: Vec<Task<'a>>,
    /// The first task that no batch has come to yet.
    next: usize,
    drawn: HashMap<usize, Result<TensorData, Error>>,
}

impl<'a> Ahead<'a> {
    pub fn new(tasks: Vec<Task<'a>>, seed: u64) -> Self {
        Self { seed, tasks, next: 0, drawn: HashMap::new() }
    }

    /// The values of a task. It and those after it are drawn together if they are not there yet.
    ///
    /// # Errors
    /// As [`values`].
    pub fn take(&mut self, task: usize) -> Result<TensorData, Error> {
        if let Some(values) = self.drawn.remove(&task) {
            return values;
        }
        let mut bytes = self.tasks[task].bytes();
        let mut batch = vec![task];
        self.next = self.next.max(task + 1);
        while cfg!(feature = "rayon") && self.next < self.tasks.len() && bytes < BYTES {
            bytes = bytes.saturating_add(self.tasks[self.next].bytes());
            batch.push(self.next);
            self.next += 1;
        }
        let mut drawn = self.draw(&batch);
        self.drawn.extend(batch.drain(1..).zip(drawn.drain(1..)));
        drawn.remove(0)
    }

    fn draw(&self, batch: &[usize]) -> Vec<Result<TensorData, Error>> {
        let draw = |&task: &usize| self.tasks[task].draw(self.seed);
        #[cfg(feature = "rayon")]
        {
            use rayon::prelude::*;
            batch.par_iter().map(draw).collect()
        }
        #[cfg(not(feature = "rayon"))]
        batch.iter().map(draw).collect()
    }
}

#[cfg(test)]
mod tests {
    use burn::{
        nn::{Linear, LinearConfig},
        tensor::Device,
    };

    use super::*;
    use crate::{ModuleInit as _, Xavier};

    /// A module of the user's own may be mapped in another order than it is visited, or twice.
    #[test]
    fn values_do_not_depend_on_the_order_in_which_they_are_asked_for() {
        let device = Device::flex();
        let model: Vec<Linear> = (0..8).map(|i| LinearConfig::new(3, i + 1).init(&device)).collect();
        let plan = model.plan(&Xavier::normal()).unwrap();
        let lines: Vec<&Entry> = plan.iter().collect();
        let task = |entry: &&'_ Entry| {
            let entries = plan.blocks(entry.spec().path());
            Task { entries, dtype: DType::F32, turned: entry.spec().shape().len() == 2 }
        };
        let tasks: Vec<Task<'_>> = lines.iter().map(task).collect();
        let expected: Vec<TensorData> = tasks.iter().map(|task| task.draw(7).unwrap()).collect();
        let last = tasks.len() - 1;
        let mut ahead = Ahead::new(tasks, 7);
        for at in [3, 0, last, 4, 3, 1, last].into_iter().chain(0..=last) {
            assert_eq!(ahead.take(at).unwrap(), expected[at], "{at}");
        }
    }

    #[test]
    fn transposed() {
        for (matrices, rows, columns) in [(1, 1, 1), (1, 3, 70), (2, 65, 31), (1, 64, 64), (0, 2, 3), (1, 0, 3)] {
            let values: Vec<f32> = (0..matrices * rows * columns).map(|i| i as f32).collect();
            let turned = transpose(&values, rows, columns);
            assert_eq!(turned.len(), values.len());
            for (i, &value) in values.iter().enumerate() {
                let (matrix, row, column) = (i / (rows * columns), i / columns % rows, i % columns);
                assert_eq!(turned[matrix * rows * columns + column * rows + row], value);
            }
        }
    }
}
