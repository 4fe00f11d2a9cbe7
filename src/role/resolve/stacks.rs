//! Residual stacks: which lists of layers there are, and how many additions they make.

use std::collections::{BTreeMap, HashMap};

use super::{Leaf, Reader, is_list, last_match, setup_path};
use crate::{
    error::{Error, ErrorKind},
    param::{Branch, ParamSpec, Stack},
    role::{Role, StackPlace, names},
};

#[derive(Default)]
pub(super) struct StackDraft {
    /// For each visible layer its additions, in the order of the tree.
    pub(super) layers: BTreeMap<u64, Vec<String>>,
    /// Ascending.
    pub(super) writers: Vec<usize>,
    /// For each visible layer the additions up to it.
    so_far: Vec<(u64, u64)>,
    pub(super) members: Vec<usize>,
    pub(super) place: Option<StackPlace>,
    pub(super) path: String,
}

impl StackDraft {
    fn count(&mut self) {
        let mut sum = 0;
        self.so_far = (self.layers.iter())
            .map(|(&layer, units)| {
                sum += units.len() as u64;
                (layer, sum)
            })
            .collect();
    }

    /// The additions of the visible layers before this one.
    fn additions_before(&self, layer: u64) -> u64 {
        let after = self.so_far.partition_point(|&(other, _)| other < layer);
        after.checked_sub(1).map_or(0, |last| self.so_far[last].1)
    }
}

/// The roles of what the elements of a list write into a stream.
#[derive(Default)]
struct Elements<'a> {
    roles: HashMap<&'a str, Option<Role>>,
    several: bool,
    different: bool,
    first: Option<Option<Role>>,
}

impl<'a> Elements<'a> {
    fn add(&mut self, element: &'a str, role: Option<Role>) {
        self.several |= self.roles.insert(element, role).is_some_and(|before| before != role);
        self.different |= *self.first.get_or_insert(role) != role;
    }

    /// An element with attention and MLP is a layer of its own, and so are elements that are all alike.
    fn are_layers(&self) -> bool {
        self.several || (self.roles.len() > 1 && !self.different)
    }
}

