//! Step zero, predicted from a plan.

use super::architecture::Architecture;
use super::decoder::{Decoder, Layer, Matrix};
use super::kernel::{Attention, Grid, Kernel};
use super::parameters::planned;
use super::{Gradient, LogitLaw, Own, Point, Reading, Scores, Site, Spread, StepZero, gauss};
use crate::{Error, NormPlacement, Plan};

/// Scores wider than this concentrate the softmax, which the expansion around uniform attention does not follow.
const WIDEST_SCORES: f64 = 1.5;
/// Tokens more alike than this have all but collapsed, and single seeds say little.
const COLLAPSED: f64 = 0.95;
/// Below this width the sampling error is larger than what is predicted.
const NARROW: u64 = 64;
/// Logits wider than this freeze, and the gradient at the head depends on a handful of them.
const FREEZING: f64 = 2.5;
/// Exponents beyond it are certainties.
const LARGE: f64 = 30.0;

impl Plan {
    /// Predicts step zero; see [`predict`].
    ///
    /// # Errors
    /// See [`predict`].
    pub fn predict(&self, architecture: &Architecture) -> Result<StepZero, Error> {
        predict(self, architecture)
    }
}

/// Predicts step zero of a decoder from its plan: nothing is drawn, allocated or run. It is Pre-Norm unless
/// [`Setup::norms`](crate::Setup::norms) or the names of its norms said otherwise.
///
/// Each branch ends in an independent matrix of mean 0, so the kernel `K[t][u] = E <x_t, x_u> / d` of the stream is that of the embedding plus that
/// of each branch, exactly in expectation. A branch's own kernel follows from the weights' variances and fans, the nonlinearity's
/// kernel and causal averages with softmax weights to second order in the scores. The gradient goes the same way back. The logits have variance
/// `d sigma^2 v/(v + eps)`; with a tied head the own-token logit is `d sigma^2 / sqrt(v + eps)`. docs/theory.md derives it
/// and sets it beside measurements.
///
/// Assumes gains of 1. Biases count with the variance that the plan gives them, multipliers of the forward pass as attached. Where a quantity leaves
/// the range of the theory, [`StepZero::notes`] says so.
///
/// # Errors
/// A plan without the roles of a plain decoder, or with several of one role in a layer; an architecture out of range.
pub fn predict(plan: &Plan, architecture: &Architecture) -> Result<StepZero, Error> {
    architecture.check()?;
    architecture.fits(plan)?;
    let decoder = Decoder::read(plan, architecture.activation, architecture.tied)?;
    let rows = decoder.token.rows;
    let vocab = architecture.vocab.unwrap_or(rows);
    if vocab < 2 || vocab > rows {
        return Err(Error::config(
            format!("the vocabulary is {vocab} and the table has {rows} rows"),
            "use a vocabulary from 2 to the rows of the table",
        ));
    }
    if let Some(table) = decoder.positions.as_ref().filter(|table| table.rows < architecture.length) {
        return Err(Error::config(
            format!(
                "the sequences have {} tokens and the table {} has {} rows",
                architecture.length, table.path, table.rows
            ),
            "use Architecture::with_length",
        ));
    }
    let mut result = Walk::new(&decoder, architecture, vocab).run();
    result.parameters = planned(plan);
    Ok(result)
}

/// One way through the layers and back.
struct Walk<'a> {
    decoder: &'a Decoder,
    architecture: &'a Architecture,
    grid: Grid,
    vocab: f64,
    collision: f64,
    sequences: f64,
    /// Positions of the whole batch.
    count: f64,
    /// What the norms of the stream have multiplied the embedding by, at each node.
    left: Vec<f64>,
    result: StepZero,
}

/// One addition to the stream, kept for the way back.
struct Addition {
    /// The stream before it.
    before: Kernel,
    /// What the branch gives, before a norm on it.
    branch: Kernel,
    /// The stream and the branch, before a norm that follows.
    sum: Kernel,
}

