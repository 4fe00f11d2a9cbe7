//! Second moments between pairs of positions: of activations on their way through a decoder, and of gradients on
//! their way back.
//!
//! A [`Kernel`] holds `E <x_t, x_u> / d` for all positions t, u of one sequence, and the same between two sequences of a batch. Norms, matrices of
//! independent weights, nonlinearities and causal averages all act on it in closed form. Long sequences are looked at on a
//! [`Grid`]: one node may stand for several neighbouring positions, which differ little.

use super::Activation;
use super::activation::Pairs;

/// Up to here every position is a node of its own.
const EXACT: u64 = 128;
/// Nodes of a longer sequence that are single positions; the others grow in proportion to their place.
const SINGLE: u64 = 48;
/// By how much: about 40 more nodes for each factor of ten in length.
const GROWTH: f64 = 0.06;

/// The positions of a sequence, as nodes that stand for one or more of them.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    weights: Vec<f64>,
    causal: bool,
    length: f64,
}

impl Grid {
    pub fn new(length: u64, causal: bool) -> Self {
        let mut weights = Vec::new();
        let mut done = 0;
        while done < length {
            let wide = if length <= EXACT || done < SINGLE { 1 } else { ((done as f64 * GROWTH) as u64).max(1) };
            let weight = wide.min(length - done);
            weights.push(weight as f64);
            done += weight;
        }
        Self { weights, causal, length: length as f64 }
    }

    pub fn nodes(&self) -> usize {
        self.weights.len()
    }

    /// How many positions node `t` attends to.
    fn reach(&self) -> Vec<f64> {
        if !self.causal {
            return vec![self.length; self.nodes()];
        }
        let mut before = 0.0;
        let reach = |w: &f64| {
            before += w;
            before - (w - 1.0) / 2.0
        };
        self.weights.iter().map(reach).collect()
    }

    /// The mean over positions of a value per node.
    pub fn mean(&self, values: impl IntoIterator<Item = f64>) -> f64 {
        self.weights.iter().zip(values).map(|(w, value)| w * value).sum::<f64>() / self.length
    }

    /// For each node i the sum over positions `t <= i` (`t >= i` on the way back; all if not causal) of `row(t)`, whose
    /// k-th number is that of one position of node t. `extra(t)` is what the diagonal adds to its own column.
    fn sums(&self, back: bool, row: impl Fn(usize, usize) -> f64, extra: impl Fn(usize) -> f64) -> Matrix {
        let n = self.nodes();
        let mut result = Matrix::zeros(n);
        let mut sum = vec![0.0; n];
        let order: Box<dyn Iterator<Item = usize>> = if back { Box::new((0..n).rev()) } else { Box::new(0..n) };
        for t in order {
            let (weight, half) = (self.weights[t], (self.weights[t] + 1.0) / 2.0);
            for (k, sum) in sum.iter_mut().enumerate() {
                let (value, own) = (row(t, k), if k == t { extra(t) } else { 0.0 });
                result.values[t * n + k] = *sum + half * value + own;
                *sum += weight * value + own;
            }
        }
        if !self.causal {
            for row in result.values.chunks_exact_mut(n) {
                row.copy_from_slice(&sum);
            }
        }
        result
    }
}

/// Square, row by row.
#[derive(Debug, Clone, PartialEq)]
struct Matrix {
    n: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn zeros(n: usize) -> Self {
        Self { n, values: vec![0.0; n * n] }
    }

    fn at(&self, t: usize, u: usize) -> f64 {
        self.values[t * self.n + u]
    }
}

/// One value for each pair of nodes, and, within a sequence, another for each position with itself.
#[derive(Debug, Clone, PartialEq)]
struct Plane {
    pairs: Matrix,
    own: Option<Vec<f64>>,
}

