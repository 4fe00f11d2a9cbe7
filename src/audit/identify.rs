//! Which scheme of the registry a start comes closest to.

use std::{collections::HashMap, fmt};

use burn::module::Module;
use serde::{Deserialize, Serialize};

use super::{
    Audit,
    compare::{compare, distance},
    model::{read, take},
    start::{Reading, Start},
};
use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
    plan::Plan,
    role::{Setup, Site, Sites, unknown_roles},
    schemes::Scheme,
    tree::Survey,
};

/// Schemes that start this tree alike, and what of the start they do not explain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Candidate {
    /// Their names in the registry: more than one where they have the same laws on this tree.
    pub names: Vec<String>,
    /// The start against the first of them.
    pub audit: Audit,
    /// Lines that deviate.
    pub deviations: usize,
    /// Sum of `|ln(measured std / planned std)|` over the lines, at most 3 each; 1 for a constant that is none.
    pub distance: f64,
}

impl Candidate {
    /// Whether the scheme explains the whole start.
    pub fn fits(&self) -> bool {
        self.deviations == 0
    }
}

/// The registry against an existing start, the closest scheme first. Made by [`identify`], [`Setup::identify`] or, for a file,
/// `WeightFile::identify`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    candidates: Vec<Candidate>,
    /// Schemes that cannot start this tree, with the reason.
    inapplicable: Vec<(String, String)>,
}

impl Identity {
    /// The closest scheme.
    pub fn closest(&self) -> &Candidate {
        &self.candidates[0]
    }

    /// Every scheme that can start this tree, in groups that start it alike, the closest first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The schemes that explain the whole start: more than one where the tensors are too small to tell them apart.
    pub fn fitting(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|candidate| candidate.fits())
    }

    /// Schemes that cannot start this tree, with the reason.
    pub fn inapplicable(&self) -> &[(String, String)] {
        &self.inapplicable
    }
}

/// Names the scheme in the registry that comes closest to the start of `model`, and the parameters that deviate from it.
///
/// Each tensor is read once; then the plan of each scheme is compared with what was measured. Schemes that have the same laws on this tree are told
/// as one candidate.
///
/// ```
/// use burn::{nn::transformer::TransformerEncoderConfig, tensor::Device};
/// use burn_init::{audit::identify, prelude::*};
///
/// # fn main() -> Result<(), burn_init::Error> {
/// let model = TransformerEncoderConfig::new(64, 256, 4, 4).init(&Device::flex());
/// let identity = identify(&model.initialize(&Gpt2::new(), 42)?)?;
/// assert!(identity.closest().fits());
/// assert!(identity.closest().names.iter().any(|name| name == "gpt2"));
/// println!("{identity}");
/// # Ok(()) }
/// ```
///
/// # Errors
/// A role that cannot be told, as for [`ModuleInit::plan`](crate::ModuleInit::plan); [`ErrorKind::Audit`] for a model without a parameter, or
/// without a value.
pub fn identify<M: Module>(model: &M) -> Result<Identity, Error> {
    Setup::new().identify(model)
}

impl Setup {
    /// As [`identify`], for a tree that needs to be told something.
    ///
    /// # Errors
    /// See [`identify`].
    pub fn identify<M: Module>(&self, model: &M) -> Result<Identity, Error> {
        let survey = Survey::of(model, self)?;
        if let Some(error) = unknown_roles(survey.sites.unknown.iter()) {
            return Err(error);
        }
        let mut places: HashMap<&[String], (&[ParamSpec], bool)> = HashMap::new();
        let mut owners: HashMap<u64, &[ParamSpec]> = HashMap::new();
        for site in &survey.sites.known {
            let specs = owners.entry(site.specs[0].id.0).or_insert(&site.specs);
            places.insert(&survey.leaves[site.leaf].segments, (*specs, site.transposed));
        }
        let mut start = Start::default();
        read(model, &mut |segments, _, found| {
            let (specs, transposed) = places.get(segments).copied().unwrap_or((&[], false));
            take(&mut start, &segments.join("."), &specs.iter().collect::<Vec<_>>(), found, transposed)
        })?;
        rank(&survey.sites, &start)
    }
}

