//! What a probe hears in one forward pass, reduced on the host as it goes by.

use std::collections::HashSet;

use burn::tensor::Tensor;

use super::measure::{failed, floats};
use super::{Point, Reading, Scores, Site, pieces};
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
            self.failure = Some(failed(
                format!("{point} holds a value that is not finite"),
                "look at the parameters that make it: they hold one, or their scale overflows the dtype",
            ));
        }
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
                squares += vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            }
            (squares, sum.iter().map(|x| x * x).sum::<f64>())
        };
        let sequences = pieces::map(values, length * width, of_sequence);
        let (squares, common) = sequences.iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
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
        self.d_model = Some(width as u64);
        second_moment.is_finite()
    }

    /// `[batch * heads, seq, seq]`, -inf where masked. False if another value is not finite.
    fn scores(&mut self, point: Point, values: &[f32], length: usize, width: usize) -> bool {
        let of_head = |_, head: &[f32]| {
            let (mut squares, mut count, mut entropy) = (0.0, 0.0, 0.0);
            for row in head.chunks_exact(width) {
                let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
                let (mut sum, mut weighted) = (0.0, 0.0);
                for z in row.iter().filter(|z| **z > MASKED || z.is_nan()).map(|&z| f64::from(z)) {
                    let e = (z - max).exp();
                    sum += e;
                    weighted += e * (z - max);
                    squares += z * z;
                    count += 1.0;
                }
                entropy += sum.ln() - weighted / sum;
            }
            [squares, count, entropy]
        };
        let heads = pieces::map(values, length * width, of_head);
        let [squares, count, entropy] = heads.iter().fold([0.0; 3], |all, one| [0, 1, 2].map(|i| all[i] + one[i]));
        let rows = (values.len() / width.max(1)).max(1) as f64;
        let std = (squares / f64::max(count, 1.0)).sqrt();
        self.attention.push(Scores { layer: point.layer.unwrap_or(0), std, entropy: entropy / rows });
        std.is_finite() && entropy.is_finite()
    }
}