impl<'a> Walk<'a> {
    fn new(decoder: &'a Decoder, architecture: &'a Architecture, vocab: u64) -> Self {
        let sequences = architecture.sequences as f64;
        let grid = Grid::new(architecture.length, architecture.causal);
        let result = StepZero {
            vocab,
            d_model: Some(decoder.d_model),
            loss: 0.0,
            expected_loss: 0.0,
            noise: 0.0,
            log_sum_exp: 0.0,
            entropy: 0.0,
            top1: None,
            logit_std: 0.0,
            own_logit: None,
            own_logit_std: None,
            padding: 0.0,
            stream: Vec::with_capacity(2 * decoder.layers.len() + 1),
            branches: Vec::with_capacity(2 * decoder.layers.len()),
            attention: Vec::with_capacity(decoder.layers.len()),
            final_norm: None,
            gradients: Vec::new(),
            parameters: Vec::new(),
            repeats: architecture.repeats,
            positions: architecture.sequences * architecture.length,
            norm_epsilon: Some(architecture.norm_epsilon),
            reported_loss: None,
            spread: None,
            seeds: 1,
            notes: Vec::new(),
        };
        Self {
            decoder,
            architecture,
            left: vec![1.0; grid.nodes()],
            grid,
            vocab: vocab as f64,
            collision: architecture.collision.unwrap_or(1.0 / vocab as f64),
            sequences,
            count: sequences * architecture.length as f64,
            result,
        }
    }

    fn run(mut self) -> StepZero {
        let mut x = self.embedding();
        let mut passed = Vec::with_capacity(self.decoder.layers.len());
        self.point(Site::ResidPre, 0, &x);
        for (index, layer) in (0..).zip(&self.decoder.layers) {
            let attention = self.attention(layer, &self.read(layer, &x));
            let (std, entropy) = (attention.score_std, attention.entropy);
            self.result.attention.push(Scores { layer: index, std, entropy, ends: None });
            let branch = attention.output.linear(&layer.output.linear);
            let (first, middle) = self.add(layer, x, branch, Site::AttnOut.in_layer(index));
            self.point(Site::ResidMid, index, &middle);
            let branch = self.hidden(layer, &self.read(layer, &middle)).0.linear(&layer.down.linear);
            let (second, after) = self.add(layer, middle, branch, Site::MlpOut.in_layer(index));
            self.point(Site::ResidPost, index, &after);
            passed.push([first, second]);
            x = after;
        }
        let normed = if self.decoder.final_norm { self.stream_norm(&x) } else { x.clone() };
        let logits = self.logits(&x, &normed);
        self.backward(&x, &normed, &logits, &passed);
        self.notes();
        self.result
    }

    fn embedding(&self) -> Kernel {
        let scale = self.architecture.embedding_multiplier.powi(2);
        let positions = self.decoder.positions.as_ref().map_or(0.0, |table| table.variance);
        Kernel::embedding(&self.grid, self.decoder.token.variance, positions, self.collision)
            .scale(scale)
            .dropout(self.architecture.dropout)
    }

    /// Factors on the logits that are not in the head.
    fn logit_multiplier(&self) -> f64 {
        self.architecture.logit_multiplier * self.decoder.final_multiplier
    }

    fn norm(&self, x: &Kernel) -> Kernel {
        x.norm(x.own(), self.architecture.norm_epsilon)
    }

    /// A norm of the stream itself, and what it leaves of the embedding.
    fn stream_norm(&mut self, x: &Kernel) -> Kernel {
        let epsilon = self.architecture.norm_epsilon;
        for (left, v) in self.left.iter_mut().zip(x.own()) {
            *left *= if *v > 0.0 { (v + epsilon).powf(-0.5) } else { 0.0 };
        }
        self.norm(x)
    }

    /// What a branch reads.
    fn read(&self, layer: &Layer, x: &Kernel) -> Kernel {
        if layer.norms.is_before() { self.norm(x) } else { x.clone() }
    }

    /// Adds a branch: the addition, and the stream that goes on.
    fn add(&mut self, layer: &Layer, before: Kernel, branch: Kernel, at: Point) -> (Addition, Kernel) {
        let added = if layer.norms.is_on_branch() { self.norm(&branch) } else { branch.clone() };
        let added = added.scale(self.architecture.branch_multiplier.powi(2)).dropout(self.architecture.dropout);
        // Two more matrices before the last one stray as much.
        let reading = self.reading(at.site, at.layer.unwrap_or(0), &added, 3.0);
        self.result.branches.push(reading);
        let sum = before.add(&added);
        let after = if layer.norms == NormPlacement::Post { self.stream_norm(&sum) } else { sum.clone() };
        (Addition { before, branch, sum }, after)
    }