impl Plane {
    fn make(n: usize, has_own: bool, f: impl Fn(usize, usize, bool) -> f64) -> Self {
        let values = (0..n * n).map(|i| f(i / n, i % n, false)).collect();
        Self { pairs: Matrix { n, values }, own: has_own.then(|| (0..n).map(|t| f(t, t, true)).collect()) }
    }

    fn at(&self, t: usize, u: usize, own: bool) -> f64 {
        match (&self.own, own) {
            (Some(values), true) => values[t],
            _ => self.pairs.at(t, u),
        }
    }

    /// What a position has with itself beyond what it has with a neighbour.
    fn excess(&self, t: usize) -> f64 {
        self.own.as_ref().map_or(0.0, |own| own[t] - self.pairs.at(t, t))
    }

    /// `C[t][j]`: the sum over positions i that t attends to (that attend to t, on the way back) of `self[i][j]`, for one position of node j.
    fn row_sums(&self, grid: &Grid, back: bool) -> Matrix {
        grid.sums(back, |t, k| self.pairs.at(t, k), |t| self.excess(t))
    }

    /// `S[t][u]`: the sum over both.
    fn double_sums(&self, grid: &Grid, back: bool) -> Matrix {
        column_sums(&self.row_sums(grid, back), grid, back)
    }

    /// `self[t][u] * f(t, u)`
    fn times(&self, f: impl Fn(usize, usize, bool) -> f64) -> Self {
        Self::make(self.pairs.n, self.own.is_some(), |t, u, own| self.at(t, u, own) * f(t, u, own))
    }
}

/// `S[t][u]`: the sum of `C[t][j]` over the positions j that u attends to (or the other way round).
fn column_sums(rows: &Matrix, grid: &Grid, back: bool) -> Matrix {
    let turned = grid.sums(back, |j, t| rows.at(t, j), |_| 0.0);
    transposed(&turned)
}

fn transposed(matrix: &Matrix) -> Matrix {
    let n = matrix.n;
    Matrix { n, values: (0..n * n).map(|i| matrix.at(i % n, i / n)).collect() }
}

/// Second moments per feature (of activations), or summed over features (of gradients), between positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kernel {
    same: Plane,
    other: Plane,
}

/// A matrix of independent weights of mean 0, and a bias drawn once for all positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Linear {
    pub fan_in: f64,
    /// Of the weights, with the multiplier of the forward pass.
    pub variance: f64,
    pub bias_variance: f64,
}

impl Linear {
    /// What it multiplies a second moment by.
    pub fn gain(&self) -> f64 {
        self.fan_in * self.variance
    }
}

impl Kernel {
    /// `f(t, u, same sequence, same position)` for each pair of nodes.
    pub fn make(n: usize, f: impl Fn(usize, usize, bool, bool) -> f64) -> Self {
        Self {
            same: Plane::make(n, true, |t, u, own| f(t, u, true, own)),
            other: Plane::make(n, false, |t, u, _| f(t, u, false, false)),
        }
    }

    /// The embeddings: a token vector of variance `table` that two positions share with probability `collision`, and a vector for
    /// each position that all sequences share.
    pub fn embedding(grid: &Grid, table: f64, positions: f64, collision: f64) -> Self {
        Self::make(grid.nodes(), |t, u, same, own| match (same, own) {
            (true, true) => table + positions,
            (true, false) => table * collision,
            _ if t == u => table * collision + positions / grid.weights[t],
            _ => table * collision,
        })
    }

    fn zip(&self, f: impl Fn(&Plane, bool) -> Plane) -> Self {
        Self { same: f(&self.same, true), other: f(&self.other, false) }
    }

    fn plane(&self, same: bool) -> &Plane {
        if same { &self.same } else { &self.other }
    }

    fn map(&self, f: impl Fn(usize, usize, f64, bool) -> f64) -> Self {
        self.zip(|plane, _| {
            Plane::make(plane.pairs.n, plane.own.is_some(), |t, u, own| f(t, u, plane.at(t, u, own), own))
        })
    }

