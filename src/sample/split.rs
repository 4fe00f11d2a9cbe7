//! A random square matrix split into two factors by its singular values.
//!
//! One-sided Jacobi rotations (Hestenes 1958) turn the columns of `A` until they are orthogonal: they are then the left singular vectors
//! times the singular values, to the last digits whatever their size. Only IEEE additions, multiplications, divisions and square roots in
//! a fixed order are used, so that both factors have the same bits wherever and by whomever they are computed.

use super::{
    Distribution, Stream,
    dispatch::{Job, dispatch},
};

/// Columns whose cosine is smaller are orthogonal.
const ORTHOGONAL: f64 = 1e-13;
/// Jacobi's method converges quadratically: 6 to 12 sweeps are the rule.
const SWEEPS: usize = 60;
/// Sums that run side by side in a product of two columns.
const SUMS: usize = 16;

/// The two factors of a matrix of rank `r`: `A = left' right`, both of `r` rows of length `d`, the largest singular value first.
#[derive(Debug)]
pub(crate) struct Factors {
    pub left: Vec<f64>,
    pub right: Vec<f64>,
}

impl Stream {
    /// Draws `A = identity I + noise Z`, `Z` of independent `N(0, 1/d)`, and splits its best approximation of rank `rank` evenly: with
    /// `A = U S V'` the left factor is `sqrt(S) U'` and the right one `sqrt(S) V'`.
    pub(crate) fn split(&self, d: usize, rank: usize, identity: f64, noise: f64) -> Factors {
        let mut rows = vec![0.0f64; d * d];
        self.fill(&Distribution::Normal { mean: 0.0, std: noise / (d as f64).sqrt() }, 0, &mut rows);
        rows.iter_mut().step_by(d + 1).for_each(|value| *value += identity);
        split(&rows, d, rank)
    }

    /// The stream of another name with the same seed.
    pub(crate) fn named(&self, name: &str) -> Stream {
        Stream { key: self.key, ..Stream::new(0, name) }
    }
}

fn split(rows: &[f64], d: usize, rank: usize) -> Factors {
    let mut columns = vec![0.0; d * d];
    for (i, row) in rows.chunks(d.max(1)).enumerate() {
        row.iter().enumerate().for_each(|(j, &value)| columns[j * d + i] = value);
    }
    dispatch(Jacobi { columns: &mut columns, d });
    let mut order: Vec<(f64, &[f64])> =
        columns.chunks(d.max(1)).map(|column| (dot(column, column).sqrt(), column)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut left, mut right) = (vec![0.0; rank * d], vec![0.0; rank * d]);
    let sides = left.chunks_mut(d.max(1)).zip(right.chunks_mut(d.max(1)));
    for ((left, right), &(value, column)) in sides.zip(&order) {
        // A singular value of 0 leaves nothing to split.
        if value == 0.0 {
            continue;
        }
        let root = value.sqrt();
        left.iter_mut().zip(column).for_each(|(left, &u)| *left = u / root);
        for (&left, row) in left.iter().zip(rows.chunks(d)) {
            right.iter_mut().zip(row).for_each(|(right, &a)| *right += left * a);
        }
        right.iter_mut().for_each(|right| *right /= value);
    }
    Factors { left, right }
}

struct Jacobi<'a> {
    columns: &'a mut [f64],
    d: usize,
}

impl Job for Jacobi<'_> {
    #[inline(always)]
    fn run(self) {
        for _ in 0..SWEEPS {
            let mut turned = false;
            for q in 1..self.d {
                let (before, from_q) = self.columns.split_at_mut(q * self.d);
                let right = &mut from_q[..self.d];
                for left in before.chunks_mut(self.d) {
                    turned |= turn(left, right);
                }
            }
            if !turned {
                return;
            }
        }
    }
}