    fn norms_queries(&self, layer: &Layer) -> bool {
        self.architecture.qk_norm || layer.qk_norm
    }

    fn attention(&self, layer: &Layer, x: &Kernel) -> Attention {
        let [query, key] = [&layer.query, &layer.key].map(|matrix| {
            let projected = x.linear(&matrix.linear);
            if self.norms_queries(layer) { self.norm(&projected) } else { projected }
        });
        Attention::new(query, key, x.linear(&layer.value.linear), self.decoder.d_model as f64, &self.grid)
    }

    /// What the down projection reads, and the slopes that turn its gradient into those of up projection and gate.
    fn hidden(&self, layer: &Layer, x: &Kernel) -> (Kernel, Kernel, Option<Kernel>) {
        let up = x.linear(&layer.up.linear);
        match &layer.gate {
            None => {
                let (hidden, slope) = up.activation(self.architecture.activation);
                (hidden, slope, None)
            }
            Some(gate) => {
                let (gate, slope) = x.linear(&gate.linear).activation(self.architecture.activation);
                let to_gate = slope.times(&up);
                (gate.times(&up), gate, Some(to_gate))
            }
        }
    }

    fn point(&mut self, site: Site, layer: u64, x: &Kernel) {
        let reading = self.reading(site, layer, x, 1.5);
        self.result.stream.push(reading);
    }

    /// d features are d samples of the same Gaussian over positions, so a mean square has relative variance `2/d` times the mean
    /// squared correlation, for each of the `matrices` in a row that stray.
    fn reading(&self, site: Site, layer: u64, x: &Kernel, matrices: f64) -> Reading {
        let second_moment = x.second_moment(&self.grid);
        let relative = 2.0 * matrices / self.decoder.d_model as f64 * x.collapse(&self.grid, self.sequences);
        Reading {
            point: site.in_layer(layer),
            second_moment,
            correlation: Some(x.correlation(&self.grid)),
            gradient: None,
            sd: Some(second_moment * relative.sqrt()),
            gradient_sd: None,
        }
    }

    /// Fills in what the logits are worth.
    fn logits(&mut self, x: &Kernel, normed: &Kernel) -> Logits {
        let (grid, architecture) = (&self.grid, self.architecture);
        let (table, width) = (self.decoder.token.variance, self.decoder.d_model as f64);
        let gain = self.logit_multiplier().powi(2)
            * self.decoder.head.as_ref().map_or(width * table, |head| head.linear.gain());
        let final_norm = normed.second_moment(grid);
        let logit_std = (gain * final_norm).sqrt();
        let own = architecture.tied.then(|| self.own_logit(logit_std));
        let law = LogitLaw { vocab: self.vocab, std: logit_std, own: own.as_ref().map(|own| own.law) };
        let own = own.map(|own| Standing { others: law.without_own().log_sum_exp(), ..own });

        // The frequencies of the targets in a batch of finite size.
        let collision = self.collision + (1.0 - self.collision) / self.count;
        let variance = logit_std * logit_std;
        // Fluctuations of the sum of the exponentials, which moves with the mean of all positions, and of s^2 over the V rows of the head.
        let common = normed.common(grid, self.sequences);
        let of_sum = (variance.min(LARGE).exp_m1() / self.vocab * common).sqrt().min(logit_std);
        let alike = normed.collapse(grid, self.sequences);
        let of_variance = variance * (2.0 / self.vocab * alike).sqrt();
        let of_own = own.map_or(0.0, |own| {
            let by_stream = 0.5 * own.law.mean * (2.0 / width * x.collapse(grid, self.sequences)).sqrt();
            (own.law.std.powi(2) * collision + by_stream.powi(2)).sqrt()
        });
        let log_sum_exp = of_sum.hypot(own.map_or(0.0, |own| own.probability(1)) * of_own);

        let repeats = architecture.repeats.unwrap_or(self.collision);
        let result = &mut self.result;
        result.log_sum_exp = law.log_sum_exp();
        result.entropy = law.entropy();
        result.loss = result.log_sum_exp - repeats * own.map_or(0.0, |own| own.law.mean);
        result.expected_loss = result.loss;
        result.noise = 3.0 * logit_std * collision.sqrt();
        result.logit_std = logit_std;
        result.own_logit = own.map(|own| own.law.mean);
        result.own_logit_std = own.map(|own| own.law.std);
        result.final_norm = Some(final_norm * self.decoder.final_multiplier.powi(2));
        result.spread = Some(Spread {
            loss: (variance * collision).sqrt().hypot(log_sum_exp),
            log_sum_exp,
            entropy: of_variance.hypot(own.map_or(0.0, |own| own.probability(1) * own.law.mean.abs() * of_own)),
            logit_std: logit_std * (0.5 * alike / self.vocab).sqrt(),
            own_logit: of_own,
        });
        Logits { gain, variance, own }
    }

