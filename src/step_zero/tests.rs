//! Predictions against simulations of GPT-2 small, and measurements against predictions.

use burn::tensor::{Device, Int, Tensor};

use super::*;
use crate::reference::TransformerConfig;
use crate::schemes::{Gpt2, Scheme};
use crate::{Depth, Init, Initializer, ModuleInit as _, Role, from_fn};

fn gpt2_small(change: fn(TransformerConfig) -> TransformerConfig) -> StepZero {
    gpt2_small_by(&Gpt2::new(), change)
}

fn gpt2_small_by(scheme: &dyn Initializer, change: fn(TransformerConfig) -> TransformerConfig) -> StepZero {
    let config = change(TransformerConfig::gpt2_small());
    let plan = config.build(&Device::default()).unwrap().plan(scheme).unwrap();
    plan.predict(&config.architecture().with_length(128).with_sequences(2)).unwrap()
}

fn close(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "{found} is not {wanted} +- {tolerance}");
}

fn moment(readings: &[Reading], at: usize) -> f64 {
    readings[at].second_moment
}

/// Three simulated seeds of GPT-2 small (V = 50257, two sequences of T = 128), in another framework, gave the numbers on the right.
#[test]
fn gpt2_small_from_its_plan() {
    let scaled = gpt2_small(|config| config);
    assert_eq!((scaled.stream.len(), scaled.branches.len(), scaled.attention.len()), (25, 24, 12));
    close(moment(&scaled.stream, 0), 8e-4, 1e-12);
    close(moment(&scaled.stream, 24) / 0.08659, 1.0, 0.03);
    for (branch, simulated, tolerance) in [
        (0, 1.765e-4, 0.02),
        (1, 5.40e-3, 0.02),
        (2, 9.31e-4, 0.04),
        (10, 1.98e-3, 0.04),
        (22, 2.27e-3, 0.05),
        (23, 5.35e-3, 0.03),
    ] {
        close(moment(&scaled.branches, branch) / simulated, 1.0, tolerance);
    }
    close(scaled.attention[0].std, 0.307, 0.01);
    close(scaled.logit_std, 0.5542, 1e-3);
    close(scaled.own_logit.unwrap(), 1.035, 0.02);
    close(scaled.log_sum_exp, 10.9785, 1e-3);
    close(scaled.loss, 10.9785, 1e-3);
    close(scaled.entropy, 10.6713, 1e-3);
    assert_eq!(format!("{:.2}", scaled.loss), "10.98");
    assert!(scaled.notes.is_empty(), "{:?}", scaled.notes);
}

#[test]
fn gpt2_small_without_depth_scaling() {
    let unscaled = gpt2_small_by(&Gpt2::new().with_depth(Depth::none()), |config| config);
    close(moment(&unscaled.stream, 24) / 2.284, 1.0, 0.03);
    for (branch, simulated, tolerance) in
        [(0, 4.24e-3, 0.02), (1, 0.1311, 0.02), (2, 0.0498, 0.04), (22, 0.0710, 0.05), (23, 0.127, 0.04)]
    {
        close(moment(&unscaled.branches, branch) / simulated, 1.0, tolerance);
    }
    close(unscaled.own_logit.unwrap(), 0.2, 0.01);
    close(unscaled.loss, 10.9785, 1e-3);
}

/// The same simulations, backwards. The embedding is where the theory is worst.
#[test]
fn gradients_of_gpt2_small() {
    for (scheme, stream, weights) in [
        (Gpt2::new(), [3.556, 6.356, 32.35, 369.7], [1.508, 0.452, 7.78, 2.14, 4.83, 1.44]),
        (
            Gpt2::new().with_depth(Depth::none()),
            [0.1348, 0.2284, 1.047, 433.8],
            [1.703, 0.433, 1.74, 0.417, 1.62, 0.316],
        ),
    ] {
        let predicted = gpt2_small_by(&scheme, |config| config);
        for ((at, simulated), tolerance) in [24, 12, 2, 0].into_iter().zip(stream).zip([0.02, 0.05, 0.05, 0.1]) {
            close(predicted.stream[at].gradient.unwrap() / simulated, 1.0, tolerance);
        }
        let norm = |path: &str| {
            let found = predicted.gradients.iter().find(|gradient| gradient.path == path);
            found.unwrap_or_else(|| panic!("{path}")).norm.unwrap()
        };
        for (path, simulated) in [
            "blocks.0.mlp.linear_in.weight",
            "blocks.11.mlp.linear_in.weight",
            "blocks.0.mlp.linear_out.weight",
            "blocks.11.mlp.linear_out.weight",
            "blocks.0.attention.output.weight",
            "blocks.11.attention.output.weight",
        ]
        .into_iter()
        .zip(weights)
        {
            close(norm(path) / simulated, 1.0, 0.05);
        }
    }
}