    /// The second moment of each position.
    pub fn own(&self) -> &[f64] {
        self.same.own.as_deref().unwrap_or(&[])
    }

    /// The second moment, as a mean over positions.
    pub fn second_moment(&self, grid: &Grid) -> f64 {
        grid.mean(self.own().iter().copied())
    }

    /// The mean over pairs of different positions of one sequence, over the mean second moment.
    pub fn correlation(&self, grid: &Grid) -> f64 {
        let own = self.second_moment(grid);
        if own <= 0.0 || grid.length < 2.0 {
            return 0.0;
        }
        let sums = grid.weights.iter().enumerate().map(|(t, wt)| {
            let row = grid.weights.iter().enumerate().map(|(u, wu)| wu * self.same.pairs.at(t, u)).sum::<f64>();
            wt * (row - self.same.pairs.at(t, t))
        });
        sums.sum::<f64>() / (grid.length * (grid.length - 1.0)) / own
    }

    /// The mean over all pairs of positions of `sequences` sequences, each with itself included, of the squared correlation: one over the number
    /// of independent positions.
    pub fn collapse(&self, grid: &Grid, sequences: f64) -> f64 {
        let mean_own = self.second_moment(grid);
        if mean_own <= 0.0 {
            return 1.0;
        }
        let total = self.square_sum(self, grid, sequences);
        total / (mean_own * grid.length * sequences).powi(2)
    }

    /// The mean over the same pairs of the correlation itself: how much of the vectors is common to all.
    pub fn common(&self, grid: &Grid, sequences: f64) -> f64 {
        let mean_own = self.second_moment(grid);
        if mean_own <= 0.0 {
            return 1.0;
        }
        let total = self.square_sum(&Self::ones(grid), grid, sequences);
        (total / mean_own / (grid.length * sequences).powi(2)).max(0.0)
    }

    /// The sum over all pairs of positions in a batch of `sequences` of `self * with`: with gradients on one side and
    /// activations on the other, the squared norm of a matrix's gradient.
    pub fn square_sum(&self, with: &Self, grid: &Grid, sequences: f64) -> f64 {
        let n = grid.nodes();
        let mut sum = 0.0;
        for t in 0..n {
            let wt = grid.weights[t];
            sum += sequences * wt * self.own()[t] * with.own()[t];
            for u in 0..n {
                let wu = grid.weights[u];
                let pairs = if t == u { wt * (wt - 1.0) } else { wt * wu };
                sum += sequences * pairs * self.same.pairs.at(t, u) * with.same.pairs.at(t, u);
                let across = sequences * (sequences - 1.0) * wt * wu;
                sum += across * self.other.pairs.at(t, u) * with.other.pairs.at(t, u);
            }
        }
        sum
    }

    /// The sum of the kernel between the same positions of all sequences: the squared norm of a position table's gradient.
    pub fn position_sum(&self, grid: &Grid, sequences: f64) -> f64 {
        let across = (0..grid.nodes()).map(|t| self.other.pairs.at(t, t));
        grid.length * (sequences * self.second_moment(grid) + sequences * (sequences - 1.0) * grid.mean(across))
    }

    /// `f(value, same position)` of each pair.
    pub fn map_pairs(&self, f: impl Fn(f64, bool) -> f64) -> Self {
        self.map(|_, _, value, own| f(value, own))
    }

    /// All ones.
    pub fn ones(grid: &Grid) -> Self {
        Self::make(grid.nodes(), |_, _, _, _| 1.0)
    }

    /// LayerNorm or RmsNorm with gain 1, given the second moments of what it reads: they differ by the mean,
    /// which is O(1/d). On the way back the same factors apply.
    pub fn norm(&self, read: &[f64], epsilon: f64) -> Self {
        // A stream of 0 stays 0.
        let scale: Vec<f64> =
            read.iter().map(|v| if *v + epsilon > 0.0 { 1.0 / (v + epsilon).sqrt() } else { 0.0 }).collect();
        self.map(|t, u, value, _| value * scale[t] * scale[u])
    }

