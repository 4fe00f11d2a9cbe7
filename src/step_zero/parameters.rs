//! What the parameters hold, or are planned to hold, as far as a diagnosis asks for it.

use burn::module::Module;
use serde::{Deserialize, Serialize};

use crate::audit::{Lanes, samples};
use crate::tree::Survey;
use crate::{Error, NormPlacement, ParamSpec, Plan, Role, Setup};

/// One parameter, or one block of a packed one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Parameter {
    /// Its path.
    pub path: String,
    /// Its role.
    pub role: Role,
    /// The layer, counted from 0.
    pub layer: Option<u64>,
    /// The number of additions to the residual stream that this parameter makes one of.
    pub branches: Option<u64>,
    /// Terms summed into one output, of a matrix.
    pub fan_in: Option<u64>,
    /// Number of values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub std: f64,
    /// What the forward pass multiplies them by.
    #[serde(default = "one")]
    pub forward: f64,
    /// Where the norms of its layer stand.
    #[serde(default)]
    pub norms: NormPlacement,
    /// The row of a table that stands out most, where it was measured.
    pub loudest: Option<Loudest>,
    /// Bits of the significand that the values are stored with, where measured: 24 for f32, 11 for f16, 8 for bf16.
    pub precision: Option<u32>,
}

fn one() -> f64 {
    1.0
}

/// One row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Loudest {
    /// Its index.
    pub index: u64,
    /// The root mean square of its values.
    pub rms: f64,
    /// That of the values of all other rows.
    pub others: f64,
}

impl Parameter {
    /// Root mean square.
    pub fn rms(&self) -> f64 {
        self.mean.hypot(self.std)
    }
}

/// As the plan has them.
pub(super) fn planned(plan: &Plan) -> Vec<Parameter> {
    let known = plan.iter().filter(|entry| entry.std().is_finite());
    known
        .map(|entry| Parameter {
            path: entry.spec().path().to_string(),
            role: entry.spec().role(),
            layer: entry.spec().layer(),
            branches: entry.spec().writes().map(|branch| branch.of),
            fan_in: entry.spec().fans().ok().map(|fans| fans.fan_in),
            count: entry.spec().num_elements(),
            mean: entry.law().mean(),
            std: entry.std(),
            forward: entry.rule().forward,
            norms: entry.spec().norm_placement(),
            loudest: None,
            precision: None,
        })
        .collect()
}

/// Rows of the table of tokens, where the tree shows it.
pub(super) fn token_rows<M: Module>(model: &M, setup: &Setup) -> Result<Option<u64>, Error> {
    let survey = Survey::of(model, setup)?;
    let specs = survey.sites.known.iter().flat_map(|site| &site.specs);
    let mut tables = specs.filter(|spec| spec.role() == Role::TokenEmbedding);
    // Encoder and decoder may have a table each.
    let first = tables.next().and_then(|spec| spec.shape().first().copied());
    Ok(first.filter(|_| tables.next().is_none()))
}

/// As the model has them; parameters whose role cannot be told are left out.
pub(super) fn measured<M: Module>(model: &M, setup: &Setup) -> Result<Vec<Parameter>, Error> {
    let survey = Survey::of(model, setup)?;
    let factors = survey.attached_factors();
    let forward = |spec: &ParamSpec| {
        let index = spec.block().map_or(0, |block| block.index as usize);
        factors.get(spec.path()).and_then(|all| all.get(index).or(all.first())).copied().unwrap_or(1.0)
    };
    let parameters = samples(model, setup)?.into_iter().map(|(spec, sample)| {
        let statistics = sample.statistics;
        // A head has its tokens in its columns.
        let lanes = if spec.role() == Role::OutputHead { sample.columns } else { sample.rows };
        let tokens = |lanes: &Lanes| lanes.count > 1 && (spec.role().is_table() || spec.role() == Role::OutputHead);
        let loudest = lanes.filter(tokens).map(|rows| {
            let all = statistics.rms().powi(2) * statistics.count as f64;
            let others = (all - rows.largest.squares).max(0.0) / ((rows.count - 1) * rows.len) as f64;
            Loudest { index: rows.largest.index, rms: rows.rms(rows.largest), others: others.sqrt() }
        });
        Parameter {
            path: spec.path().to_string(),
            role: spec.role(),
            layer: spec.layer(),
            branches: spec.writes().map(|branch| branch.of),
            fan_in: spec.fans().ok().map(|fans| fans.fan_in),
            count: statistics.count,
            mean: statistics.mean,
            std: statistics.std,
            forward: forward(&spec),
            norms: spec.norm_placement(),
            loudest,
            precision: Some(sample.precision),
        }
    });
    Ok(parameters.collect())
}
