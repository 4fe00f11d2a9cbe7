//! From the leaves of a module tree to [`ParamSpec`]s: roles, layouts, fans, stacks and branches.

use std::collections::{BTreeMap, HashMap};

use super::{
    Layout, Pattern, Role, Setup,
    names::{self, Children, Holder, Place, Told},
    setup::{PackedBlock, StackPlace},
};
use crate::{
    error::{Error, ErrorKind},
    param::{Block, Branch, Fans, Identity, ParamSpec, Stack},
};

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

/// A leaf whose role cannot be told.
#[derive(Debug, Clone)]
pub(crate) struct Unknown {
    pub leaf: usize,
    pub path: String,
    pub shape: Vec<u64>,
    holder: Holder,
    suggestion: Role,
    /// Whether it could write into the stream of a known stack.
    pub in_stack: bool,
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
    holder: Holder,
    layout: Option<Layout>,
    /// Number of leading segments of the list of layers, and the index in it.
    layer: Option<(usize, u64)>,
}

pub(crate) fn resolve(leaves: &[Leaf], setup: &Setup) -> Result<Sites, Error> {
    let mut tree = Reader::new(leaves, setup);
    tree.tell_roles()?;
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
    stacks: BTreeMap<String, StackDraft>,
    warnings: Vec<String>,
}

