//! Logits that are wide from the start, and the table that makes them so.

use super::{Fault, Finding, StepZero};

/// Nats above ln V that the spread of the logits may cost. GPT-2 pays 0.15, a head with std 1/sqrt(d) 0.5.
const SPREAD: f64 = 1.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let spread = s.law().without_own().log_sum_exp() - s.ln_vocab();
    if spread <= SPREAD {
        return Vec::new();
    }
    let table = if s.own_logit.is_some() { "the token embedding, which is also the head," } else { "the output head" };
    let excess = s.expected_loss - s.ln_vocab();
    // The std at which the logits have std 1 and cost half a nat.
    let advised = s.d_model.zip(s.final_norm).map(|(d_model, norm)| 1.0 / (d_model as f64 * norm).sqrt());
    let mut cause =
        format!("the loss is too high by {excess:.2} nats: the logits have std {:.2}, because {table}", s.logit_std);
    let todo = match advised {
        Some(advised) => {
            cause += &format!(" starts at std {:.3}", advised * s.logit_std);
            format!("at 1/sqrt(d_model) = {advised:.3} it would cost half a nat, and 0.02 is GPT-2's")
        }
        None => {
            cause += " starts too wide";
            "start it at std 1/sqrt(d_model) or below".into()
        }
    };
    vec![Finding::error(Fault::LogitsTooWide, cause, todo).about(s.head_table())]
}