    pub fn linear(&self, linear: &Linear) -> Self {
        self.map(|_, _, value, _| linear.gain() * value + linear.bias_variance)
    }

    pub fn scale(&self, factor: f64) -> Self {
        self.map(|_, _, value, _| factor * value)
    }

    /// Dropout with the survivors scaled up: only a position with itself sees it.
    pub fn dropout(&self, probability: f64) -> Self {
        self.map(|_, _, value, own| if own { value / (1.0 - probability) } else { value })
    }

    pub fn add(&self, other: &Self) -> Self {
        self.zip(|plane, same| {
            let with = other.plane(same);
            Plane::make(plane.pairs.n, plane.own.is_some(), |t, u, own| plane.at(t, u, own) + with.at(t, u, own))
        })
    }

    pub fn times(&self, other: &Self) -> Self {
        self.zip(|plane, same| plane.times(|t, u, own| other.plane(same).at(t, u, own)))
    }

    /// `E f(x_t) f(x_u)` and `E f'(x_t) f'(x_u)`.
    pub fn activation(&self, activation: Activation) -> (Self, Self) {
        let pairs = Pairs::new(activation, self.own());
        let value = self.map(|t, u, c, own| if own { pairs.own(t) } else { pairs.value(t, u, c) });
        let slope = self.map(|t, u, c, own| if own { pairs.own_slope(t) } else { pairs.slope(t, u, c) });
        (value, slope)
    }
}

/// What attention does to queries, keys and values: a mean over the positions it may look at, with weights that are uniform
/// but for scores of second order.
pub(super) struct Attention {
    query: Kernel,
    key: Kernel,
    value: Kernel,
    reach: Vec<f64>,
    /// `Cov(p_ti, p_uj) v_ij` summed, over the query's part: what the scores add, and what reaches the queries on the way back.
    scores: Kernel,
    pub output: Kernel,
    pub score_std: f64,
    pub entropy: f64,
}

impl Attention {
    /// The scores are `q k / sqrt(d_head)`, so their covariance is `query[t][u] key[i][j]`. The number of heads drops out.
    ///
    /// `width` is the number of features that keys and values are made from: two different tokens have a correlation by
    /// chance of variance 1/width, which keys and values share.
    pub fn new(query: Kernel, key: Kernel, value: Kernel, width: f64, grid: &Grid) -> Self {
        let reach = grid.reach();
        let chance = (1.0 - value.correlation(grid).powi(2)).powi(2) / width;
        let chance = chance * key.second_moment(grid) * value.second_moment(grid);
        let scores = value.zip(|values, same| {
            let keys = key.plane(same);
            let products = values.times(|t, u, own| keys.at(t, u, own)).double_sums(grid, false);
            let (key_rows, value_rows) = (keys.row_sums(grid, false), values.row_sums(grid, false));
            let n = grid.nodes();
            let crossed = Matrix {
                n,
                values: (0..n * n).map(|i| key_rows.values[i] * value_rows.values[i] / reach[i / n]).collect(),
            };
            let crossed = column_sums(&crossed, grid, false);
            let (key_sums, value_sums) = (column_sums(&key_rows, grid, false), column_sums(&value_rows, grid, false));
            Plane::make(n, values.own.is_some(), |t, u, _| {
                let pairs = reach[t] * reach[u];
                let means = key_sums.at(t, u) * value_sums.at(t, u) / pairs;
                let by_chance = chance * (1.0 - 1.0 / reach[t]) * (1.0 - 1.0 / reach[u]);
                (products.at(t, u) - crossed.at(t, u) - crossed.at(u, t) + means) / pairs + by_chance
            })
        });
        let output = value.zip(|values, same| {
            let sums = values.double_sums(grid, false);
            let (queries, scores) = (query.plane(same), scores.plane(same));
            Plane::make(grid.nodes(), values.own.is_some(), |t, u, own| {
                sums.at(t, u) / (reach[t] * reach[u]) + queries.at(t, u, own) * scores.at(t, u, own)
            })
        });
        let (score_std, entropy) = spread_of_scores(&query, &key, &reach, grid);
        Self { query, key, value, reach, scores, output, score_std, entropy }
    }

