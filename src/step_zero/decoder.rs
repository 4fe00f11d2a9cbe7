//! A plan read as a decoder: which matrix stands where, and what it multiplies a second moment by.

use super::Activation;
use super::kernel::Linear;
use crate::{Entry, Error, ErrorKind, NormPlacement, Plan, Role};

/// Largest `fan_in * variance` of a matrix in the blocks.
const MOST_GROWTH: f64 = 1e4;

/// The parameters of a decoder, by what they do.
pub(super) struct Decoder {
    pub token: Table,
    pub positions: Option<Table>,
    pub layers: Vec<Layer>,
    /// `None` where it is the token embedding.
    pub head: Option<Matrix>,
    pub d_model: u64,
    /// Whether a norm stands before the head: in a Post-Norm decoder only one that is seen.
    pub final_norm: bool,
    /// Multiplier that the forward pass has on the gain of the final norm, and so on the logits.
    pub final_multiplier: f64,
    /// Norms that do not start at gain 1 and offset 0.
    pub uneven_norms: Vec<String>,
}

/// A table of vectors.
pub(super) struct Table {
    pub path: String,
    pub rows: u64,
    /// With the multiplier of the forward pass.
    pub variance: f64,
    pub forward: f64,
}

/// A weight, with its bias.
pub(super) struct Matrix {
    pub path: String,
    /// Its path and the multiplier of the forward pass.
    pub bias: Option<(String, f64)>,
    pub linear: Linear,
    /// Multiplier of the forward pass, already in `linear`.
    pub forward: f64,
}

/// The matrices of one block, and its norms in the order of the tree.
pub(super) struct Layer {
    pub query: Matrix,
    pub key: Matrix,
    pub value: Matrix,
    pub output: Matrix,
    pub up: Matrix,
    pub gate: Option<Matrix>,
    pub down: Matrix,
    pub norms: NormPlacement,
    /// Whether its queries and keys are normed.
    pub qk_norm: bool,
}

impl Decoder {
    pub fn read(plan: &Plan, activation: Activation, tied: bool) -> Result<Self, Error> {
        if let Some(entry) = plan.iter().find(|entry| entry.rule().needs.is_some()) {
            return Err(entry.spec().error(
                ErrorKind::Config,
                "the scheme asks for more of the forward pass than the plain decoder that predict knows",
                "measure the model instead",
            ));
        }
        for role in [Role::TokenEmbedding, Role::PositionEmbedding] {
            if let Some(second) = plan.iter().filter(|entry| entry.spec().role() == role).nth(1) {
                return Err(second.spec().error(
                    ErrorKind::Config,
                    format!("it is a second table with the role {role}"),
                    "predict covers a decoder with one table of tokens and one of positions; correct the role, or measure the model",
                ));
            }
        }
        let find = |role| plan.iter().find(|entry| entry.spec().role() == role);
        let token = find(Role::TokenEmbedding).ok_or_else(|| missing("token embedding", None))?;
        let &[_, d_model] = token.spec().shape() else { return Err(missing("token embedding", None)) };
        let last = plan.iter().filter_map(|entry| entry.spec().layer()).max();
        let layers = last.map_or(0, |last| last + 1);
        if let Some(entry) = plan.iter().find(|entry| entry.spec().writes().is_some())
            && let Ok(stack) = entry.spec().stack()
            && stack.branches != 2 * stack.layers
        {
            return Err(entry.spec().error(
                ErrorKind::Config,
                format!("the stack has {} layers with {} additions", stack.layers, stack.branches),
                "predict covers a plain decoder, with two additions per layer; measure the model instead",
            ));
        }
        let uneven = |entry: &&Entry| {
            let neutral = match entry.spec().role() {
                Role::NormGain => 1.0,
                Role::NormGainOffset | Role::NormBias => 0.0,
                _ => return false,
            };
            let multiplied = entry.rule().forward != 1.0 && !entry.spec().is_final_norm();
            entry.law().mean() != neutral || entry.std() != 0.0 || multiplied
        };
        let gain = |entry: &&Entry| entry.spec().is_final_norm() && entry.spec().role() == Role::NormGain;
        let tree = Tree { plan };
        Ok(Self {
            token: table(token)?,
            positions: find(Role::PositionEmbedding).map(table).transpose()?,
            layers: (0..layers).map(|layer| tree.layer(layer, activation)).collect::<Result<_, _>>()?,
            head: (!tied).then(|| tree.matrix(&[Role::OutputHead], None)).transpose()?,
            d_model,
            final_norm: plan.iter().any(|entry| entry.spec().is_final_norm() && entry.spec().layer().is_none())
                || !plan.iter().any(|entry| entry.spec().norm_placement() == NormPlacement::Post),
            final_multiplier: plan.iter().find(gain).map_or(1.0, |entry| entry.rule().forward),
            uneven_norms: plan.iter().filter(uneven).map(|entry| entry.spec().path().to_string()).collect(),
        })
    }
}

