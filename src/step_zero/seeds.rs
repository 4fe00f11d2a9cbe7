//! Several seeds made one.

use super::{Ends, Gradient, Reading, Scores, Spread, StepZero};
use crate::{Error, ErrorKind};

impl StepZero {
    /// The mean of measurements of one model with several seeds, with their standard deviation as [`spread`](Self::spread) and
    /// in the readings. Deviations from a prediction shrink with the root of their number.
    ///
    /// # Errors
    /// No measurement, or measurements of different models.
    pub fn mean(runs: &[Self]) -> Result<Self, Error> {
        let Some(first) = runs.first() else { return Err(unequal("there is no measurement")) };
        let like_first = |run: &Self| {
            run.vocab == first.vocab
                && run.stream.iter().map(|r| r.point).eq(first.stream.iter().map(|r| r.point))
                && run.branches.iter().map(|r| r.point).eq(first.branches.iter().map(|r| r.point))
                && run.attention.len() == first.attention.len()
                && run.gradients.iter().map(|g| &g.path).eq(first.gradients.iter().map(|g| &g.path))
        };
        if runs.iter().any(|run| run.seeds > 1) {
            return Err(unequal("one of the measurements is itself a mean"));
        }
        if !runs.iter().all(like_first) {
            return Err(unequal("the measurements are of different models"));
        }
        let mean = |f: &dyn Fn(&Self) -> f64| mean_and_sd(runs, |run| Some(f(run))).0;
        let maybe = |f: &dyn Fn(&Self) -> Option<f64>| Some(mean_and_sd(runs, f).0).filter(|mean| mean.is_finite());
        let sd = |f: &dyn Fn(&Self) -> f64| mean_and_sd(runs, |run| Some(f(run))).1;
        let readings = |get: fn(&Self) -> &[Reading]| -> Vec<Reading> {
            (0..get(first).len())
                .map(|i| {
                    let (second_moment, deviation) = mean_and_sd(runs, |run| Some(get(run)[i].second_moment));
                    let (gradient, gradient_sd) = mean_and_sd(runs, |run| get(run)[i].gradient);
                    Reading {
                        point: get(first)[i].point,
                        second_moment,
                        correlation: maybe(&|run| get(run)[i].correlation),
                        gradient: finite(gradient),
                        sd: finite(deviation),
                        gradient_sd: finite(gradient_sd),
                    }
                })
                .collect()
        };
        let own = |run: &Self| run.own_logit;
        Ok(Self {
            vocab: first.vocab,
            d_model: first.d_model,
            loss: mean(&|run| run.loss),
            expected_loss: mean(&|run| run.expected_loss),
            noise: mean(&|run| run.noise) / (runs.len() as f64).sqrt(),
            log_sum_exp: mean(&|run| run.log_sum_exp),
            entropy: mean(&|run| run.entropy),
            top1: maybe(&|run| run.top1),
            logit_std: mean(&|run| run.logit_std),
            own_logit: maybe(&own),
            own_logit_std: maybe(&|run| run.own_logit_std),
            padding: mean(&|run| run.padding),
            stream: readings(|run| &run.stream),
            branches: readings(|run| &run.branches),
            attention: (0..first.attention.len())
                .map(|i| Scores {
                    layer: first.attention[i].layer,
                    std: mean(&|run| run.attention[i].std),
                    entropy: mean(&|run| run.attention[i].entropy),
                    ends: first.attention[i].ends.and_then(|ends| {
                        Some(Ends {
                            length: ends.length,
                            first: maybe(&|run| run.attention[i].ends.map(|ends| ends.first))?,
                            last: maybe(&|run| run.attention[i].ends.map(|ends| ends.last))?,
                        })
                    }),
                })
                .collect(),
            final_norm: maybe(&|run| run.final_norm),
            gradients: (0..first.gradients.len())
                .map(|i| Gradient { path: first.gradients[i].path.clone(), norm: maybe(&|run| run.gradients[i].norm) })
                .collect(),
            parameters: first.parameters.clone(),
            repeats: maybe(&|run| run.repeats),
            positions: first.positions,
            norm_epsilon: first.norm_epsilon,
            reported_loss: first.reported_loss,
            spread: (runs.len() > 1).then(|| Spread {
                loss: sd(&|run| run.loss),
                log_sum_exp: sd(&|run| run.log_sum_exp),
                entropy: sd(&|run| run.entropy),
                logit_std: sd(&|run| run.logit_std),
                own_logit: finite(mean_and_sd(runs, own).1).unwrap_or(0.0),
            }),
            seeds: runs.len() as u64,
            notes: first.notes.clone(),
        })
    }
}

/// Over the runs that have the value; NaN for none, and for the deviation of one.
fn mean_and_sd(runs: &[StepZero], f: impl Fn(&StepZero) -> Option<f64>) -> (f64, f64) {
    let values: Vec<f64> = runs.iter().filter_map(f).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { f64::NAN })
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

fn unequal(found: &str) -> Error {
    Error::new(ErrorKind::Measurement, found, "give measurements of one model, started with different seeds")
}
