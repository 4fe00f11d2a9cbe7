//! Step zero, measured: one forward pass, looked at in f64 on the host, and where there is autodiff one backward pass.

use std::collections::HashMap;

use burn::module::Module;
use burn::tensor::{Int, Tensor};

use super::backward::Backward;
use super::listen::Heard;
use super::parameters::{measured, token_rows};
use super::position::Position;
use super::probe::Leaves;
use super::{Batch, Probe, StepZero, dropout, pieces};
use crate::{Error, ErrorKind, Setup};

/// How many standard deviations the own-token logit must stand out to count as the sign of a tied head.
const STANDS_OUT: f64 = 4.0;

/// Runs `forward` once on the batch and says what came out.
///
/// `forward` gets the tokens `[batch, seq]` and a probe, and returns the logits `[batch, seq, vocab]`. It shows
/// the probe whatever it likes: without that the stream, the branches and the scores stay empty. The loss is computed from the logits
/// in f64 by log-sum-exp. On a device with autodiff (and with this crate's feature of that name, on by default) the mean loss is differentiated as well, and the stream has its gradient wherever the model
/// calls [`Probe::pass`]; dropout is at work there, so configure it away: [`measure`] notes it.
///
/// # Errors
/// Tokens and targets of different shapes, or none; a token or target outside of the vocabulary (where the batch states it, before
/// the forward pass is run);
/// logits of another shape; a value that is not finite, with the first point where one is seen.
///
/// ```no_run
/// # use burn::tensor::{Int, Tensor};
/// use burn_init::reference::TransformerConfig;
/// use burn_init::step_zero::{Batch, step_zero};
///
/// # fn main() -> Result<(), burn_init::Error> {
/// let device = Default::default();
/// let model = TransformerConfig::new(96, 64, 128, 6, 4).init(&device)?;
/// let text = Tensor::<1, Int>::arange(0..65, &device);
/// let batch = Batch::new(text.clone().slice(0..64).unsqueeze(), text.slice(1..65).unsqueeze());
/// println!("{}", step_zero(&batch, |tokens, probe| model.forward_with(tokens, probe))?);
/// # Ok(()) }
/// ```
pub fn step_zero<F>(batch: &Batch, forward: F) -> Result<StepZero, Error>
where
    F: FnOnce(Tensor<2, Int>, &mut Probe<'_>) -> Tensor<3>,
{
    Ok(run(batch, None, forward)?.0)
}

/// [`step_zero`], with what the parameters of `model` hold, and, where there is autodiff, the gradient of each: all that
/// [`StepZero::findings`] can use.
///
/// `forward` gets the model, the tokens and a probe: `Transformer::forward_with`, or
/// `|model, tokens, _| model.forward(tokens)` for a model without probes. Parameters whose role cannot be told are left out of
/// [`StepZero::parameters`]; [`Setup::measure`] tells roles.
///
/// # Errors
/// Those of [`step_zero`].
pub fn measure<M, F>(model: &M, batch: &Batch, forward: F) -> Result<StepZero, Error>
where
    M: Module,
    F: FnOnce(&M, Tensor<2, Int>, &mut Probe<'_>) -> Tensor<3>,
{
    Setup::new().measure(model, batch, forward)
}

impl Setup {
    /// As [`measure`], for a model whose roles or stacks this setup states.
    ///
    /// # Errors
    /// Those of [`step_zero`], and a setup that does not fit the model.
    pub fn measure<M, F>(&self, model: &M, batch: &Batch, forward: F) -> Result<StepZero, Error>
    where
        M: Module,
        F: FnOnce(&M, Tensor<2, Int>, &mut Probe<'_>) -> Tensor<3>,
    {
        let rows = token_rows(model, self)?;
        let (mut result, backward) = run(batch, rows, |tokens, probe| forward(model, tokens, probe))?;
        result.parameters = measured(model, self)?;
        if let Some(backward) = backward {
            result.notes.extend(dropout::note(model));
            result.gradients = backward.of(model);
        }
        Ok(result)
    }
}

/// `rows`: those of the table of tokens, where it is known.
fn run<F>(batch: &Batch, rows: Option<u64>, forward: F) -> Result<(StepZero, Option<Backward>), Error>
where
    F: FnOnce(Tensor<2, Int>, &mut Probe<'_>) -> Tensor<3>,
{
    let tokens = integers(&batch.tokens, "tokens")?;
    let targets = integers(&batch.targets, "targets")?;
    let table = rows.unwrap_or(u64::MAX);
    let [rows, length] = batch.tokens.dims();
    if batch.targets.dims() != [rows, length] || tokens.is_empty() {
        return Err(failed(
            format!("tokens have the shape {:?} and targets {:?}", [rows, length], batch.targets.dims()),
            "give one target for each token, and at least one",
        ));
    }

    // What is known to be wrong before the forward pass must not reach it.
    let outside = |vocab: u64| {
        let all = [("token", &tokens), ("target", &targets)];
        let bad = |&value: &i64| value < 0 || value as u64 >= vocab;
        all.into_iter().find_map(|(name, values)| values.iter().copied().find(bad).map(|value| (name, value)))
    };
    if let Some((name, bad)) = outside(batch.vocab.unwrap_or(table)) {
        return Err(failed(
            format!("{name} {bad} is outside of the vocabulary"),
            "use tokens from 0 to below the vocabulary",
        ));
    }

    let mut heard = Heard::default();
    let mut leaves = Leaves::new();
    let logits = {
        let mut listener = |point, value: &Tensor<3>| heard.listen(point, value);
        let mut probe = match batch.tokens.device().is_autodiff() {
            true => Probe::with_leaves(&mut listener, &mut leaves),
            false => Probe::new(&mut listener),
        };
        forward(batch.tokens.clone(), &mut probe)
    };
    if let Some(failure) = heard.failure {
        return Err(failure);
    }

    let [logit_rows, logit_length, width] = logits.dims();
    if [logit_rows, logit_length] != [rows, length] || width == 0 {
        return Err(failed(
            format!("tokens have the shape {:?} and logits {:?}", [rows, length], logits.dims()),
            "return logits of the shape [batch, seq, vocab]",
        ));
    }
    let vocab = batch.vocab.unwrap_or(width as u64);
    if vocab < 2 || vocab > width as u64 {
        return Err(failed(
            format!("the vocabulary is {vocab} and there are {width} logits"),
            "use a vocabulary from 2 to the number of logits",
        ));
    }
    if let Some((name, bad)) = outside(vocab) {
        return Err(failed(format!("{name} {bad} is outside of the vocabulary of {vocab}"), ""));
    }

    let mut sums = Sums::default();
    let values = floats(&logits).map_err(|reason| failed(format!("the logits cannot be read: {reason}"), ""))?;
    for position in positions(&values, width, vocab as usize, &tokens, &targets)? {
        sums.add(&position);
    }
    let mut result = sums.finish(vocab, &tokens, &targets, heard);
    let backward = Backward::run(logits, batch.targets.clone());
    if let Some(backward) = &backward {
        for reading in &mut result.stream {
            let leaf = leaves.iter().find(|(point, _)| *point == reading.point).map(|(_, leaf)| leaf);
            reading.gradient = leaf.and_then(|leaf| backward.mean_square(leaf));
        }
    }
    Ok((result, backward))
}

/// One for each row of logits.
fn positions(
    logits: &[f32],
    width: usize,
    vocab: usize,
    tokens: &[i64],
    targets: &[i64],
) -> Result<Vec<Position>, Error> {
    let of = |i: usize, row: &[f32]| Position::of(row, vocab, tokens[i] as usize, targets[i] as usize);
    pieces::map(logits, width, of).into_iter().collect()
}

/// Sums over the positions.
#[derive(Default)]
struct Sums {
    count: f64,
    loss: f64,
    log_sum_exp: f64,
    entropy: f64,
    top1: f64,
    padding: f64,
    variance: f64,
    own: f64,
    own_squared: f64,
}

impl Sums {
    fn add(&mut self, position: &Position) {
        self.count += 1.0;
        self.loss += position.loss;
        self.log_sum_exp += position.log_sum_exp;
        self.entropy += position.entropy;
        self.top1 += position.top1;
        self.padding += position.padding;
        self.variance += position.variance;
        self.own += position.own;
        self.own_squared += position.own * position.own;
    }

    fn finish(self, vocab: u64, tokens: &[i64], targets: &[i64], heard: Heard) -> StepZero {
        let mean = |sum: f64| sum / self.count;
        let logit_std = mean(self.variance).sqrt();
        let own = mean(self.own);
        let tied = own > STANDS_OUT * logit_std * collision(tokens).sqrt();
        let own_std = (mean(self.own_squared) - own * own).max(0.0).sqrt();
        let repeats = tokens.iter().zip(targets).filter(|(token, target)| token == target).count() as f64;
        let mut result = StepZero {
            vocab,
            d_model: heard.d_model,
            loss: mean(self.loss),
            expected_loss: 0.0,
            noise: 3.0 * logit_std * collision(targets).sqrt(),
            log_sum_exp: mean(self.log_sum_exp),
            entropy: mean(self.entropy),
            top1: Some(mean(self.top1)),
            logit_std,
            own_logit: tied.then_some(own),
            own_logit_std: tied.then_some(own_std),
            padding: mean(self.padding),
            stream: heard.stream,
            branches: heard.branches,
            attention: heard.attention,
            final_norm: heard.final_norm,
            gradients: Vec::new(),
            parameters: Vec::new(),
            repeats: Some(mean(repeats)),
            positions: tokens.len() as u64,
            norm_epsilon: None,
            reported_loss: None,
            spread: None,
            seeds: 1,
            notes: Vec::new(),
        };
        result.expected_loss = result.law().log_sum_exp() - mean(repeats) * result.own_logit.unwrap_or(0.0);
        result
    }
}

/// `sum p_i^2`: how probable it is that two positions hold the same value.
pub(super) fn collision(values: &[i64]) -> f64 {
    let mut counts = HashMap::new();
    for value in values {
        *counts.entry(value).or_insert(0.0f64) += 1.0;
    }
    // Whole numbers, so the order of a hash map does not show.
    counts.values().map(|count| count * count).sum::<f64>() / (values.len() as f64).powi(2)
}

fn integers(tensor: &Tensor<2, Int>, name: &str) -> Result<Vec<i64>, Error> {
    tensor.try_to_vec_as::<i64>().map_err(|reason| failed(format!("the {name} cannot be read: {reason}"), ""))
}

pub(super) fn floats(tensor: &Tensor<3>) -> Result<Vec<f32>, String> {
    tensor.try_to_vec_as::<f32>().map_err(|reason| reason.to_string())
}

pub(super) fn failed(found: impl Into<String>, todo: impl Into<String>) -> Error {
    Error::new(ErrorKind::Measurement, found, todo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_zero::{Fault, Reading, Site};
    use burn::tensor::{Device, TensorData};

    fn batch(tokens: [[i64; 3]; 1], targets: [[i64; 3]; 1]) -> Batch {
        let device = Device::default();
        Batch::new(Tensor::from_data(tokens, &device), Tensor::from_data(targets, &device))
    }

    fn logits(rows: [[f32; 4]; 3]) -> Tensor<3> {
        Tensor::from_data([rows], &Device::default())
    }

    #[test]
    fn equal_logits_cost_ln_v() {
        let batch = batch([[0, 1, 2]], [[1, 2, 3]]);
        let result = step_zero(&batch, |_, _| logits([[7.0; 4]; 3])).unwrap();
        assert!((result.loss - 4f64.ln()).abs() < 1e-12);
        assert!((result.expected_loss - 4f64.ln()).abs() < 1e-9);
        assert!((result.entropy - 4f64.ln()).abs() < 1e-12);
        assert_eq!(result.top1, Some(0.25));
        assert_eq!(result.logit_std, 0.0);
        assert_eq!(result.findings()[0].fault, Fault::Dead);
    }

    #[test]
    fn huge_logits_do_not_overflow() {
        let batch = batch([[0, 1, 2]], [[0, 0, 0]]);
        let row = [-743.0, 743.0, 0.0, 0.0];
        let result = step_zero(&batch, |_, _| logits([row; 3])).unwrap();
        assert_eq!(result.loss, 1486.0);
        assert!(result.entropy < 1e-300);
    }

    /// C08: 100 tokens in a table of 128, masked or not.
    #[test]
    fn padded_vocabulary() {
        let device = Device::default();
        let tokens = Tensor::<2, Int>::from_data([[5i64, 17, 99]], &device);
        let batch = Batch::new(tokens.clone(), tokens).with_vocab(100);
        let row = |padding: f32| {
            let values: Vec<f32> = (0..3 * 128).map(|i| if i % 128 < 100 { 0.0 } else { padding }).collect();
            Tensor::<3>::from_data(TensorData::new(values, [1, 3, 128]), &device)
        };
        let masked = step_zero(&batch, |_, _| row(f32::NEG_INFINITY)).unwrap();
        assert!((masked.loss - 4.605).abs() < 5e-4, "{}", masked.loss);
        assert!((masked.ln_vocab() - 4.605).abs() < 5e-4);
        assert_eq!(masked.padding, 0.0);
        let open = step_zero(&batch, |_, _| row(0.0)).unwrap();
        assert!((open.loss - 4.852).abs() < 5e-4, "{}", open.loss);
        assert_eq!(open.findings()[0].fault, Fault::PaddingCounts);
        assert!(open.findings()[0].cause.starts_with("21.9 % of the probability falls on padding"));
        let unsaid = Batch { vocab: None, ..batch.clone() };
        let error = step_zero(&unsaid, |_, _| row(f32::NEG_INFINITY)).unwrap_err();
        assert_eq!(error.to_string(), "logit 100 is -inf; if these are padding, say so by Batch::with_vocab");
        // Code that has no -inf takes a number that is as good as that.
        assert_eq!(step_zero(&batch, |_, _| row(-1e9)).unwrap().loss, masked.loss);
        for (padding, found) in [(-1e9, "-1e9"), (f32::MIN, "-3.4028235e38")] {
            let error = step_zero(&unsaid, |_, _| row(padding)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("logit 100 is {found}; if these are padding, say so by Batch::with_vocab")
            );
        }
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        let good = || batch([[0, 1, 2]], [[1, 2, 3]]);
        let message = |batch: Batch, row: [f32; 4]| step_zero(&batch, |_, _| logits([row; 3])).unwrap_err().to_string();
        assert_eq!(message(batch([[0, 1, 9]], [[1, 2, 3]]), [0.0; 4]), "token 9 is outside of the vocabulary of 4");
        assert_eq!(
            message(batch([[0, 1, 2]], [[1, -1, 3]]), [0.0; 4]),
            "target -1 is outside of the vocabulary; use tokens from 0 to below the vocabulary"
        );
        let unread = |_: Tensor<2, Int>, _: &mut Probe<'_>| -> Tensor<3> { panic!("the forward pass ran") };
        let known = step_zero(&batch([[0, 1, 9]], [[1, 2, 3]]).with_vocab(4), unread).unwrap_err();
        assert_eq!(
            known.to_string(),
            "token 9 is outside of the vocabulary; use tokens from 0 to below the vocabulary"
        );
        assert_eq!(
            message(good(), [1e30, 0.0, 0.0, 0.0]),
            "a logit is 1.0000000150474662e30; look at the scale of the table that makes the logits"
        );
        assert_eq!(
            message(good(), [0.0, f32::NAN, 0.0, 0.0]),
            "logit 1 is NaN; look at the first point of the stream that is not finite"
        );
        assert_eq!(
            message(good().with_vocab(5), [0.0; 4]),
            "the vocabulary is 5 and there are 4 logits; use a vocabulary from 2 to the number of logits"
        );
        let device = Device::default();
        let short = Batch::new(Tensor::zeros([1, 3], &device), Tensor::zeros([1, 2], &device));
        assert_eq!(
            message(short, [0.0; 4]),
            "tokens have the shape [1, 3] and targets [1, 2]; give one target for each token, and at least one"
        );
        let error = step_zero(&good(), |_, probe| {
            probe.show(Site::AttnOut.in_layer(2), &(Tensor::<3>::zeros([1, 3, 2], &device) / 0.0));
            logits([[0.0; 4]; 3])
        });
        assert!(error.unwrap_err().to_string().starts_with("2.attn_out holds a value that is not finite"));
    }

    #[test]
    fn the_probe_is_reduced_to_second_moments() {
        let device = Device::default();
        let full = |value: f32| Tensor::<3>::full([1, 3, 2], value, &device);
        let result = step_zero(&batch([[0, 1, 2]], [[1, 2, 3]]), |_, probe| {
            for layer in 0..2 {
                probe.show(Site::ResidPre.in_layer(layer), &full(1.0));
                probe.show(Site::AttnOut.in_layer(layer), &full(2.0));
                probe.show(Site::ResidMid.in_layer(layer), &full(3.0));
                probe.show(Site::MlpOut.in_layer(layer), &full(4.0));
                probe.show(Site::ResidPost.in_layer(layer), &full(5.0));
            }
            probe.show(Site::FinalNorm, &full(1.0));
            logits([[0.0; 4]; 3])
        })
        .unwrap();
        let moments = |readings: &[Reading]| readings.iter().map(|r| r.second_moment).collect::<Vec<_>>();
        assert_eq!(moments(&result.stream), [1.0, 9.0, 25.0, 9.0, 25.0]);
        assert_eq!(moments(&result.branches), [4.0, 16.0, 4.0, 16.0]);
        assert_eq!((result.final_norm, result.d_model), (Some(1.0), Some(2)));
    }

    /// A query of padding may look at nothing; the others weigh their keys as ever.
    #[test]
    fn queries_that_see_nothing_have_no_weights() {
        let device = Device::default();
        for mask in [f32::NEG_INFINITY, -1e9] {
            let scores = Tensor::<3>::from_data([[[mask; 3], [0.0, 0.0, mask], [0.0, 0.0, mask]]], &device);
            let result = step_zero(&batch([[0, 1, 2]], [[1, 2, 3]]), |_, probe| {
                probe.show(Site::AttnScores.in_layer(0), &scores);
                logits([[0.0; 4]; 3])
            })
            .unwrap();
            assert!((result.attention[0].entropy - 2f64.ln()).abs() < 1e-12, "{:?}", result.attention);
        }
    }

    #[test]
    fn collisions() {
        assert_eq!(collision(&[1, 1, 2, 2]), 0.5);
        assert_eq!(collision(&[3, 1, 4, 2]), 0.25);
    }
}
