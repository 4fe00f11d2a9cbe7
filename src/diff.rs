//! What differs between two plans.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use serde::Serialize;

use crate::{
    plan::{Entry, Plan},
    rule::Law,
    sample::Distribution,
};

/// What differs between two plans: two schemes on one model, or two versions of a model under one scheme. Made by [`Plan::diff`].
///
/// Prints one line for each difference, layers that change alike folded together; nothing where there is none. In JSON it is the list of its [changes](Self::changes).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct PlanDiff {
    changes: Vec<Change>,
    /// How many parameters there are by each folded path, changed or not.
    #[serde(skip)]
    layers: BTreeMap<String, usize>,
}

/// One parameter, or block of a packed one, that two plans do not start alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// Its path, with the block's columns.
    pub path: String,
    /// How the first plan starts it; `None` where that has no such parameter.
    pub before: Option<String>,
    /// How the second plan starts it; `None` where that has no such parameter.
    pub after: Option<String>,
}

impl PlanDiff {
    /// Every difference: first those of the parameters of the first plan, in its order, then what only the second has.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether both plans start everything alike.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Plan {
    /// What another plan starts differently: shapes, distributions, multipliers, padding rows and ties.
    ///
    /// ```
    /// use burn::{nn::LinearConfig, tensor::Device};
    /// use burn_init::{Kaiming, ModuleInit as _, Xavier};
    ///
    /// let model = LinearConfig::new(512, 2048).init(&Device::flex());
    /// let diff = model.plan(&Xavier::normal())?.diff(&model.plan(&Kaiming::normal())?);
    /// assert_eq!(
    ///     diff.to_string(),
    ///     "weight: 512 x 2048 normal(std = 0.027951) -> 512 x 2048 normal(std = 0.0625)\n"
    /// );
    /// # Ok::<(), burn_init::Error>(())
    /// ```
    pub fn diff(&self, other: &Plan) -> PlanDiff {
        let mine = self.iter().map(|entry| match twin(other, entry) {
            Some(after) => {
                let (before, after) = starts(entry, after);
                Change { path: name(entry), before: Some(before), after: Some(after) }
            }
            None => Change { path: name(entry), before: Some(start(entry)), after: None },
        });
        let new = other.iter().filter(|entry| twin(self, entry).is_none());
        let new = new.map(|entry| Change { path: name(entry), before: None, after: Some(start(entry)) });
        let all: Vec<Change> = mine.chain(new).collect();
        let mut layers = BTreeMap::new();
        all.iter().for_each(|change| *layers.entry(folded(&change.path)).or_default() += 1);
        PlanDiff { changes: all.into_iter().filter(|change| change.before != change.after).collect(), layers }
    }
}

/// The same parameter, or block of it, in another plan.
fn twin<'a>(plan: &'a Plan, entry: &Entry) -> Option<&'a Entry> {
    let spec = entry.spec();
    plan.blocks(spec.path()).iter().find(|other| other.spec().block() == spec.block())
}

/// How both start a parameter. What differs beyond the digits that a plan prints is shown in full.
fn starts(before: &Entry, after: &Entry) -> (String, String) {
    let texts = (start(before), start(after));
    match texts.0 == texts.1 && !alike(before.law(), after.law()) {
        true => (texts.0 + &in_full(before.law()), texts.1 + &in_full(after.law())),
        false => texts,
    }
}

/// Whether two laws of one family have the same numbers, up to how the last digits of an f64 were come by.
fn alike(a: &Law, b: &Law) -> bool {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * a.abs().max(b.abs());
    numbers(a).iter().zip(&numbers(b)).all(near)
}

fn numbers(law: &Law) -> Vec<f64> {
    match *law {
        Law::Draw(Distribution::Normal { mean, std }) => vec![mean, std],
        Law::Draw(Distribution::TruncatedNormal { mean, std, low, high }) => vec![mean, std, low, high],
        Law::Draw(Distribution::Uniform { low, high }) => vec![low, high],
        Law::Constant(number) | Law::Orthogonal { gain: number, .. } | Law::Fill { factor: number, .. } => vec![number],
        Law::Keep => Vec::new(),
    }
}

fn in_full(law: &Law) -> String {
    let numbers: Vec<String> = numbers(law).iter().map(f64::to_string).collect();
    format!(", in full {}", numbers.join(", "))
}

fn name(entry: &Entry) -> String {
    match entry.spec().block() {
        Some(block) => format!("{}[{}..{}]", entry.spec().path(), block.start, block.start + block.len),
        None => entry.spec().path().to_string(),
    }
}

fn start(entry: &Entry) -> String {
    let rule = entry.rule();
    let shape: Vec<_> = entry.spec().shape().iter().map(u64::to_string).collect();
    let mut text = format!("{} {}", shape.join(" x "), entry.law());
    for (what, value) in [("forward", rule.forward)].into_iter().chain(rule.training()) {
        if value != 1.0 {
            text += &format!(", {what} times {value}");
        }
    }
    if let Some(row) = rule.zero_row {
        text += &format!(", row {row} = 0");
    }
    if !entry.tied().is_empty() {
        text += &format!(", tied to {}", entry.tied().join(" and "));
    }
    text
}

/// With the numbers between dots, which are indices of layers, taken out.
fn folded(path: &str) -> String {
    let segments: Vec<_> = path.split('.').map(|part| if part.parse::<u64>().is_ok() { "*" } else { part }).collect();
    segments.join(".")
}

impl fmt::Display for PlanDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nothing = || "(nothing)".to_string();
        let text = |change: &Change| {
            let (before, after) = (change.before.clone(), change.after.clone());
            format!("{} -> {}", before.unwrap_or_else(nothing), after.unwrap_or_else(nothing))
        };
        // Where all layers change alike they are one line; where they do not, each has its own.
        let mut alike: HashMap<String, (usize, HashSet<String>)> = HashMap::new();
        for change in &self.changes {
            let (count, texts) = alike.entry(folded(&change.path)).or_default();
            *count += 1;
            texts.insert(text(change));
        }
        let mut told = HashSet::new();
        for change in &self.changes {
            let path = folded(&change.path);
            let (count, texts) = &alike[&path];
            let all = texts.len() == 1 && self.layers.get(&path) == Some(count);
            let path = if all { path } else { change.path.clone() };
            if told.insert(path.clone()) {
                writeln!(f, "{path}: {}", text(change))?;
            }
        }
        Ok(())
    }
}