#[derive(Default)]
struct StackDraft {
    /// For each visible layer its additions, in the order of the tree.
    layers: BTreeMap<u64, Vec<String>>,
    writers: Vec<usize>,
    members: Vec<usize>,
    place: Option<StackPlace>,
    path: String,
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
            self.drafts.push(Draft { role: told.0, packed: told.1, holder, layout, layer: None });
        }
        Ok(())
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
        let mut linears: Vec<u64> = self
            .leaves
            .iter()
            .filter(|other| {
                other.segments.len() == leaf.segments.len()
                    && other.segments[..at] == leaf.segments[..at]
                    && other.segments[at + 1] == "weight"
                    && other.shape.len() == 2
            })
            .filter_map(|other| other.segments[at].parse().ok())
            .collect();
        linears.sort_unstable();
        let own: u64 = leaf.segments[at].parse().ok()?;
        Some((linears.iter().position(|&i| i == own)?, linears.len()))
    }

    /// The list of layers around a writer, and its index in it. A list whose elements are single branches, as T5's `block.*.layer.*` has
    /// them, is the inside of a layer of the list around it.
    fn layers_around(&self, index: usize, writers: &[usize]) -> (usize, u64) {
        let leaf = &self.leaves[index];
        let Some((inner, layer)) = list_of(leaf, leaf.segments.len()) else { return (0, 0) };
        let Some(outer) = (0..inner).rev().find_map(|at| layer_at(leaf, at)) else { return (inner, layer) };
        let mut branches: BTreeMap<&str, Option<Role>> = BTreeMap::new();
        for &other in writers {
            let segments = &self.leaves[other].segments;
            if segments.len() > inner && segments[..inner] == leaf.segments[..inner] {
                let role = self.drafts[other].role;
                // An element with attention and MLP is a layer of its own.
                if branches.insert(&segments[inner], role).is_some_and(|before| before != role) {
                    return (inner, layer);
                }
            }
        }
        // So are elements that are all alike.
        let alike =
            branches.len() > 1 && branches.values().all(|role| *role == branches[leaf.segments[inner].as_str()]);
        if alike { (inner, layer) } else { outer }
    }

    /// The residual stacks: the list of layers around each projection that writes into a stream.
    fn find_stacks(&mut self) {
        let writers: Vec<usize> = (0..self.leaves.len())
            .filter(|&i| self.drafts[i].role.is_some_and(Role::writes) && self.leaves[i].shape.len() >= 2)
            .collect();
        for &index in &writers {
            let leaf = &self.leaves[index];
            let (length, layer) = self.layers_around(index, &writers);
            let key = leaf.segments[..length].join(".");
            let unit = self.addition(index, length);
            let path = setup_path(self.setup, &leaf.segments[..length]);
            let stack = self.stacks.entry(key).or_default();
            stack.path = path;
            stack.writers.push(index);
            let units = stack.layers.entry(layer).or_default();
            if !units.contains(&unit) {
                units.push(unit);
            }
        }
        for (index, leaf) in self.leaves.iter().enumerate() {
            let lengths = (0..leaf.segments.len()).rev();
            let found = lengths.filter(|&n| self.stacks.contains_key(&leaf.segments[..n].join("."))).find_map(|n| {
                match leaf.segments[n].parse().ok().filter(|_| is_list(&leaf.containers[n])) {
                    Some(layer) => Some((n, layer)),
                    None if n == 0 => Some((0, 0)),
                    None => None,
                }
            });
            // Outside of every list only a block that stands alone has a layer; the tables and the head around it have none.
            let alone = |role: Option<Role>| !role.is_some_and(|role| role.is_table() || role == Role::OutputHead);
            if let Some((n, layer)) = found.filter(|&(n, _)| n > 0 || alone(self.drafts[index].role)) {
                self.drafts[index].layer = Some((n, layer));
                if let Some(stack) = self.stacks.get_mut(&leaf.segments[..n].join(".")) {
                    stack.members.push(index);
                }
            }
        }
        self.warn_of_split_streams();
        for stack in self.stacks.values_mut() {
            stack.place = last_match(&self.setup.stacks, &stack.path);
            if stack.place.is_none() && stack.layers.len() == 1 {
                let at = if stack.path.is_empty() { "the root".to_string() } else { format!("\"{}\"", stack.path) };
                self.warnings.push(format!(
                    "a stack of one layer at {at}: if it is part of a deeper model, say so with .stack(\"**\", StackPlace::layers(N))"
                ));
            }
        }
    }

    /// Lists inside of lists, and lists of single additions side by side, may be one stream in the forward pass.
    fn warn_of_split_streams(&mut self) {
        let parent = |key: &str| key.rsplit_once('.').map_or(String::new(), |(parent, _)| parent.to_string());
        let keys: Vec<&String> = self.stacks.keys().collect();
        let nested = keys.iter().any(|key| key.split('.').any(|segment| segment.parse::<u64>().is_ok()));
        let single = |key: &str| self.stacks[key].layers.values().all(|units| units.len() == 1);
        let beside = keys
            .iter()
            .enumerate()
            .any(|(i, a)| keys[..i].iter().any(|b| parent(a) == parent(b) && single(a) && single(b)));
        if keys.len() > 1 && (nested || beside) {
            let paths: Vec<_> = self.stacks.values().map(|stack| format!("\"{}\"", stack.path)).collect();
            self.warnings.push(format!(
                "{} are taken as residual streams of their own; if they are one, say so for each: .stack(\"…\", \
                 StackPlace::layers(N).branches(B))",
                paths.join(", ")
            ));
        }
    }

    /// Which addition a writer takes part in: all experts of a layer are one, and a parallel block is one.
    fn addition(&self, index: usize, list: usize) -> String {
        let segments = &self.leaves[index].segments;
        let layer = setup_path(self.setup, &segments[..(list + 1).min(segments.len())]);
        if list > 0 && self.setup.parallel.iter().any(|pattern| pattern.matches(&layer)) {
            return layer;
        }
        let below = &segments[(list + 1).min(segments.len())..];
        match below.iter().position(|segment| names::is_expert(segment)) {
            Some(at) => format!("{layer}.{}.experts", below[..at].join(".")),
            // Attention and MLP may stand side by side in a flat block: they are two.
            None => {
                let parent = segments[..segments.len().saturating_sub(2)].join(".");
                format!("{parent}:{:?}", self.drafts[index].role)
            }
        }
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
        let unmatched = |method: &str, pattern: &Pattern, what: &str| {
            Error::new(
                ErrorKind::Unmatched,
                format!(".{method}({pattern}, …) matches no {what}"),
                format!("paths look like {}", self.paths.first().map_or("(the tree is empty)", String::as_str)),
            )
        };
        let on_paths = |method: &str, pattern: &Pattern| match self.paths.iter().any(|path| pattern.matches(path)) {
            true => Ok(()),
            false => Err(unmatched(method, pattern, "parameter")),
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
                return Err(unmatched("alias", &Pattern::new(from.as_str()), "parameter"));
            }
        }
        for (pattern, place) in &self.setup.stacks {
            if !self.stacks.values().any(|stack| pattern.matches(&stack.path)) {
                return Err(unmatched(
                    "stack",
                    pattern,
                    "list of layers with projections that write into a residual stream",
                ));
            }
            const MOST: u64 = 1 << 40;
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
        for pattern in &self.setup.parallel {
            let layers = self
                .leaves
                .iter()
                .flat_map(|leaf| (1..=leaf.segments.len()).map(|n| setup_path(self.setup, &leaf.segments[..n])));
            if !layers.into_iter().any(|path| pattern.matches(&path)) {
                return Err(unmatched("parallel", pattern, "layer"));
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
        self.give_biases_their_weights(&mut sites);
        Ok(sites)
    }

    fn stack_facts(&self) -> Result<HashMap<&str, (Stack, &StackDraft)>, Error> {
        let mut facts = HashMap::new();
        for (key, stack) in &self.stacks {
            let visible = stack.layers.keys().max().map_or(0, |&last| last + 1);
            let counted: u64 = stack.layers.values().map(|units| units.len() as u64).sum();
            let place = stack.place.unwrap_or(StackPlace { layers: visible, branches: Some(counted), first_layer: 0 });
            let shown = stack.layers.len() as u64;
            if place.first_layer.saturating_add(visible) > place.layers && stack.place.is_some() {
                return Err(Error::new(
                    ErrorKind::InvalidValue,
                    format!(
                        "the stack \"{}\" shows {visible} layers from layer {} on, more than the {} declared",
                        stack.path, place.first_layer, place.layers
                    ),
                    "correct the line .stack(…)",
                ));
            }
            let branches = match place.branches {
                Some(branches) if branches >= counted => branches,
                Some(branches) => {
                    return Err(Error::new(
                        ErrorKind::InvalidValue,
                        format!(
                            "the visible layers of the stack \"{}\" make {counted} additions, more than the {branches} declared",
                            stack.path
                        ),
                        "correct the line .stack(…)",
                    ));
                }
                None if shown == place.layers => counted,
                None if counted.is_multiple_of(shown) => (counted / shown).saturating_mul(place.layers),
                None => {
                    return Err(Error::new(
                        ErrorKind::MissingFact,
                        format!(
                            "the visible layers of the stack \"{}\" make {counted} additions, not equally many each",
                            stack.path
                        ),
                        "state all of them: StackPlace::layers(N).branches(B)",
                    ));
                }
            };
            let d_model = self.d_model(stack);
            facts.insert(key.as_str(), (Stack { layers: place.layers, branches, d_model }, stack));
        }
        Ok(facts)
    }

    /// The width that all writers share; where several do, the one that a norm or a table has, too.
    fn d_model(&self, stack: &StackDraft) -> u64 {
        let sides = |index: usize| {
            let shape = &self.leaves[index].shape;
            [shape[shape.len() - 1], shape[shape.len() - 2]]
        };
        let first = stack.writers.first().map_or([0, 0], |&index| sides(index));
        let shared: Vec<u64> =
            first.into_iter().filter(|d| stack.writers.iter().all(|&index| sides(index).contains(d))).collect();
        let seen = |d: u64| {
            stack.members.iter().any(|&i| self.leaves[i].shape == [d] && self.drafts[i].role == Some(Role::NormGain))
                || self
                    .drafts
                    .iter()
                    .zip(self.leaves)
                    .any(|(draft, leaf)| draft.role.is_some_and(Role::is_table) && leaf.shape.last() == Some(&d))
        };
        shared.iter().copied().find(|&d| seen(d)).or(shared.first().copied()).unwrap_or(first[0])
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
        let experts = (shape.len() == 3 && reads_or_writes(role) && draft.holder == Holder::Own).then(|| shape[0]);
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

    fn place_in_stack(&self, index: usize, list: usize, facts: &Stack, stack: &StackDraft, spec: &mut ParamSpec) {
        let Some((_, visible)) = self.drafts[index].layer else { return };
        let first = stack.place.map_or(0, |place| place.first_layer);
        let per_layer = facts.branches.is_multiple_of(facts.layers).then(|| facts.branches / facts.layers);
        let before: Option<u64> = match (first, per_layer) {
            (0, _) => Some(stack.layers.range(..visible).map(|(_, units)| units.len() as u64).sum()),
            (_, Some(per_layer)) => Some((first + visible) * per_layer),
            (_, None) => None,
        };
        let own = stack.layers.get(&visible).map_or(0, |units| units.len() as u64);
        spec.branches_so_far = before.map(|before| before + own);
        if stack.writers.contains(&index) {
            let unit = self.addition(index, list);
            let position = stack.layers.get(&visible).and_then(|units| units.iter().position(|u| *u == unit));
            let index = before.unwrap_or(0) + position.unwrap_or(0) as u64;
            spec.writes = Some(Branch { index, of: facts.branches });
        }
    }

    /// How the last two dimensions are stored: told, known for burn-nn's layers, or seen from the width of the stream.
    fn in_out(&self, index: usize, role: Role, d_model: Option<u64>) -> Result<Option<Layout>, Error> {
        let (leaf, draft) = (&self.leaves[index], &self.drafts[index]);
        let rank = leaf.shape.len();
        let matrix = rank >= 2
            && (reads_or_writes(role)
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
            return Ok(seen.or((a == b && reads_or_writes(role)).then_some(Layout::InOut)));
        }
        let bias = self.leaves.iter().find(|other| {
            other.segments.len() == leaf.segments.len()
                && other.segments[..leaf.segments.len() - 1] == leaf.segments[..leaf.segments.len() - 1]
                && other.segments.last().is_some_and(|name| name == "bias")
        });
        if bias.is_some_and(|bias| bias.shape != [b]) || (bias.is_none() && seen == Some(Layout::OutIn)) {
            return Err(Error::new(
                ErrorKind::Layout,
                "it stands in a struct named Linear, but does not fit [d_in, d_out] as burn-nn stores it",
                format!("state how it is stored: .layout(\"{}\", Layout::OutIn)", self.paths[index]),
            ));
        }
        Ok(Some(Layout::InOut))
    }

    fn give_biases_their_weights(&self, sites: &mut Sites) {
        let parent = |path: &str| path.rsplit_once('.').map_or(String::new(), |(parent, _)| parent.to_string());
        let weights: HashMap<String, (Role, Option<Fans>)> = sites
            .known
            .iter()
            .filter(|site| site.specs[0].path.ends_with(".weight") || site.specs[0].path == "weight")
            .map(|site| {
                let whole = &site.specs[0];
                let fans = match site.specs.len() {
                    1 => whole.fans,
                    _ => whole.fans.map(|fans| Fans { fan_out: whole.shape.last().copied().unwrap_or(0), ..fans }),
                };
                (parent(&whole.path), (whole.role, fans))
            })
            .collect();
        for spec in sites.known.iter_mut().flat_map(|site| &mut site.specs).filter(|spec| spec.role == Role::Bias) {
            if let Some((role, fans)) = weights.get(&parent(&spec.path)) {
                spec.weight_role = Some(*role);
                spec.fans = *fans;
            }
        }
    }

    fn unknown(&self, index: usize) -> Unknown {
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
            _ => Role::Other,
        };
        Unknown {
            leaf: index,
            path: self.paths[index].clone(),
            shape: leaf.shape.clone(),
            holder: draft.holder,
            suggestion,
            in_stack: draft.layer.is_some() && leaf.shape.len() >= 2,
        }
    }
}

/// One error for all parameters whose role cannot be told, with a line for each.
pub(crate) fn unknown_roles<'a>(unknown: impl Iterator<Item = &'a Unknown>) -> Option<Error> {
    let mut unknown = unknown.peekable();
    let first = (*unknown.peek()?).clone();
    let mut lines: Vec<(String, Role)> = Vec::new();
    for one in unknown {
        let pattern = one
            .path
            .split('.')
            .map(|segment| if segment.bytes().all(|byte| byte.is_ascii_digit()) { "*" } else { segment })
            .collect::<Vec<_>>()
            .join(".");
        if !lines.iter().any(|(known, _)| *known == pattern) {
            lines.push((pattern, one.suggestion));
        }
    }
    let kind = match first.holder {
        Holder::Linear => "it is a Linear",
        Holder::Table => "it is an Embedding",
        _ => "it is no known layer's",
    };
    let lines: Vec<_> = lines.iter().map(|(pattern, role)| format!(".role(\"{pattern}\", Role::{role:?})")).collect();
    let todo = match lines.as_slice() {
        [line] => format!("say which part it plays, for example {line}"),
        lines => format!("say which part each plays, for example\n    {}", lines.join("\n    ")),
    };
    let error = Error::new(
        ErrorKind::UnknownRole,
        format!("its role cannot be told: {kind}, and its name is not in the tables"),
        todo,
    );
    Some(error.at(first.path).shaped(first.shape))
}

