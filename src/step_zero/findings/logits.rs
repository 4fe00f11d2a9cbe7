//! Logits that are wide from the start, and the table that makes them so.

use super::{Fault, Finding, StepZero};
use crate::Role;

/// Nats above ln V that the spread of the logits may cost. GPT-2 pays 0.15, a head with std 1/sqrt(d) 0.5.
const SPREAD: f64 = 1.0;
/// A norm with gain 1 gives 1.
const WIDE_NORM: f64 = 2.0;
/// Beyond this factor something besides the head and the norm makes the logits.
const MULTIPLIED: f64 = 1.5;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let spread = s.law().without_own().log_sum_exp() - s.ln_vocab();
    if spread <= SPREAD {
        return Vec::new();
    }
    let excess = s.expected_loss - s.ln_vocab();
    let width = s.d_model.map(|d_model| d_model as f64);
    let cause = format!("the loss is too high by {excess:.2} nats: the logits have std {:.2}, because", s.logit_std);
    let advised = width.map(|width| 1.0 / width.sqrt());
    // With a neutral norm the table's own std makes the logits' alone.
    let norm = s.final_norm.unwrap_or(1.0);
    if norm > WIDE_NORM {
        let gains = s.with_role(&[Role::NormGain, Role::NormGainOffset]).filter(|gain| gain.layer.is_none());
        let cause = format!("{cause} the final norm gives vectors of second moment {norm:.1} in place of 1");
        return vec![Finding::error(Fault::LogitsTooWide, cause, "start its gain at 1").about(gains)];
    }
    let made = s.head_table().zip(width).map(|(head, width)| head.std * (width * norm).sqrt());
    if let Some(made) = made.filter(|made| s.logit_std > MULTIPLIED * made) {
        let factor = s.logit_std / made;
        let cause = format!("{cause} they are {factor:.1} times what the head's std makes of the final norm");
        let todo = "look for a multiplier, a division that is missing, or a norm that is not run, in the forward pass";
        return vec![Finding::error(Fault::LogitsTooWide, cause, todo).about(s.head_table())];
    }
    let table = if s.own_logit.is_some() { "the token embedding, which is also the head," } else { "the output head" };
    let starts = s.head_table().map(|head| head.std).or(advised.map(|advised| advised * s.logit_std / norm.sqrt()));
    let (cause, todo) = match starts.zip(advised) {
        Some((std, advised)) => (
            format!("{cause} {table} starts at std {std:.3}"),
            format!("at 1/sqrt(d_model) = {advised:.3} it would cost half a nat, and 0.02 is GPT-2's"),
        ),
        None => (format!("{cause} {table} starts too wide"), "start it at std 1/sqrt(d_model) or below".into()),
    };
    vec![Finding::error(Fault::LogitsTooWide, cause, todo).about(s.head_table())]
}
