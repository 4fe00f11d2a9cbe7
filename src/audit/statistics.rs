//! What the checks need to know about the values of a parameter, from one pass over them.

use serde::{Deserialize, Serialize};

/// Moments and extremes of the values of a parameter, a block or an expert.
///
/// Non-finite values are counted and left out of everything else.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// Finite values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, `sqrt(sum (x - mean)^2 / count)`.
    pub std: f64,
    /// Their fourth central moment over the square of the second: 3 for a normal, 1.8 for a uniform; 0 for a constant.
    pub kurtosis: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many are exactly 0.
    pub zeros: u64,
    /// Values that are NaN or infinite.
    pub non_finite: u64,
}

impl Statistics {
    /// Whether all values are the same.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }

    /// Root mean square.
    pub fn rms(&self) -> f64 {
        self.mean.hypot(self.std)
    }
}

/// One row or column: `index`, and the sums over it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lane {
    pub index: u64,
    pub sum: f64,
    pub squares: f64,
}

/// The rows of a matrix, or its columns: the most and the least energetic one, and those that are all 0.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lanes {
    /// How many.
    pub count: u64,
    /// Values in each.
    pub len: u64,
    pub largest: Lane,
    /// Among those that are not all 0.
    pub smallest: Lane,
    pub zeros: u64,
    /// Indices of the first of those that are all 0.
    pub first_zeros: Vec<u64>,
}

impl Lanes {
    /// More indices than this are not kept.
    const NAMED: usize = 64;

    fn new(len: u64, lanes: impl Iterator<Item = (f64, f64)>) -> Self {
        let none = Lane { index: 0, sum: 0.0, squares: 0.0 };
        let mut all = Lanes { count: 0, len, largest: none, smallest: none, zeros: 0, first_zeros: Vec::new() };
        for (index, (sum, squares)) in lanes.enumerate() {
            let lane = Lane { index: index as u64, sum, squares };
            all.count += 1;
            if squares == 0.0 {
                all.zeros += 1;
                if all.first_zeros.len() < Self::NAMED {
                    all.first_zeros.push(lane.index);
                }
                continue;
            }
            if squares > all.largest.squares {
                all.largest = lane;
            }
            if squares < all.smallest.squares || all.smallest.squares == 0.0 {
                all.smallest = lane;
            }
        }
        all
    }

    /// Root mean square of a lane.
    pub fn rms(&self, lane: Lane) -> f64 {
        (lane.squares / self.len as f64).sqrt()
    }
}

/// All that is kept of the values of one matrix (or vector), whatever it will be compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub statistics: Statistics,
    /// Bits of the significand that the values are stored with: 24 for f32, 11 for f16, 8 for bf16.
    pub precision: u32,
    /// Of matrices: lanes along the first dimension, `[d_in, d_out]` as the plan has it, and along the second.
    pub rows: Option<Lanes>,
    pub columns: Option<Lanes>,
    /// How far the matrix is from a multiple of a semi-orthogonal one: `|Q'Qx - c x| / |c x|` for one random `x`.
    pub orthogonality: Option<f64>,
    /// How many values lie in each cell of a grid with eight cells an octave, in ascending order; see [`cell`].
    pub histogram: Vec<(i32, u64)>,
}

/// The cell of a value: the sign, the exponent and three bits of the significand of its f32. Cells ascend with the values; -0 is 0.
fn cell(value: f32) -> i32 {
    let bits = (value.abs().to_bits() >> 20) as i32;
    if value < 0.0 { -1 - bits } else { bits }
}

/// The lower bound of a cell; for a negative one it is outside of it.
pub(crate) fn lower_bound(cell: i32) -> f64 {
    let magnitude = |cell: i32| f64::from(f32::from_bits((cell as u32) << 20));
    if cell < 0 { -magnitude(-cell) } else { magnitude(cell) }
}