    /// The logit of the input token under a tied head: its vector is a part of the stream, and all of what they share.
    fn own_logit(&self, logit_std: f64) -> Standing {
        let (architecture, table) = (self.architecture, self.decoder.token.variance);
        let left = |power: i32| self.grid.mean(self.left.iter().map(|left| left.powi(power)));
        let enters = architecture.embedding_multiplier;
        let fraction = (table * enters * enters * left(2)).min(1.0);
        let mean = self.logit_multiplier() * enters * self.decoder.d_model as f64 * table * left(1);
        Standing { law: Own { mean, std: logit_std * (1.0 - fraction).sqrt() }, fraction, others: 0.0 }
    }

    fn backward(&mut self, x: &Kernel, normed: &Kernel, logits: &Logits, passed: &[[Addition; 2]]) {
        let epsilon = self.architecture.norm_epsilon;
        // What of the own row points along the stream is taken off by the norm before the head, or by the last one in the layers.
        let projected = logits.own.map_or(0.0, |own| own.fraction);
        let errors = self.errors(normed, logits, projected);
        if let Some(head) = &self.decoder.head {
            self.matrix_gradient(head, &errors.scale(self.logit_multiplier().powi(2)), normed);
        }
        let mut gradient = errors.scale(logits.gain);
        let at_end = match self.decoder.final_norm {
            true => {
                gradient = gradient.norm(x.own(), epsilon);
                gradient.clone()
            }
            false => self.errors(normed, logits, 0.0).scale(logits.gain),
        };
        // The gradient at the head goes like 1/v, and strays with it.
        let last = self.result.stream.last().and_then(|last| Some(last.sd? / last.second_moment)).unwrap_or(0.0);
        let mut gradients = vec![self.stream_gradient(&at_end, last)];
        for (layer, [first, second]) in self.decoder.layers.iter().zip(passed).rev() {
            for (addition, is_mlp) in [(second, true), (first, false)] {
                if layer.norms == NormPlacement::Post {
                    gradient = gradient.norm(addition.sum.own(), epsilon);
                }
                let scale = self.architecture.branch_multiplier.powi(2);
                let mut to_branch = gradient.dropout(self.architecture.dropout).scale(scale);
                if layer.norms.is_on_branch() {
                    to_branch = to_branch.norm(addition.branch.own(), epsilon);
                }
                let read = self.read(layer, &addition.before);
                let mut into = match is_mlp {
                    true => self.mlp_back(layer, &read, &to_branch),
                    false => self.attention_back(layer, &read, &to_branch),
                };
                if layer.norms.is_before() {
                    into = into.norm(addition.before.own(), epsilon);
                }
                gradient = gradient.add(&into);
                gradients.push(self.stream_gradient(&gradient, last));
            }
        }
        for (reading, (square, sd)) in self.result.stream.iter_mut().zip(gradients.into_iter().rev()) {
            // Scores beyond the expansion may take a square below 0; a note tells of them.
            let known = square >= 0.0;
            (reading.gradient, reading.gradient_sd) = (known.then_some(square), known.then_some(sd));
        }
        self.multiply_end();
        self.table_gradients(&gradient, &errors, normed);
        self.result.gradients.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Where the last norm in the layers makes the last point of the stream, its multiplier is seen there.
    fn multiply_end(&mut self) {
        let multiplier = self.decoder.final_multiplier.powi(2);
        if let Some(end) = self.result.stream.last_mut().filter(|_| !self.decoder.final_norm) {
            end.second_moment *= multiplier;
            end.sd = end.sd.map(|sd| sd * multiplier);
            end.gradient = end.gradient.map(|square| square / multiplier);
            end.gradient_sd = end.gradient_sd.map(|sd| sd / multiplier);
        }
    }

    /// `E <p_t - y_t, p_u - y_u>`, the softmax less the target, between positions: what the loss sends into the logits.
    fn errors(&self, normed: &Kernel, logits: &Logits, projected: f64) -> Kernel {
        let v = self.vocab;
        // A tied head puts this much on the input token.
        let (on_own, own_square) =
            logits.own.map_or((0.0, 0.0), |own| (own.probability(1), own.probability(2) * (1.0 - projected)));
        let others = 1.0 - on_own;
        let final_norm = normed.second_moment(&self.grid).max(f64::MIN_POSITIVE);
        normed.map_pairs(|value, own| {
            let alike = (logits.variance * value / final_norm).min(LARGE).exp();
            let common = (alike / v).min(1.0) * others * others;
            match own {
                true => (1.0 - 2.0 * others / v + common + own_square).max(0.0),
                false => self.collision - 2.0 / v + common,
            }
        })
    }

    fn mlp_back(&mut self, layer: &Layer, x: &Kernel, gradient: &Kernel) -> Kernel {
        let (hidden, slope, gate_slope) = self.hidden(layer, x);
        self.matrix_gradient(&layer.down, gradient, &hidden);
        let into_hidden = gradient.scale(layer.down.linear.gain());
        let to_up = into_hidden.times(&slope);
        self.matrix_gradient(&layer.up, &to_up, x);
        let mut into = to_up.scale(layer.up.linear.gain());
        if let (Some(gate), Some(slope)) = (&layer.gate, gate_slope) {
            let to_gate = into_hidden.times(&slope);
            self.matrix_gradient(gate, &to_gate, x);
            into = into.add(&to_gate.scale(gate.linear.gain()));
        }
        into
    }

    fn attention_back(&mut self, layer: &Layer, x: &Kernel, gradient: &Kernel) -> Kernel {
        let attention = self.attention(layer, x);
        self.matrix_gradient(&layer.output, gradient, &attention.output);
        let mixed = gradient.scale(layer.output.linear.gain());
        let [mut to_query, mut to_key, to_value] = attention.back(&mixed, &self.grid);
        if self.norms_queries(layer) {
            let epsilon = self.architecture.norm_epsilon;
            to_query = to_query.norm(x.linear(&layer.query.linear).own(), epsilon);
            to_key = to_key.norm(x.linear(&layer.key.linear).own(), epsilon);
        }
        let into = [(&layer.query, to_query), (&layer.key, to_key), (&layer.value, to_value)].map(|(matrix, to)| {
            self.matrix_gradient(matrix, &to, x);
            to.scale(matrix.linear.gain())
        });
        into[0].add(&into[1]).add(&into[2])
    }
}

impl Walk<'_> {
    /// The mean square of the gradient at a point, and about its standard deviation over seeds.
    fn stream_gradient(&self, gradient: &Kernel, last: f64) -> (f64, f64) {
        let square = gradient.second_moment(&self.grid);
        let relative = 6.0 / self.decoder.d_model as f64 * gradient.collapse(&self.grid, self.sequences);
        (square, square * relative.sqrt().hypot(last))
    }