fn last_match<T: Copy>(lines: &[(Pattern, T)], path: &str) -> Option<T> {
    lines.iter().rev().find(|(pattern, _)| pattern.matches(path)).map(|(_, value)| *value)
}

fn is_list(container: &str) -> bool {
    matches!(container, "Vec" | "Array" | "Tuple")
}

/// The innermost list of layers around a leaf: the number of segments before the index, and the index. A list of single
/// linears (of an MLP, say) is none, nor is one of experts or heads.
fn list_of(leaf: &Leaf, end: usize) -> Option<(usize, u64)> {
    let named = |at: usize| leaf.segments[at + 1].parse::<u64>().is_err();
    (0..end.saturating_sub(2)).rev().find_map(|at| layer_at(leaf, at).filter(|_| named(at)))
}

/// The list that the segment at `at` is an index of, unless it is one of experts or heads, or inside of a branch.
fn layer_at(leaf: &Leaf, at: usize) -> Option<(usize, u64)> {
    let layer = leaf.segments[at].parse().ok()?;
    let parent = at.checked_sub(1).map_or("", |parent| leaf.segments[parent].as_str());
    let inner = names::is_expert(parent)
        || parent == "heads"
        || names::is_mlp(&parent.to_lowercase())
        || names::is_attention(&parent.to_lowercase());
    (is_list(&leaf.containers[at]) && !inner).then_some((at, layer))
}

