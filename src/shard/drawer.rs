//! The values of one parameter, block by block.

use std::ops::Range;

use crate::{
    error::{Error, ErrorKind},
    plan::Entry,
    rule::{FillContext, Law},
    sample::{Element, Stream, each},
};

/// All values of one parameter in row-major order of its spec's shape: a function of the plan's lines and the seed.
///
/// # Errors
/// A fill that gives what `E` has no number for.
pub(crate) fn values<E: Element>(entries: &[Entry], seed: u64) -> Result<Vec<E>, Error> {
    let shape = entries[0].spec().shape();
    let mut out = E::zeros(shape.iter().product::<u64>() as usize);
    let columns = shape.last().map_or(1, |&d| d);
    if !out.is_empty() {
        Drawer::new(entries, seed).fill(
            0..out.len() as u64 / columns,
            std::slice::from_ref(&(0..columns)),
            &mut out,
        )?;
    }
    Ok(out)
}

/// Draws any rows and columns of a parameter, taken as the matrix `[product of the leading dimensions, last dimension]`.
///
/// What it writes is what the whole parameter has there. Matrices that are defined on the whole only are kept from one call to the
/// next, so that a matrix that is drawn piece by piece is computed once.
pub(crate) struct Drawer<'a, E> {
    entries: &'a [Entry],
    seed: u64,
    stream: Stream,
    columns: u64,
    wholes: Vec<Option<Whole<E>>>,
}

/// A matrix that no part of can be computed alone.
struct Whole<E> {
    first_row: u64,
    rows: u64,
    values: Vec<E>,
}

impl<'a, E: Element> Drawer<'a, E> {
    /// `entries` are all lines of one parameter.
    pub(crate) fn new(entries: &'a [Entry], seed: u64) -> Self {
        Self {
            entries,
            seed,
            stream: Stream::new(seed, entries[0].stream_path()),
            columns: entries[0].spec().shape().last().map_or(1, |&d| d),
            wholes: entries.iter().map(|_| None).collect(),
        }
    }

    /// The given rows of the given columns, in row-major order.
    ///
    /// # Errors
    /// As [`values`].
    pub(crate) fn fill(&mut self, rows: Range<u64>, columns: &[Range<u64>], mut out: &mut [E]) -> Result<(), Error> {
        let width: u64 = columns.iter().map(|range| range.end - range.start).sum();
        if width == 0 {
            return Ok(());
        }
        let mut start = rows.start;
        while start < rows.end {
            let end = self.prepare(start)?.min(rows.end);
            let (now, later) = out.split_at_mut(((end - start) * width) as usize);
            self.draw(start, width, columns, now);
            (out, start) = (later, end);
        }
        Ok(())
    }

    /// Computes what has no value without the whole, and returns the row up to which that is enough.
    fn prepare(&mut self, row: u64) -> Result<u64, Error> {
        let mut enough = u64::MAX;
        for (entry, whole) in self.entries.iter().zip(&mut self.wholes) {
            // A convolution is one matrix, whose rows are all that belongs to one channel: several of the rows here.
            let size = match entry.law() {
                Law::Orthogonal { matrix, .. } => matrix[0] * matrix[1],
                Law::Fill { .. } => entry.spec().num_elements(),
                _ => continue,
            };
            let height = size / width_of(entry, self.columns).max(1);
            let first_row = row / height * height;
            if whole.as_ref().is_none_or(|whole| whole.first_row != first_row) {
                // The old one goes first: there is room for one.
                *whole = None;
                let values = compute(entry, self.seed, self.stream, row / height)?;
                *whole = Some(Whole { first_row, rows: height, values });
            }
            enough = enough.min(first_row + height);
        }
        Ok(enough)
    }

