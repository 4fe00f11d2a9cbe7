//! From the leaves of a module tree to [`ParamSpec`]s: roles, layouts, fans, stacks and branches.

mod blocks;
mod paths;
mod stacks;
mod unknown;

pub(crate) use unknown::{Unknown, unknown_roles};

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Layout, NormPlacement, Pattern, Role, Setup,
    names::{self, Children, Holder, Place, Told},
    setup::PackedBlock,
};
use crate::{
    error::{Error, ErrorKind},
    param::{Identity, ParamSpec, Stack},
};
use blocks::{fans, split};
use stacks::{MOST, StackDraft, list_of};

/// A parameter as the tree shows it.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub segments: Vec<String>,
    /// For each segment the type of the container that it stands in.
    pub containers: Vec<String>,
    pub id: u64,
    /// As burn computes with it: a burn-nn `Linear` is `[d_in, d_out]` in either of its layouts.
    pub shape: Vec<u64>,
    pub initialized: bool,
    pub quantized: bool,
}

/// A leaf with all that is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// Its place among the leaves.
    pub leaf: usize,
    /// One spec, or one for each block.
    pub specs: Vec<ParamSpec>,
    /// Whether the tensor holds the transpose of the spec's shape.
    pub transposed: bool,
    /// Whether it holds packed integers, so that it can be kept but not drawn.
    pub quantized: bool,
}

/// All leaves, resolved.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sites {
    pub known: Vec<Site>,
    pub unknown: Vec<Unknown>,
    pub warnings: Vec<String>,
}

/// What is known about a leaf while the tree is being read.
struct Draft {
    role: Option<Role>,
    packed: Option<Vec<PackedBlock>>,
    /// Whether its role was taken back, because a gate stands beside the map that it is named for.
    fused: bool,
    holder: Holder,
    layout: Option<Layout>,
    /// Number of leading segments of the list of layers, and the index in it.
    layer: Option<(usize, u64)>,
}

pub(crate) fn resolve(leaves: &[Leaf], setup: &Setup) -> Result<Sites, Error> {
    paths::check(setup)?;
    let mut tree = Reader::new(leaves, setup);
    tree.tell_roles()?;
    tree.doubt_fused_gates();
    tree.find_stacks();
    tree.settle_plain_linears();
    tree.check_setup()?;
    tree.finish()
}

