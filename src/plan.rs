//! The scheme met with the tree: one line for each parameter or block, before anything is drawn.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::ParamSpec,
    role::{Role, Site, Sites},
    rule::{FactorKind, Fill, Init, Law, Rule, short},
    sample::STREAM_VERSION,
};

/// One line of a [`Plan`]: a parameter, or a block of a packed one, and what it starts as.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    spec: ParamSpec,
    rule: Rule,
    law: Law,
    tied: Vec<String>,
}

impl Entry {
    fn new(spec: ParamSpec, rule: Rule, tied: Vec<String>) -> Result<Self, Error> {
        let law = rule.law(&spec)?;
        Ok(Self { spec, rule, law, tied })
    }

    /// The parameter.
    pub fn spec(&self) -> &ParamSpec {
        &self.spec
    }

    /// The rule that the scheme gave it.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The rule with every symbol resolved.
    pub fn law(&self) -> &Law {
        &self.law
    }

    /// Standard deviation that the values are drawn with, after all factors; 0 for constants, NaN for kept and filled parameters.
    pub fn std(&self) -> f64 {
        self.law.std()
    }

    /// Standard deviation of what the forward pass computes with: [`std`](Self::std) times the [forward multiplier](Rule::forward).
    pub fn effective_std(&self) -> f64 {
        self.std() * self.rule.forward.abs()
    }

    /// The other paths that hold the same `Param`.
    pub fn tied(&self) -> &[String] {
        &self.tied
    }

    /// The path whose stream of random numbers the values come from: the smallest of those that hold the `Param`.
    pub fn stream_path(&self) -> &str {
        self.tied.iter().map(String::as_str).fold(self.spec.path(), |a, b| a.min(b))
    }
}

/// The scheme met with the tree: the dry run, the report, the record of an experiment, the input of a prediction.
///
/// Making it runs every check, and nothing is drawn. It prints as an aligned table (`{plan}`, or `{plan:#}` with the layers folded together),
/// goes through serde, and is an [`Initializer`] itself that replays what it records.
///
/// ```
/// use burn::{nn::LinearConfig, tensor::Device};
/// use burn_init::{ModuleInit as _, Plan, Xavier};
///
/// let model = LinearConfig::new(512, 2048).init(&Device::flex());
/// let plan = model.plan(&Xavier::normal())?;
/// assert_eq!(format!("{:.7}", plan.get("weight").unwrap().std()), "0.0279508");
///
/// let file = serde_json::to_string(&plan).unwrap();
/// let replayed: Plan = serde_json::from_str(&file).unwrap();
/// assert_eq!(model.plan(&replayed)?, plan);
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Plan {
    entries: Vec<Entry>,
    warnings: Vec<String>,
    /// Those of the warnings that are the scheme's, for the replay.
    remarks: Vec<String>,
    index: HashMap<String, usize>,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        (&self.entries, &self.warnings) == (&other.entries, &other.warnings)
    }
}