/// A plan, looked at by roles.
struct Tree<'a> {
    plan: &'a Plan,
}

impl Tree<'_> {
    fn layer(&self, layer: u64, activation: Activation) -> Result<Layer, Error> {
        let matrix = |roles: &[Role]| self.matrix(roles, Some(layer));
        Ok(Layer {
            query: matrix(&[Role::Query])?,
            key: matrix(&[Role::Key])?,
            value: matrix(&[Role::Value])?,
            output: matrix(&[Role::AttentionOutput])?,
            up: matrix(&[Role::MlpUp, Role::MlpIn])?,
            gate: activation.is_gated().then(|| matrix(&[Role::MlpGate])).transpose()?,
            down: matrix(&[Role::MlpDown])?,
            norms: self.norms(layer),
            qk_norm: self.find(&[Role::Query], Some(layer)).next().is_some_and(|entry| entry.spec().is_normed()),
        })
    }

    fn find<'b>(&'b self, roles: &'b [Role], layer: Option<u64>) -> impl Iterator<Item = &'b Entry> {
        let fits = move |role: Role, at: Option<u64>| roles.contains(&role) && (layer.is_none() || at == layer);
        self.plan.iter().filter(move |entry| fits(entry.spec().role(), entry.spec().layer()))
    }

    fn norms(&self, layer: u64) -> NormPlacement {
        let entry = self.plan.iter().find(|entry| entry.spec().layer() == Some(layer));
        entry.map_or(NormPlacement::default(), |entry| entry.spec().norm_placement())
    }

    /// The bias of a weight; of a packed one, the same block of it.
    fn bias(&self, weight: &Entry) -> Option<&Entry> {
        let path = weight.spec().path();
        let beside = path.strip_suffix("weight").map(|stem| format!("{stem}bias"));
        let lines = self.plan.blocks(&beside.unwrap_or_else(|| format!("{path}_bias")));
        let block = weight.spec().block().map_or(0, |block| block.index as usize);
        lines.get(block).or(lines.first())
    }

    /// The one matrix of these roles in this layer.
    fn matrix(&self, roles: &[Role], layer: Option<u64>) -> Result<Matrix, Error> {
        let mut found = self.find(roles, layer);
        let name = format!("{:?}", roles[roles.len() - 1]);
        let entry = found.next().ok_or_else(|| missing(&name, layer))?;
        if found.next().is_some() {
            return Err(Error::config(
                format!("there are several parameters with the role {name}{}", place(layer)),
                "predict covers a plain decoder: one attention and one MLP per layer",
            ));
        }
        let bias = self.bias(entry);
        let std = second_moment(entry)?.sqrt();
        if entry.law().mean().abs() * entry.rule().forward.abs() > 0.1 * std {
            return Err(entry.spec().error(
                ErrorKind::Config,
                format!("its values have the mean {}, where the theory takes weights of mean 0", entry.law().mean()),
                "measure the model instead",
            ));
        }
        let linear = Linear {
            fan_in: entry.spec().fans()?.fan_in as f64,
            variance: std * std,
            bias_variance: bias.map_or(Ok(0.0), second_moment)?,
        };
        if linear.gain() > MOST_GROWTH {
            return Err(entry.spec().error(
                ErrorKind::Config,
                format!("it multiplies variances by {:.0}, where the theory says nothing", linear.gain()),
                "use a smaller std",
            ));
        }
        Ok(Matrix {
            path: entry.spec().path().to_string(),
            bias: bias.map(|bias| (bias.spec().path().to_string(), bias.rule().forward)),
            linear,
            forward: entry.rule().forward,
        })
    }
}

fn table(entry: &Entry) -> Result<Table, Error> {
    Ok(Table {
        path: entry.spec().path().to_string(),
        rows: entry.spec().shape().first().copied().unwrap_or(0),
        variance: second_moment(entry)?,
        forward: entry.rule().forward,
    })
}

/// The second moment of the values as the forward pass sees them.
fn second_moment(entry: &Entry) -> Result<f64, Error> {
    let (std, mean) = (entry.std(), entry.law().mean());
    if !std.is_finite() {
        return Err(entry.spec().error(
            ErrorKind::Config,
            "the plan keeps or fills this parameter, so its standard deviation is not known",
            "measure the model instead",
        ));
    }
    Ok((std * std + mean * mean) * entry.rule().forward.powi(2))
}

fn missing(role: &str, layer: Option<u64>) -> Error {
    Error::config(
        format!("the plan has no matrix with the role {role}{}", place(layer)),
        "predict covers a plain decoder; name the roles by Setup::role",
    )
}

fn place(layer: Option<u64>) -> String {
    layer.map(|layer| format!(" in layer {layer}")).unwrap_or_default()
}
