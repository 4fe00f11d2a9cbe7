//! A start as a file that a test can check: plan, seed, and a hash of the values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, ErrorKind},
    plan::Plan,
    rule::Law,
    sample::{STREAM_VERSION, fnv_1a},
};

/// A start, pinned: the plan, the seed, the version of the streams, and a hash of the values of each parameter.
///
/// Made by [`Plan::lock`], kept as a file beside the experiment, and checked where the model is built. What moves it is a renamed field,
/// another scheme, another shape, or a release of this crate that draws other values; each is told apart.
///
/// ```
/// use burn::{nn::LinearConfig, tensor::Device};
/// use burn_init::{Lock, ModuleInit as _, Xavier};
///
/// let plan = LinearConfig::new(64, 64).init(&Device::flex()).plan(&Xavier::normal())?;
/// let file = serde_json::to_string(&plan.lock(42)?).unwrap();
///
/// let lock: Lock = serde_json::from_str(&file).unwrap();
/// lock.check(&plan)?;
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    seed: u64,
    stream_version: u32,
    /// Hash of the bits of each parameter as f32, in hexadecimal.
    values: BTreeMap<String, String>,
    plan: Plan,
}

impl Plan {
    /// Pins what `seed` draws by this plan. Draws every parameter once, one after the other, and keeps none.
    ///
    /// # Errors
    /// See [`Shard::values`](crate::Shard::values): a parameter that there is no memory for, a fill that is not bound.
    pub fn lock(&self, seed: u64) -> Result<Lock, Error> {
        Ok(Lock { seed, stream_version: STREAM_VERSION, values: hashes(self, seed)?, plan: self.clone() })
    }
}

impl Lock {
    /// The seed that it pins.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The plan that it pins.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether `plan` starts everything as it was pinned, to the bit.
    ///
    /// # Errors
    /// [`ErrorKind::Audit`]: another version of the streams, another plan, or other values by the same plan; what
    /// [`Plan::lock`] can meet.
    pub fn check(&self, plan: &Plan) -> Result<(), Error> {
        if self.stream_version != STREAM_VERSION {
            return Err(Error::new(
                ErrorKind::Audit,
                format!("pinned with version {} of the streams, this crate has {STREAM_VERSION}", self.stream_version),
                "use the release that it was pinned with, or pin it anew",
            ));
        }
        let diff = self.plan.diff(plan);
        if let Some(change) = diff.changes().first() {
            let lines = diff.to_string();
            return Err(Error::new(
                ErrorKind::Audit,
                format!("the plan is not the one that was pinned:\n{}", lines.trim_end()),
                "restore it, or pin it anew",
            )
            .at(change.path.as_str()));
        }
        let drawn = hashes(plan, self.seed)?;
        let other = |(path, hash): &(&String, &String)| {
            drawn.get(*path) != Some(*hash) || self.values.get(*path) != Some(*hash)
        };
        match self.values.iter().chain(&drawn).find(other) {
            None => Ok(()),
            Some((path, _)) => Err(Error::new(
                ErrorKind::Audit,
                "the values are not those that were pinned, by the same plan and seed",
                "a value-breaking change of this crate, or of a fill of your own: see its changelog, or pin it anew",
            )
            .at(path.as_str())),
        }
    }
}

fn hashes(plan: &Plan, seed: u64) -> Result<BTreeMap<String, String>, Error> {
    let mut paths: Vec<&str> = plan.iter().map(|entry| entry.spec().path()).collect();
    paths.dedup();
    let drawn = paths.into_iter().filter(|path| plan.blocks(path).iter().any(|entry| *entry.law() != Law::Keep));
    drawn
        .map(|path| {
            let values: Vec<f32> = plan.whole(path, seed)?.values()?;
            Ok((path.to_string(), format!("{:016x}", fnv_1a(values.iter().map(|value| value.to_bits().into())))))
        })
        .collect()
}