impl Plan {
    fn from_entries(entries: Vec<Entry>, warnings: Vec<String>, remarks: Vec<String>) -> Self {
        let mut index = HashMap::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            index.entry(entry.spec.path.clone()).or_insert(i);
            for path in &entry.tied {
                index.entry(path.clone()).or_insert(i);
            }
        }
        Self { entries, warnings, remarks, index }
    }

    /// Asks the scheme about every site and checks all there is to check.
    pub(crate) fn make(
        sites: &Sites,
        in_scope: &dyn Fn(&Site) -> bool,
        scheme: &dyn Initializer,
    ) -> Result<Self, Error> {
        let (owners, mut warnings) = owners(&sites.known)?;
        warnings.splice(0..0, sites.warnings.iter().cloned());
        let tree: Vec<ParamSpec> = owners.iter().flat_map(|(site, _)| site.specs.iter().cloned()).collect();
        if let Some(twice) = twice(&tree) {
            return Err(twice.error(
                ErrorKind::Config,
                "two parameters have this path, and would have the same values",
                "correct the prefix or the alias",
            ));
        }
        scheme.check(&tree)?;
        let mut entries = Vec::with_capacity(tree.len());
        let mut without_rule: Vec<&ParamSpec> = Vec::new();
        for (site, tied) in owners.into_iter().filter(|(site, _)| in_scope(site)) {
            for spec in &site.specs {
                let rule = match spec.role.is_kept() {
                    true => Some(Init::Keep.into()),
                    false => scheme.rule(spec).map_err(|error| error.at(spec.path()).shaped(spec.shape()))?,
                };
                match rule {
                    Some(rule) if site.quantized && rule.init != Init::Keep => {
                        return Err(spec.error(
                            ErrorKind::Quantized,
                            "the parameter is quantised, and its values cannot be drawn",
                            "initialize before quantising, or keep it",
                        ));
                    }
                    Some(rule) => entries.push(Entry::new(spec.clone(), rule, tied.clone())?),
                    None => without_rule.push(spec),
                }
            }
            let blocks = entries.iter().rev().take_while(|entry| entry.spec.path == site.specs[0].path);
            let kept = blocks.clone().filter(|entry| entry.law == Law::Keep).count();
            if kept > 0 && kept < blocks.count() {
                return Err(site.specs[0].error(
                    ErrorKind::ScaledKept,
                    "one block of the packed parameter is kept while another is drawn",
                    "keep all of its blocks or none",
                ));
            }
        }
        match without_rule.as_slice() {
            [] => {
                let remarks = scheme.warnings(&tree);
                warnings.extend(unheard(&entries));
                warnings.extend(needs(&entries).into_iter().chain(remarks.iter().cloned()));
                Ok(Self::from_entries(entries, warnings, remarks))
            }
            [first, rest @ ..] => Err(no_rule(first, rest)),
        }
    }

    /// The line of a parameter, the first one if it is packed; a tied path gives the line that it shares.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.index.get(path).map(|&i| &self.entries[i])
    }

    /// All lines of a parameter: one, or one for each block.
    pub fn blocks(&self, path: &str) -> &[Entry] {
        let Some(&start) = self.index.get(path) else { return &[] };
        let owner = &self.entries[start].spec.path;
        let len = self.entries[start..].iter().take_while(|entry| entry.spec.path == *owner).count();
        &self.entries[start..start + len]
    }

    /// All lines, in the order of the tree.
    pub fn iter(&self) -> std::slice::Iter<'_, Entry> {
        self.entries.iter()
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of parameters (elements); tied ones count once, buffers do not count.
    pub fn num_params(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| entry.spec.role != Role::Buffer)
            .fold(0, |sum: u64, entry| sum.saturating_add(entry.spec.num_elements()))
    }

    /// What is not wrong but should be known: ties that will not train, a block that may be part of a deeper stack, what a scheme
    /// needs the model to be. Forward multipliers are no warning: `initialize` and `attach` put them on the tree.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Gives the function of a [`Fill`] that was read by name.
    pub fn bind(mut self, fill: &Fill) -> Self {
        for entry in &mut self.entries {
            if let Init::Fill(named) = &mut entry.rule.init
                && named == fill
            {
                *named = fill.clone();
                if let Law::Fill { fill: resolved, .. } = &mut entry.law {
                    *resolved = fill.clone();
                }
            }
        }
        self
    }
}

impl<'a> IntoIterator for &'a Plan {
    type Item = &'a Entry;
    type IntoIter = std::slice::Iter<'a, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The site that decides for a `Param`, and the other paths that hold it.
type Owner<'a> = (&'a Site, Vec<String>);

/// Groups the sites that hold one `Param`: the one whose role decides, with the paths of the others.
fn owners(sites: &[Site]) -> Result<(Vec<Owner<'_>>, Vec<String>), Error> {
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (i, site) in sites.iter().enumerate() {
        groups.entry(site.specs[0].id.0).or_default().push(i);
    }
    let mut owners = Vec::with_capacity(groups.len());
    let mut warnings = Vec::new();
    let path = |i: usize| sites[i].specs[0].path();
    for (i, site) in sites.iter().enumerate() {
        let mut group = groups[&site.specs[0].id.0].clone();
        group.sort_by_key(|&j| path(j));
        let table = group.iter().copied().find(|&j| sites[j].specs[0].role == Role::TokenEmbedding);
        let decides = table.unwrap_or(group[0]);
        if i != decides {
            continue;
        }
        let layer = |j: usize| (sites[j].specs[0].stack, sites[j].specs[0].layer);
        if let Some(&twin) =
            group.iter().find(|&&j| layer(j).1.is_some() && layer(i).1.is_some() && layer(j) != layer(i))
        {
            return Err(site.specs[0].error(
                ErrorKind::Config,
                format!("{} is a clone of it in another layer, so that both would start alike and only one would train", path(twin)),
                "build each layer anew instead of cloning one; for a layer that is used several times keep one and declare the \
                 stack with .stack(…)",
            ));
        }
        let tied: Vec<String> = group.iter().filter(|&&j| j != i).map(|&j| path(j).to_string()).collect();
        if !tied.is_empty() {
            warnings.push(format!(
                "{} and {} hold one Param: it is drawn once, by the rule of the role {} and from the stream of {}, but burn's \
                 optimizer will move only one of the copies; keep one field and use it twice in the forward pass",
                path(i),
                tied.join(" and "),
                site.specs[0].role,
                path(group[0]),
            ));
        }
        owners.push((site, tied));
    }
    Ok((owners, warnings))
}

