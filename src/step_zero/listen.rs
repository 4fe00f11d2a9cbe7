//! What a probe hears in one forward pass, reduced on the host as it goes by.

use std::collections::HashSet;

use burn::tensor::Tensor;

use super::measure::{failed, floats};
use super::{Ends, Point, Reading, Scores, Site, pieces};
use crate::Error;

/// Scores at or below are masked: code that has no -inf takes -1e9 or the least number of its dtype.
const MASKED: f32 = -1e4;

/// Second moments and scores, in the order in which they were shown.
#[derive(Default)]
pub(super) struct Heard {
    pub d_model: Option<u64>,
    batch: Option<[usize; 2]>,
    points: HashSet<Point>,
    pub stream: Vec<Reading>,
    pub branches: Vec<Reading>,
    pub attention: Vec<Scores>,
    /// Layers whose scores let the first position see itself alone, and the last one everything.
    causal: HashSet<u64>,
    pub final_norm: Option<f64>,
    pub failure: Option<Error>,
}

impl Heard {
    pub fn listen(&mut self, point: Point, value: &Tensor<3>) {
        // A block's input is the last one's output.
        let seen_before = point.site == Site::ResidPre && !self.stream.is_empty();
        if seen_before || point.site == Site::Logits || self.failure.is_some() {
            return;
        }
        let values = match floats(value) {
            Ok(values) => values,
            Err(reason) => {
                self.failure = Some(failed(format!("{point} cannot be read: {reason}"), ""));
                return;
            }
        };
        let [rows, length, width] = value.dims();
        if let Some(reason) = self.misfit(point, rows, length, width) {
            self.failure = Some(failed(
                format!("{point} has the shape {:?}: {reason}", value.dims()),
                "see step_zero::Site for the shapes",
            ));
            return;
        }
        let finite = match point.site {
            Site::AttnScores => self.scores(point, &values, length, width),
            _ => self.vectors(point, &values, length, width),
        };
        if !finite {
            self.failure = Some(self.not_finite(point));
        }
    }

    fn not_finite(&self, point: Point) -> Error {
        let finite_scores = self.attention.iter().any(|scores| Some(scores.layer) == point.layer);
        let (of_scores, todo) = match point.site {
            Site::AttnOut if finite_scores => (
                ", and the scores before it are finite",
                "take the softmax over the keys, the last dimension: over another one it can meet nothing but masked scores, which \
                 makes NaN; else look at the values and the projection",
            ),
            _ => ("", "look at the parameters that make it: they hold one, or their scale overflows the dtype"),
        };
        failed(format!("{point} holds a value that is not finite{of_scores}"), todo)
    }

    /// What is wrong with what is shown, before it is looked at.
    fn misfit(&mut self, point: Point, rows: usize, length: usize, width: usize) -> Option<&'static str> {
        if rows * length * width == 0 {
            return Some("it is empty");
        }
        if !self.points.insert(point) {
            return Some("the point was shown before");
        }
        match point.site {
            Site::AttnScores if point.layer.is_none() => Some("it belongs to no layer, use in_layer"),
            Site::AttnScores if length != width => Some("scores are [batch * heads, seq, seq]"),
            Site::AttnScores => None,
            _ if *self.batch.get_or_insert([rows, length]) != [rows, length] => {
                Some("the points before had another batch or length")
            }
            _ if self.d_model.is_some_and(|d_model| d_model != width as u64) => {
                Some("the points before had another width")
            }
            _ => None,
        }
    }

    /// `[batch, seq, width]`. False if a value is not finite.
    fn vectors(&mut self, point: Point, values: &[f32], length: usize, width: usize) -> bool {
        let of_sequence = |_, sequence: &[f32]| {
            let mut squares = 0.0;
            let mut sum = vec![0.0; width];
            for vector in sequence.chunks_exact(width) {
                for (sum, &x) in sum.iter_mut().zip(vector) {
                    *sum += f64::from(x);
                }
                squares += energy(vector);
            }
            let (first, last) = (&sequence[..width], &sequence[sequence.len() - width..]);
            [squares, energy(&sum), energy(first), energy(last)]
        };
        let sequences = pieces::map(values, length * width, of_sequence);
        let [squares, common, first, last] = added(&sequences);
        let second_moment = squares / values.len().max(1) as f64;
        // |sum_t x_t|^2 holds every pair twice and every position with itself once.
        let alike = (common - squares) / (length as f64 - 1.0) / squares;
        let correlation = (length > 1).then_some(if squares > 0.0 { alike } else { 0.0 });
        let reading = Reading { point, second_moment, correlation, gradient: None, sd: None, gradient_sd: None };
        match point.site {
            Site::AttnOut | Site::MlpOut => self.branches.push(reading),
            Site::FinalNorm => self.final_norm = Some(second_moment),
            _ => self.stream.push(reading),
        }
        let vectors = (sequences.len() * width).max(1) as f64;
        let scores = self.attention.iter_mut().find(|scores| Some(scores.layer) == point.layer);
        if let (Site::AttnOut, Some(scores)) = (point.site, scores)
            && self.causal.contains(&scores.layer)
        {
            scores.ends = Some(Ends { length: length as u64, first: first / vectors, last: last / vectors });
        }
        self.d_model = Some(width as u64);
        second_moment.is_finite()
    }

    /// `[batch * heads, seq, seq]`, -inf where masked. False if another value is not finite.
    fn scores(&mut self, point: Point, values: &[f32], length: usize, width: usize) -> bool {
        let seen = |z: &&f32| **z > MASKED || z.is_nan();
        let of_head = |_, head: &[f32]| {
            let (first, last) = (&head[..width], &head[head.len() - width..]);
            let causal = length > 1
                && seen(&&first[0])
                && first.iter().filter(seen).count() == 1
                && last.iter().all(|z| seen(&z));
            let (mut squares, mut count, mut entropy, mut rows) = (0.0, 0.0, 0.0, 0.0);
            for row in head.chunks_exact(width) {
                let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let (mut sum, mut weighted) = (0.0, 0.0);
                for z in row.iter().filter(seen).map(|&z| f64::from(z)) {
                    let e = (z - max).exp();
                    sum += e;
                    weighted += e * (z - max);
                    squares += z * z;
                    count += 1.0;
                }
                // A padded query that sees nothing has no weights.
                if row.iter().any(|z| seen(&z)) {
                    entropy += sum.ln() - weighted / sum;
                    rows += 1.0;
                }
            }
            [squares, count, entropy, rows, f64::from(u8::from(causal))]
        };
        let heads = pieces::map(values, length * width, of_head);
        let [squares, count, entropy, rows, causal] = added(&heads);
        let std = (squares / f64::max(count, 1.0)).sqrt();
        let layer = point.layer.unwrap_or(0);
        if causal == heads.len() as f64 {
            self.causal.insert(layer);
        }
        self.attention.push(Scores { layer, std, entropy: entropy / f64::max(rows, 1.0), ends: None });
        std.is_finite() && entropy.is_finite()
    }
}

/// `|x|^2`
fn energy<T: Copy + Into<f64>>(x: &[T]) -> f64 {
    x.iter().map(|&x| x.into() * x.into()).sum()
}

fn added<const N: usize>(all: &[[f64; N]]) -> [f64; N] {
    all.iter().fold([0.0; N], |sum, one| std::array::from_fn(|i| sum[i] + one[i]))
}