impl Reader<'_> {
    /// The list of layers around a writer, and its index in it. A list whose elements are single branches, as T5's `block.*.layer.*` has
    /// them, is the inside of a layer of the list around it.
    fn layers_around(&self, index: usize, lists: &HashMap<&[String], Elements<'_>>) -> (usize, u64) {
        let leaf = &self.leaves[index];
        let Some((inner, layer)) = list_of(leaf, leaf.segments.len()) else { return (0, 0) };
        let Some(outer) = (0..inner).rev().find_map(|at| layer_at(leaf, at)) else { return (inner, layer) };
        match lists.get(&leaf.segments[..inner]).is_some_and(Elements::are_layers) {
            true => (inner, layer),
            false => outer,
        }
    }

    /// What the elements of each list write.
    fn elements(&self, writers: &[usize]) -> HashMap<&[String], Elements<'_>> {
        let mut lists: HashMap<&[String], Elements<'_>> = HashMap::new();
        for &index in writers {
            let leaf = &self.leaves[index];
            for at in (0..leaf.segments.len()).filter(|&at| is_list(&leaf.containers[at])) {
                let list = lists.entry(&leaf.segments[..at]).or_default();
                list.add(&leaf.segments[at], self.drafts[index].role);
            }
        }
        lists
    }

    /// The residual stacks: the list of layers around each projection that writes into a stream.
    pub(super) fn find_stacks(&mut self) {
        let writers: Vec<usize> = (0..self.leaves.len())
            .filter(|&i| self.drafts[i].role.is_some_and(Role::writes) && self.leaves[i].shape.len() >= 2)
            .collect();
        let lists = self.elements(&writers);
        let around: Vec<(usize, u64)> = writers.iter().map(|&index| self.layers_around(index, &lists)).collect();
        for (&index, (length, layer)) in writers.iter().zip(around) {
            let leaf = &self.leaves[index];
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
                match list_index(leaf, n) {
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
        let tables = self.drafts.iter().zip(self.leaves).filter(|(draft, _)| draft.role.is_some_and(Role::is_table));
        self.tables = tables.filter_map(|(_, leaf)| leaf.shape.last().copied()).collect();
        self.warn_of_split_streams();
        for stack in self.stacks.values_mut() {
            stack.place = last_match(&self.setup.stacks, &stack.path);
            stack.count();
            if stack.place.is_none() && stack.layers.len() == 1 {
                let at = if stack.path.is_empty() { "the root".to_string() } else { format!("\"{}\"", stack.path) };
                self.warnings.push(format!(
                    "a stack of one layer at {at}: if it is part of a deeper model, say so with .stack(\"**\", StackPlace::layers(N))"
                ));
            }
        }
    }

    /// Lists inside of lists, and lists of single additions side by side, may be one stream in the forward pass.
    pub(super) fn warn_of_split_streams(&mut self) {
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
    pub(super) fn addition(&self, index: usize, list: usize) -> String {
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

    pub(super) fn stack_facts(&self) -> Result<HashMap<&str, (Stack, &StackDraft)>, Error> {
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
    pub(super) fn d_model(&self, stack: &StackDraft) -> u64 {
        let sides = |index: usize| {
            let shape = &self.leaves[index].shape;
            [shape[shape.len() - 1], shape[shape.len() - 2]]
        };
        let first = stack.writers.first().map_or([0, 0], |&index| sides(index));
        let shared: Vec<u64> =
            first.into_iter().filter(|d| stack.writers.iter().all(|&index| sides(index).contains(d))).collect();
        let seen = |d: u64| {
            stack.members.iter().any(|&i| self.leaves[i].shape == [d] && self.drafts[i].role == Some(Role::NormGain))
                || self.tables.contains(&d)
        };
        shared.iter().copied().find(|&d| seen(d)).or(shared.first().copied()).unwrap_or(first[0])
    }

    pub(super) fn place_in_stack(
        &self,
        index: usize,
        list: usize,
        facts: &Stack,
        stack: &StackDraft,
        spec: &mut ParamSpec,
    ) {
        let Some((_, visible)) = self.drafts[index].layer else { return };
        let first = stack.place.map_or(0, |place| place.first_layer);
        let per_layer = facts.branches.is_multiple_of(facts.layers).then(|| facts.branches / facts.layers);
        let before: Option<u64> = match (first, per_layer) {
            (0, _) => Some(stack.additions_before(visible)),
            (_, Some(per_layer)) => Some((first + visible) * per_layer),
            (_, None) => None,
        };
        let own = stack.layers.get(&visible).map_or(0, |units| units.len() as u64);
        spec.branches_so_far = before.map(|before| before + own);
        if stack.writers.binary_search(&index).is_ok() {
            let unit = self.addition(index, list);
            let position = stack.layers.get(&visible).and_then(|units| units.iter().position(|u| *u == unit));
            let index = before.unwrap_or(0) + position.unwrap_or(0) as u64;
            spec.writes = Some(Branch { index, of: facts.branches });
        }
    }
}

/// The innermost list of layers around a leaf: the number of segments before the index, and the index. A list of single
/// linears (of an MLP, say) is none, nor is one of experts or heads.
pub(super) fn list_of(leaf: &Leaf, end: usize) -> Option<(usize, u64)> {
    let named = |at: usize| leaf.segments[at + 1].parse::<u64>().is_err();
    (0..end.saturating_sub(2)).rev().find_map(|at| layer_at(leaf, at).filter(|_| named(at)))
}

/// More layers or additions than that are a mistake, and such a number in a path is no index of a layer.
pub(super) const MOST: u64 = 1 << 40;

/// The index that a segment is, of an element of a list.
fn list_index(leaf: &Leaf, at: usize) -> Option<u64> {
    leaf.segments[at].parse().ok().filter(|&index| index < MOST && is_list(&leaf.containers[at]))
}

/// The list that the segment at `at` is an index of, unless it is one of experts or heads, or inside of a branch.
pub(super) fn layer_at(leaf: &Leaf, at: usize) -> Option<(usize, u64)> {
    let layer = list_index(leaf, at)?;
    let parent = at.checked_sub(1).map_or("", |parent| leaf.segments[parent].as_str());
    let inner = names::is_expert(parent)
        || parent == "heads"
        || names::is_mlp(&parent.to_lowercase())
        || names::is_attention(&parent.to_lowercase());
    (!inner).then_some((at, layer))
}