fn setup_path(setup: &Setup, segments: &[String]) -> String {
    match segments.is_empty() {
        true => setup.prefix.clone(),
        false => setup.full_path(segments),
    }
}

/// Roles of matrices that map to or from the residual stream, or next to it.
fn reads_or_writes(role: Role) -> bool {
    matches!(
        role,
        Role::Query
            | Role::Key
            | Role::Value
            | Role::AttentionOutput
            | Role::MlpIn
            | Role::MlpGate
            | Role::MlpUp
            | Role::MlpDown
            | Role::Router
            | Role::OutputHead
    )
}

fn fans(role: Role, holder: Holder, shape: &[u64], layout_known: bool, experts: Option<u64>) -> Option<Fans> {
    let matrix = if experts.is_some() { &shape[1..] } else { shape };
    match (holder, matrix) {
        (Holder::Convolution, [out, inner, kernel @ ..]) => {
            let field: u64 = kernel.iter().product();
            Some(Fans { fan_in: inner * field, fan_out: out * field })
        }
        (Holder::TransposedConvolution, [inner, out, kernel @ ..]) => {
            let field: u64 = kernel.iter().product();
            Some(Fans { fan_in: inner * field, fan_out: out * field })
        }
        (Holder::Norm | Holder::Activation, _) => None,
        (_, [rest @ .., last]) if role.is_table() && !rest.is_empty() => {
            Some(Fans { fan_in: *last, fan_out: rest.iter().product() })
        }
        (_, [fan_in, fan_out]) if layout_known => Some(Fans { fan_in: *fan_in, fan_out: *fan_out }),
        _ => None,
    }
}

