//! Reads a burn module, one tensor at a time, and draws nothing.

use std::collections::{HashMap, HashSet};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{DType, Tensor, TensorData},
};

use super::{
    Audit, Deviation, Finding, Severity,
    compare::compare,
    start::{Reading, Start, Stored},
    statistics::Sample,
};
use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
    plan::Plan,
    role::{Setup, Site},
    tree::{Survey, device_failed},
};

impl Plan {
    /// Whether `model` is started as planned, parameter by parameter; see [`audit`](crate::audit).
    ///
    /// The model is read one tensor at a time, and a lazy parameter stays lazy. Parameters are found by burn's id, so that a plan fits the model it was
    /// made for whatever its [`Setup`], and by path otherwise: a plan with a prefix from a file needs [`Setup::audit`].
    ///
    /// # Errors
    /// [`ErrorKind::Audit`] if the model has none of the plan's parameters; what deviates is no error here, see [`Audit::check`].
    pub fn audit<M: Module>(&self, model: &M) -> Result<Audit, Error> {
        Setup::new().audit(model, self)
    }
}

impl Setup {
    /// As [`Plan::audit`], for a model whose paths, layouts or packing this setup states.
    ///
    /// # Errors
    /// See [`Plan::audit`].
    pub fn audit<M: Module>(&self, model: &M, plan: &Plan) -> Result<Audit, Error> {
        // What the setup cannot settle is left to ids and shapes.
        let survey = Survey::of(model, self).ok();
        let mut places: HashMap<&[String], (&str, bool)> = HashMap::new();
        if let Some(survey) = &survey {
            for site in &survey.sites.known {
                places.insert(&survey.leaves[site.leaf].segments, (site.specs[0].path(), site.transposed));
            }
        }
        let by_id: HashMap<u64, &str> = plan
            .iter()
            .filter(|entry| entry.spec().id.0 != 0)
            .map(|entry| (entry.spec().id.0, entry.spec().path()))
            .collect();
        let mut start = Start::default();
        read(model, &mut |segments, id, found| {
            let place = places.get(segments).copied();
            let path = place.map_or_else(|| segments.join("."), |(path, _)| path.to_string());
            let known = by_id.get(&id).copied().unwrap_or(&path);
            let specs: Vec<&ParamSpec> = plan.blocks(known).iter().map(|entry| entry.spec()).collect();
            take(&mut start, &path, &specs, found, place.is_some_and(|(_, transposed)| transposed))
        })?;
        if start.readings.is_empty() && !plan.is_empty() {
            return Err(Error::new(
                ErrorKind::Audit,
                "the model has none of the plan's parameters",
                "audit the model that the plan was made for, or state the prefix with Setup::audit",
            )
            .at(plan.iter().next().map_or("", |entry| entry.spec().path())));
        }
        let mut audit = compare(plan, &start);
        if let Some(survey) = &survey {
            let missing = survey.multipliers(plan)?;
            for site in &survey.sites.known {
                if let Some(multiplier) = missing.get(&survey.path(site)) {
                    audit.add(
                        site.specs[0].path(),
                        Finding::new(
                            Severity::Error,
                            Deviation::Multiplier,
                            format!(
                                "is to be multiplied by {multiplier} in the forward pass, and is not: attach the scheme"
                            ),
                        ),
                    );
                }
            }
        }
        Ok(audit)
    }
}

/// What stands at a leaf.
pub(super) enum Found {
    Values(TensorData, u32),
    NoValue(Vec<u64>),
    Quantized(Vec<u64>),
}

pub(super) fn take(
    start: &mut Start,
    path: &str,
    specs: &[&ParamSpec],
    found: Found,
    transposed: bool,
) -> Result<(), Error> {
    let mut without = |reading: Reading, shape: &[u64]| match specs.first() {
        Some(spec) => drop(start.readings.entry(spec.path().to_string()).or_insert(reading)),
        None => start.take_extra(path, shape, None),
    };
    match found {
        Found::NoValue(shape) => without(Reading::NoValue, &shape),
        Found::Quantized(shape) => without(Reading::Quantized, &shape),
        Found::Values(data, precision) => {
            let shape: Vec<u64> = data.shape().iter().map(|&d| d as u64).collect();
            let data = data.convert::<f32>();
            let values = data.as_slice::<f32>().map_err(|error| {
                Error::new(ErrorKind::Audit, format!("its values cannot be read: {error:?}"), "read it as f32").at(path)
            })?;
            match specs.is_empty() {
                true => start.take_extra(path, &shape, Some(values)),
                false => start.take(path, specs, Stored { values, shape: &shape, precision, transposed }),
            }
        }
    }
    Ok(())
}

/// Bits of the significand.
pub(super) fn precision(dtype: DType) -> u32 {
    match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        _ => 24,
    }
}

type Take<'a> = dyn FnMut(&[String], u64, Found) -> Result<(), Error> + 'a;

/// Shows every float leaf of the tree.
pub(super) fn read<M: Module>(model: &M, take: &mut Take<'_>) -> Result<(), Error> {
    let mut reader = Reader { segments: Vec::new(), take, error: None };
    model.visit(&mut reader);
    reader.error.map_or(Ok(()), Err)
}

struct Reader<'a, 'b> {
    segments: Vec<String>,
    take: &'a mut Take<'b>,
    error: Option<Error>,
}

impl ModuleVisitor for Reader<'_, '_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.segments.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.segments.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.error.is_some() {
            return;
        }
        let found = if !param.is_initialized() {
            Found::NoValue(param.lazy_shape().iter().map(|&d| d as u64).collect())
        } else {
            let tensor = param.base();
            let device = tensor.device();
            let shape = tensor.dims().iter().map(|&d| d as u64).collect();
            match tensor.dtype() {
                DType::QFloat(_) => Found::Quantized(shape),
                dtype => match tensor.try_into_data() {
                    Ok(data) => Found::Values(data, precision(dtype)),
                    Err(failure) => {
                        self.error = Some(device_failed(&device, &failure).at(self.segments.join(".")));
                        return;
                    }
                },
            }
        };
        self.error = (self.take)(&self.segments, param.id.val(), found).err();
    }
}

/// The values of every parameter that holds some and whose role is known: one sample for each line of a plan. What is tied comes once.
pub(crate) fn samples<M: Module>(model: &M, setup: &Setup) -> Result<Vec<(ParamSpec, Sample)>, Error> {
    let survey = Survey::of(model, setup)?;
    let mut sites: HashMap<&[String], &Site> = HashMap::new();
    for site in &survey.sites.known {
        sites.insert(&survey.leaves[site.leaf].segments, site);
    }
    let (mut start, mut specs, mut seen) = (Start::default(), Vec::new(), HashSet::new());
    read(model, &mut |segments, id, found| {
        if let (Some(site), true) = (sites.get(segments), seen.insert(id)) {
            let of_site: Vec<&ParamSpec> = site.specs.iter().collect();
            take(&mut start, site.specs[0].path(), &of_site, found, site.transposed)?;
            specs.push(*site);
        }
        Ok(())
    })?;
    let mut samples = Vec::new();
    for site in specs {
        if let Some(Reading::Values { parts, .. }) = start.readings.remove(site.specs[0].path()) {
            samples.extend(site.specs.iter().cloned().zip(parts.into_iter().map(|part| part.whole)));
        }
    }
    Ok(samples)
}
