//! Which names and which layout the parameters have in a file.

use std::collections::BTreeMap;

use crate::{
    error::{Error, ErrorKind},
    hugging_face::HuggingFace,
    param::ParamSpec,
    plan::{Entry, Plan},
    role::Layout,
};

/// The names, and the layout of linear maps, that parameters have in a checkpoint. Values do not depend on them: each is drawn from
/// the stream of its path in the plan.
///
/// In a pattern `*` is one segment and `**` any number of them; what they stand for is put in the place of the stars of the new name.
///
/// ```
/// use burn_init::{Layout, checkpoint::Keys};
///
/// let keys = Keys::new()
///     .rename("blocks.*.mlp.up.weight", "model.layers.*.mlp.c_fc.weight")
///     .join(["blocks.*.attn.q.weight", "blocks.*.attn.k.weight", "blocks.*.attn.v.weight"], "model.layers.*.attn.qkv.weight")
///     .layout(Layout::OutIn);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Keys {
    rules: Vec<Rule>,
    layouts: Vec<(String, Layout)>,
    layout: Option<Layout>,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    from: Vec<String>,
    to: String,
    /// Whether it is a mistake if it matches nothing.
    strict: bool,
}

/// A tensor of the file.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    pub name: String,
    /// As it is stored.
    pub shape: Vec<u64>,
    /// The parameters that stand side by side in it along their output: all lines of each.
    pub parts: Vec<&'a [Entry]>,
    /// Whether the file has the transpose of the plan's matrices.
    pub transposed: bool,
}

impl Target<'_> {
    /// Saturating, for the same reason as a spec's.
    pub(crate) fn num_elements(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, &d| product.saturating_mul(d))
    }
}

impl Keys {
    /// The names of the plan, and the layout in which the module stores its tensors: what burn loads.
    pub fn new() -> Self {
        Self::default()
    }

    /// The parameters matching `from` are called `to`. The first line that matches a parameter counts.
    pub fn rename(self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.rule([from.into()].into(), to.into(), true)
    }

    /// The linear maps matching the patterns become one, side by side along their output, as packed projections store them; and so do biases.
    pub fn join<S: Into<String>>(self, from: impl IntoIterator<Item = S>, to: impl Into<String>) -> Self {
        self.rule(from.into_iter().map(Into::into).collect(), to.into(), true)
    }

    /// How linear maps are stored. Tables, convolutions, norms and biases have one layout only.
    pub fn layout(self, layout: Layout) -> Self {
        Self { layout: Some(layout), ..self }
    }

    /// How the linear maps are stored whose new names match the pattern. The last matching line counts.
    pub fn layout_of(mut self, pattern: impl Into<String>, layout: Layout) -> Self {
        self.layouts.push((pattern.into(), layout));
        self
    }

    /// PyTorch's conventions for a module with names like PyTorch's: `[d_out, d_in]`, and `weight` and `bias` for the `gamma` and `beta`
    /// of burn's norms.
    pub fn pytorch() -> Self {
        let plain = Self::new().layout(Layout::OutIn);
        plain.maybe(&["**.gamma"], "**.weight").maybe(&["**.beta"], "**.bias")
    }

    /// The conventions of `transformers` for a plan of [`HuggingFace`]: `[d_out, d_in]`, in GPT-2 `[d_in, d_out]` except for the head.
    pub fn hugging_face(model: &HuggingFace) -> Self {
        match model.stores_in_out() {
            true => Self::new().layout(Layout::InOut).layout_of("lm_head.weight", Layout::OutIn),
            false => Self::new().layout(Layout::OutIn),
        }
    }

    /// From the [reference model](mod@crate::reference) with learned positions and LayerNorm to `GPT2LMHeadModel`.
    pub fn gpt2() -> Self {
        let mut keys = Self::new().layout(Layout::InOut).layout_of("lm_head.weight", Layout::OutIn);
        let packed = |kind: &str| ["query", "key", "value"].map(|name| format!("blocks.*.attention.{name}.{kind}"));
        for kind in ["weight", "bias"] {
            let from = packed(kind);
            keys = keys
                .maybe(&from.each_ref().map(String::as_str), &format!("transformer.h.*.attn.c_attn.{kind}"))
                .maybe(&[&format!("blocks.*.attention.output.{kind}")], &format!("transformer.h.*.attn.c_proj.{kind}"))
                .maybe(&[&format!("blocks.*.mlp.linear_in.{kind}")], &format!("transformer.h.*.mlp.c_fc.{kind}"))
                .maybe(&[&format!("blocks.*.mlp.linear_out.{kind}")], &format!("transformer.h.*.mlp.c_proj.{kind}"));
        }
        for (burn, torch) in [("gamma", "weight"), ("beta", "bias")] {
            keys = keys
                .maybe(&[&format!("blocks.*.norm_1.**.{burn}")], &format!("transformer.h.*.ln_1.{torch}"))
                .maybe(&[&format!("blocks.*.norm_2.**.{burn}")], &format!("transformer.h.*.ln_2.{torch}"))
                .maybe(&[&format!("norm_final.**.{burn}")], &format!("transformer.ln_f.{torch}"));
        }
        keys.maybe(&["token_embedding.weight"], "transformer.wte.weight")
            .maybe(&["position_embedding.weight"], "transformer.wpe.weight")
            .maybe(&["head.weight"], "lm_head.weight")
    }