fn split(whole: &ParamSpec, blocks: &[PackedBlock], layout_known: bool) -> Result<Vec<ParamSpec>, Error> {
    let width = whole.shape.last().copied().unwrap_or(0);
    let given: Option<Vec<u64>> = blocks.iter().map(|block| block.width).collect();
    let roles: Vec<_> = blocks.iter().map(|block| format!("Role::{:?}", block.role)).collect();
    let line = |widths: &str| {
        let blocks: Vec<_> = roles.iter().map(|role| format!("({role}, {widths})")).collect();
        format!("give their widths: .packed(\"{}\", [{}])", whole.path, blocks.join(", "))
    };
    if !layout_known {
        return Err(whole.error(
            ErrorKind::Layout,
            "it is packed, and it cannot be seen which dimension is the output",
            format!("state how it is stored: .layout(\"{}\", Layout::InOut) or Layout::OutIn", whole.path),
        ));
    }
    let widths = match given {
        Some(widths) => widths,
        None if blocks.is_empty() || !width.is_multiple_of(blocks.len() as u64) => {
            return Err(whole.error(
                ErrorKind::Shape,
                format!("{width} output columns do not split into {} equal blocks", blocks.len()),
                line("…"),
            ));
        }
        None => vec![width / blocks.len() as u64; blocks.len()],
    };
    let reads_stream = blocks.iter().any(|block| block.role == Role::Query);
    let square = whole.shape.len() == 2 && whole.shape[0] * blocks.len() as u64 == width;
    if blocks.iter().all(|block| block.width.is_none()) && reads_stream && blocks.len() == 3 && !square {
        return Err(whole.error(
            ErrorKind::Shape,
            format!(
                "{width} output columns are not three times the {} inputs, so the blocks are not equally wide",
                whole.shape[0]
            ),
            line("…"),
        ));
    }
    if widths.contains(&0) || widths.iter().try_fold(0u64, |sum, &w| sum.checked_add(w)) != Some(width) {
        return Err(whole.error(
            ErrorKind::Shape,
            format!("the blocks have {widths:?} output columns, and the weight has {width}"),
            line("…"),
        ));
    }
    let mut start = 0;
    Ok(blocks
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(index, (block, len))| {
            let spec = ParamSpec {
                role: block.role,
                block: Some(Block { index: index as u64, start, len }),
                fans: whole.fans.or_else(|| matrix_fans(whole)).map(|fans| Fans { fan_out: len, ..fans }),
                ..whole.clone()
            };
            start += len;
            spec
        })
        .collect())
}

fn matrix_fans(whole: &ParamSpec) -> Option<Fans> {
    match whole.shape[..] {
        [.., fan_in, fan_out] => Some(Fans { fan_in, fan_out }),
        _ => None,
    }
}