    fn draw(&self, first: u64, width: u64, columns: &[Range<u64>], out: &mut [E]) {
        let alike = self.entries.iter().all(|entry| entry.law() == self.entries[0].law());
        let zero_row = self.entries[0].rule().zero_row;
        match self.entries[0].law() {
            // Blocks that start alike need not be told apart: a value depends on its position in the whole parameter.
            Law::Draw(distribution) if alike && width == self.columns => {
                self.stream.fill(distribution, first * self.columns, out);
            }
            Law::Draw(distribution) if alike => each_row(out, width, |row, values| {
                self.runs(first + row, columns, values, |at, run| self.stream.fill(distribution, at, run));
            }),
            Law::Constant(value) if alike => each(out, PIECE, |_, out| out.fill(E::round(*value))),
            _ => each_row(out, width, |row, values| {
                self.runs(first + row, columns, values, |at, run| self.blocks(at, run));
            }),
        }
        if let Some(row) = zero_row.and_then(|row| row.checked_sub(first))
            && let Some(values) = out.chunks_mut(width as usize).nth(row as usize)
        {
            values.fill(E::default());
        }
    }

    /// Each run of neighbouring columns of a row, with the index of its first value in the parameter.
    fn runs(&self, row: u64, columns: &[Range<u64>], mut out: &mut [E], mut draw: impl FnMut(u64, &mut [E])) {
        for range in columns {
            let (now, later) = out.split_at_mut((range.end - range.start) as usize);
            draw(row * self.columns + range.start, now);
            out = later;
        }
    }

    /// Values of one row from index `at` on, block by block.
    fn blocks(&self, at: u64, out: &mut [E]) {
        let (row, first) = (at / self.columns, at % self.columns);
        let last = first + out.len() as u64;
        for (entry, whole) in self.entries.iter().zip(&self.wholes) {
            let start = entry.spec().block().map_or(0, |block| block.start);
            let end = start + width_of(entry, self.columns);
            let (from, to) = (first.max(start), last.min(end));
            if from >= to {
                continue;
            }
            let out = &mut out[(from - first) as usize..(to - first) as usize];
            match (entry.law(), whole) {
                (Law::Constant(value), _) => out.fill(E::round(*value)),
                (Law::Draw(distribution), _) => self.stream.fill(distribution, row * self.columns + from, out),
                (_, Some(whole)) => {
                    let width = (whole.values.len() as u64 / whole.rows) as usize;
                    let values = &whole.values[(row - whole.first_row) as usize * width..][..width];
                    out.copy_from_slice(&values[(from - start) as usize..(to - start) as usize]);
                }
                (_, None) => {}
            }
        }
    }
}

fn width_of(entry: &Entry, columns: u64) -> u64 {
    entry.spec().block().map_or(columns, |block| block.len)
}

/// The whole of matrix number `index`, in the columns of its block.
fn compute<E: Element>(entry: &Entry, seed: u64, stream: Stream, index: u64) -> Result<Vec<E>, Error> {
    let start = entry.spec().block().map_or(0, |block| block.start);
    match entry.law() {
        // Each matrix has a stream of its own.
        Law::Orthogonal { gain, matrix } => {
            let name = format!("{}[{index}, {start}]", entry.stream_path());
            let [rows, columns] = matrix.map(|d| d as usize);
            let mut out = vec![E::default(); rows * columns];
            Stream::new(seed, &name).orthogonal(rows, columns, *gain, &mut out);
            Ok(out)
        }
        Law::Fill { fill, factor } => {
            let mut computed = vec![0.0f32; entry.spec().num_elements() as usize];
            fill.apply(&FillContext { param: entry.spec(), stream }, *factor, &mut computed);
            let unusable = |value: &&f32| value.is_nan() || f64::from(value.abs()) > E::LARGEST;
            match computed.iter().find(unusable) {
                Some(value) => Err(entry.spec().error(
                    ErrorKind::InvalidValue,
                    format!("the fill \"{}\" gives {value}, which {} has no number for", fill.name(), E::NAME),
                    "let its function write finite numbers of that size",
                )),
                None => Ok(computed.into_iter().map(|value| E::round(value.into())).collect()),
            }
        }
        Law::Draw(_) | Law::Constant(_) | Law::Keep => Ok(Vec::new()),
    }
}

/// Values in one piece of parallel work.
const PIECE: usize = 1 << 15;

/// Calls `f` with the number and the values of each row, on all threads with the `rayon` feature.
fn each_row<E: Element>(out: &mut [E], width: u64, f: impl Fn(u64, &mut [E]) + Sync) {
    let width = width as usize;
    let rows = PIECE.div_ceil(width);
    each(out, rows * width, |piece, values| {
        values.chunks_mut(width).enumerate().for_each(|(row, values)| f((piece * rows + row) as u64, values));
    });
}