    /// From the [reference model](mod@crate::reference) with rotary positions, RMSNorm and SwiGLU to `LlamaForCausalLM`, `MistralForCausalLM` or,
    /// with biases, to what calls its parameters alike.
    pub fn llama() -> Self {
        let mut keys = Self::new().layout(Layout::OutIn);
        for kind in ["weight", "bias"] {
            for (burn, torch) in [
                ("attention.query", "self_attn.q_proj"),
                ("attention.key", "self_attn.k_proj"),
                ("attention.value", "self_attn.v_proj"),
                ("attention.output", "self_attn.o_proj"),
                ("mlp.linear_gate", "mlp.gate_proj"),
                ("mlp.linear_in", "mlp.up_proj"),
                ("mlp.linear_out", "mlp.down_proj"),
            ] {
                keys = keys.maybe(&[&format!("blocks.*.{burn}.{kind}")], &format!("model.layers.*.{torch}.{kind}"));
            }
        }
        keys.maybe(&["blocks.*.norm_1.**.gamma"], "model.layers.*.input_layernorm.weight")
            .maybe(&["blocks.*.norm_2.**.gamma"], "model.layers.*.post_attention_layernorm.weight")
            .maybe(&["norm_final.**.gamma"], "model.norm.weight")
            .maybe(&["token_embedding.weight"], "model.embed_tokens.weight")
            .maybe(&["head.weight"], "lm_head.weight")
    }

    fn rule(mut self, from: Vec<String>, to: String, strict: bool) -> Self {
        self.rules.push(Rule { from, to, strict });
        self
    }

    fn maybe(self, from: &[&str], to: &str) -> Self {
        self.rule(from.iter().map(|from| from.to_string()).collect(), to.to_string(), false)
    }

    /// The tensors of a file with everything in the plan, in its order; a joined one stands where its first part does.
    pub(crate) fn targets<'a>(&self, plan: &'a Plan) -> Result<Vec<Target<'a>>, Error> {
        // For each name in the file the parameters of its parts, by their position in the rule.
        let mut order: Vec<String> = Vec::new();
        let mut parts: BTreeMap<String, (usize, BTreeMap<usize, &'a [Entry]>)> = BTreeMap::new();
        let mut used = vec![false; self.rules.len()];
        for lines in parameters(plan) {
            let tied = lines[0].tied().iter().map(String::as_str);
            for path in std::iter::once(lines[0].spec().path()).chain(tied) {
                let (name, position, count) = match self.find(path) {
                    Some((rule, position, name)) => {
                        used[rule] = true;
                        (name, position, self.rules[rule].from.len())
                    }
                    None => (path.to_string(), 0, 1),
                };
                let (_, found) = parts.entry(name.clone()).or_insert_with(|| {
                    order.push(name.clone());
                    (count, BTreeMap::new())
                });
                if let Some(other) = found.insert(position, lines) {
                    return Err(lines[0].spec().error(
                        ErrorKind::Config,
                        format!("it would be called {name} in the file, as {} is", other[0].spec().path()),
                        "give each parameter a name of its own",
                    ));
                }
            }
        }
        let unused = self.rules.iter().zip(used).find(|(rule, used)| rule.strict && !used);
        if let Some((rule, _)) = unused {
            let example = plan.iter().next().map_or("(the plan is empty)", |entry| entry.spec().path());
            return Err(Error::new(
                ErrorKind::Unmatched,
                format!("the names \"{}\" match no parameter", rule.from.join("\", \"")),
                format!("paths look like {example}"),
            ));
        }
        order
            .into_iter()
            .map(|name| {
                let (count, found) = &parts[&name];
                match found.len() == *count {
                    true => self.target(name, found.values().copied().collect()),
                    false => Err(Error::new(
                        ErrorKind::Unmatched,
                        format!("{} of {count} parts of {name} are in the plan", found.len()),
                        "name all that it is joined from",
                    )),
                }
            })
            .collect()
    }

    fn find(&self, path: &str) -> Option<(usize, usize, String)> {
        let path: Vec<&str> = path.split('.').collect();
        self.rules.iter().enumerate().find_map(|(index, rule)| {
            rule.from.iter().enumerate().find_map(|(position, from)| {
                let from: Vec<&str> = from.split('.').collect();
                capture(&from, &path).map(|stars| (index, position, put_in(&rule.to, &stars)))
            })
        })
    }

    fn target<'a>(&self, name: String, parts: Vec<&'a [Entry]>) -> Result<Target<'a>, Error> {
        let spec = parts[0][0].spec();
        let layout = self.layouts.iter().rev().find(|(pattern, _)| {
            let pattern: Vec<&str> = pattern.split('.').collect();
            capture(&pattern, &name.split('.').collect::<Vec<_>>()).is_some()
        });
        let transposed = match layout.map(|(_, layout)| *layout).or(self.layout) {
            _ if !is_map(spec) => spec.stored_transposed,
            Some(layout) => layout == Layout::OutIn,
            None => spec.stored_transposed,
        };
        let mut shape = spec.shape().to_vec();
        let rank = shape.len();
        for part in &parts[1..] {
            let other = part[0].spec();
            let fits = other.shape().len() == rank
                && rank >= 1
                && (other.shape()[..rank - 1] == spec.shape()[..rank - 1])
                && (rank == 1 || (is_map(other) && is_map(spec)));
            if !fits {
                return Err(other.error(
                    ErrorKind::Shape,
                    format!("it cannot stand beside {} {:?} in {name}", spec.path(), spec.shape()),
                    "join linear maps with the same inputs, or their biases",
                ));
            }
            shape[rank - 1] = shape[rank - 1].saturating_add(other.shape()[rank - 1]);
        }
        if transposed {
            shape.swap(rank - 1, rank - 2);
        }
        Ok(Target { name, shape, parts, transposed })
    }
}

