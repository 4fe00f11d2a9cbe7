//! The values of a tensor as a file has them, piece by piece, drawn while the pieces before are being written.

use std::{
    ops::Range,
    sync::mpsc::{channel, sync_channel},
};

use burn::tensor::{bf16, f16};

use super::{format::FileLayout, keys::Target, sink::Sink};
use crate::{error::Error, sample::Element, shard::Drawer};

/// Bytes that are drawn at a time. Some five such pieces are in memory together.
const PIECE: usize = 8 << 20;
/// Values that are turned into bytes at a time, few enough to stay in the cache.
const RUN: usize = 1 << 15;

/// A precision that a file can have.
pub(super) trait Word: Element {
    fn put(values: &[Self], bytes: &mut Vec<u8>);
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl Word for $type {
            fn put(values: &[Self], bytes: &mut Vec<u8>) {
                bytes.resize(size_of_val(values), 0);
                let (words, _) = bytes.as_chunks_mut();
                words.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_le_bytes());
            }
        }
    )*};
}
words!(f64, f32, f16, bf16);

/// Sends the body of a file to `sink`. `report` is told the tensor and the number of values that have arrived.
pub(super) fn body<E: Word>(
    layout: &FileLayout<'_>,
    seed: u64,
    sink: &mut Sink,
    report: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<(), Error> {
    let (send, receive) = sync_channel::<(usize, Vec<E>)>(1);
    let (give_back, spare) = channel::<Vec<E>>();
    std::thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            let mut bytes = Vec::with_capacity(RUN * size_of::<E>());
            for (index, values) in receive {
                let (start, target) = &layout.tensors[index];
                sink.pad_to(*start, &target.name)?;
                for run in values.chunks(RUN) {
                    E::put(run, &mut bytes);
                    sink.take(&bytes, &target.name)?;
                }
                report(&target.name, values.len() as u64);
                // The other side may have ended.
                let _ = give_back.send(values);
            }
            Ok(())
        });
        let sent = layout.tensors.iter().enumerate().try_for_each(|(index, (_, target))| {
            pieces(target, seed, &mut |values| {
                send.send((index, values)).map_err(|_| Stop::Refused)?;
                Ok(spare.try_recv().unwrap_or_default())
            })
        });
        drop(send);
        let taken: Result<(), Error> = consumer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match sent {
            Err(Stop::Failed(error)) => taken.and(Err(error)),
            _ => taken,
        }
    })
}

/// Why no more pieces are drawn.
enum Stop {
    /// The consumer takes none, after an error of its own, which is the one to tell.
    Refused,
    /// The values cannot be drawn.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Emit<'a, E> = dyn FnMut(Vec<E>) -> Result<Vec<E>, Stop> + 'a;

/// Calls `emit` with one piece after the other, in the order of the file. It takes a buffer and gives one back.
fn pieces<E: Element>(target: &Target<'_>, seed: u64, emit: &mut Emit<'_, E>) -> Result<(), Stop> {
    if target.num_elements() == 0 {
        return Ok(());
    }
    let room = (PIECE / size_of::<E>()) as u64;
    let mut parts: Vec<(u64, Drawer<'_, E>)> = target
        .parts
        .iter()
        .map(|lines| (lines[0].spec().shape().last().copied().unwrap_or(1), Drawer::new(lines, seed)))
        .collect();
    let shape = target.parts[0][0].spec().shape();
    let rows: u64 = shape.split_last().map_or(1, |(_, leading)| leading.iter().product());
    let mut out = Vec::new();
    let mut scratch = Vec::new();
    if target.transposed {
        let height = shape[shape.len() - 2];
        for first in (0..rows).step_by(height as usize) {
            for (width, drawer) in &mut parts {
                for columns in ranges(0..*width, (room / height).max(1)) {
                    let count = ((columns.end - columns.start) * height) as usize;
                    scratch.resize(count, E::default());
                    out.resize(count, E::default());
                    drawer.fill(first..first + height, std::slice::from_ref(&columns), &mut scratch)?;
                    transpose(&scratch, height as usize, &mut out);
                    out = emit(out)?;
                }
            }
        }
        return Ok(());
    }
    let width: u64 = parts.iter().map(|(width, _)| width).sum();
    if width > room {
        // One row at a time is too much: its parts follow each other.
        for row in 0..rows {
            for (width, drawer) in &mut parts {
                for columns in ranges(0..*width, room) {
                    out.resize((columns.end - columns.start) as usize, E::default());
                    drawer.fill(row..row + 1, std::slice::from_ref(&columns), &mut out)?;
                    out = emit(out)?;
                }
            }
        }
        return Ok(());
    }
    for rows in ranges(0..rows, room / width) {
        let count = (rows.end - rows.start) as usize;
        out.resize(count * width as usize, E::default());
        match parts.as_mut_slice() {
            [(width, drawer)] => drawer.fill(rows, std::slice::from_ref(&(0..*width)), &mut out)?,
            parts => {
                let mut start = 0;
                for (part, drawer) in parts {
                    let columns = *part as usize;
                    scratch.resize(count * columns, E::default());
                    drawer.fill(rows.clone(), std::slice::from_ref(&(0..*part)), &mut scratch)?;
                    for (row, values) in scratch.chunks(columns).enumerate() {
                        out[row * width as usize + start..][..columns].copy_from_slice(values);
                    }
                    start += columns;
                }
            }
        }
        out = emit(out)?;
    }
    Ok(())
}

fn ranges(whole: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let end = whole.end;
    whole.step_by(step as usize).map(move |start| start..(start + step).min(end))
}

/// `[rows, columns]` to `[columns, rows]`, on all threads with the `rayon` feature.
fn transpose<E: Element>(from: &[E], rows: usize, to: &mut [E]) {
    let columns = from.len() / rows;
    let band = |index: usize, to: &mut [E]| turn(from, [rows, columns], index * SQUARE, to);
    #[cfg(feature = "rayon")]
    {
        use rayon::prelude::*;
        to.par_chunks_mut(SQUARE * rows).enumerate().for_each(|(index, to)| band(index, to));
    }
    #[cfg(not(feature = "rayon"))]
    to.chunks_mut(SQUARE * rows).enumerate().for_each(|(index, to)| band(index, to));
}

/// Side of the squares that are turned at once, in the first-level cache.
const SQUARE: usize = 32;

/// The columns from `left` on become the rows of `to`.
fn turn<E: Element>(from: &[E], [rows, columns]: [usize; 2], left: usize, to: &mut [E]) {
    let width = to.len() / rows;
    let mut square = [[E::default(); SQUARE]; SQUARE];
    for top in (0..rows).step_by(SQUARE) {
        let height = SQUARE.min(rows - top);
        for (line, from) in square.iter_mut().zip(from[top * columns..].chunks(columns)).take(height) {
            line[..width].copy_from_slice(&from[left..left + width]);
        }
        for (column, to) in to.chunks_mut(rows).enumerate() {
            match <&mut [E; SQUARE]>::try_from(&mut to[top..top + height]) {
                Ok(whole) => whole.iter_mut().zip(&square).for_each(|(to, line)| *to = line[column]),
                Err(_) => to[top..].iter_mut().zip(&square).for_each(|(to, line)| *to = line[column]),
            }
        }
    }
}
