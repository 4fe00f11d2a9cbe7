//! What is wrong with a start, in words.

use std::fmt;

use super::StepZero;

/// Logits closer together than this are all the same, in f32.
const NO_SPREAD: f64 = 1e-6;
/// Probability on padding that is worth a word.
const PADDING: f64 = 1e-3;
/// Nats above ln V that the spread of the logits may cost. GPT-2 pays 0.15, a head with std 1/sqrt(d) 0.5.
const SPREAD: f64 = 1.0;
/// Nats that the own-token logit may cost. GPT-2 pays 0.00003, with branches that start at zero 0.6.
const COPY: f64 = 0.25;
/// Nats that the expected loss itself may be off.
const THEORY: f64 = 0.01;

/// The judgement on a start: [`Healthy`](Verdict::Healthy), or the first thing that is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The loss is what logits of their spread cost, and that is little.
    Healthy,
    /// All logits are equal.
    Dead,
    /// The padding of the vocabulary takes part in the softmax.
    PaddingCounts {
        /// The probability that falls on it.
        probability: f64,
    },
    /// The spread of the logits alone costs more than a nat.
    LogitsTooWide {
        /// The table that makes the logits.
        table: Table,
        /// Its standard deviation, where the final norm was seen.
        table_std: Option<f64>,
        /// The one at which the logits have std 1 and cost half a nat: 1/sqrt(d_model).
        advised_std: Option<f64>,
        /// The spread of the logits.
        logit_std: f64,
        /// The loss that this start is expected to have above ln V, in nats.
        excess: f64,
    },
    /// A tied head sees mostly the embedding of the input token and predicts that token again.
    CopiesInput {
        /// The logit of the input token above the others.
        own_logit: f64,
        /// What that costs, in nats.
        excess: f64,
    },
    /// The loss is not the one that these logits should have with targets that know nothing of them.
    Unexplained {
        /// Measured less expected, in nats.
        difference: f64,
        /// Three standard deviations of that.
        noise: f64,
    },
}

/// Which table makes the logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// A tied one: it is the token embedding, too.
    TokenEmbedding,
    /// A head of its own.
    OutputHead,
}

impl StepZero {
    /// Judges the start, the gravest fault first.
    pub fn verdict(&self) -> Verdict {
        let spread = self.law().without_own().log_sum_exp();
        let own = self.law().log_sum_exp() - spread;
        let difference = self.loss - self.expected_loss;
        if self.padding > PADDING {
            Verdict::PaddingCounts { probability: self.padding }
        } else if self.logit_std < NO_SPREAD {
            Verdict::Dead
        } else if spread - self.ln_vocab() > SPREAD {
            let table = if self.own_logit.is_some() { Table::TokenEmbedding } else { Table::OutputHead };
            let read = self.d_model.zip(self.final_norm);
            let advised_std = read.map(|(d_model, norm)| 1.0 / (d_model as f64 * norm).sqrt());
            Verdict::LogitsTooWide {
                table,
                table_std: advised_std.map(|std| std * self.logit_std),
                advised_std,
                logit_std: self.logit_std,
                excess: self.expected_loss - self.ln_vocab(),
            }
        } else if let Some(own_logit) = self.own_logit.filter(|_| own > COPY) {
            Verdict::CopiesInput { own_logit, excess: own }
        } else if difference.abs() > self.noise + THEORY {
            Verdict::Unexplained { difference, noise: self.noise }
        } else {
            Verdict::Healthy
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => write!(f, "pass: the loss is what logits of this spread cost, and that is little"),
            Self::Dead => write!(
                f,
                "dead: all logits are equal, so the loss is ln V; the head, the gain of the final norm or the \
                 embedding is zero, and the blocks get no gradient"
            ),
            Self::PaddingCounts { probability } => write!(
                f,
                "padding counts: {:.1} % of the probability falls on rows of the table that are no tokens; mask their \
                 logits with -inf",
                100.0 * probability
            ),
            Self::LogitsTooWide { table, table_std, advised_std, logit_std, excess } => {
                write!(f, "too high by {excess:.2} nats: the logits have std {logit_std:.2}, because {table}")?;
                match table_std.zip(*advised_std) {
                    Some((std, advised)) => write!(f, " starts at std {std:.3}; at 1/sqrt(d_model) = {advised:.3} it"),
                    None => write!(f, " starts too wide; at std 1/sqrt(d_model) it"),
                }?;
                write!(f, " would cost half a nat")
            }
            Self::CopiesInput { own_logit, excess } => write!(
                f,
                "copies its input: the head is the token embedding and sees little else, so that the logit of the input token is \
                 {own_logit:.1} above the others and costs {excess:.2} nats; let the branches add more than nothing"
            ),
            Self::Unexplained { difference, noise } => write!(
                f,
                "unexplained: the loss is {difference:+.2} nats from what these logits should cost, and the targets can \
                 account for {noise:.2}; the model has learned already, or the targets are not the next tokens"
            ),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenEmbedding => "the token embedding, which is also the head,",
            Self::OutputHead => "the output head",
        })
    }
}
