//! Path patterns: `*` is one segment (or a part of one), `**` any number of segments.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A pattern over dotted paths, anchored at both ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pattern(String);

impl Pattern {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let pattern: Vec<_> = self.0.split('.').collect();
        let path: Vec<_> = path.split('.').collect();
        segments(&pattern, &path)
    }

    /// Whether the pattern spells out the end of the path: its name, and where that is only `weight` or `scale`, its owner as well.
    pub(crate) fn names(&self, path: &str) -> bool {
        let ends = |count: usize| self.0.rsplit('.').take(count).eq(path.rsplit('.').take(count));
        match path.rsplit('.').next() {
            Some("weight" | "scale") => ends(2),
            _ => ends(1),
        }
    }
}

fn segments(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skip| segments(rest, &path[skip..])),
        ([first, rest @ ..], [segment, tail @ ..]) => {
            within(first.as_bytes(), segment.as_bytes()) && segments(rest, tail)
        }
        _ => false,
    }
}

fn within(pattern: &[u8], segment: &[u8]) -> bool {
    match (pattern, segment) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=segment.len()).any(|skip| within(rest, &segment[skip..])),
        ([a, rest @ ..], [b, tail @ ..]) => a == b && within(rest, tail),
        _ => false,
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn stars() {
        for (pattern, path, expected) in [
            ("h.*.attn.c_attn.weight", "h.11.attn.c_attn.weight", true),
            ("h.*.attn.c_attn.weight", "h.1.2.attn.c_attn.weight", false),
            ("h.*.attn.c_attn.weight", "transformer.h.1.attn.c_attn.weight", false),
            ("**.c_attn.weight", "transformer.h.1.attn.c_attn.weight", true),
            ("**", "a", true),
            ("a.**.b", "a.b", true),
            ("a.**.b", "a.x.y.b", true),
            ("a.**.b", "a.x.y.c", false),
            ("blocks.*.attn_*.weight", "blocks.0.attn_q.weight", true),
            ("lm_head.weight", "lm_head.weight", true),
            ("lm_head", "lm_head.weight", false),
            ("*", "", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn naming_the_end() {
        for (pattern, path, expected) in [
            ("**", "h.0.ln_1.bias", false),
            ("**.bias", "h.0.ln_1.bias", true),
            ("h.*.ln_1.*", "h.0.ln_1.weight", false),
            ("**.weight", "h.0.ln_1.weight", false),
            ("**.ln_1.weight", "h.0.ln_1.weight", true),
            ("**.gamma", "norm.gamma", true),
        ] {
            assert_eq!(Pattern::new(pattern).names(path), expected, "{pattern} on {path}");
        }
    }
}