/// Whether it is a linear map `[…, d_in, d_out]`, which a file may hold either way round.
fn is_map(spec: &ParamSpec) -> bool {
    let matrix = spec.shape().len() == 2 || (spec.shape().len() == 3 && spec.experts().is_some());
    matrix && !spec.role().is_table() && spec.fans().is_ok()
}

/// All lines of each parameter.
fn parameters(plan: &Plan) -> Vec<&[Entry]> {
    let mut found: Vec<&[Entry]> = Vec::new();
    for entry in plan {
        if found.last().is_none_or(|last| last[0].spec().path() != entry.spec().path()) {
            found.push(plan.blocks(entry.spec().path()));
        }
    }
    found
}

/// What the stars of the pattern stand for, if it matches the path.
fn capture<'a>(pattern: &[&str], path: &[&'a str]) -> Option<Vec<Vec<&'a str>>> {
    match (pattern, path) {
        ([], []) => Some(Vec::new()),
        (["**", rest @ ..], _) => (0..=path.len()).find_map(|skip| {
            let mut stars = capture(rest, &path[skip..])?;
            stars.insert(0, path[..skip].to_vec());
            Some(stars)
        }),
        (["*", rest @ ..], [segment, tail @ ..]) => {
            let mut stars = capture(rest, tail)?;
            stars.insert(0, vec![segment]);
            Some(stars)
        }
        ([first, rest @ ..], [segment, tail @ ..]) if first == segment => capture(rest, tail),
        _ => None,
    }
}

/// The name with its stars replaced in their order; those that are left over are dropped.
fn put_in(name: &str, stars: &[Vec<&str>]) -> String {
    let mut stars = stars.iter();
    let mut segments: Vec<&str> = Vec::new();
    for segment in name.split('.') {
        match segment {
            "*" | "**" => segments.extend(stars.next().into_iter().flatten()),
            segment => segments.push(segment),
        }
    }
    segments.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars() {
        for (from, to, path, expected) in [
            ("a.*.b", "x.*.y", "a.3.b", Some("x.3.y")),
            ("a.*.b", "x.*.y", "a.3.c", None),
            ("**.gamma", "**.weight", "model.layers.1.norm.gamma", Some("model.layers.1.norm.weight")),
            ("**.gamma", "**.weight", "gamma", Some("weight")),
            ("h.*.mlp.*.weight", "l.*.*.w", "h.2.mlp.up.weight", Some("l.2.up.w")),
            ("b.*.n.**.gamma", "l.*.w", "b.7.n.Rms.gamma", Some("l.7.w")),
        ] {
            let keys = Keys::new().rename(from, to);
            assert_eq!(keys.find(path).map(|(.., name)| name).as_deref(), expected, "{from} on {path}");
        }
    }
}