    /// `|dL/dW|^2 = sum_tu G_tu X_tu / n^2` over all pairs of the batch, with G that of the output and X that of the input.
    fn matrix_gradient(&mut self, matrix: &Matrix, out: &Kernel, input: &Kernel) {
        let pairs = out.square_sum(input, &self.grid, self.sequences) * matrix.linear.fan_in;
        self.push_gradient(&matrix.path, pairs * matrix.forward.powi(2));
        if let Some((bias, forward)) = &matrix.bias {
            let pairs = out.square_sum(&Kernel::ones(&self.grid), &self.grid, self.sequences);
            self.push_gradient(bias, pairs * forward.powi(2));
        }
    }

    /// The tables get the gradient of the stream at the rows that were read, and a tied one that of the head.
    fn table_gradients(&mut self, gradient: &Kernel, errors: &Kernel, normed: &Kernel) {
        let architecture = self.architecture;
        let gradient = gradient.dropout(architecture.dropout).scale(architecture.embedding_multiplier.powi(2));
        let token = &self.decoder.token;
        let read = Kernel::embedding(&self.grid, 1.0, 0.0, self.collision);
        let mut square = gradient.square_sum(&read, &self.grid, self.sequences);
        if architecture.tied {
            let scale = self.logit_multiplier().powi(2) * self.decoder.d_model as f64;
            square += scale * errors.square_sum(normed, &self.grid, self.sequences);
        }
        self.push_gradient(&token.path, square * token.forward.powi(2));
        if let Some(positions) = &self.decoder.positions {
            let square = gradient.position_sum(&self.grid, self.sequences);
            self.push_gradient(&positions.path, square * positions.forward.powi(2));
        }
    }