/// Turns two columns in their plane until they are orthogonal; false if they were.
#[inline(always)]
fn turn(p: &mut [f64], q: &mut [f64]) -> bool {
    let (pp, qq, pq) = (dot(p, p), dot(q, q), dot(p, q));
    if pq.abs() <= ORTHOGONAL * (pp * qq).sqrt() {
        return false;
    }
    let cotangent = (qq - pp) / (2.0 * pq);
    let tangent = cotangent.signum() / (cotangent.abs() + (1.0 + cotangent * cotangent).sqrt());
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sine = cosine * tangent;
    for (p, q) in p.iter_mut().zip(q) {
        (*p, *q) = (cosine * *p - sine * *q, sine * *p + cosine * *q);
    }
    true
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; SUMS];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..SUMS {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(d: usize, identity: f64, noise: f64) -> Vec<f64> {
        let mut rows = vec![0.0; d * d];
        let noise = Distribution::Normal { mean: 0.0, std: noise / (d as f64).sqrt() };
        Stream::new(3, "a").fill(&noise, 0, &mut rows);
        rows.iter_mut().step_by(d + 1).for_each(|value| *value += identity);
        rows
    }

    fn product(Factors { left, right }: &Factors, d: usize) -> Vec<f64> {
        let mut product = vec![0.0; d * d];
        for (left, right) in left.chunks(d).zip(right.chunks(d)) {
            for (i, l) in left.iter().enumerate() {
                right.iter().enumerate().for_each(|(j, r)| product[i * d + j] += l * r);
            }
        }
        product
    }

    /// `A = L'R` with all of its rank; both sides orthogonal, and of the same lengths in falling order.
    #[test]
    fn factors_multiply_to_the_matrix() {
        for (d, identity, noise) in [(1, 0.7, 0.7), (2, 0.0, 1.0), (5, -0.4, 0.4), (33, 0.7, 0.7), (64, 0.5, 0.0)] {
            let factors = Stream::new(3, "a").split(d, d, identity, noise);
            for (found, expected) in product(&factors, d).iter().zip(matrix(d, identity, noise)) {
                assert!((found - expected).abs() < 1e-12, "d = {d}: {found}, {expected}");
            }
            let mut last = f64::INFINITY;
            for i in 0..d {
                let row = |side: &'_ [f64], i: usize| side[i * d..][..d].to_vec();
                let (left, right) = (row(&factors.left, i), row(&factors.right, i));
                let value = dot(&left, &left);
                assert!(value <= last * (1.0 + 1e-12) && (dot(&right, &right) - value).abs() < 1e-10, "{value}");
                last = value;
                for j in 0..i {
                    assert!(dot(&left, &row(&factors.left, j)).abs() < 1e-11);
                    assert!(dot(&right, &row(&factors.right, j)).abs() < 1e-9);
                }
            }
        }
    }

    /// What a smaller rank leaves out is the sum of the squares of the other singular values: the best there is (Eckart and Young).
    #[test]
    fn a_smaller_rank_is_the_best_approximation() {
        let (d, rank) = (24, 6);
        let whole = Stream::new(3, "a").split(d, d, 0.7, 0.7);
        let values: Vec<f64> = whole.left.chunks(d).map(|u| dot(u, u)).collect();
        let part = Stream::new(3, "a").split(d, rank, 0.7, 0.7);
        assert_eq!(part.left[..], whole.left[..rank * d]);
        let missed = product(&part, d).iter().zip(matrix(d, 0.7, 0.7)).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let expected = values[rank..].iter().map(|value| value * value).sum::<f64>();
        assert!((missed / expected - 1.0).abs() < 1e-11, "{missed}, {expected}");
    }

    #[test]
    fn nothing_is_split_into_nothing() {
        let factors = Stream::new(3, "a").split(4, 2, 0.0, 0.0);
        assert!(factors.left.iter().chain(&factors.right).all(|&value| value == 0.0));
        assert!(Stream::new(3, "a").split(0, 0, 0.7, 0.7).left.is_empty());
    }
}