impl Sample {
    /// Of a matrix with `columns` columns in row-major order; a vector has one row.
    ///
    /// `transposed`: the matrix is stored as the transpose of what the plan has.
    pub fn of(values: &[f32], columns: usize, transposed: bool, precision: u32) -> Self {
        let columns = columns.max(1);
        let mut cells = vec![0u64; 1 << 12];
        let half = (cells.len() / 2) as i32;
        let (mut count, mut non_finite, mut zeros) = (0u64, 0u64, 0u64);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        // Powers of the distance from the first value, so that a spread that is small beside the mean keeps its digits.
        let origin = values.iter().map(|&x| f64::from(x)).find(|x| x.is_finite()).unwrap_or(0.0);
        let origin = if origin.abs() > 0.5 { origin } else { 0.0 };
        let mut powers = [0.0f64; 4];
        let mut by_row = Vec::with_capacity(values.len() / columns);
        let mut by_column = vec![(0.0f64, 0.0f64); columns];
        for row in values.chunks(columns) {
            let (mut sum, mut squares) = (0.0, 0.0);
            let mut of_row = [0.0f64; 4];
            for (&value, column) in row.iter().zip(&mut by_column) {
                let x = f64::from(value);
                if !x.is_finite() {
                    non_finite += 1;
                    continue;
                }
                count += 1;
                zeros += u64::from(value == 0.0);
                min = min.min(x);
                max = max.max(x);
                cells[(cell(value) + half) as usize] += 1;
                let d = x - origin;
                let square = d * d;
                of_row[0] += d;
                of_row[1] += square;
                of_row[2] += square * d;
                of_row[3] += square * square;
                sum += x;
                squares += x * x;
                column.0 += x;
                column.1 += x * x;
            }
            powers.iter_mut().zip(of_row).for_each(|(total, part)| *total += part);
            by_row.push((sum, squares));
        }
        let statistics = statistics(count, origin, powers, min, max, zeros, non_finite);
        let histogram = (cells.iter().enumerate()).filter(|(_, n)| **n > 0).map(|(i, &n)| (i as i32 - half, n));
        let height = values.len() / columns;
        let matrix = height > 1 && columns > 1;
        let rows = matrix.then(|| Lanes::new(columns as u64, by_row.into_iter()));
        let cols = matrix.then(|| Lanes::new(height as u64, by_column.into_iter()));
        let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
        Self {
            statistics,
            precision,
            rows,
            columns: cols,
            orthogonality: (matrix && non_finite == 0).then(|| orthogonality(values, columns)),
            histogram: histogram.collect(),
        }
    }
}

fn statistics(
    count: u64,
    origin: f64,
    powers: [f64; 4],
    min: f64,
    max: f64,
    zeros: u64,
    non_finite: u64,
) -> Statistics {
    if count == 0 {
        return Statistics { count, mean: 0.0, std: 0.0, kurtosis: 0.0, min: 0.0, max: 0.0, zeros, non_finite };
    }
    let [m1, m2, m3, m4] = powers.map(|sum| sum / count as f64);
    let variance = if min == max { 0.0 } else { (m2 - m1 * m1).max(0.0) };
    let fourth = m4 - 4.0 * m1 * m3 + 6.0 * m1 * m1 * m2 - 3.0 * m1.powi(4);
    let kurtosis = if variance > 0.0 { fourth / (variance * variance) } else { 0.0 };
    Statistics { count, mean: origin + m1, std: variance.sqrt(), kurtosis, min, max, zeros, non_finite }
}

/// `|A'Ax - c x| / |c x|` with the best `c`, where `A` has its longer side first and `x` is a vector of random signs.
fn orthogonality(values: &[f32], columns: usize) -> f64 {
    let rows = values.len() / columns;
    let dot = |row: &[f32], x: &[f64]| row.iter().zip(x).map(|(&a, x)| f64::from(a) * x).sum::<f64>();
    let forward = |x: &[f64]| -> Vec<f64> { values.chunks(columns).map(|row| dot(row, x)).collect() };
    let backward = |y: &[f64]| {
        let mut out = vec![0.0; columns];
        for (row, y) in values.chunks(columns).zip(y) {
            out.iter_mut().zip(row).for_each(|(out, &a)| *out += f64::from(a) * y);
        }
        out
    };
    let x: Vec<f64> = signs(rows.min(columns));
    let image = if rows >= columns { backward(&forward(&x)) } else { forward(&backward(&x)) };
    let scale = image.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>() / x.len() as f64;
    let rest: f64 = image.iter().zip(&x).map(|(a, x)| (a - scale * x).powi(2)).sum();
    (rest / (scale * scale * x.len() as f64)).sqrt()
}

