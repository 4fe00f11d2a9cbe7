//! From the names in a file to the paths of a plan, or to a tree of their own.

use std::collections::{HashMap, HashSet};

use crate::role::{
    Layout, Leaf, Role,
    names::{Children, Holder, Place, Told},
};

/// Segments that wrappers put in: torch.compile, data parallel, checkpointing.
const WRAPPERS: &[&str] = &["_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// Without wrappers, and with each run of segments replaced.
pub(super) fn renamed(name: &str, renames: &[(String, String)]) -> String {
    let mut segments: Vec<&str> = name.split('.').filter(|segment| !WRAPPERS.contains(segment)).collect();
    for (from, to) in renames {
        let from: Vec<&str> = from.split('.').collect();
        let to: Vec<&str> = to.split('.').filter(|segment| !segment.is_empty()).collect();
        let mut at = 0;
        while at + from.len() <= segments.len() {
            if segments[at..at + from.len()] == from[..] {
                segments.splice(at..at + from.len(), to.iter().copied());
                at += to.len();
            } else {
                at += 1;
            }
        }
    }
    segments.join(".")
}

/// Masks, angles and counters that frameworks save beside the parameters.
pub(super) fn is_buffer(name: &str, rank: usize) -> bool {
    let last = name.rsplit('.').next().unwrap_or("");
    matches!(last, "masked_bias" | "inv_freq" | "position_ids" | "num_batches_tracked" | "attn_mask" | "mask" | "tril")
        || matches!(last, "freqs_cis" | "rope_cache" | "cos_cached" | "sin_cached")
        || (last == "bias" && rank > 2)
}

/// For each name (by its index) the path that it stands for.
///
/// Names meet paths without a prefix of up to two segments on either side: of all such pairs the one under which most of them meet.
pub(super) fn matched<'a>(paths: &[&'a str], names: &[String]) -> HashMap<usize, &'a str> {
    let prefixes = |all: &mut dyn Iterator<Item = &str>| {
        let mut found: Vec<String> = vec![String::new()];
        for name in all {
            let segments: Vec<&str> = name.split('.').collect();
            for len in 1..segments.len().min(3) {
                let prefix = segments[..len].join(".") + ".";
                if !found.contains(&prefix) {
                    found.push(prefix);
                }
            }
        }
        found.sort_by_key(|prefix| prefix.matches('.').count());
        found.retain(|prefix| prefix.split('.').all(|segment| segment.parse::<u64>().is_err()));
        found
    };
    let of_paths = prefixes(&mut paths.iter().copied());
    let of_names = prefixes(&mut names.iter().map(String::as_str));
    let mut best: HashMap<usize, &'a str> = HashMap::new();
    for path_prefix in &of_paths {
        let known: HashMap<String, &'a str> = paths
            .iter()
            .map(|path| (canonical(path.strip_prefix(path_prefix.as_str()).unwrap_or(path)), *path))
            .collect();
        for name_prefix in &of_names {
            let met = names.iter().enumerate().filter_map(|(i, name)| {
                let name = name.strip_prefix(name_prefix.as_str()).unwrap_or(name);
                known.get(&canonical(name)).map(|path| (i, *path))
            });
            let met: HashMap<usize, &str> = met.collect();
            // Two names for one path mean that the prefix was no prefix.
            let unique: HashSet<&str> = met.values().copied().collect();
            if unique.len() == met.len() && met.len() > best.len() {
                best = met;
            }
        }
    }
    best
}

/// burn's names for the parameters of a norm are those of others.
fn canonical(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((owner, "gamma")) => format!("{owner}.weight"),
        Some((owner, "beta")) => format!("{owner}.bias"),
        _ => path.to_string(),
    }
}

/// Leaves as the names show them: lists where a segment is a number, unknown structs elsewhere.
pub(super) fn bare_leaves<'a>(tensors: impl Iterator<Item = (&'a str, &'a Vec<u64>)>) -> Vec<Leaf> {
    let container = |segment: &String| if segment.parse::<u64>().is_ok() { "Vec".into() } else { "Struct:File".into() };
    tensors
        .map(|(name, shape)| {
            let segments: Vec<String> = name.split('.').map(str::to_string).collect();
            Leaf {
                containers: segments.iter().map(container).collect(),
                segments,
                id: 0,
                shape: shape.clone(),
                initialized: true,
                quantized: false,
            }
        })
        .collect()
}

/// The roles that the names tell; a packed weight has that of its first block.
pub(super) fn roles(leaves: &[Leaf]) -> Vec<Option<Role>> {
    let mut children = Children::new();
    for leaf in leaves {
        for (i, segment) in leaf.segments.iter().enumerate() {
            children.entry(leaf.segments[..i].join(".")).or_default().insert(segment);
        }
    }
    let told = |leaf: &Leaf| {
        let in_list = leaf.segments.iter().rev().skip(1).any(|segment| segment.parse::<u64>().is_ok());
        let place = Place {
            segments: &leaf.segments,
            containers: &leaf.containers,
            holder: Holder::Own,
            rank: leaf.shape.len(),
            in_list,
            children: &children,
            in_sequence: None,
        };
        match place.told() {
            Some(Told::Role(role)) => Some(role),
            Some(Told::Packed(roles)) => roles.first().copied(),
            None => None,
        }
    };
    leaves.iter().map(told).collect()
}