#[test]
fn gpt2_small_untied() {
    let untied = gpt2_small(|config| config.with_tied(false));
    close(untied.logit_std, 0.5542, 1e-3);
    assert_eq!(untied.own_logit, None);
    close(untied.loss, 10.9785, 1e-3);
    close(untied.loss - untied.entropy, untied.logit_std.powi(2), 1e-3);
}

/// C01: one table at std 1, no blocks to speak of: the own logit is sqrt(d) sqrt(d) = 128 and the loss as much.
#[test]
fn a_tied_table_at_std_1_is_named() {
    let config = TransformerConfig::new(512, 64, 128, 1, 4).with_scheme(Scheme::gpt2());
    let table = from_fn(|param| (param.role() == Role::TokenEmbedding).then(|| Init::normal(1.0)));
    let model = config.init_with(&table.or(Gpt2::new()), 1, &Device::default()).unwrap();
    let measured = step_zero(&random_batch(512, 8, 64), |tokens, probe| model.forward_with(tokens, probe)).unwrap();
    // sd 11.3 / sqrt(512 tokens), five of them.
    close(measured.loss, 127.3, 2.5);
    close(measured.own_logit.unwrap(), 127.5, 2.5);
    let findings = measured.findings();
    assert_eq!(findings[0].fault, Fault::LogitsTooWide, "{measured}");
    let text = findings[0].to_string();
    assert!(text.contains("the token embedding, which is also the head, starts at std 1.0"), "{text}");
}

/// C02: a head of its own at std 1 costs a hundred nats, at 1/sqrt(d) half a one.
#[test]
fn an_untied_head_at_std_1_is_named() {
    let config = TransformerConfig::new(32_128, 64, 768, 2, 12).with_tied(false);
    let model = config.build(&Device::default()).unwrap();
    let predict = |std: f64| {
        let head = from_fn(move |param| (param.role() == Role::OutputHead).then(|| Init::normal(std)));
        model.plan(&head.or(Gpt2::new())).unwrap().predict(&config.architecture()).unwrap()
    };
    let wide = predict(1.0);
    // Norm epsilon takes 0.05 % of the spread here.
    close(wide.logit_std, 768f64.sqrt(), 0.05);
    assert!(wide.loss > 100.0, "{wide}");
    let findings = wide.findings();
    assert_eq!(
        (findings[0].fault, findings[0].parameters[0].as_str()),
        (Fault::LogitsTooWide, "head.weight"),
        "{wide}"
    );
    assert!(findings[0].cause.ends_with("because the output head starts at std 1.000"), "{}", findings[0].cause);
    let right = predict(768f64.powf(-0.5));
    close(right.loss, 10.877, 2e-3);
    assert!(right.check().is_ok(), "{right}");
}

/// C03: the right number is ln V + s^2/2, not ln V.
#[test]
fn the_spread_of_the_logits_costs_half_its_square() {
    for (std, loss) in [(0.0, 6.9315), (0.02, 6.9827), (0.0625, 7.4315)] {
        let head = from_fn(move |param| (param.role() == Role::OutputHead).then(|| Init::normal(std)));
        let config = TransformerConfig::new(1024, 32, 256, 2, 4).with_tied(false);
        let model = config.build(&Device::default()).unwrap();
        let predicted = model.plan(&head.or(Gpt2::new())).unwrap().predict(&config.architecture()).unwrap();
        // Norm epsilon takes 1e-3 of s^2/2, the finite vocabulary (e^(s^2) - 1)/2V.
        close(predicted.loss, loss, 1.5e-3 + (std * std * 256.0).exp_m1() / 2048.0);
        close(predicted.ln_vocab(), 6.9315, 5e-5);
    }
}