    /// The gradients that reach query, key and value, given the one at the output, each summed over features.
    pub fn back(&self, gradient: &Kernel, grid: &Grid) -> [Kernel; 3] {
        let to_query = gradient.times(&self.scores);
        let weighted = gradient.map(|t, u, value, _| value / (self.reach[t] * self.reach[u]));
        let seen = weighted.times(&self.query);
        let plain = |same: bool| weighted.plane(same).double_sums(grid, true);
        let by_key = self.through_scores(&seen, &self.key, grid);
        let to_value = by_key.zip(|plane, same| {
            let plain = plain(same);
            Plane::make(grid.nodes(), plane.own.is_some(), |i, j, own| plane.at(i, j, own) + plain.at(i, j))
        });
        let to_key = self.through_scores(&seen, &self.value, grid);
        [to_query, to_key, to_value]
    }

    /// `sum_{t >= i, u >= j} seen[t][u] (k_ij - k_tj - k_iu + k_tu)`, where t in place of i means the mean over what t attends to.
    fn through_scores(&self, seen: &Kernel, kernel: &Kernel, grid: &Grid) -> Kernel {
        let n = grid.nodes();
        kernel.zip(|plane, same| {
            let seen = seen.plane(same);
            let all = seen.double_sums(grid, true);
            let rows = plane.row_sums(grid, false);
            let sums = column_sums(&rows, grid, false);
            // seen is symmetric: row sums over u for a fixed t.
            let seen_rows = seen.row_sums(grid, true);
            let half = grid.sums(true, |t, j| rows.at(t, j) / self.reach[t] * seen_rows.at(j, t), |_| 0.0);
            let means = seen.times(|t, u, _| sums.at(t, u) / (self.reach[t] * self.reach[u])).double_sums(grid, true);
            Plane::make(n, plane.own.is_some(), |i, j, own| {
                plane.at(i, j, own) * all.at(i, j) - half.at(i, j) - half.at(j, i) + means.at(i, j)
            })
        })
    }
}