struct Reader<'a> {
    leaves: &'a [Leaf],
    setup: &'a Setup,
    /// Paths with prefix and alias, before a stage's layers are counted on.
    paths: Vec<String>,
    drafts: Vec<Draft>,
    children: Children<'a>,
    by_segments: HashMap<&'a [String], &'a Leaf>,
    /// For each sequence the positions of its linears, ascending.
    linears: HashMap<&'a [String], Vec<u64>>,
    /// Widths of tables.
    tables: HashSet<u64>,
    stacks: BTreeMap<String, StackDraft>,
    warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(leaves: &'a [Leaf], setup: &'a Setup) -> Self {
        let mut children = Children::new();
        for leaf in leaves {
            for (i, segment) in leaf.segments.iter().enumerate() {
                children.entry(leaf.segments[..i].join(".")).or_default().insert(segment);
            }
        }
        Self {
            leaves,
            setup,
            paths: leaves.iter().map(|leaf| setup.full_path(&leaf.segments)).collect(),
            drafts: Vec::with_capacity(leaves.len()),
            children,
            by_segments: leaves.iter().map(|leaf| (leaf.segments.as_slice(), leaf)).collect(),
            linears: linears(leaves),
            tables: HashSet::new(),
            stacks: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    fn tell_roles(&mut self) -> Result<(), Error> {
        for (index, leaf) in self.leaves.iter().enumerate() {
            let path = &self.paths[index];
            let field = leaf.segments.last().map_or("", String::as_str);
            let container = leaf.containers.last().map_or("", String::as_str);
            let holder = names::holder(container, field, leaf.shape.len());
            let said = last_match(&self.setup.roles, path);
            let layout = last_match(&self.setup.layouts, path);
            let packed = self.setup.packed.iter().rev().find(|packing| packing.pattern.matches(path));
            let told = match (said, packed) {
                (_, Some(packing)) => (None, Some(packing.blocks.clone())),
                (Some(role), None) => (Some(role), None),
                (None, None) => match self.place(index, holder).told() {
                    Some(Told::Role(role)) => (Some(role), None),
                    Some(Told::Packed(roles)) => (None, Some(roles.iter().map(|&role| role.into()).collect())),
                    None => (None, None),
                },
            };
            self.drafts.push(Draft { role: told.0, packed: told.1, fused: false, holder, layout, layer: None });
        }
        Ok(())
    }

    /// A first map of an MLP that is twice as wide as the last one reads holds a gate, too, whatever its name; which half is the gate
    /// only the forward pass knows, so that it is asked for.
    fn doubt_fused_gates(&mut self) {
        let parent = |leaf: &'a Leaf| leaf.segments.get(..leaf.segments.len().saturating_sub(2));
        let linear = |draft: &Draft, role: Role| draft.holder == Holder::Linear && draft.role == Some(role);
        let reads: HashMap<_, u64> = (self.drafts.iter().zip(self.leaves))
            .filter(|(draft, leaf)| linear(draft, Role::MlpDown) && leaf.shape.len() == 2)
            .map(|(_, leaf)| (parent(leaf), leaf.shape[0]))
            .collect();
        for (index, leaf) in self.leaves.iter().enumerate() {
            let told = linear(&self.drafts[index], Role::MlpIn) && leaf.shape.len() == 2;
            let said = || last_match(&self.setup.roles, &self.paths[index]).is_some();
            let twice = || reads.get(&parent(leaf)).is_some_and(|&reads| reads > 0 && leaf.shape[1] == 2 * reads);
            if told && twice() && !said() {
                (self.drafts[index].role, self.drafts[index].fused) = (None, true);
            }
        }
    }

    fn place(&self, index: usize, holder: Holder) -> Place<'_> {
        let leaf = &self.leaves[index];
        Place {
            segments: &leaf.segments,
            containers: &leaf.containers,
            holder,
            rank: leaf.shape.len(),
            in_list: list_of(leaf, leaf.segments.len()).is_some(),
            children: &self.children,
            in_sequence: self.in_sequence(index),
        }
    }

    /// For `mlp.2.weight`: the position of the linear among those of the sequence, and their number.
    fn in_sequence(&self, index: usize) -> Option<(usize, usize)> {
        let leaf = &self.leaves[index];
        let at = leaf.segments.len().checked_sub(2)?;
        if !is_list(&leaf.containers[at]) {
            return None;
        }
        let linears = self.linears.get(&leaf.segments[..at])?;
        let own: u64 = leaf.segments[at].parse().ok()?;
        let position = linears.partition_point(|&i| i < own);
        (linears.get(position) == Some(&own)).then_some((position, linears.len()))
    }

    /// A burn-nn `Linear` outside of every list of layers plays no part in a residual stream, whatever its name; it is the head if
    /// it maps back to the vocabulary of the token table.
    fn settle_plain_linears(&mut self) {
        let tables: Vec<&[u64]> = (self.drafts.iter().zip(self.leaves))
            .filter(|(draft, _)| draft.role == Some(Role::TokenEmbedding))
            .map(|(_, leaf)| leaf.shape.as_slice())
            .collect();
        let is_head = |shape: &[u64]| {
            let [d, vocab] = *shape else { return false };
            d != vocab && tables.contains(&[vocab, d].as_slice())
        };
        for (index, leaf) in self.leaves.iter().enumerate() {
            let draft = &mut self.drafts[index];
            let plain = draft.holder == Holder::Linear && draft.layer.is_none();
            if draft.role.is_none() && draft.packed.is_none() && plain && list_of(leaf, leaf.segments.len()).is_none() {
                draft.role = Some(if is_head(&leaf.shape) { Role::OutputHead } else { Role::Linear });
            }
        }
    }

    /// A line of the setup that matches nothing is a mistake.
    fn check_setup(&self) -> Result<(), Error> {
        let unmatched = |line: String, what: &str| {
            Error::new(
                ErrorKind::Unmatched,
                format!("{line} matches no {what}"),
                format!("paths look like {}", self.paths.first().map_or("(the tree is empty)", String::as_str)),
            )
        };
        let on_paths = |method: &str, pattern: &Pattern| match self.paths.iter().any(|path| pattern.matches(path)) {
            true => Ok(()),
            false => Err(unmatched(format!(".{method}({pattern}, …)"), "parameter")),
        };
        self.setup.roles.iter().try_for_each(|(pattern, _)| on_paths("role", pattern))?;
        self.setup.layouts.iter().try_for_each(|(pattern, _)| on_paths("layout", pattern))?;
        self.setup.heads.iter().try_for_each(|(pattern, _)| on_paths("heads", pattern))?;
        self.setup.packed.iter().try_for_each(|packing| on_paths("packed", &packing.pattern))?;
        for (from, _) in &self.setup.aliases {
            let begins = |leaf: &Leaf| {
                let path = self.setup.prefixed(&leaf.segments);
                path.strip_prefix(from.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if !self.leaves.iter().any(begins) {
                return Err(unmatched(format!(".alias({from}, …)"), "parameter"));
            }
        }
        for (pattern, place) in &self.setup.stacks {
            if !self.stacks.values().any(|stack| pattern.matches(&stack.path)) {
                return Err(unmatched(
                    format!(".stack({pattern}, …)"),
                    "list of layers with projections that write into a residual stream",
                ));
            }
            if place.layers > MOST || place.branches.is_some_and(|branches| branches > MOST) {
                return Err(Error::new(
                    ErrorKind::InvalidValue,
                    format!(".stack({pattern}, …) has {} layers", place.layers),
                    "state no more than 2^40 layers and additions",
                ));
            }
            if place.layers == 0 || place.first_layer >= place.layers {
                return Err(Error::new(
                    ErrorKind::InvalidValue,
                    format!(
                        ".stack({pattern}, …) has {} layers and begins at layer {}",
                        place.layers, place.first_layer
                    ),
                    "begin at a layer below their number",
                ));
            }
        }
        let parallel = self.setup.parallel.iter().map(|pattern| (format!(".parallel({pattern})"), pattern));
        let norms = self.setup.norms.iter().map(|(pattern, _)| (format!(".norms({pattern}, …)"), pattern));
        for (line, pattern) in parallel.chain(norms) {
            let mut layers = (0..self.leaves.len()).filter_map(|index| self.layer_of(index));
            if !layers.any(|(_, path)| pattern.matches(&path)) {
                return Err(unmatched(line, "layer"));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Sites, Error> {
        let stacks = self.stack_facts()?;
        let mut sites = Sites { warnings: self.warnings.clone(), ..Sites::default() };
        for index in 0..self.leaves.len() {
            let draft = &self.drafts[index];
            let role = match (&draft.packed, draft.role) {
                (Some(_), _) => Role::Other,
                (None, Some(role)) => role,
                (None, None) => {
                    sites.unknown.push(self.unknown(index));
                    continue;
                }
            };
            sites.known.push(self.site(index, role, &stacks)?);
        }
        give_biases_their_weights(&mut sites);
        self.mark_final_norm(&mut sites);
        Ok(sites)
    }

    /// The layer that the leaf stands in, an element of a list or the root for a block that stands alone: its segments and its path.
    fn layer_of(&self, index: usize) -> Option<(&[String], String)> {
        let (list, _) = self.drafts[index].layer?;
        let leaf = &self.leaves[index];
        let length = if is_list(&leaf.containers[list]) { list + 1 } else { list };
        let layer = &leaf.segments[..length];
        Some((layer, setup_path(self.setup, layer)))
    }

    /// Said, or told by the names of the norms in the layer.
    fn norm_placement(&self, index: usize) -> NormPlacement {
        let Some((layer, path)) = self.layer_of(index) else { return NormPlacement::default() };
        let said = last_match(&self.setup.norms, &path);
        said.unwrap_or_else(|| {
            self.children.get(&layer.join(".")).map_or_else(NormPlacement::default, names::norm_placement)
        })
    }

    /// Whether a norm of queries and keys stands in the attention that the leaf is a projection of.
    fn qk_norm(&self, index: usize) -> bool {
        let segments = &self.leaves[index].segments;
        let around = [1, 2].into_iter().filter_map(|up| segments.get(..segments.len().checked_sub(up)?));
        around.filter_map(|module| self.children.get(&module.join("."))).any(names::has_qk_norm)
    }

    /// The last norm is told by its name, or by being the only one that comes after the layers.
    fn mark_final_norm(&self, sites: &mut Sites) {
        let last_layer = self.drafts.iter().rposition(|draft| draft.layer.is_some());
        let norm = |site: &Site| {
            let leaf = &self.leaves[site.leaf];
            let is_norm = site.specs[0].role.is_gain() || site.specs[0].role == Role::NormBias;
            let (_, owner) = leaf.segments.split_last()?;
            (is_norm && self.drafts[site.leaf].layer.is_none()).then_some(owner)
        };
        let named = |owner: &[String]| owner.iter().any(|segment| names::FINAL_NORMS.contains(&segment.as_str()));
        let find = |fits: &dyn Fn(&Site, &[String]) -> bool| {
            let mut owners: Vec<Vec<String>> = (sites.known.iter())
                .filter_map(|site| norm(site).filter(|owner| fits(site, owner)).map(<[String]>::to_vec))
                .collect();
            owners.dedup();
            (owners.len() == 1).then(|| owners.remove(0))
        };
        let after = |site: &Site, _: &[String]| last_layer.is_some_and(|last| site.leaf > last);
        let outside = find(&|_, owner| named(owner)).or_else(|| find(&after));
        let Some(owner) = outside.or_else(|| self.last_of_post_norm(sites)) else { return };
        for site in &mut sites.known {
            let leaf = &self.leaves[site.leaf];
            if leaf.segments.len() == owner.len() + 1 && leaf.segments.starts_with(&owner) {
                site.specs[0].final_norm = true;
            }
        }
    }

    /// The last norm in the last layer of the only stack, where it stands after the last addition and nothing follows.
    fn last_of_post_norm(&self, sites: &Sites) -> Option<Vec<String>> {
        let stack = self.stacks.values().next().filter(|_| self.stacks.len() == 1)?;
        let last = stack.layers.keys().max()?;
        let in_last = |site: &&Site| self.drafts[site.leaf].layer.is_some_and(|(_, layer)| layer == *last);
        let spec = |site: &Site| (site.specs[0].role.is_gain(), site.specs[0].norm_placement == NormPlacement::Post);
        let gain = sites.known.iter().rfind(|site| in_last(site) && spec(site) == (true, true))?;
        Some(self.leaves[gain.leaf].segments.split_last()?.1.to_vec())
    }

    fn site(&self, index: usize, role: Role, stacks: &HashMap<&str, (Stack, &StackDraft)>) -> Result<Site, Error> {
        let (leaf, draft) = (&self.leaves[index], &self.drafts[index]);
        let mut segments = leaf.segments.clone();
        let stack =
            draft.layer.and_then(|(n, _)| stacks.get(leaf.segments[..n].join(".").as_str()).map(|facts| (n, facts)));
        let mut layer = draft.layer.map(|(_, layer)| layer);
        if let Some((n, (_, stack))) = stack {
            let first = stack.place.map_or(0, |place| place.first_layer);
            layer = layer.map(|layer| layer + first);
            if let (Some(layer), true) = (layer, first > 0 && is_list(&leaf.containers[n])) {
                segments[n] = layer.to_string();
            }
        }
        let path = self.setup.full_path(&segments);
        let d_model = stack.map(|(_, facts)| facts.0.d_model);
        let in_out =
            self.in_out(index, role, d_model).map_err(|e| e.at(path.as_str()).shaped(leaf.shape.as_slice()))?;
        let transposed = in_out == Some(Layout::OutIn);
        let mut shape = leaf.shape.clone();
        if transposed {
            let rank = shape.len();
            shape.swap(rank - 1, rank - 2);
        }
        let experts = (shape.len() == 3 && role.reads_or_writes() && draft.holder == Holder::Own).then(|| shape[0]);
        let mut spec = ParamSpec {
            path: path.clone(),
            role,
            fans: fans(role, draft.holder, &shape, in_out.is_some(), experts),
            shape,
            weight_role: None,
            layer,
            stack: stack.map(|(_, facts)| facts.0),
            branches_so_far: None,
            writes: None,
            block: None,
            heads: last_match(&self.setup.heads, &path),
            experts,
            stored_transposed: transposed,
            final_norm: false,
            norm_placement: self.norm_placement(index),
            qk_norm: self.qk_norm(index),
            id: Identity(leaf.id),
        };
        match stack {
            Some((n, (facts, stack))) => self.place_in_stack(index, n, facts, stack, &mut spec),
            // What stands beside the only stack and has its width, feeds it or reads it.
            None if stacks.len() == 1 => {
                spec.stack = stacks.values().map(|facts| facts.0).find(|facts| spec.shape.contains(&facts.d_model));
            }
            None => {}
        }
        let specs = match &draft.packed {
            Some(blocks) => split(&spec, blocks, in_out.is_some())?,
            None => vec![spec],
        };
        Ok(Site { leaf: index, specs, transposed, quantized: leaf.quantized })
    }

    /// How the last two dimensions are stored: told, known for burn-nn's layers, or seen from the width of the stream.
    fn in_out(&self, index: usize, role: Role, d_model: Option<u64>) -> Result<Option<Layout>, Error> {
        let (leaf, draft) = (&self.leaves[index], &self.drafts[index]);
        let rank = leaf.shape.len();
        let matrix = rank >= 2
            && (role.reads_or_writes()
                || draft.packed.is_some()
                || role == Role::Other
                || draft.holder == Holder::Linear);
        if draft.layout.is_some() || !matrix {
            return Ok(draft.layout.filter(|_| rank >= 2));
        }
        let [a, b] = [leaf.shape[rank - 2], leaf.shape[rank - 1]];
        let writes = role.writes();
        let seen = d_model.filter(|_| role != Role::Other || draft.packed.is_some()).filter(|_| a != b).and_then(|d| {
            match (if writes { b } else { a }, if writes { a } else { b }) {
                (straight, _) if straight == d => Some(Layout::InOut),
                (_, crossed) if crossed == d => Some(Layout::OutIn),
                _ => None,
            }
        });
        if draft.holder != Holder::Linear {
            return Ok(seen.or((a == b && role.reads_or_writes()).then_some(Layout::InOut)));
        }
        let mut beside = leaf.segments.clone();
        *beside.last_mut().unwrap_or(&mut String::new()) = "bias".into();
        let bias = self.by_segments.get(beside.as_slice());
        if bias.is_some_and(|bias| bias.shape != [b]) || (bias.is_none() && seen == Some(Layout::OutIn)) {
            return Err(Error::new(
                ErrorKind::Layout,
                "it stands in a struct named Linear, but does not fit [d_in, d_out] as burn-nn stores it",
                format!("state how it is stored: .layout(\"{}\", Layout::OutIn)", self.paths[index]),
            ));
        }
        Ok(Some(Layout::InOut))
    }
}

/// A bias has the fans of its weight, and the blocks of a packed one: that of `X.bias` is `X.weight`, that of `in_proj_bias` is
/// `in_proj_weight`, that of `qkv_bias` is `qkv_weight` or `qkv` itself.
fn give_biases_their_weights(sites: &mut Sites) {
    let parent_and_name = |path: &str| {
        path.rsplit_once('.')
            .map_or((String::new(), path.to_string()), |(parent, name)| (format!("{parent}."), name.to_string()))
    };
    let weights: HashMap<String, Vec<ParamSpec>> = sites
        .known
        .iter()
        .filter(|site| site.specs[0].role != Role::Bias)
        .map(|site| (site.specs[0].path.clone(), site.specs.clone()))
        .collect();
    for site in sites.known.iter_mut().filter(|site| site.specs[0].role == Role::Bias) {
        let bias = site.specs[0].clone();
        let (parent, name) = parent_and_name(&bias.path);
        let named_alike = weights.get(&format!("{parent}{}", name.replacen("bias", "weight", 1)));
        let bare = || weights.get(&format!("{parent}{}", name.strip_suffix("_bias")?));
        let beside = || weights.get(&format!("{parent}weight"));
        let Some(weights) = named_alike.or_else(bare).or_else(beside) else { continue };
        let of = |weight: &ParamSpec| ParamSpec { weight_role: Some(weight.role), fans: weight.fans, ..bias.clone() };
        let width = weights[0].shape.last();
        site.specs = match weights.len() > 1 && bias.shape.len() == 1 && bias.shape.last() == width {
            true => weights.iter().map(|weight| ParamSpec { block: weight.block, ..of(weight) }).collect(),
            false => vec![of(&weights[0])],
        };
    }
}

/// For each module the indices of the children that hold a matrix called `weight`, ascending.
fn linears(leaves: &[Leaf]) -> HashMap<&[String], Vec<u64>> {
    let mut linears: HashMap<&[String], Vec<u64>> = HashMap::new();
    for leaf in leaves.iter().filter(|leaf| leaf.shape.len() == 2) {
        if let [module @ .., index, field] = leaf.segments.as_slice()
            && field == "weight"
            && let Ok(index) = index.parse()
        {
            linears.entry(module).or_default().push(index);
        }
    }
    linears.values_mut().for_each(|indices| indices.sort_unstable());
    linears
}

fn last_match<T: Copy>(lines: &[(Pattern, T)], path: &str) -> Option<T> {
    lines.iter().rev().find(|(pattern, _)| pattern.matches(path)).map(|(_, value)| *value)
}

fn is_list(container: &str) -> bool {
    matches!(container, "Vec" | "Array" | "Tuple")
}

fn setup_path(setup: &Setup, segments: &[String]) -> String {
    match segments.is_empty() {
        true => setup.prefix.clone(),
        false => setup.full_path(segments),
    }
}
