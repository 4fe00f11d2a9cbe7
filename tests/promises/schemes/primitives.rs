//! The distributions themselves, held against torch.nn.init and jax.nn.initializers, shape by shape.

use std::path::Path;

use burn::{
    nn::{
        BatchNormConfig, Embedding, EmbeddingConfig, LayerNormConfig, LinearConfig, RmsNormConfig,
        conv::{Conv1dConfig, Conv2dConfig},
    },
    tensor::Device,
};
use burn_init::{
    Family, Fan, Init, Initializer, Law, ModuleInit as _, Plan, Role, Scheme, Setup, TorchDefault, VarianceScaling,
    from_fn,
    sample::{Distribution, Stream},
};
use serde::Deserialize;
use serde_json::Value;

use super::goldens::Row;
use crate::support::device;

#[derive(Deserialize)]
struct Table {
    table: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    function: String,
    args: Value,
    #[serde(flatten)]
    row: Row,
}

fn table(name: &str) -> Vec<Call> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(format!("{name}.json"));
    serde_json::from_str::<Table>(&std::fs::read_to_string(path).unwrap()).unwrap().table
}

impl Call {
    fn arg(&self, name: &str) -> Option<f64> {
        self.args[name].as_f64()
    }

    fn fan(&self) -> Fan {
        match self.args["mode"].as_str() {
            Some("fan_out") => Fan::Out,
            Some("fan_avg") => Fan::Average,
            _ => Fan::In,
        }
    }

    /// A linear map or a convolution of that shape.
    fn plan(&self, init: Init, out_in: bool) -> Plan {
        let scheme = from_fn(move |_| init.clone());
        let shape = &self.row.shape;
        let plan = |scheme: &dyn Initializer| match shape[..] {
            [a, b] => {
                let [d_in, d_out] = if out_in { [b, a] } else { [a, b] };
                LinearConfig::new(d_in, d_out).with_bias(false).init(&device()).plan(scheme)
            }
            [a, b, c, d] => {
                let (channels, kernel) = if out_in { ([b, a], [c, d]) } else { ([c, d], [a, b]) };
                Conv2dConfig::new(channels, kernel).with_bias(false).init(&device()).plan(scheme)
            }
            _ => unreachable!("{shape:?}"),
        };
        plan(&scheme).unwrap()
    }

    fn hold(&self, init: Init, out_in: bool) {
        let plan = self.plan(init, out_in);
        let agrees = self.row.agrees(plan.get("weight").unwrap());
        assert!(agrees.is_ok(), "{} {} {:?}: {agrees:?}", self.function, self.args, self.row.shape);
    }
}

fn scaling(scale: f64, fan: Fan, family: Family) -> Init {
    Init::VarianceScaling(VarianceScaling { scale, fan, family })
}

/// A cut in absolute values; from 4 sigma on it is none.
fn cut(std: f64, low: f64, high: f64) -> Init {
    match high >= 4.0 * std {
        true => Init::normal(std),
        false => Init::TruncatedNormal { mean: 0.0, std, low: low / std, high: high / std, compensated: false },
    }
}

#[test]
fn torch() {
    let mut held = 0;
    for call in table("primitives_torch_nn_init") {
        let gain = call.arg("gain").unwrap_or(1.0);
        let kaiming = || {
            let slope = call.arg("a").unwrap_or(0.0);
            match call.args["nonlinearity"].as_str().unwrap_or_default() {
                "leaky_relu" => 2.0 / (1.0 + slope * slope),
                "relu" => 2.0,
                "tanh" => 25.0 / 9.0,
                "selu" => 9.0 / 16.0,
                _ => 1.0,
            }
        };
        let init = match call.function.as_str() {
            "xavier_uniform_" => Init::xavier_uniform(gain),
            "xavier_normal_" => Init::xavier_normal(gain),
            "kaiming_uniform_" => scaling(kaiming(), call.fan(), Family::Uniform),
            "kaiming_normal_" => scaling(kaiming(), call.fan(), Family::Normal),
            "orthogonal_" => Init::orthogonal(gain),
            "trunc_normal_" if call.arg("mean").is_none() => {
                let bound = |name, default| call.arg(name).unwrap_or(default);
                cut(call.arg("std").unwrap(), bound("a", -2.0), bound("b", 2.0))
            }
            "normal_" => Init::normal(call.arg("std").unwrap()),
            "uniform_" => Init::Uniform { low: call.arg("a").unwrap(), high: call.arg("b").unwrap() },
            "ones_" => Init::Ones,
            "zeros_" => Init::Zeros,
            _ => continue,
        };
        call.hold(init, true);
        held += 1;
    }
    assert!(held >= 100, "{held}");
}

