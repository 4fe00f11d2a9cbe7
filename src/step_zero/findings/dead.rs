//! All logits equal: ln V to the digit, and a body that hears nothing.

use super::{Fault, Finding, StepZero};
use crate::Role;

/// Logits closer together than this are all the same, in f32.
const NO_SPREAD: f64 = 1e-6;
/// A norm that is this far from 1 has no gain.
const NO_NORM: f64 = 1e-6;

pub(super) fn find(s: &StepZero) -> Vec<Finding> {
    // Of two tokens the one that is not the input has nobody to differ from.
    if s.logit_std >= NO_SPREAD || s.vocab <= 2 {
        return Vec::new();
    }
    let head = s.head_table().filter(|head| head.rms() == 0.0);
    let gains = s.with_role(&[Role::NormGain]).filter(|gain| gain.layer.is_none() && gain.rms() == 0.0);
    let gains: Vec<_> = gains.collect();
    let read = gains.is_empty() && s.final_norm.is_none_or(|norm| norm > NO_NORM);
    let head_learns = s.gradients.iter().any(|g| head.is_some_and(|head| head.path == g.path) && g.norm > Some(0.0));
    if read && (head_learns || head.is_some_and(|head| head.role == Role::OutputHead)) {
        return vec![
            Finding::note(
                Fault::DeadFirstStep,
                "all logits are equal because the head is 0: the loss is ln V to the digit, and in the first step nothing but the head learns",
                "expect the body to move from the second step on",
            )
            .about(head),
        ];
    }
    let same = s.head_table().filter(|head| head.std == 0.0);
    let (what, named) = match (s.final_norm, gains.as_slice()) {
        (_, [_, ..]) => ("the gain of the final norm is 0", gains),
        (Some(norm), _) if norm <= NO_NORM => ("the final norm gives 0: its gain, or the stream, is 0", Vec::new()),
        _ if same.is_some() => ("all rows of the head are the same", same.into_iter().collect()),
        _ => ("the head, the gain of the final norm or the embedding is 0", head.into_iter().collect()),
    };
    vec![
        Finding::error(
            Fault::Dead,
            format!(
                "dead: all logits are equal, so the loss is ln V, and no gradient reaches the body, because {what}"
            ),
            "start norm gains at 1 and the tables with a spread",
        )
        .about(named),
    ]
}
