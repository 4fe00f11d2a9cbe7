//! Named functions that compute a parameter's values.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
    sample::{Distribution, Stream},
};

/// What a [`Fill`] may use: the values it computes must depend on nothing else.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FillContext<'a> {
    /// The parameter.
    pub param: &'a ParamSpec,
    /// The parameter's stream of random numbers.
    pub stream: Stream,
}

type Function = dyn Fn(&FillContext<'_>, &mut [f32]) + Send + Sync;

/// A named function that computes a whole parameter, in row-major order of its
/// [shape](ParamSpec::shape).
///
/// Equality, printing and files go by the name, so two fills with one name must be the same function. A name that was read from a
/// file and is not built in has to be bound again with [`Plan::bind`](crate::Plan::bind).
///
/// Built in: `sinusoidal` (the position table of Vaswani et al. 2017: `sin(t / 10000^(2i/d))` in column `2i`, the cosine beside
/// it), `identity` (1 on the diagonal of each matrix), `unit_rows` and `unit_columns` (directions drawn uniformly, every row or column
/// of each matrix of length 1).
#[derive(Clone)]
pub struct Fill {
    name: String,
    function: Option<Arc<Function>>,
}

impl Fill {
    /// A fill of the user's own.
    pub fn new(
        name: impl Into<String>,
        function: impl Fn(&FillContext<'_>, &mut [f32]) + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), function: Some(Arc::new(function)) }
    }

    /// A fill by name; a name that is not built in stays unbound, and planning with it is an error.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        let function: Option<Arc<Function>> = match name.as_str() {
            "sinusoidal" => Some(Arc::new(sinusoidal)),
            "identity" => Some(Arc::new(identity)),
            "unit_rows" => Some(Arc::new(|context, out| unit(context, true, out))),
            "unit_columns" => Some(Arc::new(|context, out| unit(context, false, out))),
            _ => None,
        };
        Self { name, function }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn bound(&self) -> Result<(), Error> {
        match self.function {
            Some(_) => Ok(()),
            None => Err(Error::new(
                ErrorKind::Parse,
                format!("the fill \"{}\" is not built in (sinusoidal, identity, unit_rows, unit_columns)", self.name),
                "give its function: plan.bind(&Fill::new(name, function))",
            )),
        }
    }

    pub(crate) fn apply(&self, context: &FillContext<'_>, factor: f64, out: &mut [f32]) {
        if let Some(function) = &self.function {
            function(context, out);
        }
        if factor != 1.0 {
            out.iter_mut().for_each(|value| *value = (f64::from(*value) * factor) as f32);
        }
    }
}

fn sinusoidal(context: &FillContext<'_>, out: &mut [f32]) {
    let d = context.param.shape().last().map_or(1, |&d| d as usize).max(1);
    for (i, value) in out.iter_mut().enumerate() {
        let (position, column) = (i / d, i % d);
        let angle = position as f64 / libm::pow(10_000.0, (column - column % 2) as f64 / d as f64);
        *value = if column % 2 == 0 { libm::sin(angle) } else { libm::cos(angle) } as f32;
    }
}

fn identity(context: &FillContext<'_>, out: &mut [f32]) {
    let [.., rows, columns] = *context.param.shape() else { return out.fill(1.0) };
    for (i, value) in out.iter_mut().enumerate() {
        let i = i as u64 % (rows * columns);
        *value = f32::from(i / columns == i % columns);
    }
}

/// Vectors of length 1 in directions drawn uniformly: the rows or the columns of each matrix of the block.
fn unit(context: &FillContext<'_>, rows: bool, out: &mut [f32]) {
    let shape = context.param.shape();
    let whole = shape.last().map_or(1, |&d| d as usize).max(1);
    let (start, columns) = context.param.block().map_or((0, whole), |block| (block.start as usize, block.len as usize));
    let height = shape.len().checked_sub(2).map_or(1, |at| shape[at] as usize).max(1);
    let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
    for (row, values) in out.chunks_mut(columns.max(1)).enumerate() {
        context.stream.fill(&normal, (row * whole + start) as u64, values);
    }
    let length = |squares: f64| squares.sqrt().max(f64::MIN_POSITIVE);
    let square = |&value: &f32| f64::from(value) * f64::from(value);
    if rows {
        for row in out.chunks_mut(columns.max(1)) {
            let length = length(row.iter().map(square).sum());
            row.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
        }
        return;
    }
    for matrix in out.chunks_mut((height * columns).max(1)) {
        let mut squares = vec![0.0f64; columns];
        for row in matrix.chunks(columns.max(1)) {
            squares.iter_mut().zip(row).for_each(|(sum, value)| *sum += square(value));
        }
        for row in matrix.chunks_mut(columns.max(1)) {
            row.iter_mut().zip(&squares).for_each(|(value, &sum)| *value = (f64::from(*value) / length(sum)) as f32);
        }
    }
}

impl PartialEq for Fill {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fill({:?})", self.name)
    }
}

impl Serialize for Fill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Fill::named)
    }
}
