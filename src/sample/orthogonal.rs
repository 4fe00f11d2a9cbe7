//! Orthogonal matrices by the Haar measure, after Stewart, "The efficient generation of random orthogonal matrices with an
//! application to condition estimators" (SIAM J. Numer. Anal. 17, 1980).
//!
//! The QR factorization of a Gaussian matrix, with the diagonal of R made positive, meets a fresh Gaussian vector at each
//! step, since the reflections so far are independent of what they leave. So the vectors can be drawn and the reflections
//! multiplied together without a matrix to factorize: half the work, and the same distribution. Reflections are applied
//! 32 at a time as `I - V T V'` (Schreiber & Van Loan 1989).

use super::{
    Distribution, Element, Stream,
    dispatch::{Job, dispatch},
    pieces::{each, join},
};

/// Reflections that are applied together.
const PANEL: usize = 32;
/// Columns that are kept together; one strip never reads another, so that they can be worked on in any order.
const STRIP: usize = 16;
/// Rows or reflections that are worked on together, in registers.
const GROUP: usize = 4;
/// Rows that stay in the first-level cache together.
const BLOCK: usize = 64;

type Strip = [f64; STRIP];

impl Stream {
    /// Draws a row-major `rows x cols` matrix whose shorter side is orthonormal, times `gain`: `Q'Q = gain^2 I` for a tall
    /// matrix, `QQ' = gain^2 I` for a wide one, to about 1e-15 before the rounding to `E`.
    ///
    /// The distribution is the Haar measure: the matrix is the Q of a Gaussian matrix whose R has a positive diagonal (Mezzadri
    /// 2007), found by Stewart's method (1980). It is defined on the whole matrix, and has the same bits on every machine
    /// and any number of threads: only IEEE additions, multiplications, divisions and square roots in a fixed order are used.
    /// It takes `2 m n^2 - 2 n^3 / 3` operations for sides `m >= n`, and `8 m n` bytes besides the output.
    ///
    /// # Panics
    ///
    /// If `out` does not hold `rows * cols` values.
    pub fn orthogonal<E: Element>(&self, rows: usize, cols: usize, gain: f64, out: &mut [E]) {
        assert_eq!(Some(out.len()), rows.checked_mul(cols), "the slice does not hold a {rows} x {cols} matrix");
        if out.is_empty() {
            return;
        }
        let (long, short) = (rows.max(cols), rows.min(cols));
        let mut strips = vec![[0.0; STRIP]; long * short.div_ceil(STRIP)];
        let draw = |first| Panel::draw(self, first, long, short);
        let mut firsts = (0..short).step_by(PANEL).rev();
        let mut next = firsts.next().map(draw);
        while let Some(panel) = next {
            let first = panel.first;
            for (column, sign) in (first..short).zip(panel.signs) {
                strips[column / STRIP * long + column][column % STRIP] = sign;
            }
            let strips = &mut strips[first / STRIP * long..];
            let reflect = || {
                each(strips, long, |_, strip| dispatch(Reflect { panel: &panel, rows: &mut strip[first..] }));
            };
            // The panel to come depends on nothing, so it is drawn meanwhile.
            let following = firsts.next();
            next = join(reflect, || following.map(draw)).1;
        }
        let entry = |r: usize, c: usize| E::round(gain * strips[c / STRIP * long + r][c % STRIP]);
        each(out, cols, |row, values| {
            for (col, value) in values.iter_mut().enumerate() {
                *value = if rows >= cols { entry(row, col) } else { entry(col, row) };
            }
        });
    }
}

/// `PANEL` successive reflections `I - v v' / (v'v / 2)` as `I - V T V'`.
struct Panel {
    first: usize,
    /// `V` from row `first` on; missing reflections are zero columns.
    v: Vec<[f64; PANEL]>,
    /// `T`, upper triangular.
    t: [[f64; PANEL]; PANEL],
    /// The signs that make the diagonal of R positive.
    signs: [f64; PANEL],
}

impl Panel {
    fn draw(stream: &Stream, first: usize, long: usize, short: usize) -> Self {
        let unit = Distribution::Normal { mean: 0.0, std: 1.0 };
        let mut v = vec![[0.0; PANEL]; long - first];
        let (mut tau, mut signs) = ([0.0; PANEL], [0.0; PANEL]);
        let mut x = vec![0.0; long - first];
        for i in 0..PANEL.min(short - first) {
            let column = first + i;
            let x = &mut x[i..];
            stream.fill(&unit, (column * long + column) as u64, x);
            let square: f64 = x.iter().map(|x| x * x).sum();
            let norm = square.sqrt().copysign(x[0]);
            tau[i] = 1.0 / (square + norm * x[0]);
            signs[i] = -norm.signum();
            x[0] += norm;
            for (row, &x) in v[i..].iter_mut().zip(&*x) {
                row[i] = x;
            }
        }
        let mut t = [[0.0; PANEL]; PANEL];
        let gram = gram(&v);
        for i in 0..PANEL {
            for (k, row) in t.iter_mut().enumerate().take(i) {
                row[i] = -tau[i] * (k..i).map(|l| row[l] * gram[l][i]).sum::<f64>();
            }
            t[i][i] = tau[i];
        }
        Panel { first, v, t, signs }
    }
}