    /// Blocks of one packed parameter share a path.
    fn push_gradient(&mut self, path: &str, pairs: f64) {
        let square = pairs.max(0.0) / self.count.powi(2);
        match self.result.gradients.iter_mut().find(|gradient| gradient.path == path) {
            Some(gradient) => gradient.norm = gradient.norm.map(|norm| norm.hypot(square.sqrt())),
            None => self.result.gradients.push(Gradient { path: path.into(), norm: Some(square.sqrt()) }),
        }
    }

    /// Says where the theory is out of its range.
    fn notes(&mut self) {
        let result = &self.result;
        let mut notes = Vec::new();
        if let Some(widest) =
            result.attention.iter().max_by(|a, b| a.std.total_cmp(&b.std)).filter(|a| a.std > WIDEST_SCORES)
        {
            notes.push(format!(
                "the scores of layer {} have std {:.2}: beyond {WIDEST_SCORES} attention is not nearly uniform, and its branch is \
                 predicted too small",
                widest.layer, widest.std
            ));
        }
        let alike = |reading: &&Reading| reading.correlation.is_some_and(|rho| rho > COLLAPSED);
        if let Some(reading) = result.stream.iter().find(alike) {
            notes.push(format!(
                "from {} on the tokens are almost the same vector (rho {:.3}): a single seed strays far from the mean",
                reading.point,
                reading.correlation.unwrap_or(1.0)
            ));
        }
        if self.decoder.d_model < NARROW {
            notes.push(format!(
                "d_model is {}: below {NARROW} corrections of order 1/d_model are not small",
                self.decoder.d_model
            ));
        }
        if result.logit_std > FREEZING {
            notes.push(format!(
                "the logits have std {:.2}: beyond {FREEZING} the softmax hangs on a few of them, and the gradients are rough",
                result.logit_std
            ));
        }
        match self.decoder.uneven_norms.as_slice() {
            [] => {}
            [first, ..] => {
                notes.push(format!("{first} does not start neutral: norms are taken with gain 1 and offset 0"))
            }
        }
        self.result.notes = notes;
    }
}

/// What the logits are made of.
struct Logits {
    /// What the head multiplies the second moment of the final norm by.
    gain: f64,
    variance: f64,
    own: Option<Standing>,
}

/// The logit of the input token beside the others.
#[derive(Clone, Copy)]
struct Standing {
    law: Own,
    /// The share of the token's vector in the stream.
    fraction: f64,
    /// Log-sum-exp of the others.
    others: f64,
}

impl Standing {
    /// The mean of a power of the probability of the input token.
    fn probability(&self, power: i32) -> f64 {
        let softmax = |z: f64| 1.0 / (1.0 + (self.others - self.law.mean - self.law.std * z).exp());
        gauss::mean(|z| softmax(z).powi(power), self.law.std.max(1.0))
    }
}
