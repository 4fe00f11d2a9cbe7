//! Leaves whose role cannot be told, and the lines that settle it.

use super::Reader;
use crate::{
    error::{Error, ErrorKind},
    role::{Role, names::Holder},
};

/// A leaf whose role cannot be told.
#[derive(Debug, Clone)]
pub(crate) struct Unknown {
    pub leaf: usize,
    pub path: String,
    pub shape: Vec<u64>,
    holder: Holder,
    suggestion: Role,
    fused: bool,
    /// Columns of query, key and value, where the name says that it holds the three.
    attention: Option<[u64; 3]>,
    /// Whether it could write into the stream of a known stack.
    pub in_stack: bool,
}

/// GPT-NeoX, BLOOM and Falcon: query, key and value of one head beside those of the next, or as blocks, which no tree shows.
const INTERLEAVED: &str = "query_key_value";

impl Reader<'_> {
    pub(super) fn unknown(&self, index: usize) -> Unknown {
        let (leaf, draft) = (&self.leaves[index], &self.drafts[index]);
        let d_model = draft
            .layer
            .and_then(|(n, _)| self.stacks.get(&leaf.segments[..n].join(".")).map(|stack| self.d_model(stack)));
        let name = leaf.segments.iter().rev().find(|name| *name != "weight").map_or("", String::as_str);
        let outward = ["out", "proj", "down"].iter().any(|part| name.contains(part)) || name == "o";
        let suggestion = match (leaf.shape.as_slice(), draft.holder) {
            (_, Holder::Table) => Role::TokenEmbedding,
            ([a, b], _) if a == b && outward => Role::AttentionOutput,
            ([a, b], _) if a > b && (outward || d_model == Some(*b)) => Role::MlpDown,
            ([a, b], _) if a < b && d_model == Some(*a) => Role::MlpIn,
            ([_, _], _) => Role::Linear,
            ([_], _) if name == "gamma" => Role::NormGain,
            ([_], _) if name == "beta" => Role::NormBias,
            _ => Role::Other,
        };
        Unknown {
            leaf: index,
            path: self.paths[index].clone(),
            shape: leaf.shape.clone(),
            holder: draft.holder,
            suggestion,
            fused: draft.fused,
            attention: match *leaf.shape.as_slice() {
                // Fewer key and value heads, of equal width.
                [a, b] if name == INTERLEAVED && a < b && b / 3 < a && (b - a).is_multiple_of(2) => {
                    Some([a, (b - a) / 2, (b - a) / 2])
                }
                [_, b] if name == INTERLEAVED => Some([b / 3; 3]),
                _ => None,
            },
            in_stack: draft.layer.is_some() && leaf.shape.len() >= 2,
        }
    }
}

/// One error for all parameters whose role cannot be told, with a line for each.
pub(crate) fn unknown_roles<'a>(unknown: impl Iterator<Item = &'a Unknown>) -> Option<Error> {
    let mut unknown = unknown.peekable();
    let first = (*unknown.peek()?).clone();
    let mut lines: Vec<(String, &Unknown)> = Vec::new();
    for one in unknown {
        let pattern = one
            .path
            .split('.')
            .map(|segment| if segment.bytes().all(|byte| byte.is_ascii_digit()) { "*" } else { segment })
            .collect::<Vec<_>>()
            .join(".");
        if !lines.iter().any(|(known, _)| *known == pattern) {
            lines.push((pattern, one));
        }
    }
    let found = match first.holder {
        _ if first.fused => {
            "it is twice as wide as the last map of its MLP reads, so it holds a gate, too, and which half is which cannot be seen"
        }
        _ if first.attention.is_some() => {
            "its name is that of query, key and value in one, as blocks or head by head, and which of these cannot be seen"
        }
        Holder::Linear => "its role cannot be told: it is a Linear, and its name is not in the tables",
        Holder::Table => "its role cannot be told: it is an Embedding, and its name is not in the tables",
        _ => "its role cannot be told: it is no known layer's, and its name is not in the tables",
    };
    let line = |(pattern, one): &(String, &Unknown)| match (one.fused, one.attention) {
        (true, _) => format!(".packed(\"{pattern}\", [Role::MlpGate, Role::MlpUp])"),
        (_, Some([q, k, _])) if q == k => format!(".packed(\"{pattern}\", [Role::Query, Role::Key, Role::Value])"),
        (_, Some([q, k, v])) => {
            format!(".packed(\"{pattern}\", [(Role::Query, {q}), (Role::Key, {k}), (Role::Value, {v})])")
        }
        _ => format!(".role(\"{pattern}\", Role::{:?})", one.suggestion),
    };
    let lines: Vec<_> = lines.iter().map(line).collect();
    let todo = match lines.as_slice() {
        [line] => format!("say which part it plays, for example {line}"),
        lines => format!("say which part each plays, for example\n    {}", lines.join("\n    ")),
    };
    let error = Error::new(ErrorKind::UnknownRole, found, todo);
    Some(error.at(first.path).shaped(first.shape))
}
