//! The distributions themselves, held against torch.nn.init and jax.nn.initializers, shape by shape.

use std::path::Path;

use burn::nn::{LinearConfig, conv::Conv2dConfig};
use burn_init::{Family, Fan, Init, Initializer, ModuleInit as _, Plan, VarianceScaling, from_fn};
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