/// Compares the start with the plan of every scheme in the registry.
pub(super) fn rank(sites: &Sites, start: &Start) -> Result<Identity, Error> {
    let started = |site: &&Site| !site.specs[0].role().is_kept();
    let reading = |site: &Site| start.readings.get(site.specs[0].path());
    let Some(first) = sites.known.iter().find(started) else {
        return Err(Error::new(
            ErrorKind::Audit,
            "there is no parameter that a scheme starts, and so nothing to compare",
            "give a model or a file with weights",
        ));
    };
    // Of tied sites one has the reading.
    if !sites.known.iter().filter(started).any(|site| reading(site).is_some_and(|found| *found != Reading::NoValue)) {
        let todo = "initialize first or read a checkpoint";
        return Err(first.specs[0].error(ErrorKind::Audit, "it holds no value, nor does any other parameter", todo));
    }
    let mut plans: Vec<(Vec<String>, Plan)> = Vec::new();
    let mut inapplicable = Vec::new();
    for (name, scheme, _) in Scheme::all() {
        match Plan::make(sites, &everything_site, &scheme) {
            Err(error) => inapplicable.push((name.to_string(), error.to_string())),
            Ok(plan) => match plans.iter_mut().find(|(_, other)| same_laws(other, &plan)) {
                Some((names, _)) => names.push(name.into()),
                None => plans.push((vec![name.into()], plan)),
            },
        }
    }
    let mut candidates: Vec<Candidate> = plans
        .into_iter()
        .map(|(names, plan)| {
            let audit = compare(&plan, start);
            let deviations = audit.deviations().count();
            let distance = audit.lines().iter().map(distance).sum();
            Candidate { names, audit, deviations, distance }
        })
        .collect();
    candidates.sort_by(|a, b| (a.deviations.cmp(&b.deviations)).then(a.distance.total_cmp(&b.distance)));
    match candidates.is_empty() {
        false => Ok(Identity { candidates, inapplicable }),
        true => Err(Error::new(
            ErrorKind::NoRule,
            format!(
                "no scheme of the registry can start this tree, for example: {}",
                inapplicable.first().map_or("", |(_, reason)| reason)
            ),
            "",
        )),
    }
}

fn everything_site(_: &Site) -> bool {
    true
}

/// Whether two plans of one tree draw the same; multipliers in the forward pass and the learning rate leave no trace in the values.
fn same_laws(a: &Plan, b: &Plan) -> bool {
    a.iter()
        .map(|entry| (entry.law(), entry.rule().zero_row))
        .eq(b.iter().map(|entry| (entry.law(), entry.rule().zero_row)))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let closest = self.closest();
        let names = closest.names.join(" = ");
        let also = if closest.names.len() > 1 { " (the same start on this tree)" } else { "" };
        match closest.deviations {
            0 => writeln!(f, "{names}{also}: all {} lines fit", closest.audit.lines().len())?,
            n => {
                writeln!(f, "closest is {names}{also}, and {n} of {} lines deviate", closest.audit.lines().len())?;
                write!(f, "{:#}", closest.audit)?;
            }
        }
        let others = self.candidates.iter().skip(1).take(if closest.fits() { usize::MAX } else { 3 });
        for other in others.filter(|other| other.fits() || !closest.fits()) {
            let names = other.names.join(" = ");
            match other.deviations {
                0 => writeln!(f, "{names}: fits as well; the tensors are too small to tell")?,
                n => writeln!(f, "{names}: {n} lines deviate")?,
            }
        }
        if let Some((name, reason)) = self.inapplicable.first() {
            let (number, are) = match self.inapplicable.len() {
                1 => ("1 scheme".to_string(), "is"),
                n => (format!("{n} schemes"), "are"),
            };
            writeln!(f, "{number} cannot start this tree and {are} not compared, {name} for example: {reason}")?;
        }
        Ok(())
    }
}