/// The weights of PyTorch's RNN, LSTM and GRU, `weight_ih_l0` and `weight_hh_l0`: a matrix `[gates * hidden, …]` for all gates, whose number the
/// hidden one `[gates * hidden, hidden]` tells.
pub(super) fn gates(name: &str, shapes: &HashMap<&str, &[u64]>) -> Option<Vec<Role>> {
    let (owner, field) = name.rsplit_once('.').map_or(("", name), |(owner, field)| (&name[..=owner.len()], field));
    let (role, layer) = match (field.strip_prefix("weight_ih"), field.strip_prefix("weight_hh")) {
        (Some(layer), _) => (Role::RecurrentInput, layer),
        (_, Some(layer)) => (Role::RecurrentHidden, layer),
        _ => return None,
    };
    let [rows, hidden] = **shapes.get(format!("{owner}weight_hh{layer}").as_str())? else { return None };
    let gates = [1, 3, 4].into_iter().find(|gates| hidden > 0 && gates * hidden == rows)?;
    Some(vec![role; gates as usize])
}

/// How a matrix is stored, where its bias or the width of the model tells.
pub(super) fn layout(shape: &[u64], bias: Option<u64>, width: Option<u64>, role: Option<Role>) -> Option<Layout> {
    let [a, b] = *shape else { return None };
    let role = role.filter(|role| role.is_weight() && !role.is_table());
    if a == b {
        return None;
    }
    match bias {
        Some(bias) if bias == a => return Some(Layout::OutIn),
        Some(bias) if bias == b => return Some(Layout::InOut),
        _ => {}
    }
    let (role, width) = (role?, width?);
    match (role.writes(), a == width, b == width) {
        (true, true, false) | (false, false, true) => Some(Layout::OutIn),
        (true, false, true) | (false, true, false) => Some(Layout::InOut),
        _ => None,
    }
}

/// A weight of rank 2 as burn-nn's layer would hold it.
pub(super) fn in_a_layer(mut leaf: Leaf, role: Option<Role>, layout: Layout) -> Leaf {
    let Some(last) = leaf.segments.len().checked_sub(1).filter(|&last| leaf.segments[last] == "weight") else {
        return leaf;
    };
    let layer = match (leaf.shape.len(), role) {
        (2, Some(role)) if role.is_table() => "Struct:Embedding",
        (2, _) => "Struct:Linear",
        (3, None | Some(Role::Convolution | Role::PatchEmbedding)) => "Struct:Conv1d",
        (4, _) => "Struct:Conv2d",
        (5, _) => "Struct:Conv3d",
        _ => return leaf,
    };
    leaf.containers[last] = layer.into();
    if layer == "Struct:Linear" && layout == Layout::OutIn {
        leaf.shape.swap(0, 1);
    }
    leaf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renaming() {
        let rules = [("self_attn.q_proj".to_string(), "mha.query".to_string()), ("model".to_string(), String::new())];
        assert_eq!(renamed("_orig_mod.model.layers.1.self_attn.q_proj.weight", &rules), "layers.1.mha.query.weight");
        assert_eq!(renamed("module.lm_head.weight", &rules), "lm_head.weight");
    }

    #[test]
    fn prefixes_on_either_side() {
        let strings = |all: &[&str]| all.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let names = strings(&["h.0.ln_1.weight", "h.0.ln_1.bias", "wte.weight", "lm_head.weight"]);
        let paths = ["transformer.h.0.ln_1.gamma", "transformer.h.0.ln_1.beta", "transformer.wte.weight"];
        let found = matched(&paths, &names);
        assert_eq!((found.len(), found[&0], found[&2]), (3, paths[0], paths[2]));
        let names = strings(&["gpt.transformer.h.0.ln_1.weight", "gpt.transformer.wte.weight"]);
        assert_eq!(matched(&paths, &names).len(), 2);
    }

    #[test]
    fn layouts() {
        let query = Some(Role::Query);
        for (shape, bias, width, role, expected) in [
            ([64, 192], Some(192), None, query, Some(Layout::InOut)),
            ([192, 64], Some(192), None, query, Some(Layout::OutIn)),
            ([64, 64], Some(64), Some(64), query, None),
            ([32, 64], None, Some(64), query, Some(Layout::OutIn)),
            ([64, 160], None, Some(64), Some(Role::MlpDown), Some(Layout::OutIn)),
            ([1000, 64], None, Some(64), Some(Role::TokenEmbedding), None),
        ] {
            assert_eq!(layout(&shape, bias, width, role), expected, "{shape:?}");
        }
    }
}