/// Signs from the high bits of a Weyl sequence scrambled by two multiplications (SplitMix64).
fn signs(count: usize) -> Vec<f64> {
    let sign = |i: usize| {
        let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        if z >> 63 == 0 { 1.0 } else { -1.0 }
    };
    (0..count).map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_extremes() {
        let values = [1.0, 2.0, 3.0, 6.0, 0.0, f32::NAN];
        let found = Sample::of(&values, 6, false, 24).statistics;
        // Mean 2.4; central moments 4.24 and 41.0272 by hand.
        assert_eq!((found.count, found.zeros, found.non_finite, found.min, found.max), (5, 1, 1, 0.0, 6.0));
        assert!((found.mean - 2.4).abs() < 1e-15 && (found.std - 4.24f64.sqrt()).abs() < 1e-15);
        assert!((found.kurtosis - 41.0272 / (4.24 * 4.24)).abs() < 1e-12, "{}", found.kurtosis);
    }

    /// The spread of gains is small beside their mean.
    #[test]
    fn a_small_spread_keeps_its_digits() {
        let values: Vec<f32> = (0..1000).map(|i| 1.0 + (i % 2) as f32 * 2f32.powi(-20)).collect();
        let found = Sample::of(&values, 1000, false, 24).statistics;
        assert!((found.std / 2f64.powi(-21) - 1.0).abs() < 1e-6, "{}", found.std);
        assert!((found.kurtosis - 1.0).abs() < 1e-6, "{}", found.kurtosis);
    }

    #[test]
    fn lanes() {
        let values = [1.0, -1.0, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0, 5.0];
        let sample = Sample::of(&values, 3, false, 24);
        let rows = sample.rows.unwrap();
        assert_eq!((rows.count, rows.len, rows.zeros, rows.first_zeros), (3, 3, 1, vec![1]));
        assert_eq!(rows.largest, Lane { index: 2, sum: 12.0, squares: 50.0 });
        assert_eq!(rows.smallest, Lane { index: 0, sum: 2.0, squares: 6.0 });
        let turned = Sample::of(&values, 3, true, 24);
        assert_eq!(turned.columns.unwrap().largest.index, 2);
        assert_eq!(turned.rows.unwrap().largest, Lane { index: 2, sum: 7.0, squares: 29.0 });
    }

    #[test]
    fn cells_ascend_and_hold_their_values() {
        let values = [-1e30f32, -2.0, -1.9, -0.02, -1e-20, 0.0, 1e-20, 0.02, 0.0201, 1.9, 2.0, 1e30];
        let cells: Vec<i32> = values.iter().map(|&value| cell(value)).collect();
        assert!(cells.is_sorted());
        for (&value, &cell) in values.iter().zip(&cells) {
            let (low, high) = (lower_bound(cell), lower_bound(cell + 1));
            assert!(low <= f64::from(value) && f64::from(value) <= high, "{value}: {low} to {high}");
        }
        assert_eq!((cell(-0.0), lower_bound(cell(1.9)), lower_bound(cell(-2.0))), (0, 1.875, -2.25));
    }

    #[test]
    fn orthogonality_of_small_matrices() {
        let rotation = [0.6, -0.8, 0.8, 0.6].map(|x: f32| 3.0 * x);
        assert!(orthogonality(&rotation, 2) < 1e-6);
        assert!(orthogonality(&[1.0, 0.0, 0.0, 2.0], 2) > 0.3);
    }
}