fn gram(v: &[[f64; PANEL]]) -> [[f64; PANEL]; PANEL] {
    let mut gram = [[0.0; PANEL]; PANEL];
    dispatch(Gram { v, gram: &mut gram });
    gram
}

struct Gram<'a> {
    v: &'a [[f64; PANEL]],
    gram: &'a mut [[f64; PANEL]; PANEL],
}

impl Job for Gram<'_> {
    #[inline(always)]
    fn run(self) {
        for half in 0..PANEL / STRIP {
            let mut strip = [[0.0; STRIP]; PANEL];
            for v in self.v.chunks(BLOCK) {
                let mut rows = [[0.0; STRIP]; BLOCK];
                for (row, v) in rows.iter_mut().zip(v) {
                    *row = v.as_chunks().0[half];
                }
                project(v, &rows[..v.len()], &mut strip);
            }
            for (to, from) in self.gram.iter_mut().zip(&strip) {
                to.as_chunks_mut().0[half] = *from;
            }
        }
    }
}

struct Reflect<'a> {
    panel: &'a Panel,
    rows: &'a mut [Strip],
}

impl Job for Reflect<'_> {
    #[inline(always)]
    fn run(self) {
        let Panel { v, t, .. } = self.panel;
        let mut projected = [[0.0; STRIP]; PANEL];
        for (v, rows) in v.chunks(BLOCK).zip(self.rows.chunks(BLOCK)) {
            project(v, rows, &mut projected);
        }
        let mut turned = [[0.0; STRIP]; PANEL];
        for (i, sum) in turned.iter_mut().enumerate() {
            for k in i..PANEL {
                for c in 0..STRIP {
                    sum[c] += t[i][k] * projected[k][c];
                }
            }
        }
        let (groups, rest) = self.rows.as_chunks_mut::<GROUP>();
        let (v_groups, v_rest) = v.as_chunks::<GROUP>();
        for (rows, v) in groups.iter_mut().zip(v_groups) {
            subtract(rows, v, &turned);
        }
        for (row, v) in rest.iter_mut().zip(v_rest) {
            subtract(std::array::from_mut(row), std::array::from_ref(v), &turned);
        }
    }
}

/// `sums += V' Q`, each sum from the first row to the last.
#[inline(always)]
fn project(v: &[[f64; PANEL]], rows: &[Strip], sums: &mut [Strip; PANEL]) {
    for group in 0..PANEL / GROUP {
        let mut local: [Strip; GROUP] = std::array::from_fn(|i| sums[group * GROUP + i]);
        for (v, row) in v.iter().zip(rows) {
            let factors: [f64; GROUP] = std::array::from_fn(|i| v[group * GROUP + i]);
            multiply_add(&mut local, factors, row);
        }
        for i in 0..GROUP {
            sums[group * GROUP + i] = local[i];
        }
    }
}

/// `Q -= V W`
#[inline(always)]
fn subtract<const N: usize>(rows: &mut [Strip; N], v: &[[f64; PANEL]; N], w: &[Strip; PANEL]) {
    let mut local = [[0.0; STRIP]; N];
    for (k, w) in w.iter().enumerate() {
        multiply_add(&mut local, std::array::from_fn(|i| v[i][k]), w);
    }
    for i in 0..N {
        for c in 0..STRIP {
            rows[i][c] -= local[i][c];
        }
    }
}

#[inline(always)]
fn multiply_add<const N: usize>(sums: &mut [Strip; N], factors: [f64; N], row: &Strip) {
    for i in 0..N {
        for c in 0..STRIP {
            sums[i][c] += factors[i] * row[c];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, cols: usize, gain: f64) -> Vec<f64> {
        let mut out = vec![0.0; rows * cols];
        Stream::new(7, "weight").orthogonal(rows, cols, gain, &mut out);
        out
    }

    #[test]
    fn the_shorter_side_is_orthonormal() {
        for (rows, cols, gain) in [
            (1, 1, 1.0),
            (1, 5, 1.0),
            (5, 1, 1.0),
            (64, 64, 1.0),
            (64, 256, 1.0),
            (256, 64, 1.0),
            (32, 48, 2.0),
            (77, 131, 0.5),
            (133, 97, 1.0),
        ] {
            let q = matrix(rows, cols, gain);
            let at = |i: usize, k: usize| if rows >= cols { q[k * cols + i] } else { q[i * cols + k] };
            let (long, short) = (rows.max(cols), rows.min(cols));
            for i in 0..short {
                for j in 0..=i {
                    let dot: f64 = (0..long).map(|k| at(i, k) * at(j, k)).sum();
                    let expected = if i == j { gain * gain } else { 0.0 };
                    assert!((dot - expected).abs() < 1e-13 * gain * gain, "{rows} x {cols}: {i}, {j}: {dot}");
                }
            }
        }
    }

    /// Q is the one whose R has a positive diagonal: the R of the first column is the norm of the Gaussian vector itself.
    #[test]
    fn the_first_column_is_the_first_gaussian_vector() {
        let mut x = vec![0.0_f64; 48];
        Stream::new(7, "weight").fill(&Distribution::Normal { mean: 0.0, std: 1.0 }, 0, &mut x);
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let q = matrix(48, 20, 1.0);
        for (row, x) in x.iter().enumerate() {
            assert!((q[row * 20] - x / norm).abs() < 1e-14);
        }
    }
}
