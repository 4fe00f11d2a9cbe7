//! A tied head that sees little but the embedding of the input token.

use super::{Fault, Finding, StepZero};

/// Nats that the own-token logit may cost. GPT-2 pays 0.00003, with branches that start at zero 0.6.
const COPY: f64 = 0.25;
/// Nats that the spread of the logits may cost for the copy to be the fault.
const SPREAD: f64 = 1.0;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    let Some(own) = s.own_logit else { return Vec::new() };
    let spread = s.law().without_own().log_sum_exp();
    let excess = s.law().log_sum_exp() - spread;
    if excess <= COPY || spread - s.ln_vocab() > SPREAD {
        return Vec::new();
    }
    let silent: Vec<_> = s.parameters.iter().filter(|p| p.branches.is_some() && p.rms() == 0.0).collect();
    let why = if silent.is_empty() { "the branches add little to it" } else { "the branches start at 0" };
    let cause = format!(
        "copies its input: the head is the token embedding, and the stream is mostly that because {why}, so that the logit of the \
         input token is {own:.1} above the others and costs {excess:.2} nats"
    );
    let todo = "let the branches add more than the embedding, untie the head, or lower the embedding's std";
    let table = s.head_table();
    vec![Finding::warning(Fault::CopiesInput, cause, todo).about(silent.into_iter().chain(table))]
}