#[test]
fn a_fresh_model_is_as_predicted() {
    for (tied, seed) in [(true, 1), (false, 2)] {
        let config = TransformerConfig::new(1000, 64, 128, 6, 4).with_tied(tied).with_seed(seed);
        let model = config.init(&Device::default()).unwrap();
        let measured =
            step_zero(&random_batch(1000, 8, 64), |tokens, probe| model.forward_with(tokens, probe)).unwrap();
        let plan = config.build(&Device::default()).unwrap().plan(&config.scheme).unwrap();
        let predicted = plan.predict(&config.architecture()).unwrap();
        assert_eq!(measured.findings(), [], "{measured}");
        assert_eq!(measured.own_logit.is_some(), tied);
        assert_eq!((measured.stream.len(), measured.branches.len()), (13, 12));
        // Single seed at d = 128: +-25 % for the stream, 2 % for the logits, 0.01 nats.
        for (m, p) in measured.stream.iter().zip(&predicted.stream) {
            assert_eq!(m.point, p.point);
            close(m.second_moment / p.second_moment, 1.0, 0.25);
        }
        close(measured.logit_std / predicted.logit_std, 1.0, 0.02);
        close(measured.log_sum_exp, predicted.log_sum_exp, 0.01);
        close(measured.entropy, predicted.entropy, 0.01);
        close(measured.loss, measured.expected_loss, measured.noise);
    }
}

#[test]
fn gradients_on_or_off_measure_the_same() {
    let config = TransformerConfig::new(50, 16, 32, 2, 4);
    let measure = |device: Device| {
        let model = config.init(&device).unwrap();
        let mut batch = random_batch(50, 2, 16);
        batch.tokens = batch.tokens.to_device(&device);
        step_zero(&batch, |tokens, probe| model.forward_with(tokens, probe)).unwrap()
    };
    let (with, without) = (measure(Device::default().autodiff()), measure(Device::default()));
    // burn takes other kernels with autodiff: f32 rounding.
    close(with.loss, without.loss, 1e-6);
    close(with.logit_std, without.logit_std, 1e-6);
    assert_eq!(with.stream.len(), 5);
}

#[test]
fn branches_that_start_at_zero_copy_their_input() {
    let zero = from_fn(|param| param.writes().is_some().then_some(Init::Zeros));
    let config = TransformerConfig::new(1000, 64, 768, 2, 12);
    let model = config.build(&Device::default()).unwrap();
    let predicted = model.plan(&zero.or(Gpt2::new())).unwrap().predict(&config.architecture()).unwrap();
    assert_eq!(predicted.findings()[0].fault, Fault::CopiesInput, "{predicted}");
}

#[test]
fn a_measurement_survives_json() {
    let predicted = gpt2_small(|config| config);
    let json = serde_json::to_string(&predicted).unwrap();
    let back: StepZero = serde_json::from_str(&json).unwrap();
    close(back.loss, predicted.loss, 1e-12);
    assert_eq!(back.stream.len(), 25);
    assert_eq!(back.stream[24].point, predicted.stream[24].point);
}

#[test]
fn side_by_side() {
    let predicted = gpt2_small(|config| config);
    let table = predicted.beside(&predicted).to_string();
    let lines: Vec<_> = table.lines().collect();
    let wide = "blocks.10.attention.output.weight gradient".len();
    let row = |name: &str| {
        lines.iter().find(|line| line.starts_with(&format!("{name:<wide$} "))).unwrap_or_else(|| panic!("{table}"))
    };
    assert_eq!(lines[0], format!("{:<wide$}    measured   predicted   ratio    sds", ""));
    assert_eq!(**row("0.resid_pre"), format!("{:<wide$}   8.0000e-4   8.0000e-4   1.000   +0.0", "0.resid_pre"));
    // Six of the logits, 25 of the stream, 24 branches, twice 12 of attention, twice 25 of the stream, and the parameters.
    assert_eq!(lines.len(), 1 + 6 + 25 + 24 + 2 * 12 + 2 * 25 + predicted.gradients.len());
    let csv = predicted.beside(&predicted).to_csv();
    assert_eq!(csv.lines().next(), Some("name,measured,predicted,ratio,deviation"));
    assert_eq!(csv.lines().count(), lines.len());
    let json: Vec<serde_json::Value> = serde_json::from_str(&predicted.beside(&predicted).to_json()).unwrap();
    assert_eq!(json.len(), lines.len() - 1);
    assert_eq!(json[0]["name"], "loss");
}

fn random_batch(vocab: u64, rows: usize, length: usize) -> Batch {
    let device = Device::default();
    let random = |step: i64| {
        let values: Vec<i64> =
            (0..(rows * length) as i64).map(|i| (i * step + i * i * 7919).rem_euclid(vocab as i64)).collect();
        Tensor::<1, Int>::from_data(values.as_slice(), &device).reshape([rows, length])
    };
    Batch::new(random(104_729), random(15_485_863))
}