/// Depth factors that a norm on the branch takes out again.
fn unheard(entries: &[Entry]) -> Option<String> {
    let unheard = |entry: &&Entry| {
        let depth = entry.rule.factors.iter().any(|factor| factor.kind == FactorKind::Depth);
        depth && entry.spec.role.writes() && entry.spec.norm_placement.is_on_branch()
    };
    let mut found = entries.iter().filter(unheard);
    let first = found.next()?;
    let more = match found.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "{}{more}: scaled for depth, and the norm on the branch takes the scale out: each branch adds the same to the stream, whatever \
         these start at; scale that norm's gain, or take a scheme without a depth factor",
        first.spec.path
    ))
}

/// What the scheme needs the forward pass to do, once for all parameters that need the same.
fn needs(entries: &[Entry]) -> Vec<String> {
    let mut needs: Vec<(&str, &str, u64)> = Vec::new();
    for Entry { spec, rule, .. } in entries {
        let Some(need) = &rule.needs else { continue };
        match needs.iter_mut().find(|(text, ..)| text == need) {
            Some((.., more)) => *more += 1,
            None => needs.push((need, spec.path(), 0)),
        }
    }
    needs
        .into_iter()
        .map(|(text, path, more)| match more {
            0 => format!("{path}: {text}"),
            more => format!("{path} and {more} more: {text}"),
        })
        .collect()
}

/// A parameter whose path and block another one has.
fn twice(tree: &[ParamSpec]) -> Option<&ParamSpec> {
    let mut seen = HashSet::with_capacity(tree.len());
    tree.iter().find(|param| !seen.insert((param.path(), param.block().map(|block| block.index))))
}

fn no_rule(first: &ParamSpec, rest: &[&ParamSpec]) -> Error {
    let others = match rest.len() {
        0 => String::new(),
        n => format!(", nor for {n} more parameter{}", if n == 1 { "" } else { "s" }),
    };
    first.error(
        ErrorKind::NoRule,
        format!("the scheme has no rule for the role {}{others}", first.role),
        format!("add one with .with(Role::{0:?}, Init::…), or keep it with .with(Role::{0:?}, Init::Keep)", first.role),
    )
}

fn depth(param: &ParamSpec) -> String {
    param.stack.map_or("no layers".into(), |stack| format!("{} layers with {} additions", stack.layers, stack.branches))
}