/// Root mean square of the scores that count, and the mean entropy of the attention weights: `ln n` less half the variance w of the scores
/// within a row, and less of that where the n exponentials are few: to the next order `w/2 - 3 w^2 n/(4 (n - 1)^2)`.
fn spread_of_scores(query: &Kernel, key: &Kernel, reach: &[f64], grid: &Grid) -> (f64, f64) {
    let means = key.same.double_sums(grid, false);
    let all = key.second_moment(grid) * grid.length;
    let (mut before, mut square, mut pairs) = (0.0, 0.0, 0.0);
    let mut entropies = Vec::with_capacity(grid.nodes());
    for (t, ((weight, key), (query, reach))) in
        grid.weights.iter().zip(key.own()).zip(query.own().iter().zip(reach)).enumerate()
    {
        let sum = if grid.causal { before + (weight + 1.0) / 2.0 * key } else { all };
        before += weight * key;
        square += weight * query * sum;
        pairs += weight * reach;
        let within = query * (sum / reach - means.at(t, t) / (reach * reach));
        let few = if *reach > 1.0 { 1.5 * within.max(0.0) * reach / (reach - 1.0).powi(2) } else { 0.0 };
        entropies.push((reach.ln() - within.max(0.0) / 2.0 / (1.0 + few)).max(0.0));
    }
    ((square / pairs).sqrt(), grid.mean(entropies))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attend(value: &Kernel, grid: &Grid) -> Kernel {
        let zero = value.scale(0.0);
        Attention::new(zero.clone(), zero, value.clone(), f64::INFINITY, grid).output
    }

    #[test]
    fn uniform_attention_averages() {
        let grid = Grid::new(4, true);
        let independent = Kernel::make(4, |_, _, _, own| if own { 1.0 } else { 0.0 });
        let mixed = attend(&independent, &grid);
        for t in 0..4 {
            assert!((mixed.own()[t] - 1.0 / (t + 1) as f64).abs() < 1e-15);
            for u in 0..4 {
                assert!((mixed.same.at(t, u, false) - 1.0 / (t.max(u) + 1) as f64).abs() < 1e-15);
            }
        }
        let alike = Kernel::make(4, |_, _, _, _| 0.7);
        assert!(attend(&alike, &grid).own().iter().all(|v| (v - 0.7).abs() < 1e-15));
        let all = Grid::new(4, false);
        assert!(attend(&independent, &all).own().iter().all(|v| (v - 0.25).abs() < 1e-15));
    }

    /// Both ways of a mean are adjoint: `sum G (P K P') = sum (P' G P) K`.
    #[test]
    fn back_is_the_adjoint_of_forward() {
        for (length, causal) in [(7, true), (7, false), (400, true)] {
            let grid = Grid::new(length, causal);
            let n = grid.nodes();
            let smooth = |t: usize, u: usize, own: bool| {
                let (t, u) = (t as f64 / n as f64, u as f64 / n as f64);
                1.0 + 0.3 * (t + u) - 0.5 * (t - u).powi(2) + if own { 0.4 } else { 0.0 }
            };
            let kernel = Kernel::make(n, |t, u, _, own| smooth(t, u, own));
            let gradient = Kernel::make(n, |t, u, _, own| 2.0 - smooth(u, t, own));
            let zero = kernel.scale(0.0);
            let attention = Attention::new(zero.clone(), zero, kernel.clone(), f64::INFINITY, &grid);
            let there = gradient.square_sum(&attention.output, &grid, 2.0);
            let [_, _, back] = attention.back(&gradient, &grid);
            let here = back.square_sum(&kernel, &grid, 2.0);
            // Nodes of several positions are right to second order.
            let tolerance = if n as u64 == length { 1e-12 } else { 2e-3 };
            assert!((there / here - 1.0).abs() < tolerance, "{length} {causal}: {there} {here}");
        }
    }

    /// A coarse grid sees what the full one sees.
    #[test]
    fn long_sequences_on_a_grid() {
        let fine = Grid { weights: vec![1.0; 600], causal: true, length: 600.0 };
        let coarse = Grid::new(600, true);
        assert!(coarse.nodes() < 100, "{}", coarse.nodes());
        let moments = |grid: &Grid| {
            let mut x = Kernel::embedding(grid, 1.0, 1.0, 0.01).norm(&vec![2.0; grid.nodes()], 0.0);
            for _ in 0..3 {
                let attention = Attention::new(x.scale(0.3), x.scale(0.3), x.clone(), 128.0, grid);
                let mixed = x.add(&attention.output);
                x = mixed.norm(mixed.own(), 0.0).activation(Activation::Gelu).0.scale(2.0).add(&x);
            }
            [x.second_moment(grid), x.correlation(grid), x.collapse(grid, 2.0)]
        };
        for (coarse, fine) in moments(&coarse).into_iter().zip(moments(&fine)) {
            assert!((coarse / fine - 1.0).abs() < 3e-3, "{coarse} {fine}");
        }
    }

    #[test]
    fn a_small_stream_loses_to_epsilon() {
        let x = Kernel::make(1, |_, _, _, _| 4e-6);
        assert!((x.norm(x.own(), 1e-5).own()[0] - 0.2857).abs() < 1e-4);
    }
}