#[test]
fn jax() {
    const CUT: Family = Family::TruncatedNormal { bound: 2.0, compensated: true };
    let mut held = 0;
    for call in table("primitives_jax_nn_initializers") {
        let scale = call.arg("scale").unwrap_or(1.0);
        let init = match call.function.as_str() {
            "glorot_uniform" => Init::xavier_uniform(1.0),
            "glorot_normal" => scaling(1.0, Fan::Average, CUT),
            "lecun_uniform" => Init::lecun_uniform(),
            "lecun_normal" => scaling(1.0, Fan::In, CUT),
            "he_uniform" => scaling(2.0, Fan::In, Family::Uniform),
            "he_normal" => scaling(2.0, Fan::In, CUT),
            "variance_scaling" if call.args["mode"] != "fan_geo_avg" => {
                let family = match call.args["distribution"].as_str() {
                    Some("normal") => Family::Normal,
                    Some("uniform") => Family::Uniform,
                    _ => CUT,
                };
                scaling(scale, call.fan(), family)
            }
            "orthogonal" => Init::orthogonal(scale),
            "truncated_normal" => {
                let bound = call.arg("upper").unwrap_or(2.0);
                Init::truncated_normal(call.arg("stddev").unwrap(), bound)
            }
            "uniform" => Init::Uniform { low: 0.0, high: scale },
            "normal" => Init::normal(call.arg("stddev").unwrap()),
            "constant" => Init::constant(call.arg("value").unwrap()),
            "zeros" => Init::Zeros,
            "ones" => Init::Ones,
            _ => continue,
        };
        call.hold(init, false);
        held += 1;
    }
    assert!(held >= 85, "{held}");
}

/// PyTorch's modules as they are built, one by one; those that are parts of a Transformer are in goldens.rs. Left out: `nn.Bilinear` and
/// the `bias_k`, `bias_v` of attention, which have no part here, and attention with a key of another width.
#[test]
fn torch_modules() {
    #[derive(Deserialize)]
    struct Modules {
        params: Vec<Row>,
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/torch_modules.json");
    let modules: Modules = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let device = device();
    let scheme = TorchDefault::new();
    let table = Setup::new().role("weight", Role::TokenEmbedding);
    let mut held = 0;
    for row in modules.params {
        let Some((module, field)) = row.name.split_once('.') else { continue };
        let plan = match module {
            "linear_256_1024" => LinearConfig::new(256, 1024).init(&device).plan(&scheme),
            "linear_1024_256" => LinearConfig::new(1024, 256).init(&device).plan(&scheme),
            "linear_256_256_nobias" => LinearConfig::new(256, 256).with_bias(false).init(&device).plan(&scheme),
            "embedding_1024_256" => table.plan(&embedding(&device), &scheme),
            "embedding_1024_256_padding0" => table.plan(&embedding(&device), &scheme.padding_row(0)),
            "layernorm_256" => LayerNormConfig::new(256).init(&device).plan(&scheme),
            "rmsnorm_256" => RmsNormConfig::new(256).init(&device).plan(&scheme),
            "batchnorm1d_256" => BatchNormConfig::new(256).init(&device).plan(&scheme),
            "conv2d_3_64_k16" => Conv2dConfig::new([3, 64], [16, 16]).init(&device).plan(&scheme),
            "conv1d_64_64_k3" => Conv1dConfig::new(64, 64, 3).init(&device).plan(&scheme),
            _ => continue,
        };
        let plan = plan.unwrap_or_else(|error| panic!("{module}: {error}"));
        let norm = module.contains("norm");
        let field = match field {
            "weight" if norm => "gamma",
            "bias" if norm => "beta",
            field => field,
        };
        let agrees = row.agrees(plan.get(field).unwrap_or_else(|| panic!("{module}.{field}: {plan}")));
        assert!(agrees.is_ok(), "{agrees:?}");
        held += 1;
    }
    assert_eq!(held, 16);
}

fn embedding(device: &Device) -> Embedding {
    EmbeddingConfig::new(1024, 256).init(device)
}

/// timm's cut at the absolute +-2 let two values of exactly -2 through in 1e8 at std 0.02, 100 sigma; here `vit-timm` is a normal, none of whose
/// values lies beyond 7 sigma.
#[test]
fn no_outliers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/trunc_normal_outliers.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let timm = file["table"].as_array().unwrap().iter().find(|row| row["function"] == "timm.layers.trunc_normal_");
    assert_eq!(timm.unwrap()["values_beyond_10_sigma"][0], -2.0);
    let linear = || LinearConfig::new(2048, 2048).with_bias(false).init(&device());
    let scheme = Setup::new().role("weight", Role::Query);
    let plan = scheme.plan(&linear(), &"vit-timm".parse::<Scheme>().unwrap()).unwrap();
    let Law::Draw(distribution @ Distribution::Normal { std: 0.02, .. }) = plan.get("weight").unwrap().law() else {
        panic!("{plan}")
    };
    let mut drawn = vec![0.0f32; 1 << 22];
    Stream::new(1, "weight").fill(distribution, 0, &mut drawn);
    assert!(drawn.iter().all(|value| value.abs() < 7.0 * 0.02));
}