impl Initializer for Plan {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let block = param.block().map_or(0, |block| block.index as usize);
        Ok(self.blocks(param.path()).get(block).map(|entry| entry.rule.clone()))
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        for param in tree {
            let block = param.block().map_or(0, |block| block.index as usize);
            let Some(entry) = self.blocks(param.path()).get(block) else {
                return Err(param.error(
                    ErrorKind::Unmatched,
                    "the plan has no line for this parameter",
                    "replay a plan on the model it was made for, or add .or(…) for what is new",
                ));
            };
            if entry.spec.stack != param.stack {
                return Err(param.error(
                    ErrorKind::Shape,
                    format!("the plan was made for another stack: {} here, {} there", depth(param), depth(&entry.spec)),
                    "replay a plan on the model it was made for, or declare the whole stack with .stack(…)",
                ));
            }
            if entry.spec.shape != param.shape || entry.spec.block != param.block {
                return Err(param.error(
                    ErrorKind::Shape,
                    format!(
                        "the plan was made for the shape {:?} in {} blocks",
                        entry.spec.shape,
                        self.blocks(param.path()).len()
                    ),
                    "replay a plan on the model it was made for, with the same Setup",
                ));
            }
        }
        Ok(())
    }

    fn warnings(&self, _tree: &[ParamSpec]) -> Vec<String> {
        self.remarks.clone()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    /// Version of the streams that the values come from.
    stream_version: u32,
    entries: Vec<EntryFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryFile {
    param: ParamSpec,
    rule: Rule,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tied: Vec<String>,
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.entries.iter().map(|Entry { spec, rule, tied, .. }| EntryFile {
            param: spec.clone(),
            rule: rule.clone(),
            tied: tied.clone(),
        });
        PlanFile {
            stream_version: STREAM_VERSION,
            entries: entries.collect(),
            warnings: self.warnings.clone(),
            remarks: self.remarks.clone(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let file = PlanFile::deserialize(deserializer)?;
        if file.stream_version != STREAM_VERSION {
            return Err(serde::de::Error::custom(format!(
                "the plan was made with version {} of the streams, this crate has version {STREAM_VERSION} and would draw other values",
                file.stream_version
            )));
        }
        let entry = |EntryFile { param, rule, tied }: EntryFile| {
            // A fill that is not built in is bound later; its law is checked when the plan is replayed.
            let law = match &rule.init {
                Init::Fill(fill) => {
                    rule.check().map_err(|error| error.at(param.path()))?;
                    Law::Fill { fill: fill.clone(), factor: rule.factor() }
                }
                _ => rule.law(&param)?,
            };
            Ok(Entry { spec: param, rule, law, tied })
        };
        let entries: Result<Vec<Entry>, Error> = file.entries.into_iter().map(entry).collect();
        let entries = entries.and_then(|entries| consistent(&entries).map(|()| entries));
        Ok(Self::from_entries(entries.map_err(serde::de::Error::custom)?, file.warnings, file.remarks))
    }
}

/// Whether the lines are those of parameters, each there once and whole: a file may have been edited.
fn consistent(entries: &[Entry]) -> Result<(), Error> {
    let mut paths = HashSet::new();
    for lines in entries.chunk_by(|a, b| a.spec.path == b.spec.path) {
        let first = &lines[0].spec;
        let error = |found: &str| Err(first.error(ErrorKind::Shape, found, "make the plan anew"));
        if !paths.insert(first.path()) {
            return error("the plan has this path in two places");
        }
        if lines.iter().any(|line| line.spec.shape != first.shape) {
            return error("its blocks are of parameters of different shapes");
        }
        if first.experts.is_some_and(|experts| first.shape.len() != 3 || first.shape[0] != experts) {
            return error("its first dimension is not that of its experts");
        }
        if lines.len() == 1 && first.block.is_none() {
            continue;
        }
        let after = |end: u64, (index, line): (usize, &Entry)| match line.spec.block {
            Some(block) if block.index == index as u64 && block.start == end => end.checked_add(block.len),
            _ => None,
        };
        let width = lines.iter().enumerate().try_fold(0, after);
        if width.is_none() || width != first.shape.last().copied() {
            return error("its blocks do not stand side by side over its whole width");
        }
    }
    Ok(())
}

/// A line as it is printed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Row {
    cells: [String; 6],
    because: String,
}

impl Row {
    const HEAD: [&'static str; 6] = ["path", "role", "shape", "distribution", "sigma", "branch"];

    fn new(entry: &Entry) -> Self {
        let Entry { spec, rule, law, tied } = entry;
        let mut path = spec.path.clone();
        if let Some(block) = spec.block {
            path += &format!("[{}..{}]", block.start, block.start + block.len);
        }
        if !tied.is_empty() {
            path += &format!(" = {}", tied.join(" = "));
        }
        let sigma = match law {
            Law::Keep | Law::Fill { .. } | Law::Constant(_) => String::new(),
            law => short(law.std()),
        };
        let branch = spec.writes.map_or(String::new(), |branch| format!("{} of {}", branch.index + 1, branch.of));
        let shape = format!("{:?}", spec.shape).replace(", ", " x ").trim_matches(['[', ']']).to_string();
        let because = match rule.factors.is_empty() && rule.is_plain() {
            true if law.to_string() == rule.init.to_string() && rule.zero_row.is_none() => String::new(),
            _ => rule.because(),
        };
        Self { cells: [path, spec.role.to_string(), shape, law.to_string(), sigma, branch], because }
    }

    /// With the index of the layer taken out, so that the same lines of other layers are equal.
    fn folded(entry: &Entry) -> Self {
        let mut row = Self::new(entry);
        if let Some(layer) = entry.spec.layer {
            row.cells[0] = row.cells[0].replacen(&format!(".{layer}."), ".*.", 1);
            // Where a matrix is drawn for two parameters, its name holds the path, too.
            let starred = |text: &str| text.replace(&format!(".{layer}."), ".*.");
            (row.cells[3], row.because) = (starred(&row.cells[3]), starred(&row.because));
            row.cells[5] = entry.spec.writes.map_or(String::new(), |branch| format!("of {}", branch.of));
        }
        row
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<Row> = Vec::new();
        let mut seen = HashSet::new();
        for entry in &self.entries {
            let row = if f.alternate() { Row::folded(entry) } else { Row::new(entry) };
            // Folded layers repeat each other.
            if !f.alternate() || seen.insert(row.clone()) {
                rows.push(row);
            }
        }
        let mut widths = Row::HEAD.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut line = |cells: [&str; 6], because: &str| {
            let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", format!("{}  {because}", padded.join("  ")).trim_end())
        };
        line(Row::HEAD, "because")?;
        for row in &rows {
            line(row.cells.each_ref().map(String::as_str), &row.because)?;
        }
        writeln!(f, "{} parameters", self.num_params())?;
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}
